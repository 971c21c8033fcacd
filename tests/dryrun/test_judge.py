"""What a judged stage says about one layer's recompute."""

from __future__ import annotations

import pytest

from ms_tune.dialects.stage import StageLayer
from ms_tune.enums import LayerKind, RecomputeMode


@pytest.mark.parametrize(
    ("layer", "make", "recompute"),
    [
        (StageLayer(0), LayerKind.DENSE, RecomputeMode.NONE),
        (StageLayer(0, full=True, select=("mlp",)), LayerKind.DENSE, RecomputeMode.FULL),
        (StageLayer(0, full=True, experts=True, mtp=True), LayerKind.EXPERTS, RecomputeMode.FULL),
        (StageLayer(0, communication=True), LayerKind.DENSE, RecomputeMode.COMM),
        # Neither the name of a module nor a remark says what a layer is.
        (StageLayer(0, experts=True, select=("mlp.dense_h_to_4h",)), LayerKind.EXPERTS, RecomputeMode.SELECT),
        (StageLayer(0, experts=True, remark="full recompute"), LayerKind.EXPERTS, RecomputeMode.NONE),
    ],
)
def test_what_a_layer_is_and_recomputes(layer: StageLayer, make: LayerKind, recompute: RecomputeMode) -> None:
    kind = layer.kind_in(chunk=1)
    assert (kind.cell, kind.recompute) == ((1, make), recompute)
