from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.memory.timeline import peak_of
from ms_tune.trace.memory_block import STATIC, Block
from ms_tune.trace.runtime_log import read_runtime_log
from tests.trace.samples import MIB, SHARED_RUNS, SMALL_RUNS, block, log_of, trace_of


@pytest.mark.parametrize("run", [*SMALL_RUNS, *SHARED_RUNS])
def test_the_curve_is_mindspores_own(run: str) -> None:
    blocks = trace_of(run).blocks
    peak = peak_of(blocks)
    assert peak.mismatches == 0
    assert peak.bytes == max(block.used_after or 0 for block in blocks)
    assert sum(block.size for block in peak.live) == peak.bytes
    path = log_of(run)
    if path is not None:
        statistics = read_runtime_log(path).statistics
        assert statistics is not None
        assert peak.bytes // MIB == statistics.peak_mib
        assert peak.footprint_bytes // MIB == statistics.footprint_mib


@pytest.mark.parametrize(
    ("run", "peak_bytes", "tick"),
    [("asc2", 2954752, 159), ("over_limit", 8 * (1024 * MIB + 512), 16), ("asc_gO0", 9603584, 122)],
)
def test_known_peaks(run: str, peak_bytes: int, tick: int) -> None:
    peak = peak_of(trace_of(run).blocks)
    assert (peak.bytes, peak.tick) == (peak_bytes, tick)


def test_a_run_of_mindformers() -> None:
    peak = peak_of(trace_of("mindformers_qwen3_8b_dp2tp4pp4/rank_24").blocks)
    assert (peak.bytes // MIB, peak.footprint_bytes // MIB, peak.mismatches) == (16371, 17398, 0)


def test_no_blocks() -> None:
    peak = peak_of([])
    assert (peak.bytes, peak.tick, peak.footprint_bytes, peak.live, peak.mismatches) == (0, 0, 0, (), 0)


def test_lives_are_half_open() -> None:
    first, second = block(1, 5, 100), block(5, 9, 100)
    peak = peak_of([first, second])
    assert (peak.bytes, peak.tick, peak.live) == (100, 1, (first,))


def test_pools_are_summed() -> None:
    blocks = [
        block(1, None, 100, pool="A", used_after=100, footprint_after=100),
        block(2, 4, 50, pool="B", used_after=50, footprint_after=60),
        block(3, None, 10, pool="A", used_after=110, footprint_after=130),
        block(5, None, 5, pool="B", used_after=5, footprint_after=60),
    ]
    peak = peak_of(blocks)
    assert (peak.bytes, peak.tick, peak.footprint_bytes, peak.mismatches) == (160, 3, 190, 0)


def test_ge_memory_and_static_rows_are_not_live() -> None:
    blocks = [
        block(1, None, 100, used_after=100),
        block(2, 3, 10_000, kind="GeFixed", pool="Ascend", address=0),
        block(STATIC, STATIC, 10_000, kind="InSideSomas", pool=""),
    ]
    peak = peak_of(blocks)
    assert (peak.bytes, peak.mismatches) == (100, 0)


def test_mismatches_are_counted() -> None:
    blocks = [
        block(1, None, 100, used_after=100),
        block(2, None, 100, used_after=250),
        block(3, None, 1, used_after=201),
    ]
    assert peak_of(blocks).mismatches == 1


def test_a_batch_shows_its_total_on_every_row() -> None:
    batch = [block(tick, 9, 100, used_after=400) for tick in (2, 3, 4)]
    assert peak_of([block(1, None, 100, used_after=100), *batch]).mismatches == 0
    # Not a batch: the total is never reached, or something was freed in between.
    assert peak_of([block(1, None, 100, used_after=100), *batch[:2]]).mismatches == 2
    freed = block(1, 3, 100, used_after=100)
    rows = [freed, block(2, None, 100, used_after=300), block(4, None, 200, used_after=300)]
    assert peak_of(rows).mismatches == 1


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
    peak = peak_of(blocks)
    assert peak.bytes == max(used(tick) for tick in range(26)) == sum(row.size for row in peak.live)
    assert peak.mismatches == 0
    if peak.bytes:
        assert peak.tick == min(tick for tick in range(26) if used(tick) == peak.bytes)
