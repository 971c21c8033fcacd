"""Plan the addresses of a snapshot's blocks, and compare the plan with the memory that PyTorch's allocator reserves.

Each stream gets its own range of addresses: work of another stream may still read a block that the program has released, so
only the same stream, whose work is in order, can use its address again at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ms_tune.errors import TraceError
from ms_tune.footprint.torch_blocks import find_earlier_blocks
from ms_tune.footprint.torch_report import TorchReport, analyse_snapshot
from ms_tune.packing.engine import NumpyEngine
from ms_tune.packing.placement import PackingPlan, PackingProblem, RepeatedStep
from ms_tune.packing.plan import PackingProgress, find_repeated_step, plan_addresses
from ms_tune.pools.pool import ALIGNMENT, replay_workload
from ms_tune.pools.torch_pool import TorchPool
from ms_tune.pools.torch_replay import Cache, change_segments, replay_setting
from ms_tune.pools.workload import Request, make_workload
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.torch_snapshot import Action
from ms_tune.records import Record
from ms_tune.text import msg


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
    """Plan all blocks of one device of a snapshot, or the tensors of a dry-run; ``plan`` gets a share of its time each."""
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


def planner(
    engine: NumpyEngine, seconds: float | None, on_progress: Callable[[PackingProgress], None]
) -> Callable[[PackingProblem, float], PackingPlan]:
    """Return a function that plans a problem in its share of the seconds."""
    return lambda problem, share: plan_addresses(problem, engine, seconds and seconds * share, on_progress)
