"""Replays what a snapshot of PyTorch's or torch_npu's allocator recorded, and compares addresses and segments.

The snapshot (``torch.cuda.memory._snapshot()``, ``torch_npu.npu.memory._snapshot()``) is taken as the plain containers that
it consists of; reading files is not this module's business. ``alloc`` events carry the size that was asked for, and a
block is free for others from ``free_completed`` on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ms_tune.allocator.replay import Replay, replay
from ms_tune.allocator.torch_pool import NPU_PADDING, TorchPool, TorchSettings
from ms_tune.allocator.workload import Recorded, Request, Workload, workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Comparison:
    """A snapshot beside its replay.

    Attributes:
        settings: Those that reproduce most: with the padding of an NPU or without.
        replay: The replay.
        blocks: Blocks in the snapshot.
        wrong_addresses: How many of them lie elsewhere in the replay.
        segments: Segments that the snapshot shows being taken.
        wrong_segments: How many of them have another size in the replay, were not taken, or were taken beyond them.
    """

    settings: TorchSettings
    replay: Replay
    blocks: int
    wrong_addresses: int
    segments: int
    wrong_segments: int


def compare_snapshot(events: Sequence[Mapping[str, Any]], settings: TorchSettings | None = None) -> Comparison:
    """Replay the events of one device from the start of the process.

    Args:
        events: An entry of the snapshot's ``device_traces``, complete from the first allocation on.
        settings: Of the allocator; None: the defaults, with and without an NPU's padding, whichever reproduces more.
    """
    work = workload_of(events)
    segments = [(int(event["addr"]), int(event["size"])) for event in events if event["action"] == "segment_alloc"]
    tried = [settings] if settings else [TorchSettings(), TorchSettings(padding=NPU_PADDING)]
    found = [_compare(work, segments, each) for each in tried]
    return min(found, key=lambda one: one.wrong_addresses + one.wrong_segments)


def _compare(work: Workload, segments: Sequence[tuple[int, int]], settings: TorchSettings) -> Comparison:
    result = replay(work, TorchPool(settings, bases=[base for base, _ in segments]))
    taken = [(unit.base, unit.size) for unit in result.units]
    pairs = zip(result.addresses, work.recorded, strict=True)
    same = sum(ours == theirs for ours, theirs in zip(taken, segments, strict=False))
    return Comparison(
        settings=settings,
        replay=result,
        blocks=len(work.requests),
        wrong_addresses=sum(ours != row.address for ours, row in pairs),
        segments=len(segments),
        wrong_segments=max(len(taken), len(segments)) - same,
    )


def workload_of(events: Sequence[Mapping[str, Any]]) -> Workload:
    """The events as requests; a tick is an event's position. Runs of ``segment_free`` are calls of ``empty_cache``."""
    starts: list[tuple[int, int, int, int]] = []  # tick, size, address, stream
    ends: dict[int, int] = {}  # of the requests, by position
    live: dict[int, int] = {}
    releases: list[int] = []
    for tick, event in enumerate(events, 1):
        action, address = event["action"], int(event["addr"])
        if action == "alloc":
            live[address] = len(starts)
            starts.append((tick, int(event["size"]), address, int(event.get("stream", 0))))
        elif action == "free_completed" and address in live:
            ends[live.pop(address)] = tick
        elif action == "segment_free" and (not releases or events[tick - 2]["action"] != "segment_free"):
            releases.append(tick)
    requests = [Request(size, tick, ends.get(row), stream) for row, (tick, size, _, stream) in enumerate(starts)]
    recorded = tuple(Recorded(address, None, None) for _, _, address, _ in starts)
    return workload(requests, releases)._replace(recorded=recorded)
