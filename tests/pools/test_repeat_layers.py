"""Test runs with many layers, made from two runs that differ by a layer."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.pools.mindspore_pool import MindSporePool, MindSporeSettings
from ms_tune.pools.pool import replay_workload
from ms_tune.pools.repeat_layers import RepeatedClock, match_events, repeat_layers
from ms_tune.pools.workload import Request, Workload, free_order_variants, make_workload
from ms_tune.units import MIB


def trained(  # noqa: C901 - the shape of a training step
    layers: int, steps: int = 2, micro_batches: int = 2, *, recomputed: bool = False, late: bool = False
) -> tuple[Workload, list[str]]:
    """Return an invented training run: weights, a gradient buffer, and in each step forward, backward and update."""
    tick, requests, names = 0, [], []
    ends: dict[int, int] = {}

    def make(name: str, mib: int) -> int:
        nonlocal tick
        tick += 1
        requests.append(Request(mib * MIB, tick, None, persistent=name in {"weight", "state", "buffer"}))
        names.append(name)
        return len(requests) - 1

    def free(block: int) -> None:
        nonlocal tick
        tick += 1
        ends[block] = tick

    for _ in range(layers):
        make("weight", 30)
    make("head", 50)
    make("buffer", 60 * layers)
    for step in range(steps):
        for _ in range(micro_batches):
            hidden, kept = make("embed", 7), []
            for _ in range(layers):
                inner = [make("attention", 11), make("mlp", 23)]
                outer = make("hidden", 7)
                if recomputed:
                    for block in inner:
                        free(block)
                    inner = []
                kept.append((hidden, inner))
                hidden = outer
            grad = make("loss", 90)
            if not late:
                free(hidden)
            for before, inner in reversed(kept):
                again = inner or [make("attention again", 11), make("mlp again", 23)]
                below = make("grad", 8)
                for block in (*again, before, grad):
                    free(block)
                grad = below
            free(grad)
            if late:  # the output of the last layer is kept until the end of the backward pass
                free(hidden)
        for _ in range(layers):
            if not step:
                make("state", 60)
            free(make("update", 31))
    done = [request._replace(end=ends.get(number)) for number, request in enumerate(requests)]
    return make_workload(done), names


def lives(work: Workload) -> list[tuple[int, int | None]]:
    """Return the sizes in order, and the request of each release: everything except ticks."""
    return [(work.requests[event].size, None) if event >= 0 else (-1, ~event) for event in work.schedule]


@pytest.mark.parametrize("recomputed", [False, True])
@given(first=st.integers(2, 3), more=st.integers(1, 12), steps=st.integers(1, 3), micro=st.integers(1, 3))
def test_what_is_made_is_the_run_with_all_layers(
    first: int, more: int, steps: int, micro: int, *, recomputed: bool
) -> None:
    (small, called), (large, called_too), (whole, _) = (
        trained(layers, steps, micro, recomputed=recomputed) for layers in (first, first + 1, first + 1 + more)
    )
    made = repeat_layers(small, large, (called, called_too), first, more)
    assert made is not None
    work = made.work
    settings = MindSporeSettings()
    one, other = replay_workload(work, MindSporePool(settings)), replay_workload(whole, MindSporePool(settings))
    assert len(work.requests) == len(whole.requests)
    assert one.used_peak == other.used_peak
    assert one.actual_peak == pytest.approx(other.actual_peak, rel=0.02)


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize("expected", [3, 50])  # maximum number of layers: there are three
def test_everything_is_made_and_freed_in_the_order_of_the_whole_run(expected: int, *, recomputed: bool) -> None:
    (small, called), (large, called_too), (whole, _) = (trained(layers, recomputed=recomputed) for layers in (3, 4, 8))
    made = repeat_layers(small, large, (called, called_too), expected, 4)
    assert made is not None
    work = made.work
    assert lives(work) == lives(whole)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("recomputed", [False, True])
def test_every_request_has_the_ticks_and_the_name_of_the_whole_run(*, recomputed: bool, late: bool) -> None:
    (small, called), (large, called_too), (whole, names) = (
        trained(layers, recomputed=recomputed, late=late) for layers in (3, 4, 8)
    )
    made = repeat_layers(small, large, (called, called_too), 3, 4)
    assert made is not None
    assert made.work.requests == whole.requests
    assert [called_too[origin.block] for origin in made.origins] == names


def test_runs_that_are_no_part_of_each_other_make_nothing() -> None:
    (small, called), (large, called_too) = trained(2), trained(3)
    assert repeat_layers(large, small, (called_too, called), 3, 1) is None
    assert repeat_layers(small, large, (called[::-1], called_too), 2, 1) is None


def test_ticks_between_stretches_are_in_none() -> None:
    clock = RepeatedClock(np.array([10, 30]), np.array([5, 6]), 3)
    assert clock.find_stretches(np.array([9, 10, 14, 15, 30, 35, 36])).tolist() == [-1, 0, 0, -1, 1, 1, -1]


def test_empty_cache_is_not_repeated() -> None:
    (small, called), (large, called_too) = trained(2), trained(3)
    assert repeat_layers(small._replace(releases=(1,)), large, (called, called_too), 2, 1) is None


def test_what_would_take_too_long_is_left() -> None:
    (small, called), (large, called_too) = trained(2), trained(3)
    assert repeat_layers(small, large, (called, called_too), 2, 10**6) is None


def longest_common(one: str, other: str) -> int:
    """Return the length of the longest common subsequence, by the textbook's table."""
    row = [0] * (len(other) + 1)
    for letter in one:
        before = row
        row = [0]
        for place, candidate in enumerate(other):
            row.append(before[place] + 1 if letter == candidate else max(row[place], before[place + 1]))
    return row[-1]


@given(st.text("abcd", max_size=12), st.text("abcd", max_size=16), st.integers(0, 6))
def test_each_has_a_place_and_the_fewest_are_out_of_order(small: str, large: str, most: int) -> None:
    out_of_order = len(small) - longest_common(small, large)
    missing = any(small.count(letter) > large.count(letter) for letter in small)
    found = match_events(small, large, most)
    assert (found is None) == (missing or out_of_order > most)
    if found is not None:
        assert len(set(found)) == len(small)
        assert [large[place] for place in found] == list(small)


def test_what_keeps_its_order_is_found_as_early_as_it_can_be() -> None:
    assert match_events("abc", "aabbcc", 0) == [0, 2, 4]


def test_one_that_moved_is_found_where_it_is_nearest() -> None:
    assert match_events("abcxd", "xabcdx", 1) == [1, 2, 3, 5, 4]


def test_runs_beyond_all_bounds_are_not_compared() -> None:
    assert match_events(range(100_001), range(100_001), 1) is None


def make_requests(*lives: tuple[int, int, int | None]) -> Workload:
    """Return requests of these sizes, each with its start and end."""
    return make_workload(Request(size, start, end) for size, start, end in lives)


def test_either_of_two_alike_blocks_may_live_longer() -> None:
    work = make_requests((512, 0, 3), (512, 1, 9), (1024, 2, 4))
    found = [[request.end for request in other.requests] for other in free_order_variants(work)]
    assert sorted(map(str, found)) == ["[3, 9, 4]", "[9, 3, 4]"]


def test_what_is_not_alike_stays() -> None:
    for second in (
        Request(1024, 1, 9),  # another size
        Request(512, 1, 9, stream=1),
        Request(512, 1, 9, persistent=True),
        Request(512, 1, 3),  # freed together
    ):
        assert list(free_order_variants(make_workload([Request(512, 0, 3), second]))) == []
    apart = make_requests((512, 0, 2), (1024, 1, 3), (512, 4, 9))
    assert list(free_order_variants(apart)) == []


@given(st.lists(st.tuples(st.sampled_from([512, 1024]), st.integers(1, 9)), min_size=2, max_size=20))
def test_as_much_is_in_use_at_every_moment(made: list[tuple[int, int]]) -> None:
    work = make_requests(*((size, tick, tick + life) for tick, (size, life) in enumerate(made)))

    def used(one: Workload) -> list[int]:
        return [
            sum(request.size for request in one.requests if request.start <= tick < (request.end or 0))
            for tick in range(40)
        ]

    for other in free_order_variants(work):
        assert Counter(request.end for request in other.requests) == Counter(request.end for request in work.requests)
        assert used(other) == used(work)
