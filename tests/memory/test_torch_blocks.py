"""Compare the columns of a snapshot's blocks with an evaluation event by event, in valid and in damaged recordings."""

from __future__ import annotations

import pickle
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ms_tune.footprint.torch_blocks import (
    find_earlier_blocks,
    find_script_location,
    find_step_ends,
    find_step_growth,
    list_blocks,
    sum_requested,
    sum_reserved_bytes,
)
from ms_tune.pools.initial_state import RecordingError, rewind_recording
from ms_tune.pools.torch_replay import replay_recording
from ms_tune.pools.torch_space import TorchSettings
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.readers.torch_snapshot import Action, DeviceTrace, Event, read_torch_snapshot
from ms_tune.units import MIB
from tests.pools.test_torch_replay import NPU, NPU_EXPANDABLE
from tests.pools.torch_recordings import LEAK, TRAIN, Program


def events_of(device: DeviceTrace) -> list[Event]:
    return [device.events[place] for place in range(len(device.events))]


def final_of(device: DeviceTrace) -> dict[int, int]:
    return {block.address: block.requested for one in device.segments for block in one.blocks if block.active}


def one_by_one(device: DeviceTrace) -> tuple[list[int], list[tuple[int, int, int, int]]]:
    """Return the requested bytes after each event, and start, end, size and address of the blocks."""
    live = final_of(device)
    for event in reversed(events_of(device)):
        if event.action is Action.FREE_COMPLETED:
            live[event.address] = event.size
        elif event.action is Action.ALLOC:
            live.pop(event.address, None)
    blocks = {address: (-1, size) for address, size in live.items()}
    total, curve, ended = sum(live.values()), [sum(live.values())], []
    for place, event in enumerate(events_of(device)):
        if event.action in (Action.ALLOC, Action.FREE_COMPLETED) and event.address in blocks:
            start, size = blocks.pop(event.address)
            ended.append((start, place, size, event.address))
            total -= size
        if event.action is Action.ALLOC:
            blocks[event.address] = (place, event.size)
            total += event.size
        curve.append(total)
    return curve, sorted([*ended, *((start, NEVER_FREED, size, at) for at, (start, size) in blocks.items())])


def damaged(random: Random, content: dict[str, Any]) -> dict[str, Any]:
    events = [dict(event) for event in content["device_traces"][0]]
    for _ in range(random.randrange(4)):
        kind = random.randrange(3)
        if kind == 0:
            del events[random.randrange(len(events))]
        elif kind == 1:
            events.insert(random.randrange(len(events)), dict(random.choice(events)))
        else:
            random.choice(events)["addr"] = random.choice(events)["addr"]
    return {**content, "device_traces": [events]}


def read(content: dict[str, Any], folder: Path) -> DeviceTrace:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(content))
    return read_torch_snapshot(path).devices[0]


@pytest.mark.parametrize("seed", range(30))
def test_what_was_asked_for(seed: int, tmp_path: Path) -> None:
    random = Random(seed)  # noqa: S311 - cases of a test
    program = Program(NPU_EXPANDABLE if seed % 2 else NPU, seed=seed).run(1, emptied=seed % 3 == 0)
    first = random.randrange(len(program.events)) if seed % 4 == 0 else 0
    device = read(damaged(random, program.snapshot(first=first)), tmp_path)
    curve, rows = one_by_one(device)
    assert sum_requested(device).tolist() == curve
    replayed = replay_recording(device, TorchSettings())
    blocks = list_blocks(device, replayed)
    columns = (blocks.start, blocks.end, blocks.size, blocks.address)
    found = sorted(zip(*(column.tolist() for column in columns), strict=True))
    if replayed.is_exact:  # its sizes are the allocator's
        assert [(start, end, address) for start, end, _, address in found] == [(s, e, a) for s, e, _, a in rows]
        sizes = [*blocks.size[blocks.live_after(-1)].tolist(), *replayed.sizes[replayed.sizes > 0].tolist()]
        assert blocks.size.tolist() == sizes
    else:
        assert found == rows
    assert sum(find_earlier_blocks(device).values()) == curve[0]


def test_a_block_of_before_has_not_the_stack_of_the_one_that_has_its_address_now(tmp_path: Path) -> None:
    program = Program(NPU, seed=3)
    kept, old = program.allocate(5 * MIB, LEAK), program.allocate(5 * MIB, LEAK)
    first = len(program.events)
    program.free(old)
    assert program.allocate(5 * MIB, TRAIN) == old
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(program.snapshot(first=first)))
    for at, lines in ((-1, {"/workspace/train.py:12", ""}), (2, {"/workspace/train.py:12", "/workspace/train.py:18"})):
        snapshot = read_torch_snapshot(path)
        blocks = list_blocks(snapshot.devices[0], replay_recording(snapshot.devices[0], TorchSettings()))
        live = blocks.live_after(at)
        assert {find_script_location(snapshot.stacks[stack]) for stack in blocks.stack[live].tolist()} == lines
        assert {kept, old} == set(blocks.address[live].tolist())


@pytest.mark.parametrize("seed", range(20))
def test_what_is_held_and_what_contradicts(seed: int, tmp_path: Path) -> None:
    random = Random(seed)  # noqa: S311 - cases of a test
    program = Program(NPU, seed=seed).run(1)
    device = read(damaged(random, program.snapshot()), tmp_path)
    live, wrong = set(final_of(device)), None
    classic = {segment.address for segment in device.segments}
    total = sum(segment.size for segment in device.segments)
    held = [total]
    for place in range(len(device.events) - 1, -1, -1):
        event = device.events[place]
        if event.action in (Action.SEGMENT_ALLOC, Action.SEGMENT_FREE):
            total += event.size if event.action is Action.SEGMENT_FREE else -event.size
        held.append(total)
        known = {Action.ALLOC: live, Action.SEGMENT_ALLOC: classic}.get(event.action)
        if wrong is None and known is not None and event.address not in known:
            wrong = ("alloc" if known is live else "segment", place)
        elif wrong is None and event.action is Action.FREE_COMPLETED and event.address in live:
            wrong = ("free", place)
        if known is not None:
            known.discard(event.address)
        elif event.action is Action.FREE_COMPLETED:
            live.add(event.address)
        elif event.action is Action.SEGMENT_FREE:
            classic.add(event.address)
    curve = sum_reserved_bytes(device)
    assert (curve is None) == (min(held) < 0)
    assert curve is None or curve.tolist() == held[::-1]
    if wrong is None:
        assert set(rewind_recording(device, NPU).live) == live
    else:
        with pytest.raises(RecordingError) as error:
            rewind_recording(device, NPU)
        assert (error.value.reason, error.value.event) == wrong


LINES = ["/optim/step.py", "/job/model.py", "/job/loss.py", "kernel.cpp"]


@pytest.mark.parametrize("seed", range(20))
def test_steps_and_what_grows_by_step(seed: int, tmp_path: Path) -> None:
    random = Random(seed)  # noqa: S311 - cases of a test
    events: list[dict[str, Any]] = []
    for number in range(60):
        kind = random.choices(range(4), [2, 3, 3, 3])[0]
        frames = [{"filename": LINES[kind], "line": 1, "name": "step"}]
        events.append({"action": "alloc", "addr": number * 512, "size": 512, "stream": 0, "frames": frames})
        if random.random() < 0.6:
            freed = random.randrange(number + 1) * 512
            events.append({"action": "free_completed", "addr": freed, "size": 512, "stream": 0, "frames": []})
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}))
    snapshot = read_torch_snapshot(path)
    device = snapshot.devices[0]
    lines = [stack[0].file if stack else "" for stack in snapshot.stacks]

    ends, backward, optimizer = [], False, False
    for place, event in enumerate(events_of(device)):
        if event.action is Action.ALLOC:
            if lines[event.stack] == LINES[0]:
                optimizer = backward
            elif optimizer:
                ends.append(place - 1)
                backward = optimizer = False
            backward |= lines[event.stack] == LINES[3]
    ends += [len(events) - 1] if optimizer else []
    assert list(find_step_ends(device, snapshot.stacks)) == ends

    for steps in (ends, sorted(random.sample(range(len(events)), 4))):
        _, rows = one_by_one(device)
        held: dict[str, list[int]] = defaultdict(list)
        for end in steps:
            for line in set(lines):
                live = [
                    row for row in rows if 0 <= row[0] <= end < row[1] and lines[device.events[row[0]].stack] == line
                ]
                held[line].append(sum(row[2] for row in live))
        expected = {
            line: tuple(amounts)
            for line, amounts in held.items()
            if len(steps) > 2 and all(after > before for before, after in pairwise(amounts[1:]))
        }
        grown = find_step_growth(list_blocks(device, replay_recording(device, TorchSettings())), lines, steps)
        assert {growth.where: growth.bytes for growth in grown} == expected
