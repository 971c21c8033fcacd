"""Test the cache of small dryruns: results are stored at once with all their inputs as the key."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ms_tune.dryrun.task import Observer
from ms_tune.enums import RecomputeMode
from ms_tune.errors import MsTuneError, RunError, UncutLayersError, UnsupportedError
from ms_tune.fit import measure as engine
from ms_tune.fit import table_cache
from ms_tune.fit.calibration_runs import count_job_layers, plan_probes
from ms_tune.fit.job import PlannedJob, uniform_lists
from ms_tune.fit.measure import Probe, RunFigures, measure_probes
from ms_tune.footprint.category import CONTENTS
from ms_tune.footprint.phases import Phase
from ms_tune.text import msg
from tests.fit.test_table import job_of
from tests.kinds import labels

HELD = dict.fromkeys(CONTENTS, 10)


def reading(size: int) -> Any:  # noqa: ANN401 - what stands for a reading
    report = SimpleNamespace(breakdown_at=lambda _tick: SimpleNamespace(contents=HELD))
    peaks = {None: SimpleNamespace(bytes=1, tick=0), Phase.BACKWARD: SimpleNamespace(bytes=size, tick=5)}
    return SimpleNamespace(report=report, phase_peaks=peaks, footprint_bytes=size + 1)


class Machine:
    """A replacement of the simulation that can be stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs, self.stops_after, self.fails = folder, 0, 10**6, -1

    def simulate_each(
        self,
        jobs: Any,  # noqa: ANN401
        _observer: Observer,
        on_read: Callable[[int, Any], None],
        on_error: Callable[[int, MsTuneError], None],
    ) -> Any:  # noqa: ANN401
        self.folder.mkdir(exist_ok=True)
        variants = []
        for number in range(len(jobs)):
            if self.runs == self.stops_after:
                raise KeyboardInterrupt
            self.runs += 1
            if number == self.fails:
                error = RunError(msg("dryrun.run.failed", code=1, reason="made up"))
                on_error(number, error)
                variants.append(SimpleNamespace(error=error))
                continue
            on_read(number, reading(1000 + number))
            variants.append(SimpleNamespace(error=None))
        return SimpleNamespace(variants=variants, folder=self.folder)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "runs")
    monkeypatch.setenv("MS_TUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(engine, "simulate_each", made.simulate_each)
    monkeypatch.setattr(engine, "simulated_by", lambda: "this machine")
    return made


def probes_of(job: PlannedJob) -> list[Probe]:
    loaded = job.with_lists(uniform_lists(job.placement, "none"))
    return [Probe("none", loaded, stage, layers) for stage in (0, 3) for layers in (2, 3)]


def sizes(found: tuple[RunFigures | MsTuneError, ...]) -> list[int]:
    return [one.peak if isinstance(one, RunFigures) else -1 for one in found]


def test_a_second_time_nothing_runs(machine: Machine, tmp_path: Path) -> None:
    job = job_of(tmp_path)
    first = measure_probes(job.request, probes_of(job), Observer())
    assert sizes(first) == [1000, 1001, 1002, 1003]
    assert machine.runs == 4
    assert measure_probes(job.request, probes_of(job), Observer()) == first
    assert machine.runs == 4
    figures = first[0]
    assert isinstance(figures, RunFigures)
    assert figures.phase_peaks == {"backward": 1000}
    assert figures.phase_persistent == {"backward": 30}  # weights, optimizer state, gradients
    assert (figures.footprint_bytes, labels(figures.kinds), figures.in_flight) == (1001, {"dense": 2}, (4,))
    assert not machine.folder.exists()


def test_what_was_found_before_the_user_stopped_is_kept(machine: Machine, tmp_path: Path) -> None:
    job = job_of(tmp_path)
    machine.stops_after = 3
    with pytest.raises(KeyboardInterrupt):
        measure_probes(job.request, probes_of(job), Observer())
    machine.stops_after = 10**6
    measure_probes(job.request, probes_of(job), Observer())
    assert machine.runs == 4


def test_where_one_fails_that_is_needed_no_other_is_run(machine: Machine, tmp_path: Path) -> None:
    job = job_of(tmp_path)
    machine.fails = 1
    with pytest.raises(RunError, match="made up"):
        measure_probes(job.request, [replace(probe, needed=True) for probe in probes_of(job)], Observer())
    assert machine.runs == 2
    machine.fails = -1
    measure_probes(job.request, probes_of(job), Observer())
    assert machine.runs == 2 + 3  # earlier results are reused
    probes, _ = plan_probes(job, count_job_layers(job), tuple(RecomputeMode))
    assert {one.recompute for one in probes if one.needed} == {RecomputeMode.NONE}


def test_a_config_that_is_not_run_small_is_refused_in_its_own_words(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path)
    probes = [replace(probe, needed=True) for probe in probes_of(job)]

    def cut(*_arguments: object) -> None:
        raise UncutLayersError(msg("dryrun.cut"), msg("dryrun.cut.hint"))

    monkeypatch.setattr(engine, "prepare_run", cut)
    with pytest.raises(UnsupportedError, match="no small dryruns") as caught:
        measure_probes(job.request, probes, Observer())
    assert caught.value.hint is not None
    assert caught.value.hint.id == "fitting.not-small.hint"
    assert machine.runs == 0


def test_a_probe_that_fails_is_reported_and_run_again(machine: Machine, tmp_path: Path) -> None:
    job = job_of(tmp_path)
    machine.fails = 1
    found = measure_probes(job.request, probes_of(job), Observer())
    assert [isinstance(one, RunError) for one in found] == [False, True, False, False]
    assert machine.folder.exists()  # with the log of the failed run
    machine.fails = -1
    assert sizes(measure_probes(job.request, probes_of(job), Observer()))[1] == 1000
    assert machine.runs == 5


@pytest.mark.parametrize("what", ["environment", "machine", "config", "devices", "level", "damage"])
def test_what_depends_on_something_else_is_measured_again(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    job = job_of(tmp_path)
    probes, request = probes_of(job), job.request
    measure_probes(request, probes, Observer())
    if what == "environment":
        monkeypatch.setenv("MS_ALLOC_CONF", "enable_vmm:True")
    elif what == "machine":
        monkeypatch.setattr(engine, "simulated_by", lambda: "another one")
    elif what == "config":
        probes = [replace(probe, loaded=job.with_lists(uniform_lists(job.placement, "full"))) for probe in probes]
    elif what == "devices":
        other = job.loaded.devices
        probes = [replace(probe, loaded=probe.loaded._replace(devices=other._replace(npus=8))) for probe in probes]
    elif what == "level":
        request = request._replace(level=2)
    else:
        for file in (tmp_path / "cache" / "fit").iterdir():
            file.write_text(file.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    measure_probes(request, probes, Observer())
    assert machine.runs == 8


def test_the_cache_does_not_grow_without_end(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_cache, "_MAX_FILES", 3)
    job = job_of(tmp_path)
    measure_probes(job.request, probes_of(job), Observer())
    kept = list((tmp_path / "cache" / "fit").glob("*.json"))
    assert len(kept) == 3
    assert all(json.loads(file.read_text(encoding="utf-8"))["stage"] in (0, 3) for file in kept)
    assert machine.runs == 4


def test_a_cache_that_cannot_be_written_costs_time_only(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(table_cache, "write_json", refuse)
    job = job_of(tmp_path)
    assert sizes(measure_probes(job.request, probes_of(job), Observer())) == [1000, 1001, 1002, 1003]
    measure_probes(job.request, probes_of(job), Observer())
    assert machine.runs == 8
