"""STAlloc's figures against an account kept by the generator of the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ms_tune.allocator.memlog_report import Kind, analyse, kind_of, problem_of
from ms_tune.packing.placement import lower_bound
from ms_tune.trace.memlog import read_memlog
from tests.trace.memlogs import training

if TYPE_CHECKING:
    from pathlib import Path

    from tests.trace.memlogs import Writer

PLANNED = {"weights", "optimizer", "init", "saved", "temporary"}


def curve(writer: Writer, kinds: set[str]) -> list[int]:
    """Live bytes after every event, in units of 512 bytes rounded up, block by block."""
    live = [0] * writer.events
    for size, kind, begin, end in writer.blocks.values():
        assert isinstance(size, int)
        assert isinstance(begin, int)
        if kind in kinds:
            for tick in range(begin, writer.events if end is None else int(str(end))):
                live[tick] += (size + 511) // 512 * 512
    return live


@pytest.mark.parametrize("seed", range(5))
def test_peak_and_parts(tmp_path: Path, seed: int) -> None:
    writer = training(seed, micro_batches=1 + seed % 3)
    path = tmp_path / "mem_log_dev0.txt"
    path.write_text(writer.text(), encoding="utf-8")
    log = read_memlog(path)
    kinds = [kind_of(block, log, 0).value for block in log.blocks]
    assert kinds == [kind for _, kind, _, _ in writer.blocks.values()]

    report = analyse(log)
    total = curve(writer, PLANNED)
    assert report.peak == max(total)
    assert report.peak_time == total.index(max(total))
    for share in report.shares:
        own = curve(writer, {share.kind.value})
        assert (share.at_peak, share.own_peak) == (own[report.peak_time], max(own))
        assert share.blocks == kinds.count(share.kind.value)
    both = curve(writer, {"saved", "temporary"})
    assert (report.activations.at_peak, report.activations.own_peak) == (both[report.peak_time], max(both))
    assert sum(share.at_peak for share in report.shares if share.kind.value in PLANNED) == report.peak


def test_pytorchs_allocator_and_the_plan(tmp_path: Path) -> None:
    writer = training(1)
    path = tmp_path / "mem_log_dev0.txt"
    path.write_text(writer.text(), encoding="utf-8")
    log = read_memlog(path)
    report, npu = analyse(log), analyse(log, npu=True)
    everything = max(curve(writer, {kind.value for kind in Kind}))
    assert lower_bound(problem_of(log)) == everything
    assert everything <= report.torch_allocated <= report.torch_reserved
    assert 0 < report.torch_utilisation <= 1
    assert npu.torch_allocated >= report.torch_allocated
