"""How many layers of a cell reach the last one that is wanted, by hand."""

from __future__ import annotations

import pytest

from ms_tune.dialects.draft import run_length


@pytest.mark.parametrize(
    ("cell", "start", "length"),
    [
        ("", 0, 0),
        ("...", 0, 0),
        ("...", 2, 0),
        ("xx.", 0, 2),
        ("xxx", 0, 3),
        (".x.", 1, 1),
        (".x.", 0, None),  # one before it is not wanted
        ("x.x", 0, None),
        ("x..", 1, None),  # one is wanted before the place
        ("xx", 1, None),
        (".x", 2, None),
        ("oxx", 0, 3),  # for some it makes no difference
        ("xox", 0, 3),
        ("xo.", 0, 1),
        ("ooo", 0, 0),
    ],
)
def test_layers_up_to_the_last_that_is_wanted(cell: str, start: int, length: int | None) -> None:
    wanted, idle = ([number for number, mark in enumerate(cell) if mark == wanted] for wanted in "xo")
    assert run_length(range(len(cell)), start, wanted, idle) == length
    without = run_length(range(len(cell)), start, wanted)
    if "o" not in cell:
        assert without == length
    elif length:
        assert without == (None if "o" in cell[: cell.rindex("x")] else length)
