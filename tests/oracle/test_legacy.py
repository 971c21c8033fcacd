"""Compare ``use_legacy`` with every place in which a release reads it: the template, the context, ``moe_config``, the network."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.facts.models import is_legacy
from ms_tune.facts.query import VERSIONS
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from tests.jobs import startup_of
from tests.oracle.framework import Framework, framework_of

WRITTEN = ("", "True", "False", "null", "0", "1", "0.0", '""', '"False"', "[]", "[0]", "{}")
CHECKS = tuple(one for one in built_in(Dialect.MINDFORMERS) if one.id in ("MST555", "MST556"))
EXPERTS = ("", "moe_config: {expert_num: 1}\n", "moe_config: {num_experts_chosen: 1}\n")
_REST = """
run_mode: train
use_parallel: True
model:
  arch: {type: LlamaForCausalLM}
  model_config:
    {type: LlamaConfig, model_type: qwen3, architectures: [Qwen3ForCausalLM], num_layers: 4, hidden_size: 64, num_heads: 8}
runner_wrapper: {type: MFTrainOneStepCell}
"""


framework = framework_of(VERSIONS, "static_child")


@pytest.mark.slow
def test_every_place_that_asks(framework: Framework) -> None:
    both = [
        *itertools.product(WRITTEN, ("",)),
        *itertools.product(("", "True", "False", "null"), ("True", "False", "null", "0")),
    ]
    for number, (top, inner) in enumerate(both):
        text = f"use_legacy: {top}\n" * bool(top) + f"context: {{use_legacy: {inner}}}\n" * bool(inner)
        text = EXPERTS[number % len(EXPERTS)] + text + _REST
        source, answer = parse_source(text, Path("a.yaml")), framework.ask(text)
        asked = answer["legacy"]
        assert asked["network"] is is_legacy(source.data), text
        assert {asked["template"], asked["sections"]} == {startup_of(source, framework.version).fills_experts}, text
        stops = answer.get("error") == "TypeError" and "MoEConfig" in answer["text"]
        ids = {one.id for one in lint(source, Dialect.MINDFORMERS, CHECKS, framework.version)}
        assert ("MST556" in ids) is stops, f"{text}{answer}"
        odd = [value for value in (top, inner) if value not in ("", "True", "False", "null")]
        assert ("MST555" in ids) is bool(odd), text
