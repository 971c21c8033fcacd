from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.footprint.curve import Curve, compute_curve
from ms_tune.readers.memory_block import STATIC, Block
from ms_tune.readers.runtime_log import read_runtime_log
from tests.readers.rows import table_from
from tests.readers.samples import LARGE_RUNS, MIB, SMALL_RUNS, block, log_of, trace_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def curve(blocks: Sequence[Block]) -> Curve:
    return compute_curve(table_from(blocks))


def told(blocks: Sequence[Block]) -> tuple[int, int, int, int]:
    """Peak, tick, footprint, and how many rows MindSpore counted otherwise."""
    found = curve(blocks)
    return found.peak_bytes, found.peak_tick, found.footprint_bytes, len(found.mismatches)


@pytest.mark.parametrize("run", [*SMALL_RUNS, *LARGE_RUNS])
def test_the_curve_is_mindspores_own(run: str) -> None:
    blocks = trace_of(run).blocks
    peak, _, footprint, mismatches = told(blocks)
    assert mismatches == 0
    assert peak == max(block.used_after or 0 for block in blocks)
    path = log_of(run)
    if path is not None:
        statistics = read_runtime_log(path).statistics
        assert statistics is not None
        assert peak // MIB == statistics.peak_mib
        assert footprint // MIB == statistics.footprint_mib


def test_pools_are_summed() -> None:
    blocks = [
        block(1, None, 100, pool="A", used_after=100, footprint_after=100),
        block(2, 4, 50, pool="B", used_after=50, footprint_after=60),
        block(3, None, 10, pool="A", used_after=110, footprint_after=130),
        block(5, None, 5, pool="B", used_after=5, footprint_after=60),
    ]
    assert told(blocks) == (160, 3, 190, 0)


def test_ge_memory_and_static_rows_are_not_live() -> None:
    blocks = [
        block(1, None, 100, used_after=100),
        block(2, 3, 10_000, kind="GeFixed", pool="Ascend", address=0),
        block(STATIC, STATIC, 10_000, kind="InSideSomas", pool=""),
    ]
    assert told(blocks) == (100, 1, 0, 0)


def test_a_batch_shows_its_total_on_every_row() -> None:
    batch = [block(tick, 9, 100, used_after=400) for tick in (2, 3, 4)]
    assert told([block(1, None, 100, used_after=100), *batch])[3] == 0
    # Not a batch: the total is never reached, or something was freed in between.
    assert told([block(1, None, 100, used_after=100), *batch[:2]])[3] == 2
    freed = block(1, 3, 100, used_after=100)
    rows = [freed, block(2, None, 100, used_after=300), block(4, None, 200, used_after=300)]
    assert told(rows)[3] == 1


@st.composite
def _blocks(draw: st.DrawFn) -> list[Block]:
    ticks = draw(st.permutations(range(1, 25)))
    blocks = []
    for start, other in zip(ticks[::2], ticks[1::2], strict=True):
        size, pool = draw(st.integers(0, 2**40)), draw(st.sampled_from(["A", "B"]))
        first, last = min(start, other), max(start, other)
        blocks.append(block(first, None if draw(st.booleans()) else last, size, pool=pool))
    return blocks


@given(_blocks())
def test_the_peak_is_that_of_a_naive_sum(blocks: list[Block]) -> None:
    def used(tick: int, pool: str | None = None) -> int:
        return sum(
            row.size
            for row in blocks
            if row.start <= tick and (row.end is None or tick < row.end) and pool in (None, row.pool)
        )

    blocks = [replace(row, used_after=used(row.start, row.pool)) for row in blocks]
    peak, tick, _, mismatches = told(blocks)
    assert peak == max(used(tick) for tick in range(26))
    assert mismatches == 0
    assert all(curve(blocks).bytes_at(tick) == used(tick) for tick in range(26))
    if peak:
        assert tick == min(tick for tick in range(26) if used(tick) == peak)
