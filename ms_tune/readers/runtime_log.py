"""Reads what matters out of MindSpore's log: memory statistics, states of the memory pool, and why a run failed.

The log mixes MindSpore's own lines, Python's and the training script's; the statistics' lines carry no prefix. All of
it is as MindSpore 2.3 to 2.10 print it (``ascend_memory_adapter.cc``, ``ascend_two_pointer_mem_adapter.cc``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.readers.communicators import GroupLines, ProcessGroups
from ms_tune.readers.log_errors import ErrorLines
from ms_tune.readers.reading import reading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO


SIMULATED_MIB = (
    65536  # "Device MOC memory size: 65536M" of a simulated device, MindSpore 2.7 to 2.10; real ones show less
)

_MAX_LINE = 64 * 1024  # bytes; what is beyond is left out

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANK = re.compile(r"^\[rank\d{1,9}\]: ?")  # MSAdapter and PyTorch put it before each line of a traceback
_STATISTICS = (
    ("device", re.compile(r"\bDevice (?:MOC|HBM) memory size: (\d{1,12})M\b")),
    ("used", re.compile(r"\bMindSpore Used memory size: (\d{1,12})M\b")),
    ("peak", re.compile(r"\bUsed peak memory usage \(without fragments\): (\d{1,12})M\b")),
    ("actual", re.compile(r"\bActual peak memory usage(?: \(with fragments\))?: (\d{1,12})M\b")),
)
# Requests that failed (``ascend_two_pointer_mem_adapter.cc``, ``actor_common.h``, ``device_address_utils.cc``).
_REQUEST = re.compile(
    r"Out of Memory!!! Request memory size: (?P<a>\d{1,15})B"
    r"|alloc failed, kernel name: (?P<kernel>[^,]{1,500}), alloc size: (?P<b>\d{1,15})B"
    r"|Allocate (?:workspace )?memory failed, (?:alloc |memory )?size[: ](?P<c>\d{1,15})"
    r"|Malloc for kernel (?:in|out)put failed, Memory isn't enough, node:(?P<node>\S{1,500})"
    r"|Allocate output memory failed, alloc node:(?P<output>\S{1,500})"
    r"|required size\[(?P<d>\d{1,15})\]"
)
# abstract_dynamic_mem_pool.cc and mem_dynamic_allocator.cc; an all-zero line is printed once the pool is torn down.
_POOL = re.compile(
    r"(?P<name>Common|Persistent) mem pool info: Total allocated mem:(?P<total>\d{1,12})M, "
    r"peak used mem:(?P<peak>\d{1,12})M, in used mem:(?P<used>\d{1,12})M"
    r"|The dynamic memory pool(?P<whole>(?:\[\w{1,60}\])?) (?:stat info : .{0,400}?)?total allocated mem:(?P<total2>\d{1,12})M"
    r".{0,120}?peak used mem:(?P<peak2>\d{1,12})M.{0,120}?in used mem:(?P<used2>\d{1,12})M"
)
_MAX_POOLS = 64

_TRACKER = re.compile(
    r"MemoryTracker \w{1,40} failed|(?:AddMemInfo|BindDevicePtr|UseMemBlock|FreeMemBlock|AddCompileTimeMemInfo) failed"
)
# mem_tracker.cc, when the process ends: one line before each file that the tracker writes.
_WRITES_BLOCKS, _WRITES_TASKS = "memory block csv path", "task csv path"


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """What MindSpore prints about device memory at exit, in whole MiB (rounded down)."""

    device_mib: int  # memory of the device; in simulation always 64 GiB
    used_mib: int  # what MindSpore allows itself: `max_device_memory`
    peak_mib: int  # the largest sum of live blocks
    footprint_mib: int  # the largest address range used: the peak with fragments


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A request for memory that failed."""

    bytes: int | None  # what was asked for, if the text says
    operator: str | None  # for which operator, if the text says


@dataclass(frozen=True, slots=True)
class PoolState:
    """What a memory pool says about itself, in whole MiB: taken from the device, most used, in use."""

    name: str
    total_mib: int
    peak_mib: int
    used_mib: int


@dataclass(frozen=True, slots=True)
class RuntimeLog:
    """What a log tells."""

    statistics: MemoryStatistics | None  # the last complete statistics; None if the process did not get that far
    # The exception of the last Python traceback, or else the last error that MindSpore logged; None if there is
    # neither. A run that ends well may have logged errors too.
    last_error: str | None
    # The first request for memory that failed; later ones are its consequences.
    out_of_memory: OutOfMemory | None = None
    pools: tuple[PoolState, ...] = ()  # the last states of the memory pools that were printed
    # The tracker began to write memory_block.csv and never came to the next file: the process was ended.
    cut_off: bool = False
    # The communication groups of each simulated process that writes to the log and has initialised communication.
    processes: tuple[ProcessGroups, ...] = ()
    # The program's own line that this exception went through last, as `file:line`; None if none did.
    raised_at: str | None = None
    thread_error: str | None = None  # the first exception that ended a thread; the program may have gone on


def read_runtime_log(path: Path) -> RuntimeLog:
    """Read a log. Raises TraceError: the file cannot be read."""
    statistics, errors = StatisticsLines(), ErrorLines()
    requests, pools, writes_blocks = _Requests(), dict[str, PoolState](), False
    groups = GroupLines()
    with reading(path), path.open("rb") as file:
        for line in lines_of_log(file):
            statistics.take(line)
            requests.take(line)
            groups.take(line)
            _take_pool(line, pools)
            if "csv path" in line:
                writes_blocks = _WRITES_BLOCKS in line or (writes_blocks and _WRITES_TASKS not in line)
            if not _TRACKER.search(line):
                errors.take(line)
    return RuntimeLog(
        statistics=statistics.last,
        last_error=errors.last(),
        raised_at=errors.place(),
        thread_error=errors.thread,
        out_of_memory=requests.found(),
        pools=tuple(pools.values()),
        cut_off=writes_blocks,
        processes=tuple(groups.processes.values()),
    )


def failed_request(line: str) -> re.Match[str] | None:
    """What a line says about a request for memory that failed, in any of MindSpore's words for it."""
    return _REQUEST.search(line) if "emory" in line else None


def lines_of_log(file: BinaryIO) -> Iterator[str]:
    """The lines as text, without colours, cut to a bounded length."""
    while raw := file.readline(_MAX_LINE):
        end = raw
        while len(end) == _MAX_LINE and not end.endswith(b"\n"):
            end = file.readline(_MAX_LINE)
        yield _RANK.sub("", _ANSI.sub("", raw.decode("utf-8", errors="replace")), count=1).rstrip()


@dataclass(slots=True)
class StatisticsLines:
    """The statistics blocks met so far. Their four lines come in a fixed order, perhaps with others in between."""

    last: MemoryStatistics | None = None  # the last complete one
    complete: int = 0  # how many were
    values: dict[str, int] = field(default_factory=dict)  # those of the present one

    def take(self, line: str) -> None:
        """Read a line."""
        for name, pattern in _STATISTICS:
            if match := pattern.search(line):
                self._value(name, int(match[1]))
                return

    def _value(self, name: str, value: int) -> None:
        if name == "device":
            self.values = {}
        elif not self.values or name in self.values:
            # Not after a first line, or two processes wrote at once: whose number this is cannot be told.
            self.values = {}
            return
        self.values[name] = value
        if len(self.values) == len(_STATISTICS):
            found = MemoryStatistics(*(self.values[key] for key, _ in _STATISTICS))
            self.values = {}
            # A pool that is already torn down prints zeros once more.
            counts = self.last is None or found.peak_mib or found.footprint_mib
            if counts and (found.device_mib or found.used_mib or found.peak_mib):
                self.last, self.complete = found, self.complete + 1


@dataclass(slots=True)
class _Requests:
    """The failed requests for memory so far: the first one, with what later lines add to it."""

    met: bool = False
    size: int | None = None
    operator: str | None = None

    def take(self, line: str) -> None:
        match = failed_request(line)
        if match is None:
            return
        size = next((match[name] for name in ("a", "b", "c", "d") if match[name]), None)
        self.met = True
        if self.size is None and size is not None:
            self.size = int(size)
        self.operator = self.operator or match["kernel"] or match["node"] or match["output"]

    def found(self) -> OutOfMemory | None:
        return OutOfMemory(self.size, self.operator) if self.met else None


def _take_pool(line: str, pools: dict[str, PoolState]) -> None:
    match = _POOL.search(line) if "mem pool info" in line or "The dynamic memory pool" in line else None
    if match is None:
        return
    name = match["name"] or (match["whole"] or "").strip("[]") or "all"
    first = match["name"] is not None
    values = [int(match[key if first else f"{key}2"]) for key in ("total", "peak", "used")]
    if any(values) and (name in pools or len(pools) < _MAX_POOLS):
        pools[name] = PoolState(name, *values)
