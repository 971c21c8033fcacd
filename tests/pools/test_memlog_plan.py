"""Test the figures of STAlloc's traces against the account of the traces' generator."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.pools.memlog import (
    MemLogReport,
    SizeShare,
    TensorKind,
    analyse_log,
    classify_block,
)
from ms_tune.readers.memlog import HEAD, LogBlock, MemLog, read_memlog
from tests.readers.memlogs import Writer, training

PLANNED = {"weights", "optimizer", "init", "saved", "temporary"}


def curve(writer: Writer, kinds: set[str]) -> list[int]:
    """Return the live bytes after every event, in units of 512 bytes rounded up, block by block."""
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
    kinds = [classify_block(block, log, 0).value for block in log.blocks]
    assert kinds == [kind for _, kind, _, _ in writer.blocks.values()]

    report = analyse_log(log)
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


def test_torch_npu_asks_for_32_bytes_more() -> None:
    """A block of 1024 bytes uses 1024 of PyTorch's pool, and 1536 of torch_npu's."""
    log = make_log((1024, 0, None, HEAD, None))
    assert (analyse_log(log).torch_allocated, analyse_log(log, npu=True).torch_allocated) == (1024, 1536)
    assert (analyse_log(log).torch_reserved, analyse_log(log).torch_utilisation) == (2 * 2**20, 1024 / (2 * 2**20))
    nothing = SizeShare(TensorKind.SMALL, 0, 0, 0)
    assert MemLogReport(0, 0, (), nothing, 0, 0).torch_utilisation == 1


def make_log(*rows: tuple[int, int, int | None, int, int | None], phases: tuple[str, str] = ("0F", "0F")) -> MemLog:
    """Return a log of blocks: size, first and last event, first and last iteration; the last iteration of all is 2."""
    blocks = [LogBlock(size, start, end, begin, last, *phases, "") for size, start, end, begin, last in rows]
    return MemLog(**{**dict.fromkeys(MemLog._fields, 0), "blocks": blocks, "events": 10, "tail": 3})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "begin", "end", "phases", "kind"),
    [
        (512, HEAD, None, ("", ""), TensorKind.SMALL),
        (513, HEAD, None, ("", ""), TensorKind.WEIGHTS),
        (513, HEAD, 3, ("", ""), TensorKind.WEIGHTS),
        (513, HEAD, HEAD, ("", ""), TensorKind.INIT),
        (513, HEAD, 1, ("", ""), TensorKind.UNRELEASED),
        (513, 0, None, ("", ""), TensorKind.OPTIMIZER),
        (513, 0, 3, ("", ""), TensorKind.OPTIMIZER),
        (513, 1, None, ("0F", ""), TensorKind.SAVED),
        (513, 1, 1, ("0F", "0F"), TensorKind.TEMPORARY),
        (513, 1, 1, ("0F", "0B"), TensorKind.SAVED),
        (513, 1, 2, ("0F", "0F"), TensorKind.SAVED),
        (513, 0, 0, ("0F", "0F"), TensorKind.TEMPORARY),
    ],
)
def test_the_kind_of_a_block(size: int, begin: int, end: int | None, phases: tuple[str, str], kind: TensorKind) -> None:
    log = make_log((size, 0, None, begin, end), phases=phases)
    assert classify_block(log.blocks[0], log, 0) is kind
