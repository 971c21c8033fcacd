"""Test plans for jobs with a given number of devices."""

from __future__ import annotations

import pytest

from ms_tune.dialects import (
    MINDFORMERS,
    MINDFORMERS_PYNATIVE,
    MINDSPEED_MS,
    LayerPlan,
    LayerSpec,
    SwapPlan,
    on_devices,
    recomputes,
)
from ms_tune.enums import RecomputeMode


def plan(dialect: str) -> LayerPlan:
    layers = (
        LayerSpec(0, 0, 0, RecomputeMode.FULL, overridden=("mlp",)),
        LayerSpec(1, 0, 0, RecomputeMode.SELECT, select_patterns=("mlp",), swap=(SwapPlan("", 1),)),
        LayerSpec(2, 1, 0, RecomputeMode.NONE),
    )
    return LayerPlan(dialect, "2.1", ((2, 1),), None, layers, (), switched_on=layers)


def test_the_dynamic_graph_recomputes_and_swaps_nothing_on_one_device() -> None:
    made = on_devices(plan(MINDFORMERS_PYNATIVE), 1)
    places = ((0, 0), (1, 0), (2, 1))
    assert made.layers == tuple(LayerSpec(number, stage, 0, RecomputeMode.NONE) for number, stage in places)
    assert made.switched_on == ()
    assert made.placement == ((2, 1),)


@pytest.mark.parametrize(
    ("dialect", "devices"), [(MINDFORMERS_PYNATIVE, 2), (MINDFORMERS, 1), (MINDSPEED_MS, 1), (MINDFORMERS, 8)]
)
def test_elsewhere_layers_do_what_the_plan_says(dialect: str, devices: int) -> None:
    assert recomputes(dialect, devices)
    assert on_devices(plan(dialect), devices) == plan(dialect)
