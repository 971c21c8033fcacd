"""Micro-batches between forward and backward pass, by schedule."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ms_tune.layers.in_flight import held_by_1f1b, held_by_static_graph, most_held


def test_the_first_of_the_fullest_moments_counts() -> None:
    order = [(True, 0), (True, 1), (False, 1), (True, 1), (False, 0), (False, 1)]
    assert most_held(order, 2) == (1, 1)
    assert most_held([(True, 0), (False, 0)] * 3, 1) == (1,)
    assert most_held([], 2) == (0, 0)


@given(st.integers(1, 16), st.integers(1, 40), st.data())
def test_1f1b_warms_up_with_one_for_each_stage_behind(stages: int, micro_batches: int, data: st.DataObject) -> None:
    stage = data.draw(st.integers(0, stages - 1))
    warm_up = min(stages - stage - 1, micro_batches)
    steady = [(True, 0), (False, 0)] * (micro_batches - warm_up)
    order = [(True, 0)] * warm_up + steady + [(False, 0)] * warm_up
    assert held_by_1f1b(stage, stages, micro_batches) == most_held(order, 1)


@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 30), st.data())
def test_interleaved_it_is_the_warm_up_and_one(stages: int, chunks: int, more: int, data: st.DataObject) -> None:
    """``MemoryOptimizedReorder``: all rounds but the last chunk's, one for each stage behind, and the one at work."""
    stage, micro_batches = data.draw(st.integers(0, stages - 1)), stages + more
    held = held_by_static_graph(stage, stages, chunks, micro_batches)
    assert held is not None
    first_round = stages + micro_batches % stages
    assert sum(held) == min(first_round * (chunks - 1) + stages - stage, micro_batches * chunks)
    assert all(0 <= one <= micro_batches for one in held)


def test_fewer_micro_batches_than_stages_are_refused() -> None:
    assert held_by_static_graph(0, 4, 2, 3) is None


def test_more_passes_than_anybody_follows_are_not_followed() -> None:
    assert held_by_static_graph(0, 2, 2, 10**18) is None
    assert held_by_1f1b(1, 4, 10**18) == (3,)
