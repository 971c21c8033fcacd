"""Test plans of layers: their stages, arrays and messages as the frameworks print them, and the example of the documentation."""

from __future__ import annotations

import doctest
import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from ms_tune.dialects.draft import name_ranges
from ms_tune.dialects.mindformers.placement import RecomputeInputs, RecomputeValues, SwapValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.dialects.stage import Chunk, Stage, StageLayer, kinds_from_json, kinds_to_json, resize_stage, stage_of
from ms_tune.dialects.values import array_repr, array_text
from ms_tune.enums import RecomputeMode
from tests.kinds import labels


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


def test_arrays_of_any_length_are_broken_as_numpy_breaks_them() -> None:
    numpy = pytest.importorskip("numpy")
    drawn = Random(5)  # noqa: S311 - made-up arrays, no secrets
    for length in range(1, 120):
        most = 10 ** drawn.randrange(1, 8)
        numbers = [drawn.randrange(most // 2, most) for _ in range(length)]
        array = numpy.array(numbers, numpy.int32)
        assert array_text((length,), numbers) == str(array)
        assert array_repr(numbers) == repr(array)
        assert array_text((1, length), numbers) == str(array.reshape(1, length))


def test_words_longer_than_a_line_have_lines_of_their_own() -> None:
    numpy = pytest.importorskip("numpy")
    for lengths in ((80, 80), (73, 74, 75), (76, 1), (1, 76, 1)):
        words = [letter * length for letter, length in zip("abc", lengths, strict=False)]
        array = numpy.array([word.rjust(max(lengths)) for word in words], object)
        shown = numpy.array2string(array, formatter={"object": str})
        assert array_text((len(words),), words) == shown, lengths


FEW = [(4, "2 > 1, 3 > 1, 4 > 1, 5 > 1"), (5, "2 > 1, 3 > 1, 4 > 1, 5 > 1, …")]
MANY = [(8, "0, 1, 2, 3, 4, 5, 6, 7"), (9, "0, 1, 2, 3, 4, 5, 6, 7, …")]


def parameters(inputs: RecomputeInputs, problem: str) -> dict[str, object]:
    (found,) = [one for one in normalize(inputs).problems if one.id == problem]
    return dict(found.message.params)


@pytest.mark.parametrize(("count", "ranges"), [(8, "0, 2, 4, 6, 8, 10, 12, 14"), (9, "0, 2, 4, 6, 8, 10, 12, 14, …")])
def test_ranges_of_layers(count: int, ranges: str) -> None:
    assert name_ranges(range(0, 2 * count, 2)) == ranges


@pytest.mark.parametrize(("count", "layers"), MANY)
def test_layers_that_swap_what_they_recompute(count: int, layers: str) -> None:
    swap = SwapValues(swap=True, layer_swap=[{"backward_prefetch": 1, "layers": True}])
    inputs = RecomputeInputs(layers=count, values=RecomputeValues(recompute=True), swap=swap)
    assert parameters(inputs, "swap-recomputed") == {"layers": layers}


@pytest.mark.parametrize(("count", "numbers"), FEW)
def test_counts_above_those_of_the_cells(count: int, numbers: str) -> None:
    """Stage 0 has one layer and two are requested, three for stage 1, and so on."""
    inputs = RecomputeInputs(layers=count, stages=count, values=RecomputeValues(recompute=list(range(2, count + 2))))
    assert parameters(inputs, "count-clamped") == {"name": "recompute", "counts": numbers}


PAGE = Path(__file__).parents[2] / "docs" / "normalize-recompute.md"


def test_the_documented_example() -> None:
    outcome = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert outcome.attempted >= 6
    assert outcome.failed == 0


def layer(number: int, kind: str) -> StageLayer:
    return StageLayer(number, experts="e" in kind, full="f" in kind, communication="c" in kind)


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    kinds = draw(st.lists(st.lists(st.sampled_from(["", "f", "e", "ef", "c"]), max_size=12), min_size=1, max_size=3))
    chunks, number = [], 0
    for chunk in kinds:
        layers = [layer(number + index, kind) for index, kind in enumerate(chunk)]
        number += len(chunk)
        chunks.append(Chunk(tuple(layers)))
    last = StageLayer(number, mtp=True)
    chunks[-1] = Chunk((*chunks[-1].layers, last), head=True)
    return Stage(0, 1, tuple(chunks))


@given(stages(), st.integers(1, 40))
def test_it_has_as_many_layers_as_asked_for(stage: Stage, wanted: int) -> None:
    made = resize_stage(stage, wanted)
    assert made.layers == (wanted if stage.layers else 0)
    assert sum(made.kinds.values()) == made.layers
    assert [one for chunk in made.chunks for one in chunk.layers if one.mtp] == [stage.chunks[-1].layers[-1]]
    for chunk in made.chunks:
        numbers = [one.number for one in chunk.layers]
        assert numbers == sorted(numbers)


@given(stages(), st.integers(1, 40))
def test_every_kind_stays_while_there_is_room(stage: Stage, wanted: int) -> None:
    kinds = resize_stage(stage, wanted).kinds
    assert len(kinds) == min(wanted if stage.layers else 0, len(stage.kinds))


@given(stages(), st.integers(1, 40))
def test_one_more_layer_is_one_more_of_one_kind(stage: Stage, wanted: int) -> None:
    if not stage.layers:
        return
    before, after = Counter(resize_stage(stage, wanted).kinds), Counter(resize_stage(stage, wanted + 1).kinds)
    assert sum((after - before).values()) == 1
    assert not before - after


def test_chunks_are_kinds_of_their_own() -> None:
    placed = [
        (chunk, stage, StageLayer(4 * chunk + 2 * stage + i)) for chunk in (0, 1) for stage in (0, 1) for i in (0, 1)
    ]
    stage = stage_of(placed, 1, 2, 2)
    assert [[one.number for one in chunk.layers] for chunk in stage.chunks] == [[2, 3], [6, 7]]
    assert [(chunk.embedding, chunk.head) for chunk in stage.chunks] == [(False, False), (False, True)]
    assert labels(stage.kinds) == {"chunk 0, dense": 2, "chunk 1, dense": 2}
    first = stage_of(placed, 0, 2, 2)
    assert [(chunk.embedding, chunk.head) for chunk in first.chunks] == [(True, False), (False, False)]


@given(stages())
def test_kinds_come_back_from_json_as_they_went(stage: Stage) -> None:
    assert kinds_from_json(json.loads(json.dumps(kinds_to_json(stage.kinds)))) == stage.kinds


def test_a_kind_in_words() -> None:
    both = StageLayer(0, experts=True, select=("a", "b"), communication=True, remark="swap all (1)")
    assert both.kind_in(11).label == "chunk 11, moe, select recompute a b, communication recompute, swap all (1)"
    assert both._replace(full=True).kind_in(None).label == "moe, full recompute, swap all (1)"
