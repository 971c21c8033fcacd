"""How findings and their fixes name places in a config."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_tune.diagnostics import dotted, last_key
from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render

if TYPE_CHECKING:
    from ms_tune.diagnostics import KeyPath


@pytest.mark.parametrize(
    ("path", "whole", "end"),
    [
        (("parallel", "dataset_strategy"), "parallel.dataset_strategy", "dataset_strategy"),
        (("recompute_config", "recompute", 1, 0), "recompute_config.recompute[1][0]", "recompute[1][0]"),
        (("callbacks", 2, "type"), "callbacks[2].type", "type"),
        ((), "", ""),
    ],
)
def test_a_path_and_its_end(path: KeyPath, whole: str, end: str) -> None:
    assert dotted(path) == whole
    assert last_key(path) == end


@pytest.mark.parametrize(
    ("language", "title"), [(Language.EN, "set 'recompute[0]' to 0"), (Language.ZH, "将“recompute[0]”设为 0")]
)
def test_the_fix_of_an_item_names_the_list(language: Language, title: str) -> None:
    config = "parallel_config: {pipeline_stage: 2}\nrecompute_config: {recompute: [-1, 0]}\n"
    findings = lint(parse_source(config, Path("a.yaml")), Dialect.MINDFORMERS, built_in(Dialect.MINDFORMERS))
    (fix,) = (finding.fix for finding in findings if finding.name == "negative-recompute")
    assert fix is not None
    assert render(fix.title, language) == title
