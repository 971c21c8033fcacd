"""Make snapshots of programs in the format of PyTorch and torch_npu: plain containers, ready to be pickled."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from ms_tune.pools.torch_pool import TorchPool
from ms_tune.pools.workload import Request
from ms_tune.units import KIB, MIB

if TYPE_CHECKING:
    from ms_tune.pools.torch_space import TorchSettings

Recording = dict[str, Any]
STREAM = 1276474240
TRAIN = [
    {"name": "forward", "filename": "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", "line": 125},
    {"name": "step", "filename": "/workspace/train.py", "line": 18},
    {"name": "<module>", "filename": "/workspace/train.py", "line": 40},
]
LEAK = [{"name": "keep", "filename": "/workspace/train.py", "line": 12}]


class Program:
    """A training run on an allocator, and its recording.

    Args:
        settings: Settings of the allocator.
        seed: Seed of its allocations.
    """

    def __init__(self, settings: TorchSettings, seed: int = 0) -> None:
        self.random = Random(seed)  # noqa: S311 - a program of a test
        bases = [(0x20 << 40) + number * (1 << 42) for number in range(4)] if settings.expandable else None
        self.pool = TorchPool(settings, bases or [((number * 7919) % 997 + 1) << 33 for number in range(900)])
        self.settings = settings
        self.events: list[Recording] = []
        self.live: dict[int, tuple[int, list[Recording]]] = {}
        self.used: list[int] = []  # bytes of live blocks after each event

    def event(self, action: str, address: int, size: int, frames: list[Recording] | None = None) -> None:
        found: Recording = {"action": action, "addr": address, "size": size, "stream": STREAM, "frames": frames or []}
        self.events.append(found)
        self.used.append(self.pool.state.used)  # before it is carried out, for those that change it

    def allocate(self, size: int, frames: list[Recording] | None = None) -> int:
        before = len(self.pool.state.units)
        ranges = self.ranges()
        address = self.pool.allocate(Request(size, len(self.events), None, STREAM))
        if self.settings.expandable:
            for start, end in _new(ranges, self.ranges()):
                self.event("segment_map", start, end - start, frames)
        else:
            for unit in self.pool.state.units[before:]:
                self.event("segment_alloc", unit.base, unit.size, frames)
        self.event("alloc", address, size, frames)  # the pool has allocated it already
        self.live[address] = (size, frames or [])
        return address

    def free(self, address: int) -> None:
        size, _ = self.live.pop(address)
        self.event("free_requested", address, size)
        self.event("free_completed", address, size)
        self.pool.free(address)
        self.used[-1] = self.pool.state.used

    def empty_cache(self) -> None:
        held = [unit for unit in self.pool.state.units if unit.released is None]
        ranges = self.ranges()
        self.pool.state.request = len(self.events)
        self.pool.release()
        if self.settings.expandable:
            for start, end in _new(self.ranges(), ranges):
                self.event("segment_unmap", start, end - start)
        else:
            for unit in held:
                if unit.released is not None:
                    self.event("segment_free", unit.base, unit.size)

    def ranges(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for address, (size, _) in sorted(self.pool.mapped_blocks().items()):
            if found and found[-1][1] == address and self.settings.expandable:
                found[-1] = (found[-1][0], address + size)
            else:
                found.append((address, address + size))
        return found

    def run(self, steps: int = 3, *, emptied: bool = False) -> Program:
        """Run some steps that keep weights, allocate activations, and leave some blocks."""
        weights = [self.allocate(self.random.choice([512, 40 * KIB, 3 * MIB, 21 * MIB])) for _ in range(12)]
        assert len(weights) == len(self.live)
        for _ in range(steps):
            held = []
            for _ in range(60):
                held.append(self.allocate(self.random.randint(1, 9 * MIB), TRAIN))
                if self.random.random() < 0.4:
                    self.free(held.pop(self.random.randrange(len(held))))
            self.allocate(4 * MIB, LEAK)
            while held:
                self.free(held.pop())
            if emptied:
                self.empty_cache()
        return self

    def snapshot(self, *, first: int = 0) -> Recording:
        """Return the snapshot at the end; the recording begins with an event."""
        segments: list[Recording] = []
        layout = sorted(self.pool.mapped_blocks().items())
        starts = {unit.base: unit for unit in self.pool.state.units if unit.released is None and unit.size}
        parts = {address: unit.part for address, unit in starts.items()}
        current: Recording | None = None
        part = ""
        for address, (size, live) in layout:
            part = parts.get(address, part)
            new = address in starts or current is None or current["address"] + current["total_size"] != address
            if new or current is None:
                current = {
                    "device": 0, "address": address, "total_size": 0, "stream": STREAM, "segment_type": part,
                    "segment_pool_id": (0, 0), "is_expandable": self.settings.expandable, "blocks": [],
                }  # fmt: skip
                segments.append(current)
            current["total_size"] += size
            requested, frames = self.live.get(address, (size, []))
            state = "active_allocated" if live else "inactive"
            current["blocks"].append(
                {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}
            )
        return {"segments": segments, "device_traces": [self.events[first:]]}


def _new(before: list[tuple[int, int]], after: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what is mapped after and was not before."""
    pages = {page for start, end in before for page in range(start, end, 2 * MIB)}
    found: list[tuple[int, int]] = []
    for page in (page for start, end in after for page in range(start, end, 2 * MIB) if page not in pages):
        if found and found[-1][1] == page:
            found[-1] = (found[-1][0], page + 2 * MIB)
        else:
            found.append((page, page + 2 * MIB))
    return found
