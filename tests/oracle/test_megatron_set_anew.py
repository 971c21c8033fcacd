"""Options that the checklist calls set anew, held against the code that does so (as :mod:`tests.oracle.megatron_layers` runs it)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast

import pytest

from ms_tune.enums import Dialect
from ms_tune.facts.megatron import definitions, names_by_dest
from ms_tune.facts.query import order
from ms_tune.lint.checklist import built_in
from tests.oracle.make_megatron import SOURCES
from tests.oracle.megatron_layers import run

_BASE = [
    *("--num-layers", "4", "--hidden-size", "64", "--num-attention-heads", "4", "--micro-batch-size", "1"),
    *("--seq-length", "64", "--max-position-embeddings", "64"),
]
_OTHER = {"torch": "torch_dist", "1": "2"}  # than what an option is in any case


def settings() -> list[tuple[str, str, str, str, str]]:
    test = next(one for one in built_in(Dialect.MEGATRON) if one.name == "option-always-overwritten")
    return [tuple(row) for row in cast("list[list[str]]", test.options["settings"])]  # type: ignore[misc]  # of five


@pytest.mark.slow
@pytest.mark.skipif(SOURCES not in os.environ, reason=f"{SOURCES} names no sources of MindSpeed-LLM")
@pytest.mark.parametrize("release", ["2.2", "2.3", "26.0", "26.1"])
def test_they_are_what_they_are_in_any_case(release: str) -> None:
    rows = settings()
    cases = []
    for dest, *_, kept, _ in rows:
        name = names_by_dest(release)[dest][0]
        cases.append([*_BASE, name, *([] if definitions(name, release)[-1].action else [_OTHER[kept]])])
    answers = [json.loads(line) for line in run(Path(os.environ[SOURCES]) / release, cases, "settings")]
    for (dest, since, until, kept, _), answer in zip(rows, answers, strict=True):
        is_so = answer.get("settings", {}).get(dest) == kept
        assert is_so == (order(since) <= order(release) < order(until)), (dest, answer)


def test_the_option_that_lets_lengths_differ_is_another_one() -> None:
    assert names_by_dest("2.3")["no_pad_to_seq_lengths"] == ("--no-pad-to-seq-lengths",)
