"""Test the times of a table from the layers of a profile, and the report of their coverage."""

from __future__ import annotations

import pytest

from ms_tune.enums import RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.planning.table import StageEnd
from ms_tune.planning.time_scale import Clock, LayerTimes, ProfiledLayer, with_layers, with_times
from ms_tune.text import Language, render
from tests.planning.tables import CASE_E

BODY = CASE_E.layers[0]._replace(name="dense", layer_count=2, forward=1000)
# Four micro-batches; layers 0 and 1 are dense, 2 to 4 have experts.
TABLE = CASE_E._replace(
    stages=2,
    micro_batches=4,
    layers=(BODY, BODY._replace(name="experts", layer_count=3, forward=1500)),
    head=StageEnd(),
    tail=StageEnd(forward=500),
)


def test_layers_that_recompute_nothing_all_and_some() -> None:
    plain, whole = ProfiledLayer(0, 8.0, 20.0, 0.0), ProfiledLayer(1, 0.0, 22.0, 17.0)
    some = [ProfiledLayer(2, 10.0, 30.0, 4.0), ProfiledLayer(4, 12.0, 34.0, 4.0)]
    clock = with_layers(Clock(9.0, layers=(plain, whole, *some)), TABLE)
    assert clock.step_seconds == 9.0
    assert clock.times == {
        "dense": LayerTimes(2.0, {RecomputeMode.NONE: 21 / 4, RecomputeMode.FULL: (21 + 17 / 2) / 4}),
        "experts": LayerTimes((12 + 14) / 2 / 4, {RecomputeMode.NONE: 32 / 4}),
        # 500 compared with the 1000 of a dense layer: of two kinds with equally many layers the first one counts.
        "tail": LayerTimes(1.0),
    }
    first, second = (render(note, Language.EN) for note in clock.notes)
    assert "dense 2 / none 5.25 | full 7.375 ms (2/2), experts 3.25 / none 8 ms (2/3)" in first
    assert second == "Not measured, but derived from dense by relative times: tail 1 ms forward."
    table = with_times(TABLE, clock.times, "here")
    dense = table.layers[0]
    assert 2 * dense.forward * (1 + dense.recompute[RecomputeMode.FULL].backward_extra) == pytest.approx(7.375)
    assert with_layers(clock, table) == clock  # nothing remains to report


def test_a_kind_that_was_not_captured_and_times_of_the_user() -> None:
    given = {"tail": LayerTimes(7.0)}
    clock = with_layers(Clock(9.0, given, (ProfiledLayer(3, 12.0, 24.0, 0.0),)), TABLE)
    assert clock.times["dense"].forward == pytest.approx(2.0)
    assert not clock.times["dense"].backward
    assert clock.times["experts"] == LayerTimes(3.0, {RecomputeMode.NONE: 6.0})
    assert clock.times["tail"] == given["tail"]
    assert "derived from experts by relative times: dense 2 ms forward" in render(clock.notes[1], Language.EN)


def test_a_layer_of_which_both_show_is_as_the_user_says() -> None:
    seen = (ProfiledLayer(0, 8.0, 20.0, 0.0), ProfiledLayer(1, 8.0, 20.0, 0.0), ProfiledLayer(2, 16.0, 32.0, 0.0))
    clock = with_layers(Clock(9.0, {"dense": LayerTimes(7.0)}, seen), TABLE)
    assert clock.times["dense"] == LayerTimes(7.0)
    assert clock.times["tail"] == LayerTimes(3.5)  # compared with the 7 ms that count
    layers, rest = (render(note, Language.EN) for note in clock.notes)
    assert "dense" not in layers
    assert "derived from dense by relative times: tail 3.5 ms" in rest
    assert not with_layers(Clock(9.0, dict.fromkeys(("dense", "tail", "experts"), LayerTimes(7.0)), seen), TABLE).notes


def test_of_another_model() -> None:
    with pytest.raises(UsageError, match="contains layer 5, but the model has 5 layers"):
        with_layers(Clock(9.0, layers=(ProfiledLayer(5, 1.0, 1.0, 0.0),)), TABLE)


@pytest.mark.parametrize("seen", [None, ()])
def test_a_log_and_a_profile_without_scopes(seen: tuple[ProfiledLayer, ...] | None) -> None:
    clock = Clock(9.0, layers=seen)
    assert with_layers(clock, TABLE) == clock
