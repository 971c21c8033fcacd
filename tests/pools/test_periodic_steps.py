"""Check that executing equal steps once has the same results as executing each of them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ms_tune.footprint.torch_report import TorchReport, analyse_snapshot
from ms_tune.pools import torch_replay
from ms_tune.pools.torch_pool import TorchPool
from ms_tune.pools.torch_replay import Cache, Repeats, TorchOutcome, change_segments, find_repeats, replay_setting
from ms_tune.pools.torch_space import TorchSettings
from ms_tune.readers.torch_snapshot import read_torch_snapshot
from ms_tune.units import MIB
from tests.pools.test_torch_replay import NPU, NPU_EXPANDABLE
from tests.pools.torch_recordings import TRAIN, Program

STEPS = 12


class Again:
    """A driver that returns the lowest free address for a segment."""

    def __init__(self) -> None:
        self.pool: TorchPool | None = None

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        assert self.pool is not None
        held = {unit.base for unit in self.pool.state.units if unit.released is None}
        return next(base for base in (number << 42 for number in range(8, 999)) if base not in held)


def program(settings: TorchSettings, seed: int, *, emptied: bool) -> Program:
    """Return two different steps, many equal ones, and another different one."""
    made, bases = Program(settings, seed=seed), Again()
    made.pool = bases.pool = TorchPool(settings, bases)
    made.run(1, emptied=emptied)
    for number in range(STEPS + 2):
        random = Random(seed if 0 < number <= STEPS else number + 100)  # noqa: S311 - a program of a test
        held = []
        for _ in range(40):
            held.append(made.allocate(random.randint(1, 9 * MIB), TRAIN))
            if random.random() < 0.4:
                made.free(held.pop(random.randrange(len(held))))
        while held:
            made.free(held.pop())
        if emptied:
            made.empty_cache()
    return made


def summarise(report: TorchReport, outcome: TorchOutcome) -> tuple[object, ...]:
    replay = report.replay
    columns = (replay.used.tolist(), replay.reserved.tolist(), replay.sizes.tolist())
    return (
        *columns,
        replay.allocations,
        replay.differences,
        replay.first,
        replay.growths,
        replace(outcome),
        report.causes,
    )


@pytest.mark.slow
@pytest.mark.parametrize("settings", [NPU, NPU_EXPANDABLE, TorchSettings(), TorchSettings(expandable=True)])
@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize("damaged", [False, True])
def test_what_is_reported_is_the_same(
    settings: TorchSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, emptied: bool, damaged: bool
) -> None:
    monkeypatch.setattr(torch_replay, "_LEAST_EVENTS", 100)
    again: list[int] = []
    made = program(settings, 7, emptied=emptied)
    if damaged:
        [*filter(lambda event: event["action"] == "alloc", made.events)][-5]["size"] += 3 * MIB
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(made.snapshot()))
    other = change_segments(settings, expandable=not settings.expandable)

    def results() -> list[tuple[object, ...]]:
        report = analyse_snapshot(path, None, None, lambda _what, _share: None)
        if not report.replay.is_exact:
            return [(report.replay.first, report.replay.differences, report.contents)]
        return [
            summarise(report, replay_setting(report.recording, tried, cache, recorded=False))
            for tried in (settings, other, replace(other, total=40 * MIB, collect_above=0.5))
            for cache in Cache
        ]

    original = torch_replay.find_repeats

    def counted(events: object) -> Repeats | None:
        found = original(events)  # type: ignore[arg-type]
        again.append(found.times if found else 0)
        return found

    monkeypatch.setattr(torch_replay, "find_repeats", counted)
    short = results()
    assert max(again) >= STEPS - 2
    monkeypatch.setattr(torch_replay, "find_repeats", lambda _events: None)
    assert short == results()


def test_events_that_never_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_replay, "_LEAST_EVENTS", 100)
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(Program(NPU, seed=4).run(4).snapshot()))
    assert find_repeats(read_torch_snapshot(path).devices[0].events) is None
    path.write_bytes(pickle.dumps(program(NPU, 4, emptied=False).snapshot()))
    events = read_torch_snapshot(path).devices[0].events
    found = find_repeats(events)
    assert found is not None
    for place in range(found.begin, found.begin + found.length * (found.times - 1), 17):
        assert events[place][:4] == events[place + found.length][:4]
