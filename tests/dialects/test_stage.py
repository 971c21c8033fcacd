"""Check that a stage with fewer layers still contains its kinds of layers."""

from __future__ import annotations

import json
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dialects.stage import Chunk, Stage, StageLayer, kinds_from_json, kinds_to_json, resize_stage, stage_of
from tests.kinds import labels


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
