"""Place the logical tensors of a HyperParallel dry-run in the allocator of torch_npu or CUDA, and judge the result.

Their sum is the bytes that a program asks for. The allocator then reserves more, depending on sizes, order and settings,
which the exact model of it in :mod:`ms_tune.pools.torch_pool` computes, from an empty device on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_tune.errors import TraceError
from ms_tune.footprint.curve import compute_curve
from ms_tune.footprint.judgement import JudgedRequest, VerdictTerms
from ms_tune.pools.pool import replay_workload
from ms_tune.pools.torch_pool import TorchPool
from ms_tune.pools.torch_replay import change_segments
from ms_tune.pools.torch_space import EXPANDABLE_SPACE, NPU_PADDING, TorchSettings
from ms_tune.pools.workload import Workload, split_by_pool
from ms_tune.readers.dry_run import DryRunReport
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.table import NONE, Coded, Table
from ms_tune.readers.torch_snapshot import Action, DeviceTrace, Events, FinalBlock, SnapshotSegment, TorchSnapshot
from ms_tune.text import msg
from ms_tune.verdict.limit import device_of, limit_of_torch
from ms_tune.verdict.outcome import UntracedNeeds

_CUDA = "CUDA"  # how the second format's pool of a GPU begins


class PlacedTensors(NamedTuple):
    """The tensors of a dry-run in an allocator with its default settings."""

    table: Table  # with the allocator's addresses, and the reserved bytes as the footprint
    settings: TorchSettings  # the default settings
    expandable_bytes: int  # the most reserved bytes with expandable segments instead
    unlisted_bytes: int  # bytes of the peak that no row of the file has; they are the first row of the table
    whole: Table  # the tensors as read, and a second step in which the optimizer state exists from its beginning on
    # Of the second step: its peak, and the most reserved bytes; zero if the first one has all the state already.
    later_peak_bytes: int
    later_reserved_bytes: int


def place_tensors(logical: Table, report: DryRunReport | None) -> PlacedTensors:
    """Return the tensors of a dry-run as blocks of an allocator.

    A file of the first format has no rows for parameters, but its ``actual_peak_memory`` counts them. The bytes of the peak
    without rows become one more block that is never freed.
    """
    settings = default_settings(logical, report)
    lacking = max(int(logical.footprint_after.max(initial=0)) - compute_curve(logical).peak_bytes, 0)
    table = _add_block(logical, lacking) if lacking else logical
    if int(table.size.max(initial=0)) >= EXPANDABLE_SPACE // 2:  # no device has such a segment
        raise TraceError(msg("trace.sizes"))
    whole = _repeat_step(table)
    work, rows = _requests_of(whole)
    placed = replay_workload(work, TorchPool(settings))
    expandable = replay_workload(work, TorchPool(change_segments(settings, expandable=True)))
    address, reserved, best = whole.address.copy(), *(np.full(len(whole), NONE, np.int64) for _ in range(2))
    address[rows], reserved[rows], best[rows] = placed.addresses, placed.reserved, expandable.reserved
    unknown, first = np.full(len(table), NONE, np.int64), np.arange(len(whole)) < len(table)
    table = replace(table, address=address[first], footprint_after=reserved[first], used_after=unknown)
    later = (compute_curve(whole).peak_bytes, int(reserved.max())) if len(whole) > len(table) else (0, 0)
    return PlacedTensors(table, settings, int(best[first].max(initial=0)), lacking, whole, *later)


def _repeat_step(table: Table) -> Table:
    # A dry-run makes one step, whose optimizer state begins with its update. Blocks that outlive it are alive in the next one.
    begun = table.task.rows_in(["forward"])
    state = table.kind.rows_in(["Optstate"]) & (table.end == NEVER_FREED)
    if not begun.any() or not (table.start[state] > table.start[begun].min()).any():
        return table
    passing = np.flatnonzero((table.end != NEVER_FREED) & ~table.task.rows_in(["initialization"]))
    ticks = np.append(table.start, table.end[table.end != NEVER_FREED])
    longer = table.take_rows(np.append(np.arange(len(table)), passing))
    shift = np.where(np.arange(len(longer)) < len(table), 0, int(ticks.max()) + 1 - int(table.start[begun].min()))
    end = np.where(longer.end == NEVER_FREED, NEVER_FREED, longer.end + shift)
    return replace(longer, start=longer.start + shift, end=end)


def default_settings(table: Table, report: DryRunReport | None) -> TorchSettings:
    """Return the default settings of the allocator that a dry-run is about: CUDA's if it says so, else torch_npu's."""
    cuda = (report is not None and report.cuda) or any(name.startswith(_CUDA) for name in table.pool.values)
    return TorchSettings(padding=0 if cuda else NPU_PADDING)


def _requests_of(table: Table) -> tuple[Workload, list[int]]:
    # All rows are of one device, whatever their pools are called.
    one = replace(table, pool=Coded(np.zeros(len(table), np.int32), ("",)))
    return next(iter(split_by_pool(one).values()), (Workload((), (), ()), []))


def _add_block(table: Table, size: int) -> Table:
    longer = table.take_rows(np.append(0, np.arange(len(table))))
    first: dict[str, Any] = {"line": 0, "start": int(table.start.min()), "end": NEVER_FREED, "size": size, "address": 0}
    first |= dict.fromkeys(("used_after", "footprint_after", "producer", "first_user", "last_user"), NONE)
    columns: dict[str, Any] = {name: np.append(value, getattr(longer, name)[1:]) for name, value in first.items()}
    for name in ("kind", "task", "node", "graph", "stack"):
        column = getattr(longer, name)
        codes = np.append(len(column.values), column.codes[1:]).astype(np.int32)
        columns[name] = Coded(codes, (*column.values, () if name == "stack" else ""))
    columns["address"] = columns["address"].astype(np.uint64)
    return replace(longer, persistent=np.append(True, longer.persistent[1:]), **columns)


def collect_dry_run_terms(placed: PlacedTensors, report: DryRunReport | None, asked: JudgedRequest) -> VerdictTerms:
    """Return the terms of the verdict on a dry-run, which has neither communicators nor workspaces of kernels."""
    device = device_of(asked.chip, asked.device_bytes)
    degrees = {name: degree for name, degree in (report.parallel if report else {}).items() if degree > 1}
    if "dp_shard" in degrees or "dp_replicate" in degrees:
        degrees.pop("dp", None)
    outside = UntracedNeeds(
        torch=True,
        simulated=bool(placed.settings.padding),  # the reserve is for HCCL and torch_npu
        communicators=None if report is None else len(degrees) + (report.ranks > 1),
        counted=False,
        reserve_bytes=asked.reserve_bytes or 0,
        measured_bytes=asked.measured_bytes,
    )
    doubt = msg("trace.dry-run.failed", reason=report.failure) if report is not None and report.failure else None
    if not placed.settings.padding and not asked.names_device:
        doubt = doubt or msg("trace.dry-run.no-device")
    limit_by, later = (
        "device" if asked.names_device else "assumed",
        (placed.later_peak_bytes, placed.later_reserved_bytes),
    )
    terms = VerdictTerms(limit_of_torch(device), limit_by, outside, None, doubt)
    return terms._replace(variable=placed.settings.variable, later=later)


def usable_bytes(asked: JudgedRequest) -> int:
    """Return the bytes of a device that PyTorch's allocator can take."""
    return limit_of_torch(device_of(asked.chip, asked.device_bytes)).bytes - (asked.reserve_bytes or 0)


def record_placement(path: Path, placed: PlacedTensors) -> TorchSnapshot:
    """Return the placement as the allocator would have recorded it: every block, and every segment that it takes."""
    table = placed.whole
    work, rows = _requests_of(table)
    pool, addresses = TorchPool(placed.settings), [0] * len(rows)
    events: list[tuple[int, int, int, int]] = []  # action, address, size, row or -1
    for event in work.schedule:
        if event < 0:
            pool.free(addresses[~event])
            events.append((Action.FREE_COMPLETED, addresses[~event], work.requests[~event].size, -1))
            continue
        before = len(pool.state.units)
        addresses[event] = pool.allocate(work.requests[event])
        events += [(Action.SEGMENT_ALLOC, unit.base, unit.size, -1) for unit in pool.state.units[before:]]
        events.append((Action.ALLOC, addresses[event], work.requests[event].size, rows[event]))
    action, address, size, row = np.array(events, np.int64).reshape(-1, 4).T
    stacks, kinds = ((), *table.stack.values), ("", *table.kind.values)
    trace = Events(
        action.astype(np.int8),
        address,
        size,
        np.zeros(len(events), np.uint64),
        _codes_of(table.stack, row),
        _codes_of(table.kind, row),
        kinds,
        {},
    )
    segments = tuple(_list_segments(pool))
    return TorchSnapshot(path, (DeviceTrace(0, trace, segments),), stacks, False, None, ())  # noqa: FBT003 - a record


def _codes_of(column: Coded[Any], row: NDArray[np.int64]) -> NDArray[np.int32]:
    return np.where(row >= 0, column.codes[np.maximum(row, 0)] + 1, 0).astype(np.int32)


def _list_segments(pool: TorchPool) -> Iterator[SnapshotSegment]:
    units = sorted(pool.state.units, key=lambda unit: unit.base)
    bases = np.array([unit.base for unit in units], np.int64)
    blocks = sorted(pool.mapped_blocks().items())
    for place, group in groupby(blocks, key=lambda item: int(np.searchsorted(bases, item[0], side="right")) - 1):
        unit = units[place]
        found = tuple(FinalBlock(address, size, size, live, live, 0) for address, (size, live) in group)
        yield SnapshotSegment(unit.base, unit.size, 0, unit.part == "small", False, found)  # noqa: FBT003 - a record
