"""How many layers of a cell reach the last one that is wanted, by hand."""

from __future__ import annotations

import pytest

from ms_tune.dialects.draft import run_length
from ms_tune.dialects.layer_plan import LayerSpec
from ms_tune.enums import RecomputeMode


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
    layers = [LayerSpec(number, 0, 0, RecomputeMode.NONE, select_patterns=(mark,)) for number, mark in enumerate(cell)]

    def marked(mark: str, layer: LayerSpec) -> bool:
        return layer.select_patterns == (mark,)

    found = run_length(layers, start, lambda layer: marked("x", layer), lambda layer: marked("o", layer))
    assert found == length
    if "o" not in cell:
        assert run_length(layers, start, lambda layer: marked("x", layer)) == length
    elif length:
        without = run_length(layers, start, lambda layer: marked("x", layer))
        assert without == (None if "o" in cell[: cell.rindex("x")] else length)
