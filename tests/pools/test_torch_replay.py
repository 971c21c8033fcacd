"""Compare recordings of PyTorch's and torch_npu's allocator with their replay: exact, or refused with the first difference."""

from __future__ import annotations

import pickle
from pathlib import Path
from random import Random

import pytest

from ms_tune.memory.what_if import TorchWhatIfRequest, replay_snapshot
from ms_tune.pools.initial_state import Ranges
from ms_tune.pools.torch_replay import ReplayDifference, TorchReplay, replay_recording
from ms_tune.pools.torch_space import NPU_BASE_ALIGNMENT, NPU_PADDING, TorchSettings
from ms_tune.readers.torch_snapshot import read_torch_snapshot
from ms_tune.units import KIB, MIB
from tests.pools.torch_recordings import Program, Recording

REAL = Path(__file__).parents[3] / "shared" / "fixtures" / "torch_npu" / "snapshots"
NPU = TorchSettings(padding=NPU_PADDING)
NPU_EXPANDABLE = TorchSettings(padding=NPU_PADDING, expandable=True, base_alignment=NPU_BASE_ALIGNMENT)
SETTINGS = [
    TorchSettings(),
    NPU,
    NPU_EXPANDABLE,
    TorchSettings(expandable=True),
    TorchSettings(padding=NPU_PADDING, max_split=64 * MIB),
]


def replayed(recording: Recording, folder: Path, expected: TorchSettings | None = None) -> TorchReplay:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(recording, protocol=4))
    return replay_recording(read_torch_snapshot(path).devices[0], expected or TorchSettings())


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("emptied", [False, True])
def test_a_recording_from_the_start_is_replayed_exactly(
    settings: TorchSettings, tmp_path: Path, *, emptied: bool
) -> None:
    program = Program(settings, seed=5).run(emptied=emptied)
    found = replayed(program.snapshot(), tmp_path)
    assert (found.differences, found.first) == (0, None)
    assert (found.settings.padding, found.settings.expandable) == (settings.padding, settings.expandable)
    assert found.reserved[-1] == program.pool.state.reserved
    assert found.used[-1] == program.pool.state.used


@pytest.mark.drawn(5)
@pytest.mark.parametrize("settings", [*SETTINGS[:4], TorchSettings(max_split=4 * MIB)])
@pytest.mark.parametrize("seed", range(3))
def test_a_recording_that_begins_in_the_middle(settings: TorchSettings, seed: int, tmp_path: Path) -> None:
    program = Program(settings, seed=seed).run(emptied=seed == 1)
    starts = [at for at, event in enumerate(program.events) if event["action"] == "free_completed"]
    for first in starts[:: max(1, len(starts) // 6)]:
        found = replayed(program.snapshot(first=first + 1), tmp_path, TorchSettings(max_split=settings.max_split))
        assert (found.differences, found.first) == (0, None)
        assert found.reserved[-1] == program.pool.state.reserved
        # Of an initial block that was freed later only the requested size is known, not the remainder that was not
        # split off: that follows from the blocks behind it, or is counted as uncertain.
        peak, truth = max(found.used.tolist()), max(program.used[first + 1 :])
        assert peak <= truth <= peak + found.uncertain_bytes
        assert settings.expandable <= (peak == truth)


def test_a_remainder_before_a_live_block_or_a_hole_belongs_to_its_block(tmp_path: Path) -> None:
    base, asked, rest, total = 1 << 40, 4 * MIB, 960 * KIB, 20 * MIB
    behind = base + asked + rest

    def event(action: str, address: int, size: int) -> Recording:
        return {"action": action, "addr": address, "size": size, "stream": 0}

    def replay(events: list[Recording], blocks: list[tuple[int, int]]) -> TorchReplay:
        places = [base, *(address + size for address, size in blocks)]
        holes = [
            (start, end - start) for start, end in zip(places, [*(at for at, _ in blocks), base + total], strict=True)
        ]
        layout = [
            {
                "address": at,
                "size": size,
                "requested_size": size if live else 0,
                "state": "active_allocated" if live else "inactive",
            }
            for at, size, live in sorted([(*one, True) for one in blocks] + [(*one, False) for one in holes if one[1]])
        ]
        segment = {"address": base, "total_size": total, "stream": 0, "segment_type": "large", "blocks": layout}
        return replayed({"segments": [segment], "device_traces": [events]}, tmp_path)

    freed = [event("free_requested", base, asked), event("free_completed", base, asked)]
    hole = replay(
        [event("alloc", behind, 8 * MIB), *freed, event("alloc", base, 2 * MIB)], [(base, 2 * MIB), (behind, 8 * MIB)]
    )
    assert (hole.is_exact, hole.used.max(), hole.uncertain_bytes) == (True, asked + rest + 8 * MIB, 0)
    live = replay(freed, [(behind, 4 * MIB)])
    assert (live.is_exact, max(live.start.live.values()), live.uncertain_bytes) == (True, asked + rest, 0)
    # Nothing is allocated behind the block while it lives: up to 1 MiB more is as exact.
    unknown = replay(freed, [])
    assert (unknown.is_exact, unknown.uncertain_bytes) == (True, MIB)


def test_whatever_is_changed_is_found(tmp_path: Path) -> None:
    program = Program(NPU, seed=9).run()
    plain = program.snapshot()
    allocations = [at for at, event in enumerate(plain["device_traces"][0]) if event["action"] == "alloc"]
    grown = [at for at, event in enumerate(plain["device_traces"][0]) if event["action"] == "segment_alloc"]
    for place, key, change in (
        (allocations[40], "size", 700_000),
        (allocations[70], "stream", 1),
        (grown[3], "size", 2 * MIB),
    ):
        events = [dict(event) for event in plain["device_traces"][0]]
        events[place][key] += change
        found = replayed({**plain, "device_traces": [events]}, tmp_path)
        assert found.differences > 0
        assert found.first is not None
        assert found.first.event <= len(events)
    twice = [*plain["device_traces"][0], plain["device_traces"][0][allocations[-1]]]
    found = replayed({**plain, "device_traces": [twice]}, tmp_path)
    assert found.first is not None
    assert found.first.what == "alloc"
    holed = next(one for one in plain["segments"] if one["blocks"][-1]["state"] == "inactive")
    hole = holed["blocks"].pop()
    half = hole["size"] // 2
    holed["blocks"] += [
        {**hole, "size": half},
        {**hole, "address": hole["address"] + half, "size": hole["size"] - half},
    ]
    found = replayed(plain, tmp_path)
    assert found.first == ReplayDifference(len(program.events), "layout", half, hole["size"])


def test_one_setting_foretells_what_the_other_takes(tmp_path: Path) -> None:
    programs = {}
    for name, settings in (("classic", NPU), ("expandable", NPU_EXPANDABLE)):
        programs[name] = Program(settings, seed=11).run(emptied=True)
        (tmp_path / name).write_bytes(pickle.dumps(programs[name].snapshot(), protocol=4))
    for name, other in (("classic", "expandable"), ("expandable", "classic")):
        asked = TorchWhatIfRequest(expandable=other == "expandable")
        result = replay_snapshot(tmp_path / name, asked, lambda _what, _share: None)
        recorded, foretold = result.outcomes
        assert result.error_bytes == 0
        assert recorded.reserved_peak_bytes == result.report.reserved_peak_bytes

        def after_allocations(curve: list[int], program: Program) -> list[int]:
            return [held for held, event in zip(curve, program.events, strict=True) if event["action"] == "alloc"]

        held: list[int] = []
        at = dict(foretold.reserved_curve)
        for event in range(len(programs[name].events)):
            held.append(at.get(event, held[-1] if held else 0))
        truth = replayed(programs[other].snapshot(), tmp_path).reserved.tolist()
        assert after_allocations(held, programs[name]) == after_allocations(truth, programs[other])


@pytest.mark.parametrize(
    ("name", "allocations", "used", "reserved", "growths"),
    [
        ("snapshot_1768383987920985470.pkl", 3216, 494_000_128, 551_550_976, 52),
        ("snapshot_expandable.pkl", 2899, 597_800_960, 643_825_664, 45),
        ("snapshot_with_empty_cache.pkl", 2899, 616_078_336, 662_700_032, 79),
        ("silmont_mem_snapshot.pickle", 36, 3_249_144_832, 3_781_165_056, 9),
        ("silmont_memory_forward_fp32_128.pickle", 681, 560_939_008, 610_271_232, 0),
    ],
)
def test_real_recordings(name: str, allocations: int, used: int, reserved: int, growths: int) -> None:
    if not (REAL / name).is_file():
        pytest.skip("data of other projects, not on this machine; the tests above have recordings of our own")
    snapshot = read_torch_snapshot(REAL / name)
    device = max(snapshot.devices, key=lambda one: len(one.events))
    found = replay_recording(device, TorchSettings(max_split=snapshot.max_split))
    assert (found.allocations, found.differences) == (allocations, 0)
    assert (max(found.used), max(found.reserved), len(found.growths)) == (used, reserved, growths)


def test_a_made_up_recording_is_refused() -> None:
    if not (REAL / "mosaic.pickle").is_file():
        pytest.skip("data of another project, not on this machine; the tests above have recordings of our own")
    found = replay_recording(read_torch_snapshot(REAL / "mosaic.pickle").devices[0], TorchSettings())
    assert found.first is not None
    assert found.differences >= found.allocations == 520


@pytest.mark.parametrize("seed", range(20))
def test_ranges_are_a_set(seed: int) -> None:
    random, ranges, plain = Random(seed), Ranges(), set[int]()  # noqa: S311 - cases of a test
    for _ in range(60):
        start = random.randrange(60)
        end = start + random.randrange(15)
        if random.random() < 0.6:
            ranges.add(start, end)
            plain |= set(range(start, end))
        else:
            ranges.remove(start, end)
            plain -= set(range(start, end))
        inside = [at for low, high in ranges.ranges_between(start, end + 9) for at in range(low, high)]
        assert inside == [at for at in range(start, end + 9) if at in plain]
        outside = [at for low, high in ranges.missing_between(start, end + 9) for at in range(low, high)]
        assert outside == [at for at in range(start, end + 9) if at not in plain]
