from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.footprint.category import Contents
from ms_tune.footprint.curve import Curve, compute_curve, map_addresses
from ms_tune.footprint.lifetimes import Lifetimes, analyse_lifetimes
from ms_tune.footprint.steps import StepEvidence, Steps
from ms_tune.memory.diff import compare_reports
from ms_tune.readers.memory_block import STATIC, Block, Frame
from ms_tune.readers.runtime_log import read_runtime_log
from ms_tune.readers.tracker_tables import read_block_table
from tests.memory.reports import QWEN_TINY, report_of
from tests.readers.rows import table_from
from tests.readers.samples import LARGE_RUNS, MIB, SMALL_RUNS, block, folder, log_of


def lives_of(blocks: list[Block], ends: tuple[int, ...] = ()) -> Lifetimes:
    table = table_from(blocks)
    contents = Contents(table, None)
    return analyse_lifetimes(table, contents, compute_curve(table), Steps(ends, StepEvidence.NONE))


def test_late_frees() -> None:
    late = block(1, 100, 1000, last_user_task=10, node_name="MatMul")
    prompt = block(2, 12, 500, last_user_task=11)
    unused = block(3, 20, 50)
    lives = lives_of([late, prompt, unused, block(50, 60, 1000, last_user_task=59)])
    assert (lives.late_frees[0].operator, lives.late_frees[0].bytes_ticks) == ("MatMul", 90_000)
    assert lives.peak_if_freed_after_last_use == 1550  # instead of 2000


def test_ticks_and_sizes_beyond_a_word_are_multiplied() -> None:
    lives = lives_of([block(1, 2**62, 2**40, last_user_task=2)])
    assert lives.late_frees[0].bytes_ticks == pytest.approx(2**40 * (2**62 - 2))


def test_growth_needs_three_steps_and_every_one_of_them() -> None:
    stack = (Frame("/workspace/train.py", 9, "log"),)
    kept = [block(step * 10 + 1, None, 64, node_name="Add", stack=stack) for step in range(5)]
    once = block(25, None, 9999, node_name="Mul")
    per_step = [block(step * 10 + 2, step * 10 + 8, 4096, node_name="Sub") for step in range(5)]
    replaced = [block(step * 10 + 3, step * 10 + 14, 2048, node_name="Div") for step in range(4)]
    last = block(43, None, 2048, node_name="Div")
    lives = lives_of([*kept, once, *per_step, *replaced, last], (9, 19, 29, 39, 49))
    (growth,) = lives.growth
    assert (growth.operator, growth.where, growth.bytes_per_step, growth.stack) == (
        "Add",
        "/workspace/train.py:9",
        64,
        stack,
    )
    assert lives_of([*kept[:2], once], (9, 19)).growth == ()


def test_spikes() -> None:
    long, spike = block(1, 1000, 100), block(500, 503, 900)
    lives = lives_of([long, spike])
    assert (lives.spike_bytes, lives.peak_without_spikes) == (900, 100)


def test_holes_by_stream() -> None:
    blocks = [
        *(block(1, 9, 512, address=0x1000), block(2, None, 512, address=0x1200)),
        *(replace(block(3, 9, 256, address=0x9000), stream=2), replace(block(4, None, 256, address=0x9100), stream=2)),
    ]
    table = table_from(blocks)
    found = map_addresses(table, compute_curve(table), 10)
    holes = [(each.stream, [hole.bytes for hole in each.holes]) for each in found.segments]
    assert (holes, found.free_bytes, found.largest_hole) == ([(0, [512]), (2, [256])], 768, 512)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9), st.integers(1, 9)), max_size=12))
def test_free_and_used_make_up_the_stretches(places: list[tuple[int, int, int]]) -> None:
    blocks, at = [], 0
    for tick, (gap, size, life) in enumerate(places, start=1):
        blocks.append(block(tick, tick + life, size, address=0x1000 + at + gap))
        at += gap + size
    table = table_from(blocks)
    for tick in range(1, 25):
        found = map_addresses(table, compute_curve(table), tick)
        assert found.overlaps == 0
        assert sum(segment.bytes for segment in found.segments) == found.free_bytes + compute_curve(table).bytes_at(
            tick
        )


@pytest.mark.slow
def test_comparison_adds_up() -> None:
    report = report_of(QWEN_TINY)
    assert all(not pair.changes for pair in compare_reports(report, report).ranks)
    first, second = (replace(report, ranks=(rank,)) for rank in report.ranks)
    (pair,) = compare_reports(first, second).ranks
    assert pair.change_bytes == second.worst.curve.peak_bytes - first.worst.curve.peak_bytes
    assert sum(change.change_bytes for change in pair.changes) == pair.change_bytes == sum(pair.contents.values())
    mixed = compare_reports(report, second)
    assert (len(mixed.ranks), mixed.only_before, mixed.only_after) == (1, (0,), ())


def curve(blocks: Sequence[Block]) -> Curve:
    return compute_curve(table_from(blocks))


def summarise(blocks: Sequence[Block]) -> tuple[int, int, int, int]:
    """Return peak, tick, footprint, and the number of rows for which MindSpore's count differs."""
    found = curve(blocks)
    return found.peak_bytes, found.peak_tick, found.footprint_bytes, len(found.mismatches)


@pytest.mark.drawn(5)
@pytest.mark.parametrize("run", [*SMALL_RUNS, *LARGE_RUNS])
def test_the_curve_is_mindspores_own(run: str) -> None:
    table = read_block_table(folder(run) / "memory_block.csv")
    found = compute_curve(table)
    peak, footprint = found.peak_bytes, found.footprint_bytes
    assert len(found.mismatches) == 0
    assert peak == max(0, table.used_after.max())
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
    assert summarise(blocks) == (160, 3, 190, 0)


def test_ge_memory_and_static_rows_are_not_live() -> None:
    blocks = [
        block(1, None, 100, used_after=100),
        block(2, 3, 10_000, kind="GeFixed", pool="Ascend", address=0),
        block(STATIC, STATIC, 10_000, kind="InSideSomas", pool=""),
    ]
    assert summarise(blocks) == (100, 1, 0, 0)


def test_a_batch_shows_its_total_on_every_row() -> None:
    batch = [block(tick, 9, 100, used_after=400) for tick in (2, 3, 4)]
    assert summarise([block(1, None, 100, used_after=100), *batch])[3] == 0
    # Not a batch: the total is never reached, or something was freed in between.
    assert summarise([block(1, None, 100, used_after=100), *batch[:2]])[3] == 2
    freed = block(1, 3, 100, used_after=100)
    rows = [freed, block(2, None, 100, used_after=300), block(4, None, 200, used_after=300)]
    assert summarise(rows)[3] == 1


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
    peak, tick, _, mismatches = summarise(blocks)
    assert peak == max(used(tick) for tick in range(26))
    assert mismatches == 0
    assert all(curve(blocks).bytes_at(tick) == used(tick) for tick in range(26))
    if peak:
        assert tick == min(tick for tick in range(26) if used(tick) == peak)
