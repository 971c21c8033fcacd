"""Options that the checklist calls overridden have their fixed value in the code (as :mod:`tests.oracle.megatron_layers` runs it)."""

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

needs_sources = pytest.mark.skipif(SOURCES not in os.environ, reason=f"{SOURCES} names no sources of MindSpeed-LLM")
_CHECKS = {one.name: one for one in built_in(Dialect.MEGATRON)}
_BASE = {
    "num_layers": "4",
    "hidden_size": "64",
    "num_attention_heads": "4",
    "micro_batch_size": "1",
    "seq_length": "64",
    "max_position_embeddings": "64",
}


def words(release: str, settings: dict[str, str]) -> list[str] | None:
    """Return settings as arguments; None if the release does not know one."""
    found = []
    for dest, value in settings.items():
        names = sorted(names_by_dest(release).get(dest, ()), key=lambda one: one.startswith("--no-"))
        if not names:
            return None
        found += [names[0]] if definitions(names[0], release)[-1].action else [names[0], value or "1"]
    return found


_OTHER = {"torch": "torch_dist", "1": "2"}  # a value that differs from the option's fixed value


def settings() -> list[tuple[str, str, str, str, str]]:
    rows = _CHECKS["option-always-overwritten"].options["settings"]
    return [tuple(row) for row in cast("list[list[str]]", rows)]  # type: ignore[misc]  # of five


@needs_sources
@pytest.mark.slow
@pytest.mark.parametrize("release", ["2.2", "2.3", "26.0", "26.1"])
def test_they_are_what_they_are_in_any_case(release: str) -> None:
    rows, base = settings(), words(release, _BASE)
    assert base is not None
    cases = []
    for dest, *_, kept, _ in rows:
        name = names_by_dest(release)[dest][0]
        cases.append([*base, name, *([] if definitions(name, release)[-1].action else [_OTHER[kept]])])
    answers = [json.loads(line) for line in run(Path(os.environ[SOURCES]) / release, cases, "settings")]
    for (dest, since, until, kept, _), answer in zip(rows, answers, strict=True):
        is_so = answer.get("settings", {}).get(dest) == kept
        assert is_so == (order(since) <= order(release) < order(until)), (dest, answer)


def test_the_option_that_lets_lengths_differ_is_another_one() -> None:
    assert names_by_dest("2.3")["no_pad_to_seq_lengths"] == ("--no-pad-to-seq-lengths",)
