"""Test times: of a profile, of swap, and the scale of a table's times."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, UsageError
from ms_tune.planning.fit import FitRequest, time_of
from ms_tune.planning.table import CostTable, LayerCost, StageEnd, plan_of
from ms_tune.planning.table_file import read_table, table_json
from ms_tune.planning.time_scale import (
    Clock,
    LayerTimes,
    ProfiledLayer,
    parse_step,
    with_layers,
    with_swap_time,
    with_times,
)
from ms_tune.text import Language, render
from tests.planning import naive
from tests.planning.tables import CASE_E, mb

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
    table = with_times(TABLE, clock.times)
    dense = table.layers[0]
    assert 2 * dense.forward * (1 + dense.recompute[RecomputeMode.FULL].backward_extra) == pytest.approx(7.375)
    assert with_layers(clock, table) == clock  # nothing remains to report


def test_a_kind_that_was_not_captured() -> None:
    clock = with_layers(Clock(9.0, layers=(ProfiledLayer(3, 12.0, 24.0, 0.0),)), TABLE)
    assert clock.times["dense"].forward == pytest.approx(2.0)
    assert not clock.times["dense"].backward
    assert clock.times["experts"] == LayerTimes(3.0, {RecomputeMode.NONE: 6.0})
    assert "derived from experts by relative times: dense 2 ms, tail 1 ms forward" in render(
        clock.notes[1], Language.EN
    )


def test_of_another_model() -> None:
    with pytest.raises(UsageError, match="contains layer 5, but the model has 5 layers"):
        with_layers(Clock(9.0, layers=(ProfiledLayer(5, 1.0, 1.0, 0.0),)), TABLE)


@pytest.mark.parametrize("seen", [None, ()])
def test_a_log_and_a_profile_without_scopes(seen: tuple[ProfiledLayer, ...] | None) -> None:
    clock = Clock(9.0, layers=seen)
    assert with_layers(clock, TABLE) == clock


NONE, FULL, COMM = RecomputeMode.NONE, RecomputeMode.FULL, RecomputeMode.COMM
TIMES = {"body": LayerTimes(10.0), "head": LayerTimes(4.0), "tail": LayerTimes(6.0)}


def test_what_a_measured_step_takes_next_to_its_measured_passes_stays() -> None:
    clock = Clock(12.0, TIMES)
    assert clock.seconds(8000.0, 10_000.0) == 10.0
    assert clock.seconds(10_000.0, 10_000.0) == 12.0
    with pytest.raises(UsageError, match=r"passes of 12\.5 s, more than the measured step of 12 s"):
        clock.check(has_present=True, reference=12_500.0)


def test_a_table_in_milliseconds() -> None:
    """Four equal stages: a pipeline of m micro-batches takes m + p - 1 times a stage's passes."""
    even = CASE_E._replace(head=CASE_E.head._replace(forward=0), tail=CASE_E.tail._replace(forward=0))
    table = with_times(even, {"body": LayerTimes(10.0, {NONE: 25.0})})
    assert table.layers[0].recompute == {
        NONE: CASE_E.layers[0].recompute[NONE]._replace(backward_extra=0.25),
        FULL: CASE_E.layers[0].recompute[FULL]._replace(backward_extra=0.75),
    }
    plain, full = [{NONE: 20}] * 4, [{FULL: 20}] * 4
    assert time_of(table, plain) == pytest.approx((8 + 3) * 20 * 35)
    # One forward pass more, which is the table's figure.
    assert time_of(table, full) == pytest.approx((8 + 3) * 20 * 45)
    own = with_times(even, {"body": LayerTimes(10.0, {NONE: 25.0, FULL: 34.0})})
    assert time_of(own, full) == pytest.approx((8 + 3) * 20 * 44)
    short = with_times(even, {"body": LayerTimes(10.0, {NONE: 15.0})})
    assert time_of(short, plain) == pytest.approx((8 + 3) * 20 * 25)


@pytest.mark.parametrize(
    ("text", "seconds"), [("step=11.5s", 11.5), ("step=11500ms", 11.5), ("step = 2 min", 120.0), ("step=40us", 4e-5)]
)
def test_a_measured_step_is_read(text: str, seconds: float) -> None:
    assert parse_step(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "11.5s", "step=11.5", "step=0s", "step=-1s", "step=1e9s", "step=nan s", "step=99999999s", "steps=1s"]
)
def test_what_is_no_step_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a step"):
        parse_step(text)


SWAP, LIGHT, FULL = RecomputeMode.SWAP, RecomputeMode.NONE, RecomputeMode.FULL
GB = 1024**3


def with_swap(swapped: int = mb(700), **more: float) -> CostTable:
    """Return the public case E with layers that may swap."""
    (layer,) = CASE_E.layers
    kept = LayerCost(mb(40), swapped_bytes=swapped, **more)  # type: ignore[arg-type] # parts of a time
    return CASE_E._replace(layers=(layer._replace(recompute={**layer.recompute, SWAP: kept}),))


def written(table: CostTable, *, bare: bool = False) -> str:
    """Return the table as JSON; ``bare``: without the fields for swap."""
    found: Any = table_json(table)
    for layer in found["layers"] if bare else ():
        for key in ("forward_extra", "backward_extra"):
            del layer["recompute"]["swap"][key]
    return json.dumps(found)


@pytest.mark.parametrize(
    ("copies", "forward", "backward"), [(0.5, 0.0, 0.0), (1.0, 0.0, 0.0), (1.5, 0.5, 0.0), (2.5, 1.5, 0.25), (8, 7, 3)]
)
def test_a_pass_takes_as_long_as_the_longer_of_computation_and_copies(
    copies: float, forward: float, backward: float
) -> None:
    table = with_swap_time(with_swap(swapped=1_000_000), 1_000_000 / copies, "here")
    kept = table.layers[0].recompute[SWAP]
    assert (kept.forward_extra, kept.backward_extra) == (forward, backward)


def test_a_link_that_is_far_too_slow_is_refused() -> None:
    with pytest.raises(ConfigError, match="times as long as computing it"):
        with_swap_time(with_swap(), mb(1), "here")


def test_a_table_that_says_nothing_of_the_time_of_swap_needs_a_bandwidth_and_seconds() -> None:
    text = written(with_swap(), bare=True)
    with pytest.raises(ConfigError, match="the cost of swap is unknown"):
        read_table(text, "here")
    with pytest.raises(UsageError, match="relative times"):
        FitRequest(swap_bandwidth=20 * GB).table_of(text, "here")
    times = {name: LayerTimes(1.0) for name in ("body", "head", "tail")}
    kept = (
        FitRequest(swap_bandwidth=20 * GB, clock=Clock(times=times)).table_of(text, "here")[0].layers[0].recompute[SWAP]
    )
    copies = 1000 * mb(700) / (20 * GB)  # milliseconds
    assert (kept.forward_extra, kept.backward_extra) == pytest.approx((copies - 1, copies / 2 - 1), abs=1e-5)


def test_a_bandwidth_without_swap_is_refused() -> None:
    clock = Clock(times={name: LayerTimes(1.0) for name in ("body", "head", "tail")})
    with pytest.raises(ConfigError, match="no layer of the table has the kind 'swap'"):
        FitRequest(swap_bandwidth=GB, clock=clock).table_of(json.dumps(table_json(CASE_E)), "here")


def test_a_measured_step_of_a_plan_that_swaps_has_its_copies_in_it() -> None:
    table = with_swap()
    cells = [{SWAP: 20}] * 4
    table = table._replace(present=plan_of(table, cells))
    found = FitRequest(swap_bandwidth=20 * GB, clock=Clock(step_seconds=20.0)).table_of(written(table), "here")[0]
    unit = 20.0 / float(naive.time_of(found, cells))  # seconds
    forward = found.layers[0].forward * unit
    kept = found.layers[0].recompute[SWAP]
    copies = mb(700) / (20 * GB)
    assert kept.forward_extra == pytest.approx(max(copies / forward, 1) - 1, abs=1e-4)
    assert not math.isclose(kept.forward_extra, 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"swap": {"activation_bytes": 1}}, "swapped_bytes"),
        ({"swap": {"activation_bytes": 1, "swapped_bytes": -1, "backward_extra": 0}}, "swapped_bytes"),
        ({"swap": {"activation_bytes": 1, "swapped_bytes": 1, "forward_extra": 1e9}}, "forward_extra"),
        ({"full": {"activation_bytes": 1, "swapped_bytes": 1}}, "swapped_bytes"),
        ({"swap": {"activation_bytes": 10**13, "swapped_bytes": 1, "backward_extra": 0}}, "more than the"),
    ],
)
def test_rows_of_swap_that_make_no_sense_are_refused(change: dict[str, object], words: str) -> None:
    found: Any = table_json(with_swap())
    found["layers"][0]["recompute"].update(change)
    with pytest.raises(ConfigError, match=words):
        read_table(json.dumps(found), "here")
