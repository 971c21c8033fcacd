"""Test swap's time: copies that a layer's passes do not hide, and unknown times."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, UsageError
from ms_tune.planning.fit import FitRequest
from ms_tune.planning.table import CostTable, LayerCost, plan_of
from ms_tune.planning.table_file import read_table, table_json
from ms_tune.planning.time_scale import Clock, LayerTimes, with_swap_time
from tests.planning import naive
from tests.planning.tables import CASE_E, mb

SWAP, NONE, FULL = RecomputeMode.SWAP, RecomputeMode.NONE, RecomputeMode.FULL
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
