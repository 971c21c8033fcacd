"""Read the memory of ranks from the logs of runs on devices.

* MindSpore's statistics (``DevMemStatistics``, 2.3 to 2.10), which a process prints when it ends, as a warning if
  ``MS_MEMORY_STATISTIC=1`` is set: peak without and with fragmentation, in whole MiB, rounded down.
* Megatron's ``report_memory`` (megatron/training/utils.py), after the first steps that are logged; and the same in the
  JSON baselines of MindSpeed-LLM's and -MM's tests, without reserved memory.
* HyperParallel's ``mem_info`` (runtime/memory_profiler.py at 55b52225), before each step: the peaks since the last line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from ms_tune.errors import TraceError
from ms_tune.readers.lines import find_lines, find_logs, open_log, parse_rank, read_line_blocks, split_rank
from ms_tune.readers.logged_steps import LoggedMemory, read_baseline
from ms_tune.readers.runtime_log import MemoryStatistics, StatisticsLines
from ms_tune.text import msg
from ms_tune.units import MIB

_MOST_RANKS = 4096
_REPORT = re.compile(
    r"\[Rank (\d{1,6})\] \(after (\d{1,12}) iterations\) memory \(MB\) \| allocated: ([\d.]{1,30})"
    r" \| max allocated: ([\d.]{1,30}) \| reserved: ([\d.]{1,30})(?: \| max reserved: ([\d.]{1,30}))?"
)
_BEFORE_STEP = re.compile(
    r"Memory usage step=(\d{1,12}) global_rank=(\d{1,6}) .{0,80}?max_memory_reserved=(\d{1,15}) max_memory_allocated=(\d{1,15})"
)
REPORT_WORDS = (" memory (MB) |", "Memory usage step=")
_NEEDLES = (*(words.encode() for words in REPORT_WORDS), b" memory size: ", b"peak memory usage")


class MemoryWords(str, Enum):
    """The framework whose messages report memory."""

    STATISTICS = "mindspore"
    REPORT = "megatron"
    TRACE = "trace"  # none: a trace of MindSpore's memory tracker


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Memory of one rank as a log reports it, in bytes; None if unknown."""

    rank: int | None  # its number; None if unknown
    words: MemoryWords  # the framework whose messages report it
    path: Path  # the log
    line: int  # its line, from 1; 0 in a file without lines
    peak_bytes: int  # the most bytes in use
    footprint_bytes: int | None  # the most that the pool reserved from the device, including fragmentation
    used_bytes: int | None = None  # in use when the line was written, between two steps
    limit_bytes: int | None = None  # the limit of MindSpore
    device_mib: int | None = None  # memory of the device, in whole MiB
    steps: int | None = None  # number of steps before the line; None at the end of the process
    unit_bytes: int = 1  # precision: the unit of the last digit
    # Number of processes that reported in the same log without their ranks; the one with the highest peak counts.
    processes: int = 1


def parse_reports(text: str) -> Iterator[LoggedMemory]:
    """Yield the memory in a line; several ranks may have written it at once."""
    for found in _REPORT.finditer(text):
        sizes = [_parse_mib(found[place] or "0") for place in range(3, 7)]
        yield LoggedMemory(int(found[1]), sizes[0], sizes[1], sizes[2], sizes[3], int(found[2]))
    for found in _BEFORE_STEP.finditer(text):
        yield LoggedMemory(int(found[2]), 0, int(found[4]), 0, int(found[3]), int(found[1]))


def join_reports(known: LoggedMemory | None, later: LoggedMemory) -> LoggedMemory:
    """Return a rank's last report with the largest peaks of both: some trainers reset theirs after each line."""
    if known is None:
        return later
    peaks = (max(known.max_allocated, later.max_allocated), max(known.max_reserved, later.max_reserved))
    return replace(later, max_allocated=peaks[0], max_reserved=peaks[1])


def read_logged_memory(path: Path) -> tuple[RankMemory, ...]:
    """Return the memory of all ranks in a log or a folder of logs: the last report of each."""
    found: dict[int | None, RankMemory] = {}
    for file in find_logs(path):
        for one in _read_file(file):
            if len(found) < _MOST_RANKS:
                known = found.get(one.rank)
                # MindSpore's statistics cover the whole run.
                if known is None or known.words is not MemoryWords.STATISTICS or one.words is known.words:
                    found[one.rank] = one
    if not found:
        raise TraceError(msg("trace.log.no-memory"), msg("trace.log.no-memory.hint"), path=path)
    return tuple(found[rank] for rank in sorted(found, key=lambda rank: (rank is None, rank or 0)))


def _read_file(path: Path) -> list[RankMemory]:
    reader = _MemoryLogReader(path)
    with open_log(path) as file:
        for body, first in read_line_blocks(file):
            if first == 1 and body.lstrip()[:1] == b"{" and path.suffix == ".json":
                reports = read_baseline(path).memory.values()
                return [_memory_reported(one, path, 0) for one in reports]
            for number, line, _ in find_lines(body, first, _NEEDLES):
                reader.take(number, line)
    return reader.list_memory()


class _MemoryLogReader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file_rank = parse_rank(path)
        self._reports: dict[int | None, RankMemory] = {}
        self._joined: dict[int, LoggedMemory] = {}
        self._statistics: dict[int | None, list[RankMemory]] = {}
        self._open: dict[int | None, StatisticsLines] = {}

    def take(self, number: int, line: str) -> None:
        rank, text = split_rank(line)
        if any(words in text for words in REPORT_WORDS):
            for report in parse_reports(text):
                if report.rank in self._reports or len(self._reports) < _MOST_RANKS:
                    whole = self._joined[report.rank] = join_reports(self._joined.get(report.rank), report)
                    self._reports[report.rank] = _memory_reported(whole, self._path, number)
            return
        rank = self._file_rank if rank is None else rank
        if rank not in self._open and len(self._open) >= _MOST_RANKS:
            return
        block = self._open.setdefault(rank, StatisticsLines())
        known = block.complete
        block.take(text)
        if block.complete != known and block.last is not None:
            self._keep_statistics(rank, number, block.last)

    def _keep_statistics(self, rank: int | None, number: int, statistics: MemoryStatistics) -> None:
        one = RankMemory(
            rank,
            MemoryWords.STATISTICS,
            self._path,
            number,
            statistics.peak_mib * MIB,
            statistics.footprint_mib * MIB,
            limit_bytes=statistics.used_mib * MIB,
            device_mib=statistics.device_mib,
            unit_bytes=MIB,
        )
        blocks = self._statistics.setdefault(rank, [])
        if rank is not None:
            blocks.clear()
        same = blocks and (blocks[-1].peak_bytes, blocks[-1].footprint_bytes) == (one.peak_bytes, one.footprint_bytes)
        if not same and len(blocks) < _MOST_RANKS:
            blocks.append(one)

    def list_memory(self) -> list[RankMemory]:
        whole = dict(self._reports)
        for rank, blocks in self._statistics.items():
            if blocks:
                most = max(blocks, key=lambda one: (one.peak_bytes, one.footprint_bytes or 0))
                whole[rank] = replace(most, processes=len(blocks))
        return list(whole.values())


def _memory_reported(report: LoggedMemory, path: Path, line: int) -> RankMemory:
    return RankMemory(
        report.rank,
        MemoryWords.REPORT,
        path,
        line,
        report.max_allocated,
        report.max_reserved or None,
        used_bytes=report.allocated,
        steps=report.steps or None,
    )


def _parse_mib(text: str) -> int:
    try:
        return round(float(text) * MIB)
    except (ValueError, OverflowError):
        return 0
