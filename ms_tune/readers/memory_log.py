"""Read the memory of ranks from the logs of runs on devices, and the cause of an out-of-memory error.

Memory in use:

* MindSpore's statistics (``DevMemStatistics``, 2.3 to 2.10), which a process prints when it ends, as a warning if
  ``MS_MEMORY_STATISTIC=1`` is set: peak without and with fragmentation, in whole MiB, rounded down.
* Megatron's ``report_memory`` (megatron/training/utils.py), after the first steps that are logged; and the same in the
  JSON baselines of MindSpeed-LLM's and -MM's tests, without reserved memory.

Out of memory: the messages of ``ascend_two_pointer_mem_adapter.cc`` (MindSpore 2.3 to 2.10), ``CUDACachingAllocator.cpp``
(PyTorch 1.13 to 2.13) and ``NPUCachingAllocator.cpp`` (torch_npu 2.x). Driver logs (plog): only names of functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from ms_tune.errors import TraceError
from ms_tune.readers.lines import (
    find_lines,
    find_logs,
    iterate_log_lines,
    parse_rank,
    read_line_blocks,
    reading,
    split_rank,
)
from ms_tune.readers.logged_steps import LoggedMemory, read_baseline
from ms_tune.readers.runtime_log import MemoryStatistics, StatisticsLines, failed_request, read_runtime_log
from ms_tune.records import Record
from ms_tune.text import msg
from ms_tune.units import GIB, KIB, MIB

_MOST_RANKS = 4096
_REPORT = re.compile(
    r"\[Rank (\d{1,6})\] \(after (\d{1,12}) iterations\) memory \(MB\) \| allocated: ([\d.]{1,30})"
    r" \| max allocated: ([\d.]{1,30}) \| reserved: ([\d.]{1,30})(?: \| max reserved: ([\d.]{1,30}))?"
)
_NEEDLES = (b" memory (MB) |", b" memory size: ", b"peak memory usage")


class MemoryWords(str, Enum):
    """The framework whose messages report memory."""

    STATISTICS = "mindspore"
    REPORT = "megatron"


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
    """Yield the memory in a line of Megatron's ``report_memory``; several ranks may have written it at once."""
    for found in _REPORT.finditer(text):
        sizes = [_parse_mib(found[place] or "0") for place in range(3, 7)]
        yield LoggedMemory(int(found[1]), sizes[0], sizes[1], sizes[2], sizes[3], int(found[2]))


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
    with reading(path), path.open("rb") as file:
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
        self._statistics: dict[int | None, list[RankMemory]] = {}
        self._open: dict[int | None, StatisticsLines] = {}

    def take(self, number: int, line: str) -> None:
        rank, text = split_rank(line)
        if " memory (MB) |" in text:
            for report in parse_reports(text):
                if report.rank in self._reports or len(self._reports) < _MOST_RANKS:
                    self._reports[report.rank] = _memory_reported(report, self._path, number)
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


_UNITS = {"bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_SIZE = r"(\d{1,12}(?:\.\d{1,4})?) (bytes|KiB|MiB|GiB)"
_TORCH = re.compile(rf"(?P<kind>CUDA|NPU|HIP|XPU) out of memory\. Tried to allocate {_SIZE}")
_PARTS = {
    "capacity": re.compile(rf"(?:has a total capacity of |; ){_SIZE}(?= total capacity| of which)"),
    "free": re.compile(rf"{_SIZE}(?= (?:is )?free\b)"),
    "used": re.compile(rf"{_SIZE}(?= (?:already allocated|is allocated by PyTorch))"),
    "held": re.compile(rf"{_SIZE}(?= reserved in total by PyTorch)"),
    "cached": re.compile(rf"{_SIZE}(?= is reserved by PyTorch but unallocated)"),
}
_DRIVER = re.compile(
    r"(?:halMemAlloc|aclrtMalloc\w{0,40}|rtMalloc\w{0,40}|DevMemAlloc\w{0,40}).{0,300}?fail.{0,300}?size\s{0,2}[=:]\s{0,2}(?P<size>\d{1,15})",
    re.IGNORECASE,
)
_FRAME = re.compile(r'\s{0,40}File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9}), in (?P<function>.{1,200})')
_LIBRARY = re.compile(r"(?:site|dist)-packages/|/lib/python3|^<")


class MemoryFailure(Record):
    """The first failed request in a log, with None for unknown values."""

    framework: str  # whose message it is: `mindspore`, `torch`, `torch_npu`, `driver`
    line: int  # the line of the log
    wanted_bytes: int | None  # requested bytes
    limit_bytes: int | None  # limit of the framework, or memory of the device
    free_bytes: int | None  # free bytes of the device
    used_bytes: int | None  # bytes in use by tensors
    held_bytes: int | None  # bytes that the framework reserved, used or not
    operator: str  # the operator that requested them
    where: str  # `file:line` of the innermost frame of the script

    @property
    def is_of_torch(self) -> bool:
        """Return whether the message is from PyTorch or torch_npu."""
        return self.framework.startswith("torch")

    @property
    def cause(self) -> str:
        """Return ``fragments`` if the unused reserved memory was large enough, ``need`` if not, else ``unknown``."""
        if self.wanted_bytes is None or self.used_bytes is None or self.held_bytes is None:
            return "unknown"
        return "fragments" if self.held_bytes - self.used_bytes >= self.wanted_bytes else "need"

    @property
    def short_bytes(self) -> int | None:
        """Return the missing bytes, assuming no fragmentation; None if unknown."""
        if self.cause != "need" or self.wanted_bytes is None or self.used_bytes is None or self.limit_bytes is None:
            return None
        return max(0, self.used_bytes + self.wanted_bytes - self.limit_bytes)


def read_memory_failure(path: Path) -> MemoryFailure:
    """Read a log. Raises TraceError: the file is unreadable, or contains no failed request."""
    where = ""
    found: tuple[str, int, int | None] | None = None
    with reading(path), path.open("rb") as file:
        for number, line in enumerate(iterate_log_lines(file), 1):
            frame = _FRAME.match(line) if 'File "' in line else None
            if frame is not None:
                if not _LIBRARY.search(frame["file"]):
                    where = f"{frame['file']}:{frame['line']}"
            elif "out of memory" in line and (match := _TORCH.search(line)):
                return _read_torch_failure(match, line, number, where)
            elif "Out of Memory!!!" in line or "memory isn't enough and alloc failed" in line or failed_request(line):
                found = found or ("mindspore", number, None)
            elif "ail" in line and "alloc" in line.lower() and (match := _DRIVER.search(line)):
                found = found or ("driver", number, int(match["size"]))
    if found is None:
        raise TraceError(msg("oom.nothing"), msg("oom.nothing.hint"), path=path)
    framework, at, size = found
    log = read_runtime_log(path)
    request, statistics = log.out_of_memory, log.statistics
    used = reserved = limit = None
    if statistics is not None:
        used, reserved = statistics.peak_mib * MIB, statistics.footprint_mib * MIB
        limit = statistics.used_mib * MIB
    if log.pools:
        used = sum(pool.used_mib for pool in log.pools) * MIB
        reserved = sum(pool.total_mib for pool in log.pools) * MIB
    return MemoryFailure(
        framework=framework if request is None else "mindspore",
        line=at,
        wanted_bytes=request.bytes if request is not None and request.bytes is not None else size,
        limit_bytes=limit,
        free_bytes=max(0, limit - reserved) if limit is not None and reserved is not None else None,
        used_bytes=used,
        held_bytes=reserved,
        operator=(request.operator or "") if request is not None else "",
        where=where,
    )


def _read_torch_failure(match: re.Match[str], line: str, number: int, where: str) -> MemoryFailure:
    parts: Mapping[str, int | None] = {
        name: _size_in_bytes(found[1], found[2]) if (found := pattern.search(line)) else None
        for name, pattern in _PARTS.items()
    }
    used, reserved, cached = parts["used"], parts["held"], parts["cached"]
    if reserved is None and used is not None and cached is not None:
        reserved = used + cached
    return MemoryFailure(
        framework="torch_npu" if match["kind"] == "NPU" else "torch",
        line=number,
        wanted_bytes=_size_in_bytes(match[2], match[3]),
        limit_bytes=parts["capacity"],
        free_bytes=parts["free"],
        used_bytes=used,
        held_bytes=reserved,
        operator="",
        where=where,
    )


def _size_in_bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])
