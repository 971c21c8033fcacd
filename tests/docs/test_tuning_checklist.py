"""Test docs/tuning-checklist.md: every entry of the guide has a row, and every check and command in a row exists."""

from __future__ import annotations

import re
from pathlib import Path

from ms_tune.cli import COMMANDS
from ms_tune.lint.rules import all_rules

PAGE = Path(__file__).parents[2] / "docs" / "tuning-checklist.md"
ENTRIES = 24  # of the guide: speed 8 and 7, memory 3 and 2, its way through a shortage 4 (figures come besides)
_OTHER = {"mint", "contiguous()", "sum", "zero_shard_size", "bprop", "--profile debug-memory"}


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines if not line.startswith(("| to do", "| ---"))]


def test_every_entry_has_something_that_holds_it_or_a_reason() -> None:
    found = rows()
    assert len(found) == ENTRIES + 2
    for row in found:
        assert re.search(r"`[^`]+`|nothing: \w+", row[1]), row


def test_what_a_row_names_is_there() -> None:
    checks = {rule.name for rule in all_rules()}
    names = {name for row in rows() for cell in row for name in re.findall(r"`([^`]+)`", cell)} - _OTHER
    commands = {name for name in names if name.startswith("ms-tune ")}
    assert {name.split()[1] for name in commands} <= COMMANDS.keys()
    assert names - commands - checks == set()
    assert len(names & checks) > 30
