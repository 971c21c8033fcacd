"""Plan the lowest addresses for the blocks of a run, of a placement problem or of a STAlloc trace."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ms_tune.errors import TraceError
from ms_tune.memory.torch_plan import TorchPlan, plan_snapshot, planner
from ms_tune.memory.what_if import RankTrace, largest_pool, read_rank
from ms_tune.packing import engine as native
from ms_tune.packing.placement import PackingFault, PackingPlan, PackingProblem, Placed, find_faults
from ms_tune.packing.plan import PackingProgress, plan_addresses
from ms_tune.pools import memlog
from ms_tune.pools.pool import ALIGNMENT
from ms_tune.readers.folder import is_dry_run
from ms_tune.readers.lines import iterate_short_lines
from ms_tune.readers.memlog import MemLog, read_memlog
from ms_tune.readers.plain_pickle import is_snapshot
from ms_tune.source.files import open_bytes
from ms_tune.text import Message, msg

_ALIASES = {"begin": "lower", "start": "lower", "buffer": "id", "buffer_id": "id"}
_NUMBERS = ("lower", "upper", "size", "alignment")
_MOST = {"lower": 2**62, "upper": 2**62, "size": 2**50, "alignment": 2**40}
_MOST_TOTAL = 2**61
_MOST_ROWS = 5_000_000
_MOST_DIGITS = 20
_HEADER_BYTES = 4096


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
            first = file.readline(_HEADER_BYTES).decode("utf-8-sig", "replace")
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
    values = {name: _parse_number(path, line, name, texts[name]) for name in _NUMBERS}
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
    stalloc: StallocPlan | None = None  # a plan for STAlloc's allocator; None if not requested


@dataclass(frozen=True, slots=True, eq=False)
class StallocPlan:
    """A plan that STAlloc's allocator can use for a run."""

    blocks: memlog.StaticBlocks  # the blocks in the plan
    plan: PlanReport  # the addresses of the placed blocks


def plan_blocks(path: Path, request: PlanRequest, on_progress: Callable[[PackingProgress], None]) -> PlanReport:
    """Plan the largest pool of one rank of a run, one device of a snapshot, or a placement problem."""
    if is_snapshot(path) or is_dry_run(path):
        engine, slow = native.best_engine()
        plan, torch = plan_snapshot(path, request.rank, request.capacity, planner(engine, request.seconds, on_progress))
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
    path: Path, request: PlanRequest, on_progress: Callable[[PackingProgress], None], *, npu: bool, stalloc: bool
) -> MemLogAnalysis:
    """Analyse a trace of STAlloc as STAlloc does, and plan its blocks."""
    log, served = read_memlog(path), None
    if stalloc:  # the blocks that repeat in each iteration, and those before them
        if log.layers:
            raise TraceError(msg("memlog.stalloc.layers", layer=log.layers[0]), path=path)
        blocks = memlog.select_static_blocks(log)
        if blocks is None:
            raise TraceError(msg("memlog.stalloc.iterations"), path=path)
        served = StallocPlan(blocks, _plan_problem(blocks.problem, path, request, lambda _progress: None))
    report = memlog.analyse_log(log, npu=npu)
    return MemLogAnalysis(log, report, _plan_problem(memlog.make_problem(log), path, request, on_progress), served)


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
