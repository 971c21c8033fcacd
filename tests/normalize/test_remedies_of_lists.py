"""What is proposed for lists of the static graph that are of no form the framework takes, with swap on and off."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.config.source import parse_source
from ms_tune.normalize.source import normalize_source
from tests.normalize.test_remedies import STATIC, assert_hint

OTHER = "{op_name: a, layers: [1], backward_prefetch: 1}"
LAYER = "{layers: [1], backward_prefetch: 1}"


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        (f"layer_swap: [3, {LAYER}]", f"layer_swap: [{LAYER}]"),
        (f"default_prefetch: 3, layer_swap: [3, {LAYER}]", f"layer_swap: [{LAYER}]"),  # one of its own stays
        (f"op_swap: [{{op_name: 3, layers: [1], backward_prefetch: 1}}, {OTHER}]", f"op_swap: [{OTHER}]"),
        (f"op_swap: [{LAYER}, {OTHER}]", f"op_swap: [{OTHER}]"),
        (
            "op_swap: [{op_name: [a, b], layers: [1], backward_prefetch: 0}]",
            "op_swap[0]: {op_name: [a, b], layers: [1], backward_prefetch: 1}",
        ),
        (
            "layer_swap: [{layers: ['1', 2], backward_prefetch: 1}]",
            "layer_swap[0]: {layers: [1, 2], backward_prefetch: 1}",
        ),
        (
            "layer_swap: [{layers: True, backward_prefetch: 1}, {layers: [2], backward_prefetch: 2}]",
            "layer_swap[1]: {layers: [2], backward_prefetch: 1}",
        ),
        ("layer_swap: [{layers: [1]}], default_prefetch: 3", "layer_swap[0]: {layers: [1], backward_prefetch: 3}"),
        (
            "layer_swap: {layers: [1]}, default_prefetch: 0",
            f"default_prefetch: 1; swap_config.layer_swap: {LAYER}",
        ),
    ],
)
def test_entries_of_swap(settings: str, hint: str) -> None:
    assert_hint(f"{STATIC}  recompute: False\nswap_config: {{swap: True, {settings}}}\n", f"swap_config.{hint}")


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ("recompute: [0, 99, x]", "recompute: [0]"),
        (
            "select_recompute: {a: True, b: False}",
            "select_recompute.a: [0, 1, 2, 3, 4, 5, 6, 7]; recompute_config.select_recompute.b: []",
        ),
    ],
)
def test_with_swap_on_lists_are_of_layers(settings: str, hint: str) -> None:
    text = f"{STATIC}  recompute: False\n  {settings}\nswap_config: {{swap: True, layer_swap: []}}\n"
    text = text.replace("  recompute: False\n", "") if settings.startswith("recompute") else text
    assert_hint(text, f"recompute_config.{hint}")


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ("select_recompute: mlp", "select_recompute: {mlp: true}"),
        ("select_recompute: {'(': [1, 1, 1, 1], a: True}", "select_recompute: {a: true}"),
        ("select_recompute: ['(', a]", "select_recompute: [a]"),
        ("select_recompute: ['(']", "select_recompute: False"),
    ],
)
def test_patterns(settings: str, hint: str) -> None:
    assert_hint(f"{STATIC}  recompute: False\n  {settings}\n", f"recompute_config.{hint}")


def test_who_asks_for_no_remedy_gets_none() -> None:
    source = parse_source(
        f"{STATIC}  recompute: [9, 1, 0]\n".replace("offset: 0", "offset: [1, 1, 0, 0]"), Path("c.yaml")
    )
    told, bare = (normalize_source(source, hints=hints).problems[0] for hints in (True, False))
    assert told.hint is not None
    assert bare.hint is None
    assert bare.message == told.message
