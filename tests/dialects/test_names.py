"""Operators on their way from one family of models to another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dialects import LayerSpec, SwapPlan
from ms_tune.dialects.operators import SWAP, Side, Translator, as_written, topmost, translate
from ms_tune.enums import RecomputeMode

if TYPE_CHECKING:
    from collections.abc import Iterable

LEGACY = frozenset({"attention", "attention.wq", "attention.wk", "attention.wo", "attention_norm", "only_here"})
DYNAMIC = frozenset({"self_attention", "self_attention.linear_qkv", "self_attention.linear_proj", "input_layernorm"})


def side(family: str, paths: frozenset[str], layers: int = 3) -> Side:
    def find(layer: int, pattern: str, _modules: bool) -> Iterable[str]:  # noqa: FBT001 - the protocol
        return [path for path in sorted(paths) if layer < layers and re.fullmatch(pattern, path)]

    return Side(family, family, dict.fromkeys(range(layers), paths), find)


def plan(layer: int, *patterns: str, swap: tuple[SwapPlan, ...] = ()) -> LayerSpec:
    return LayerSpec(layer=layer, stage=0, chunk=0, recompute=RecomputeMode.SELECT, select_patterns=patterns, swap=swap)


def test_names_are_those_of_the_target_by_layer() -> None:
    layers = [plan(0, r"attention\.wo"), plan(2, r"attention\.wo", "attention_norm")]
    choices = translate(layers, side("legacy", LEGACY), side("dynamic", DYNAMIC))
    assert choices.layers("select_patterns") == {"self_attention.linear_proj": [0, 2], "input_layernorm": [2]}
    assert (choices.lost, choices.wider) == ({}, {})
    assert choices.reached("select_patterns") == {0, 2}
    assert choices.reached("comm_patterns") == set()


def test_what_has_no_equivalent_is_lost_with_its_layers() -> None:
    choices = translate([plan(1, "only_here"), plan(2, "only_here")], side("legacy", LEGACY), side("dynamic", DYNAMIC))
    assert choices.lost == {("select_patterns", "only_here"): [1, 2]}
    assert choices.reached("select_patterns") == {1, 2}


def test_one_part_for_several_brings_the_others_along() -> None:
    choices = translate([plan(0, r"attention\.wq")], side("legacy", LEGACY), side("dynamic", DYNAMIC))
    assert choices.layers("select_patterns") == {"self_attention.linear_qkv": [0]}
    assert choices.wider == {("select_patterns", "attention.wk"): [0]}


def test_a_module_covers_what_is_inside_of_it() -> None:
    names, lost, wider = Translator(side("legacy", LEGACY), side("dynamic", DYNAMIC)).translate(0, {"attention"})
    assert (names, lost, wider) == (["self_attention"], [], [])


def test_swaps_keep_how_soon_they_are_fetched() -> None:
    swaps = (SwapPlan("", 2), SwapPlan(r"attention\.wo", 3))
    choices = translate([plan(1, swap=swaps)], side("legacy", LEGACY), side("dynamic", DYNAMIC))
    assert choices.named[SWAP] == {("", 2): [1], ("self_attention.linear_proj", 3): [1]}
    written = as_written([plan(1, "a.b", swap=swaps)])
    assert written.named[SWAP] == {("", 2): [1], (r"attention\.wo", 3): [1]}
    assert written.layers("select_patterns") == {"a.b": [1]}


paths = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join)


@given(st.lists(paths, max_size=12))
def test_topmost_are_in_no_other_and_cover_all(found: list[str]) -> None:
    kept = topmost(found)
    assert kept == sorted(set(kept) & set(found), key=lambda path: (path.count("."), path))
    assert not any(one.startswith(f"{other}.") for one in kept for other in kept)
    assert all(any(path == one or path.startswith(f"{one}.") for one in kept) for path in found)
