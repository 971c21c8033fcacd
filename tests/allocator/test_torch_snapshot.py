"""Snapshots of PyTorch's allocator beside their replay."""

from __future__ import annotations

from typing import Any

from ms_tune.allocator.torch_pool import NPU_PADDING, TorchPool, TorchSettings
from ms_tune.allocator.workload import Request
from ms_tune.units import MIB
from tests.allocator.torch_snapshot import compare_snapshot, workload_of

Event = dict[str, Any]
SIZES = [100, 4 * MIB, 700_000, 12 * MIB - 32, 3_000_000, 512, 25 * MIB, 9 * MIB, 1, 6_000_000] * 6


def snapshot(settings: TorchSettings, *, emptied: bool = False) -> list[Event]:
    """What an allocator with segments all over the place records, with the sizes that were asked for."""
    bases = [(number * 7919 % 101 + 1) << 32 for number in range(60)]
    pool = TorchPool(settings, bases)
    events: list[Event] = []
    live: list[int] = []
    seen = 0

    def free(address: int) -> None:
        events.append({"action": "free_requested", "addr": address, "size": 0, "stream": 0})
        events.append({"action": "free_completed", "addr": address, "size": 0, "stream": 0})
        pool.free(address)

    for number, size in enumerate(SIZES):
        if emptied and number == 30:
            while live:
                free(live.pop())
            held = [unit for unit in pool.state.units if unit.released is None]
            pool.release()
            events.extend({"action": "segment_free", "addr": unit.base, "size": unit.size} for unit in held)
        pool.state.request = number
        address = pool.allocate(Request(size, number, None))
        events.extend(
            {"action": "segment_alloc", "addr": unit.base, "size": unit.size, "stream": 0}
            for unit in pool.state.units[seen:]
        )
        seen = len(pool.state.units)
        events.append({"action": "alloc", "addr": address, "size": size, "stream": 0})
        live.append(address)
        if number % 3 == 2:
            free(live.pop(number * 5 % len(live)))
    return events


def test_a_snapshot_is_reproduced_and_its_padding_found() -> None:
    for padding in (0, NPU_PADDING):
        for emptied in (False, True):
            found = compare_snapshot(snapshot(TorchSettings(padding=padding), emptied=emptied))
            assert found.settings.padding == padding
            assert (found.blocks, found.wrong_addresses, found.wrong_segments) == (60, 0, 0)
            assert found.segments == len(found.replay.units) > 5


def test_a_block_that_was_moved_and_a_segment_too_many_are_counted() -> None:
    events = snapshot(TorchSettings())
    last = max(number for number, event in enumerate(events) if event["action"] == "alloc")
    events[last] = {**events[last], "addr": events[last]["addr"] + 512}
    events.append({"action": "segment_alloc", "addr": 1 << 45, "size": 2 * MIB, "stream": 0})
    found = compare_snapshot(events, TorchSettings())
    assert (found.wrong_addresses, found.wrong_segments) == (1, 1)


def test_a_block_is_free_when_its_streams_are_done_and_not_before() -> None:
    events = [
        {"action": "segment_alloc", "addr": 4096, "size": 2 * MIB, "stream": 0},
        {"action": "alloc", "addr": 4096, "size": 100, "stream": 3},
        {"action": "free_requested", "addr": 4096, "size": 100, "stream": 3},
        {"action": "alloc", "addr": 4608, "size": 100, "stream": 3},
        {"action": "free_completed", "addr": 4096, "size": 100, "stream": 3},
        {"action": "segment_free", "addr": 1, "size": 1, "stream": 0},
        {"action": "segment_free", "addr": 2, "size": 1, "stream": 0},
        {"action": "free_completed", "addr": 77, "size": 100, "stream": 3},  # allocated before the recording began
    ]
    work = workload_of(events)
    assert work.requests == (Request(100, 2, 5, stream=3), Request(100, 4, None, stream=3))
    assert work.releases == (6,)
