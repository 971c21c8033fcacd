"""Which row of the table of settings is for a value, and what it makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ms_tune.enums import Dialect
from ms_tune.facts.migration import (
    UNSET,
    Row,
    callback_row,
    callback_rows,
    is_section,
    row_for,
    rows,
    unread,
    unset_rows,
)

ROW = Row(("a", "b"), "translated")


@pytest.mark.parametrize(
    ("changes", "fitting", "others"),
    [
        ({}, [None, 0, "x", True], []),
        ({"least": 1}, [1, 2], [0, -1, True, 1.5, "1", None]),
        ({"when": (1, "x")}, [1, "x"], [True, 0, 2, None]),
        ({"when": (True, None)}, [True, None], [1, False]),
        ({"when": (2, 3), "least": 3}, [3], [2, 4]),
    ],
    ids=str,
)
def test_for_which_values_a_row_is(changes: dict[str, Any], fitting: list[object], others: list[object]) -> None:
    row = replace(ROW, **changes)
    assert [row.fits(value) for value in fitting] == [True] * len(fitting)
    assert [row.fits(value) for value in others] == [False] * len(others)


@pytest.mark.parametrize(
    ("changes", "value", "turned"),
    [
        ({}, "x", "x"),
        ({"number": True}, "1e-5", 1e-5),
        ({"number": True}, "many", "many"),
        ({"number": True}, 3, 3),
        ({"values": ((0, "zero"), ("x", 1))}, 0, "zero"),
        ({"values": ((0, "zero"), ("x", 1))}, "x", 1),
        ({"values": ((0, "zero"),)}, "y", "y"),
    ],
    ids=str,
)
def test_what_a_value_is_called_there(changes: dict[str, Any], value: object, turned: object) -> None:
    assert replace(ROW, **changes).turned(value) == turned


def test_the_innermost_row_that_fits_counts() -> None:
    """``run_mode`` has a row of its own values; what is below ``eval_dataset`` has that of the section."""
    for release in ("2.0", "2.1"):
        inner = row_for(("eval_dataset", "data_loader", "type"), "x", release)
        assert inner is not None
        assert (inner.path, inner.below) == (("eval_dataset",), True)
        assert row_for(("seed", "inner"), 1, release) is None  # not below
        assert row_for(("nothing", "of", "it"), 1, release) is None
        assert row_for((), 1, release) is None
    other = row_for(("seed",), 5, "2.1")
    assert other is not None
    assert (other.to, other.unset) == (("training", "seed"), 1)


def test_rows_are_those_of_a_release_and_of_a_dialect() -> None:
    target = ("checkpoint", "reshard_worker_num")
    assert [[row.to for row in rows(release)].count(target) for release in ("2.0", "2.1")] == [0, 1]
    before, since = (row_for(("reshard_worker_num",), 1, release) for release in ("2.0", "2.1"))
    assert (before and before.to, since and since.to) == ((), target)
    for dialect in (Dialect.MINDSPEED_MS, Dialect.MEGATRON):
        assert rows("2.1", dialect)
        assert rows("2.1", dialect) != rows("2.1")
        assert {row.path for row in unset_rows("2.1", dialect)} <= {row.path for row in rows("2.1", dialect)}


def test_rows_with_other_defaults() -> None:
    found = [*unset_rows("2.1")]
    assert ("seed",) in {row.path for row in found}
    assert all(row.unset is not UNSET for row in found)
    assert len(found) < len(rows("2.1"))


@pytest.mark.parametrize(
    ("path", "found"),
    [(("optimizer",), True), (("optimizer", "eps"), True), (("optimizer", "eps", "x"), False), (("optim",), False)],
)
def test_sections_that_rows_are_about(path: tuple[str, ...], found: bool) -> None:  # noqa: FBT001 - a column
    assert is_section(path, "2.1") is found


def test_rows_of_callbacks_are_for_one_type_and_one_key_or_any() -> None:
    found = callback_row("MFLossMonitor", "whatever", 1)
    assert found is not None
    assert (found.callback, found.fate, found.why) == ("MFLossMonitor", "default", "loss-monitor")
    assert callback_row("NoSuchMonitor", "whatever", 1) is None
    named = next(row for row in callback_rows() if row.path[0] != "*" and row.when is None and row.least is None)
    assert callback_row(named.callback, named.path[0], 1) is not None
    every = {row.callback for row in callback_rows() if row.path[0] == "*"}
    if named.callback not in every:
        assert callback_row(named.callback, "no_such_key", 1) is None


def test_fields_that_no_line_reads_are_of_a_release() -> None:
    assert unread("2.1")
    assert unread("1.9") == frozenset()
