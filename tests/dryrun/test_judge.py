"""What a judged stage says about one layer's recompute."""

from __future__ import annotations

from ms_tune.dialects.stage import FULL_RECOMPUTE, StageLayer


def test_recomputed_layers_are_known_by_the_name_of_their_kind() -> None:
    assert FULL_RECOMPUTE in StageLayer(0, full=True).kind
    assert FULL_RECOMPUTE in StageLayer(0, full=True, experts=True, mtp=True).kind
    for layer in (StageLayer(0), StageLayer(0, select=("mlp",)), StageLayer(0, communication=True)):
        assert FULL_RECOMPUTE not in layer.kind
