"""Read MindSpore's log: memory statistics, memory pools, communication groups, and why a run failed.

The log mixes lines of MindSpore, Python and the training script; the lines of the statistics have no prefix. The
formats are those of MindSpore 2.3 to 2.10 (``ascend_memory_adapter.cc``, ``ascend_two_pointer_mem_adapter.cc``).

MindSpore 2.7 to 2.10 log each communication group of a simulation as a warning (``collective_manager.cc``,
``InitializeDummyCommLib`` and ``CreateSimulationGroup``), whether it is used or not and regardless of its creator: the
program, its framework, or the compiler that splits a graph over ranks. Groups of other ranks are logged, too. The
operations on them are in ``comm_execute_order.csv``.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from pathlib import Path

from ms_tune.errors import TraceError
from ms_tune.facts.oom import match_failure
from ms_tune.readers.lines import iterate_lines, iterate_log_lines, open_log
from ms_tune.readers.log_errors import ErrorLines
from ms_tune.readers.memory_block import DroppedRow, RefusedRow
from ms_tune.records import Record
from ms_tune.text import msg
from ms_tune.units import whole_number

WORLD = "hccl_world_group"
_SAYS = "dummy co"
_PROCESS = re.compile(r"\((?P<pid>\d{1,10})[,:]")
_WORLD_MADE = re.compile(r"Initializing dummy collective communication with rank size: (\d{1,9}), rank id: (\d{1,9})\b")
# Ranks are written "{0, 2}", more than about ten "{[0]:{0}, [1]:{2}}"; a line of some thousands is cut off.
_GROUP_MADE = re.compile(
    r"Create dummy communication group with group name: (?P<name>.{1,500}?), group ranks: [^{]{0,40}\{(?P<ranks>[^.]*)(?P<end>\.)?"
)
_RANK = re.compile(r"(?<!\[)\b\d{1,9}\b(?!\])")
_ON_HOST = "mccl_"  # prefix of groups of the CPU backend "mccl" (mint.distributed.new_group)
_MOST_GROUPS = 10_000  # over all processes of a log
_COMMUNICATION = ("index", "group", "comm_rank", "primitive", "input_size", "output_size")


@dataclass(slots=True)
class ProcessGroups:
    """The communication groups of one process."""

    rank: int  # the rank of the process
    # Its groups on the device that have several ranks, including the world's: name to (at least) the number of ranks.
    ranks_by_group: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class GroupLines:
    """The processes found so far, by their ids: several may write to one log."""

    processes: dict[str, ProcessGroups] = field(default_factory=dict)
    count: int = 0

    def take(self, line: str) -> None:
        """Process a line."""
        if _SAYS not in line or self.count == _MOST_GROUPS:
            return
        process = _PROCESS.search(line)
        pid = process["pid"] if process else ""
        if match := _WORLD_MADE.search(line):
            self.count += 1
            size, rank = int(match[1]), int(match[2])
            self.processes[pid] = ProcessGroups(rank, {WORLD: size} if size > 1 else {})
        elif pid in self.processes and (match := _GROUP_MADE.search(line)) and not match["name"].startswith(_ON_HOST):
            self.count += 1
            ranks, one = set(map(int, _RANK.findall(match["ranks"]))), self.processes[pid]
            is_in = one.rank in ranks or not match["end"]
            if is_in and len(ranks) > 1:
                one.ranks_by_group[match["name"]] = len(ranks)


class CollectiveLaunch(Record):
    """The launch of one collective operation."""

    group: str  # name of the communication group
    ranks: tuple[int, ...]


class CommunicationOrder(Record):
    """The collective operations in launch order, and the rejected rows."""

    collectives: tuple[CollectiveLaunch, ...]
    dropped: tuple[DroppedRow, ...]
    dropped_count: int


def read_communication_order(path: Path) -> CommunicationOrder:
    r"""Read a ``comm_execute_order.csv``, which MindSpore writes in simulation.

    ``std::quoted`` writes it: every cell in quotation marks, with ``\"`` and ``\\`` inside, and no trailing comma
    (``execute_order_tracker.cc``). A bug in MindSpore puts a control character into ``stream_id`` of the dynamic graph.
    """
    found, refused, names = [], RefusedRow(), list[str]()
    with open_log(path) as file:
        for number, text, _ in iterate_lines(file):
            if not names:
                names = (text or "").split(",")
                if any(name not in names for name in _COMMUNICATION):
                    raise TraceError(msg("trace.not-order", expected=", ".join(_COMMUNICATION)), path=path, line=number)
            elif (launch := _parse_launch(text or "", names)) is None:
                refused.add(number, msg("trace.row.order"))
            else:
                found.append(launch)
    return CommunicationOrder(tuple(found), tuple(refused.rows), refused.count)


def _parse_launch(text: str, names: list[str]) -> CollectiveLaunch | None:
    try:
        cells = next(csv.reader(io.StringIO(text), escapechar="\\", doublequote=False, strict=True), [])
    except csv.Error:
        return None
    if len(cells) != len(names):
        return None
    row = dict(zip(names, cells, strict=True))
    ranks = [whole_number(rank) for rank in row["comm_rank"].split()]
    if None in (whole_number(row["input_size"]), whole_number(row["output_size"]), *ranks):
        return None
    return CollectiveLaunch(row["group"], tuple(rank for rank in ranks if rank is not None))


# "Device MOC memory size: 65536M" of a simulated device, MindSpore 2.7 to 2.10; real devices report less
SIMULATED_MIB = 65536


_STATISTICS = (
    ("device", re.compile(r"\bDevice (?:MOC|HBM) memory size: (\d{1,12})M\b")),
    ("used", re.compile(r"\bMindSpore Used memory size: (\d{1,12})M\b")),
    ("peak", re.compile(r"\bUsed peak memory usage \(without fragments\): (\d{1,12})M\b")),
    ("actual", re.compile(r"\bActual peak memory usage(?: \(with fragments\))?: (\d{1,12})M\b")),
)
# abstract_dynamic_mem_pool.cc and mem_dynamic_allocator.cc; the pool prints zeros once it is destroyed.
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
# mem_tracker.cc, at the end of the process: one line before each file that the tracker writes.
_WRITES_BLOCKS, _WRITES_TASKS = "memory block csv path", "task csv path"


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """MindSpore's device memory statistics at exit, in whole MiB (rounded down)."""

    device_mib: int  # memory of the device; in simulation always 64 GiB
    used_mib: int  # the limit of MindSpore: `max_device_memory`
    peak_mib: int  # the largest sum of live blocks
    footprint_mib: int  # the largest address range used: the peak with fragmentation


class OutOfMemory(Record):
    """A failed request for memory."""

    bytes: int | None  # requested bytes, if the text has them
    operator: str | None  # the operator of the request, if the text has it


class PoolState(Record):
    """The state that a memory pool prints, in whole MiB: reserved from the device, peak, in use."""

    name: str
    total_mib: int
    peak_mib: int
    used_mib: int


class RuntimeLog(Record):
    """The contents of a log."""

    statistics: MemoryStatistics | None  # the last complete statistics; None if the process did not get that far
    # The exception of the last traceback, else the last error that MindSpore logged, even in successful runs.
    last_error: str | None
    # The first failed request for memory; later ones are its consequences.
    out_of_memory: OutOfMemory | None = None
    pools: tuple[PoolState, ...] = ()  # the last state of each memory pool
    # The tracker began to write memory_block.csv but not the next file: the process was killed.
    cut_off: bool = False
    # The communication groups of each simulated process in the log that has initialized communication.
    processes: tuple[ProcessGroups, ...] = ()
    # The last line of the program itself in that traceback, as `file:line`; None if there was not one.
    raised_at: str | None = None
    thread_error: str | None = None  # the first exception that ended a thread; the program may have continued


def read_runtime_log(path: Path, last: int | None = None) -> RuntimeLog:
    """Read a log, or its ``last`` bytes. Raises TraceError: the file is unreadable."""
    statistics, errors = StatisticsLines(), ErrorLines()
    requests, pools, writes_blocks = _Requests(), dict[str, PoolState](), False
    groups = GroupLines()
    with open_log(path) as file:
        if last is not None and path.is_file() and path.stat().st_size > last:
            file.seek(path.stat().st_size - last)
        for line in iterate_log_lines(file):
            statistics.take(line)
            requests.take(line)
            groups.take(line)
            take_pool(line, pools)
            if "csv path" in line:
                writes_blocks = _WRITES_BLOCKS in line or (writes_blocks and _WRITES_TASKS not in line)
            if not _TRACKER.search(line):
                errors.take(line)
    return RuntimeLog(
        statistics=statistics.last,
        last_error=errors.last_error(),
        raised_at=errors.last_location(),
        thread_error=errors.thread,
        out_of_memory=OutOfMemory(requests.size, requests.operator) if requests.met else None,
        pools=tuple(pools.values()),
        cut_off=writes_blocks,
        processes=tuple(groups.processes.values()),
    )


@dataclass(slots=True)
class StatisticsLines:
    """The statistics blocks found so far; their four lines have a fixed order, perhaps with other lines in between."""

    last: MemoryStatistics | None = None  # the last complete block
    complete: int = 0  # number of complete blocks
    values: dict[str, int] = field(default_factory=dict)  # values of the current block

    def take(self, line: str) -> None:
        """Process a line."""
        for name, pattern in _STATISTICS:
            if match := pattern.search(line):
                self._add_value(name, int(match[1]))
                return

    def _add_value(self, name: str, value: int) -> None:
        if name == "device":
            self.values = {}
        elif not self.values or name in self.values:
            # No first line before it, or two processes wrote at the same time: the number's process is unclear.
            self.values = {}
            return
        self.values[name] = value
        if len(self.values) == len(_STATISTICS):
            found = MemoryStatistics(*(self.values[key] for key, _ in _STATISTICS))
            self.values = {}
            # A destroyed pool prints zeros again.
            counts = self.last is None or found.peak_mib or found.footprint_mib
            if counts and (found.device_mib or found.used_mib or found.peak_mib):
                self.last, self.complete = found, self.complete + 1


@dataclass(slots=True)
class _Requests:
    """The failed requests for memory so far: the first one, completed from later lines."""

    met: bool = False
    size: int | None = None
    operator: str | None = None

    def take(self, line: str) -> None:
        match = match_failure(line) if "emory" in line or "lloc" in line else None
        if match is None or match.form.framework != "mindspore" or match.form.cause == "host":
            return
        self.met = True
        if self.size is None:
            self.size = match.sizes.get("wanted")
        self.operator = self.operator or match.labels.get("operator")


def take_pool(line: str, pools: dict[str, PoolState]) -> None:
    """Read the state of a memory pool from a line, if the line has one."""
    match = _POOL.search(line) if "mem pool info" in line or "The dynamic memory pool" in line else None
    if match is None:
        return
    name = match["name"] or (match["whole"] or "").strip("[]") or "all"
    first = match["name"] is not None
    values = [int(match[key if first else f"{key}2"]) for key in ("total", "peak", "used")]
    if any(values) and (name in pools or len(pools) < _MAX_POOLS):
        pools[name] = PoolState(name, *values)
