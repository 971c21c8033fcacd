"""Plan the lowest addresses for the blocks of a run, of a placement problem or of a STAlloc trace."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_tune.errors import TraceError
from ms_tune.footprint.torch_blocks import find_earlier_blocks
from ms_tune.footprint.torch_report import TorchReport, analyse_snapshot
from ms_tune.memory.what_if import RankTrace, largest_pool, read_rank
from ms_tune.packing import engine as native
from ms_tune.packing.placement import PackingFault, PackingPlan, PackingProblem, Placed, RepeatedStep, find_faults
from ms_tune.packing.plan import PackingProgress, find_repeated_step, plan_addresses
from ms_tune.pools import memlog
from ms_tune.pools.pool import ALIGNMENT, replay_workload
from ms_tune.pools.torch_pool import TorchPool
from ms_tune.pools.torch_replay import Cache, change_segments, replay_setting
from ms_tune.pools.workload import Request, make_workload
from ms_tune.readers.folder import is_dry_run
from ms_tune.readers.lines import iterate_short_lines
from ms_tune.readers.memlog import MemLog, read_memlog
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.plain_pickle import is_snapshot
from ms_tune.readers.torch_snapshot import Action
from ms_tune.records import Record
from ms_tune.source.files import open_bytes
from ms_tune.text import Message, msg

_ALIASES = {"begin": "lower", "start": "lower", "buffer": "id", "buffer_id": "id"}
_MOST = {"lower": 2**62, "upper": 2**62, "size": 2**50, "alignment": 2**40}
_MOST_TOTAL = 2**61
_MOST_ROWS = 5_000_000
_MOST_DIGITS = 20


class PlacementRow(NamedTuple):
    """One block, with its lifetime ``[lower, upper)`` and size in bytes; its address is a multiple of the alignment."""

    id: str
    lower: int
    upper: int
    size: int
    alignment: int


def is_placement_csv(path: Path) -> bool:
    """Return whether the first line of a file names the columns of a placement problem."""
    try:
        with open_bytes(path) as file:
            first = file.readline(4096).decode("utf-8-sig", "replace")
    except OSError:
        return False
    names = _column_places(first)
    return {"lower", "size"} <= names.keys() and bool({"upper", "end"} & names.keys())


def read_placement_csv(path: Path) -> list[PlacementRow]:
    """Read the blocks of a placement problem: a CSV file like minimalloc's, ``id,lower,upper,size``, one block per row.

    Columns are found by their names, as in minimalloc's ``src/converter.cc``: ``begin`` and ``start`` are aliases of
    ``lower``, ``end`` is ``upper`` but inclusive, ``buffer`` and ``buffer_id`` are aliases of ``id``. ``alignment`` is
    optional; ``hint`` and ``offset`` are ignored. ``gaps`` is rejected, as such a block does not live all the time.
    """
    lines = iterate_short_lines(path)
    _, header = next(lines, (1, ""))
    columns = _column_places(header)
    missing = [name for name in ("lower", "size") if name not in columns]
    missing += [] if {"upper", "end"} & columns.keys() else ["upper"]
    if missing:
        raise TraceError(msg("placement.columns", columns=", ".join(missing)), path=path, line=1)
    found: dict[str, PlacementRow] = {}
    total = 0
    for number, line in lines:
        try:
            fields = next(csv.reader([line], strict=True)) if '"' in line else line.split(",")
        except csv.Error as error:
            raise TraceError(msg("placement.row", detail=str(error)), path=path, line=number) from error
        row = _parse_row(path, number, fields, columns, str(len(found)))
        total += row.size
        if row.id in found:
            raise TraceError(msg("placement.twice", id=row.id), path=path, line=number)
        if total > _MOST_TOTAL or len(found) >= _MOST_ROWS:
            raise TraceError(msg("placement.too-large"), path=path, line=number)
        found[row.id] = row
    if not found:
        raise TraceError(msg("placement.no-rows"), path=path)
    return list(found.values())


def capacity_in_name(path: Path) -> int | None:
    """Return the capacity in a name such as ``A.1048576.csv``, as in minimalloc's benchmarks, or None."""
    parts = path.name.split(".")
    if len(parts) == 3 and parts[1].isascii() and parts[1].isdigit() and len(parts[1]) < _MOST_DIGITS:  # noqa: PLR2004
        return int(parts[1]) or None
    return None


def _column_places(header: str) -> dict[str, int]:
    names = [name.strip().strip('"').lower() for name in header.strip().split(",")]
    return {_ALIASES.get(name, name): position for position, name in enumerate(names)}


def _parse_row(path: Path, line: int, fields: list[str], columns: dict[str, int], position: str) -> PlacementRow:
    if len(fields) != max(columns.values()) + 1:
        raise TraceError(
            msg("placement.fields", found=len(fields), wanted=max(columns.values()) + 1), path=path, line=line
        )
    texts = {name: fields[at].strip() for name, at in columns.items()}
    if texts.get("gaps"):
        raise TraceError(msg("placement.gaps"), path=path, line=line)
    inclusive = "upper" not in texts
    texts.setdefault("upper", texts.get("end", ""))
    texts["alignment"] = texts.get("alignment") or "1"
    values = {name: _parse_number(path, line, name, texts[name]) for name in ("lower", "upper", "size", "alignment")}
    upper = values["upper"] + inclusive
    if values["lower"] >= upper:
        raise TraceError(msg("placement.life", lower=values["lower"], upper=upper), path=path, line=line)
    if values["alignment"] < 1:
        raise TraceError(msg("placement.alignment"), path=path, line=line)
    return PlacementRow(texts.get("id", position), values["lower"], upper, values["size"], values["alignment"])


def _parse_number(path: Path, line: int, name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS) or int(text) > _MOST[name]:
        raise TraceError(msg("placement.number", column=name, text=text[:40], most=_MOST[name]), path=path, line=line)
    return int(text)


@dataclass(frozen=True, slots=True, eq=False)
class PlanReport:
    """A plan with the result of an independent check."""

    plan: PackingPlan
    source: str  # the file or folder
    faults: tuple[PackingFault, ...]  # faults that the independent check found; empty if the plan is valid
    recorded: int | None = None  # footprint of the run in bytes; None if unknown
    rank: int | None = None  # the rank of the run; None for other sources
    asked_capacity: int | None = None  # the requested capacity; None if not requested
    unreleased: int = 0  # blocks whose release the trace lacks
    slow: Message | None = None  # why the compiled engine could not be used; None if it was used
    torch: TorchPlan | None = (
        None  # of a snapshot or dry-run: its streams, and the bytes that PyTorch's allocator reserves
    )

    @property
    def is_valid(self) -> bool:
        """Return whether no two live blocks overlap."""
        return not self.faults

    @property
    def fits_capacity(self) -> bool | None:
        """Return whether the plan is within the requested capacity; None if not requested."""
        return None if self.asked_capacity is None else self.plan.height <= self.asked_capacity


@dataclass(frozen=True, slots=True, eq=False)
class MemLogAnalysis:
    """The analysis of a trace that STAlloc recorded."""

    log: MemLog  # the trace
    report: memlog.MemLogReport  # the analysis that STAlloc itself makes of it
    plan: PlanReport  # the lowest addresses of its blocks


def plan_blocks(path: Path, request: PlanRequest, on_progress: Callable[[PackingProgress], None]) -> PlanReport:
    """Plan the largest pool of one rank of a run, one device of a snapshot, or a placement problem."""
    if is_snapshot(path) or is_dry_run(path):
        engine, slow = native.best_engine()

        def plan_part(problem: PackingProblem, share: float) -> PackingPlan:
            return plan_addresses(problem, engine, request.seconds and request.seconds * share, on_progress)

        plan, torch = plan_snapshot(path, request.rank, request.capacity, plan_part)
        return PlanReport(
            plan, str(path), tuple(_find_faults(plan)), None, request.rank, request.capacity, slow=slow, torch=torch
        )
    if path.is_file() and is_placement_csv(path):
        problem, recorded, trace = problem_of_csv(path, request.capacity), None, None
    else:
        trace = read_rank(path, request.rank)
        problem, recorded = problem_of_trace(trace, request.capacity)
    made = replace(_plan_problem(problem, path, request, on_progress), asked_capacity=request.capacity)
    if trace is None:
        return made
    return replace(made, recorded=recorded, rank=trace.files.rank, unreleased=trace.table.unreleased)


def analyse_memlog(
    path: Path, request: PlanRequest, on_progress: Callable[[PackingProgress], None], *, npu: bool
) -> MemLogAnalysis:
    """Analyse a trace of STAlloc as STAlloc does, and plan its blocks."""
    log = read_memlog(path)
    report = memlog.analyse_log(log, npu=npu)
    return MemLogAnalysis(log, report, _plan_problem(memlog.make_problem(log), path, request, on_progress))


def _plan_problem(
    problem: PackingProblem, path: Path, request: PlanRequest, on_progress: Callable[[PackingProgress], None]
) -> PlanReport:
    engine, slow = native.best_engine()
    result = plan_addresses(problem, engine, request.seconds, on_progress)
    return PlanReport(result, str(path), tuple(_find_faults(result)), slow=slow)


def _find_faults(plan: PackingPlan) -> list[PackingFault]:
    problem = plan.problem
    columns = (problem.lower, problem.upper, problem.size, problem.alignment, plan.address)
    return find_faults(list(map(Placed, *(column.tolist() for column in columns))))


def problem_of_csv(path: Path, capacity: int | None) -> PackingProblem:
    """Read a placement problem; the file name may contain the capacity."""
    rows = read_placement_csv(path)
    names, *columns = zip(*rows, strict=True)
    lower, upper, size, alignment = (np.array(column, np.int64) for column in columns)
    return PackingProblem(lower, upper, size, alignment, tuple(names), capacity or capacity_in_name(path))


def problem_of_trace(trace: RankTrace, capacity: int | None) -> tuple[PackingProblem, int | None]:
    """Return the blocks of a run's largest memory pool, and the footprint of the pool."""
    _, work, rows = largest_pool(trace.table)
    start = np.array([request.start for request in work.requests], np.int64)
    last = 1 + max(int(start.max()), *(request.end or 0 for request in work.requests))
    end = np.array([last if request.end is None else request.end for request in work.requests], np.int64)
    size = np.array([request.size for request in work.requests], np.int64)
    names = tuple(str(line) for line in trace.table.line[rows].tolist())
    # A dry-run counts tensors, and no pool.
    footprint = 0 if trace.table.is_logical else max((row.actual or 0 for row in work.recorded), default=0)
    problem = PackingProblem(start, np.maximum(end, start + 1), size, np.full(len(size), ALIGNMENT), names, capacity)
    return problem, footprint or None


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The options of an address plan.

    Attributes:
        rank: The rank of a run, or the device of a snapshot; None for the first, or the one with the most events.
        capacity: Bytes that the blocks must fit in.
        seconds: How long to search; None to choose by the number of blocks.
    """

    rank: int | None = None
    capacity: int | None = None
    seconds: float | None = None


class StreamPlan(Record):
    """The part of a plan for one stream."""

    stream: int
    rows: NDArray[np.int64]  # its blocks in the plan's problem, in the order of their requests
    base: int  # the first address of its range
    height: int  # bytes of its range
    step: RepeatedStep | None  # its repeating requests; None if none repeat
    changed: int  # number of repeating requests whose size differs from that of the request one step before


class TorchPlan(Record):
    """A plan of a snapshot, and the memory that PyTorch's allocator reserves for the same requests."""

    padding: int  # bytes that the allocator adds to each request
    older: int  # number of blocks that are older than the recording; they come first in the plan
    streams: tuple[StreamPlan, ...]
    reserved: dict[str, int]  # bytes: `recorded` (if known), `classic` and `expandable` segments


def plan_snapshot(
    path: Path, device: int | None, capacity: int | None, plan: Callable[[PackingProblem, float], PackingPlan]
) -> tuple[PackingPlan, TorchPlan]:
    """Plan all blocks of one device of a snapshot, or the tensors of a dry-run; ``plan`` gets a share of its time each.

    Each stream gets its own range of addresses: work of another stream may still read a block that the program has released.
    """
    report = analyse_snapshot(path, device, None, lambda _message, _share: None)
    requests = _list_requests(report)
    if not requests:
        raise TraceError(msg("snapshot.no-history"), path=path)
    older = sum(request.start == 0 for request in requests)
    padded = replace(report.replay.settings, roundup=())
    last = len(report.device.events) + 2
    lower, upper, size = (
        np.array(column, np.int64)
        for column in zip(
            *((one.start, one.end or last, padded.round_request(one.size)) for one in requests), strict=True
        )
    )
    stream = np.array([one.stream for one in requests], np.uint64)
    problem = PackingProblem(lower, upper, size, np.full(len(size), ALIGNMENT), capacity=capacity)
    parts: list[StreamPlan] = []
    address, plans = np.zeros(len(problem), np.int64), list[PackingPlan]()
    numbers, begun = np.unique(stream, return_index=True)
    for number in numbers[np.argsort(begun)].tolist():
        rows = np.flatnonzero(stream == number)
        own = problem if len(rows) == len(problem) else replace(problem.take_rows(rows), capacity=None)
        made = plan(own, len(rows) / len(problem))
        base = sum(part.height for part in parts)
        step = made.step or find_repeated_step(own)
        parts.append(StreamPlan(number, rows, base, made.height, step, _count_changes(own.size, step)))
        address[rows] = base + made.address
        plans.append(made)
    whole = max(plans, key=lambda each: len(each.problem))
    whole = replace(
        whole,
        problem=problem,
        address=address,
        lower_bound=sum(each.lower_bound for each in plans),
        height=sum(each.height for each in plans),
        seconds=sum(each.seconds for each in plans),
        proven=all(each.proven for each in plans),
        late=any(each.late for each in plans),
    )
    return whole, TorchPlan(padded.padding, older, tuple(parts), _reserved_bytes(report, requests))


def _list_requests(report: TorchReport) -> list[Request]:
    """Return the blocks in the order of their requests; those older than the recording start at tick 0."""
    device, start = report.device, report.replay.start
    segments = [(segment.address, segment.address + segment.size, segment.stream) for segment in device.segments]
    events = device.events
    usual = int(events.stream[0]) if len(events) else 0

    def stream_at(address: int) -> int:
        return next((stream for low, high, stream in segments if low <= address < high), usual)

    older = start.requested if report.replay.is_exact else {}
    if not report.replay.is_exact:
        older = {address: (size, stream_at(address)) for address, size in find_earlier_blocks(device).items()}
    first = {address: place for address, place, _ in events.first_turns()}
    found = [Request(older[at][0], 0, first[at] + 1 if at in first else None, older[at][1]) for at in sorted(older)]
    ends = events.release_events()
    return found + [
        Request(size, place + 1, None if end == NEVER_FREED else end + 1, stream)
        for (place, _, _, size, stream), end in zip(
            events.iterate_rows(events.places_with(Action.ALLOC)),
            ends[events.places_with(Action.ALLOC)].tolist(),
            strict=True,
        )
    ]


def _count_changes(size: NDArray[np.int64], step: RepeatedStep | None) -> int:
    if step is None:
        return 0
    part = size[step.first : step.last]
    return int((part[step.period :] != part[: -step.period]).sum())


def _reserved_bytes(report: TorchReport, requests: list[Request]) -> dict[str, int]:
    found = {}
    if report.replay.is_exact and report.reserved_peak_bytes is not None and not report.simulated:
        found["recorded"] = report.reserved_peak_bytes
    for name in ("classic", "expandable"):
        settings = change_segments(report.replay.settings, expandable=name == "expandable")
        if report.replay.is_exact:
            outcome = replay_setting(report.recording, settings, Cache.AS_RECORDED, recorded=False)
            found[name] = outcome.reserved_peak_bytes
        else:
            found[name] = replay_workload(make_workload(requests), TorchPool(settings)).reserved_peak
    return found
