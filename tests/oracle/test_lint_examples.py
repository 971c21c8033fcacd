"""Compare lint's findings in its own examples with the behaviour of each release of MindFormers.

An example contains little more than the subject of its check, so that most networks cannot be built from it. Each is
tried in several surroundings that add missing settings. Where a release accepts the good example, it must refuse the
bad one if lint reports that the run stops, at the step that lint names; and where a release refuses only the bad one,
lint must report it, by this check or another. This validates the checks' ``versions`` in both directions.

``MS_TUNE_TEST_MORE=1`` runs every release (a minute), otherwise the newest only.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.enums import Dialect
from ms_tune.facts.models import is_legacy
from ms_tune.facts.query import VERSIONS
from ms_tune.lint.checklist import Check, built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from tests.lint.few import profile_for
from tests.oracle.framework import Framework, Refusal, framework_of

CHECKS = built_in(Dialect.MINDFORMERS)
ASKED = VERSIONS if "MS_TUNE_TEST_MORE" in os.environ else VERSIONS[-1:]
# Steps of a start that show a consequence; others (the compiler, the optimizer, the data) do not run here.
STEPS = {
    "stops-reading": {"load", "trainer"},
    "stops-starting": {"load", "context", "trainer", "batches", "rules", "wrap"},
    "stops-building": {"network", "wrap"},
    "stops-or-no-effect": {"network"},
    "stops-compiling": {"network"},  # where a stand-in of an operator checks its shapes
    "hangs": {"network"},
}
PERHAPS = {"stops-or-no-effect", "stops-compiling"}
NOT_RUN = {  # sections and settings that are only checked in steps that do not run here
    "MST102": "the optimizer, which is what refuses a text in the place of a number",
    "MST206": "the data set, the optimizer and the callbacks",
    "MST208": "the callbacks",
    "MST342": "the data set",
    "MST344": "the data set",
    "MST352": "a mode of its own",
    "MST522": "MindSpore's context",
    "MST525": "MindSpore's context",
    "MST528": "the trainer's class",
    "MST533": "the device",
    "MST552": "the data set, which the rules look at before",
    "MST554": "the register of classes, which test_whole_static asks",
    "MST555": "the examples are two kinds of configs, and no surroundings fit both",
    "MST587": "a prediction, most of which comes later",
    **dict.fromkeys(
        ("MST33515", "MST33516", "MST33517", "MST33518", "MST33519", "MST567", "MST568", "MST570"),
        "the cells of a layer",
    ),
}
_TRIED = 2  # surroundings for a defect that does not stop a run
_WRAPPER = {"runner_wrapper": {"type": "MFTrainOneStepCell"}}
_SIZES = {"num_layers": 4, "num_heads": 8, "hidden_size": 64}
_CORE_SIZES = {"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 64}
_DEEPSEEK = {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}
_QWEN = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}
_MODELS: tuple[dict[str, Any], ...] = (
    {"type": "LlamaConfig"},
    {"type": "LlamaConfig", **_SIZES},
    _QWEN,
    {**_QWEN, **_CORE_SIZES},
    _DEEPSEEK,
    {**_DEEPSEEK, **_CORE_SIZES},
    {**_DEEPSEEK, "num_hidden_layers": 64},
    {**_DEEPSEEK, **_CORE_SIZES, "first_k_dense_replace": 0},
    {"type": "LlamaConfig", **_SIZES, "use_flash_attention": True},
)
SURROUNDINGS: tuple[dict[str, Any], ...] = (
    {},
    *(
        {**_WRAPPER, **parallel, "model": {"model_config": model}}
        for model in _MODELS
        for parallel in (
            {},
            {"use_parallel": True},
            {"use_parallel": True, "parallel_config": {"use_seq_parallel": True}},
        )
    ),
)


class Answer(NamedTuple):
    """The result of a release for a bad example, in surroundings in which it accepts the good one."""

    text: str
    refusal: Refusal | None


framework = framework_of(ASKED)


def filled(into: Any, more: Any) -> Any:  # noqa: ANN401 - whatever YAML holds
    """Return a config with missing sections filled in."""
    if not isinstance(into, dict) or not isinstance(more, dict):
        return into
    return {**into, **{key: filled(into[key], value) if key in into else value for key, value in more.items()}}


def placed(example: str, surroundings: dict[str, Any]) -> str | None:
    """Return an example in its surroundings; None for a text of which YAML keeps only a part."""
    if not surroundings:
        return example
    try:
        values = yaml.safe_load(example)
    except yaml.YAMLError:
        return None
    legacy = not isinstance(values, dict) or is_legacy(values)
    if legacy is not ("type" in surroundings["model"]["model_config"]):
        return None  # a network of the other kind
    values = filled(values, surroundings)
    if isinstance(values, dict) and isinstance(values.get("moe_config"), dict):
        values["moe_config"].setdefault("routing_policy", "TopkRouterV2")
    return yaml.safe_dump(values, sort_keys=False)


def answers(framework: Framework, check: Check) -> Iterator[Answer]:
    """Yield the results of the release for the bad example where it accepts the good one, up to the first refusal."""
    taken = 0
    for surroundings in SURROUNDINGS:
        bad, good = placed(check.bad, surroundings), placed(check.good, surroundings)
        if bad is None or good is None or framework.refusal(good) is not None:
            continue
        yield (answer := Answer(bad, framework.refusal(bad)))
        taken += 1
        if answer.refusal or (check.severity is not Severity.ERROR and taken == _TRIED):
            return


def findings(text: str, version: str, check: Check, checks: tuple[Check, ...]) -> tuple[Diagnostic, ...]:
    return lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, checks, version, profile_for(check))


def compare(framework: Framework, check: Check) -> str:
    """Return how the release and the check agree; assert that they do."""
    heard = list(answers(framework, check))
    if not heard:
        return "not comparable"
    refused = [answer for answer in heard if answer.refusal is not None]
    said = [one for answer in refused or heard for one in findings(answer.text, framework.version, check, (check,))]
    where = f"{check.id} {check.name}, {framework.version}"
    if said and said[0].consequence in STEPS and said[0].consequence not in PERHAPS:
        assert refused, f"{where}: taken, and lint says {said[0].consequence}\n{heard[0].text}"
    if not refused:
        return "taken" if said else "taken, not told"
    # A refusal for this reason must be reported as an error, by any check.
    steps = {answer.refusal.step for answer in refused if answer.refusal}
    if said and said[0].consequence in STEPS:
        assert steps & STEPS[said[0].consequence], f"{where}: refused at {steps}\n{refused[0]}"
        return "refused"
    others = findings(refused[0].text, framework.version, check, CHECKS)
    assert any(one.consequence in STEPS for one in others), f"{where}: {refused[0].refusal}\n{refused[0].text}"
    return "refused, told by another check"


@pytest.mark.slow
def test_examples(framework: Framework) -> None:
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    left: list[str] = []
    for check in CHECKS:
        if check.id in NOT_RUN:
            continue
        try:
            how = compare(framework, check)
        except AssertionError as error:
            wrong.append(str(error).partition("\nassert")[0])
            continue
        seen[how] += 1
        left += [check.id] if how == "not comparable" else []
    assert not wrong, "\n\n".join(wrong)
    assert seen["refused"] > 70
    # Older releases do not have all models of the surroundings.
    assert seen["not comparable"] < len(CHECKS) // 5
    assert not left or framework.version != VERSIONS[-1], "what cannot be compared has its reason in NOT_RUN"
