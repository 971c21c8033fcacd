"""Test requests from a trace: continuous allocations, which an older pool wrote as one size, are divided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.pools.workload import (
    Recorded,
    Request,
    _cut_batches,
    order_events,
    split_by_pool,
)
from ms_tune.readers.tracker_tables import read_block_table
from tests.pools.recorded import PACKED

Block = list[int]  # the sizes of its parts; an ordinary allocation has one part


def written(blocks: list[Block]) -> tuple[list[Request], list[Recorded]]:
    """Return the trace of the older pool: the first row of a continuous allocation has the total size."""
    requests, recorded = [], []
    address = used = 0
    for tick, parts in enumerate(blocks):
        used += sum(parts)
        for part, size in enumerate(parts):
            requests.append(Request(size if part else sum(parts), tick, None))
            recorded.append(Recorded(address, used, None))
            address += size
        address += 512  # another hole
    return requests, recorded


@given(st.lists(st.lists(st.integers(1, 9).map(lambda size: 512 * size), min_size=1, max_size=5), max_size=6))
def test_every_row_has_its_own_size(blocks: list[Block]) -> None:
    requests, recorded = written(blocks)
    assert [request.size for request in _cut_batches(tuple(requests), recorded)] == [
        size for parts in blocks for size in parts
    ]


def test_what_ends_elsewhere_is_no_continuous_allocation() -> None:
    requests, recorded = written([[512, 1024, 1536]])
    short = (requests[0]._replace(size=requests[0].size - 512), *requests[1:])
    assert _cut_batches(short, recorded) == short
    gap = [recorded[0], recorded[1], recorded[2]._replace(address=recorded[2].address + 512)]
    assert _cut_batches(tuple(requests), gap) == tuple(requests)
    later = [recorded[0], recorded[1]._replace(used=recorded[0].used + 512 if recorded[0].used else 0), recorded[2]]
    assert _cut_batches(tuple(requests), later) == tuple(requests)


def test_a_block_is_never_freed_before_it_is_allocated() -> None:
    twice = [Request(512, 8, 8), Request(512, 8, 9)]
    assert order_events(twice) == (0, 1, ~1, ~0)


@pytest.mark.parametrize(
    ("run", "batches"), [("continuous", 36), ("older_continuous", 36), ("graph_set_memory", 0), ("older_streams", 0)]
)
def test_continuous_allocations_are_known_with_and_without_the_use(run: str, batches: int) -> None:
    table = read_block_table(PACKED / run / "memory_block.csv")
    ((reported, _),) = split_by_pool(table).values()
    ((guessed, _),) = split_by_pool(replace(table, used_after=np.full_like(table.used_after, -1))).values()
    assert guessed.requests == reported.requests
    assert {row.used for row in guessed.recorded} == {None}
    ((empty, _),) = split_by_pool(replace(table, footprint_after=np.zeros_like(table.footprint_after))).values()
    assert {row.actual for row in empty.recorded} == {0}
    assert sum(request.batch > 1 for request in reported.requests) == batches
    assert sum(request.batch for request in reported.requests) == len(reported.requests)
