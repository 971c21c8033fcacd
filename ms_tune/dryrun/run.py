"""Simulate a job from request to verdict: plan, find or build CANN, launch, read, derive, judge."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path

from ms_tune.dryrun import machine
from ms_tune.dryrun.cann_sim.environment import (
    Backend,
    Cann,
    MindSpore,
    find_mindspore,
    prepare_cann,
)
from ms_tune.dryrun.environment import overridden_variables
from ms_tune.dryrun.job import JOB_FILE
from ms_tune.dryrun.launcher import ProcessEnd
from ms_tune.dryrun.local_engine import connect_engine, engine_for
from ms_tune.dryrun.machine import check_graph_engine, check_level
from ms_tune.dryrun.plan import FEWEST_LAYERS, JobPlan, StagePlan, plan_job
from ms_tune.dryrun.prepare import LoadedConfig, load_config
from ms_tune.dryrun.request import DryrunRequest, PreparedRun
from ms_tune.dryrun.result import DryrunResult, Reading, StageResult, SweepResult, VariantResult, unlike_theory
from ms_tune.dryrun.rundir import (
    create_run_folder,
    file_text,
    make_manifest,
    report_folder_if_interrupted,
    write_config,
    write_manifest,
    write_run_record,
)
from ms_tune.dryrun.task import Observer, Task, TaskState, child_of
from ms_tune.enums import Dialect
from ms_tune.errors import MsTuneError
from ms_tune.extras import need
from ms_tune.facts.query import installed_version
from ms_tune.records import plain_data
from ms_tune.text import Message, msg
from ms_tune.verdict.limit import device_of, limit_of
from ms_tune.verdict.run_record import RUN_FOLDER, RankRecord, RunRecord


def dryrun_job(
    request: DryrunRequest, observer: Observer | None = None, loaded: LoadedConfig | None = None
) -> DryrunResult:
    """Simulate the stages of a training job and judge whether each fits. Needs the extra ``dryrun``.

    Args:
        request: What to simulate; a request without a config uses the packaged default.
        observer: Receives progress.
        loaded: The config; None to load the one that the request names.

    Raises:
        ConfigError: The config is wrong.
        UnsupportedError: This machine or the model is not supported.
        MissingExtraError: MindSpore, or the config's framework, is not installed.
        RunError: A simulated process failed.

    Example::

        result = ms_tune.dryrun_job(DryrunRequest(Path("train.yaml"), layers=2, device_bytes=32 * 2**30))
        print(result.verdict.outcome, result.verdict.spare_bytes, result.verdict.sentence)
    """
    observer = observer or Observer()
    mindspore = find_mindspore()
    job = _plan_request(request, loaded)
    here = _look_around(mindspore, [job], observer)
    _announce_plan(job, observer)
    job.folder = create_run_folder(request.run_folder, job.loaded.name)
    _run_processes([job], job.folder, here, observer, keep_going=False)
    return _judge_job(job, here)


def simulate_each(
    jobs: Sequence[tuple[DryrunRequest, LoadedConfig | None]],
    observer: Observer,
    on_read: Callable[[int, Reading], None] = lambda _number, _reading: None,
    on_error: Callable[[int, MsTuneError], None] = lambda _number, _error: None,
) -> SweepResult[DryrunResult]:
    """Simulate several jobs together, in folders below the first one's run folder.

    ``on_read`` is called with the trace of each process, ``on_error`` when a job fails; their exceptions end all jobs.
    """
    mindspore = find_mindspore()
    planned: list[_SimulatedJob | MsTuneError] = []
    for request, loaded in jobs:
        try:
            planned.append(_plan_request(request, loaded))
        except MsTuneError as error:
            planned.append(error)
    good = [job for job in planned if isinstance(job, _SimulatedJob)]
    if not good:
        raise next(job for job in planned if isinstance(job, MsTuneError))
    here = _look_around(mindspore, good, observer)
    folder = create_run_folder(jobs[0][0].run_folder, good[0].loaded.name)
    for number, job in enumerate(planned, start=1):
        if isinstance(job, _SimulatedJob):
            job.prefix = f"variant_{number}/"
            job.folder = folder / f"variant_{number}"
            job.on_read = partial(on_read, number - 1)
            job.on_error = partial(on_error, number - 1)
    _run_processes(good, folder, here, observer, keep_going=True)
    found = (_variant_result(request, job, here) for (request, _), job in zip(jobs, planned, strict=True))
    return SweepResult(folder, tuple(found))


def _variant_result(
    request: DryrunRequest, job: _SimulatedJob | MsTuneError, here: _Machine
) -> VariantResult[DryrunResult]:
    if isinstance(job, MsTuneError):
        return VariantResult(request.settings, None, job)
    try:
        result = _judge_job(job, here) if job.error is None else None
    except MsTuneError as error:
        return VariantResult(request.settings, None, error)
    return VariantResult(request.settings, result, job.error)


@dataclass(frozen=True, slots=True)
class _Machine:
    mindspore: str
    mindformers: str | None
    cann: Cann


@dataclass(slots=True)
class _SimulatedJob:
    """A job and its results so far."""

    request: DryrunRequest
    loaded: LoadedConfig
    plan: JobPlan
    prefix: str = ""  # of the folders of its tasks, below the run folder
    folder: Path = Path()  # where it is stored, once known
    readings: dict[str, Reading] = field(default_factory=dict)  # traces of the processes, by folder below `folder`
    error: MsTuneError | None = None  # why it failed
    seconds: float = 0.0  # until its last process ended
    on_read: Callable[[Reading], None] = lambda _reading: None  # called with the trace of each of its processes
    # Called with the error as soon as one of its processes has failed.
    on_error: Callable[[MsTuneError], None] = lambda _error: None

    @property
    def first(self) -> PreparedRun:
        return self.plan.stages[0].run

    def tasks(self) -> list[Task]:
        runs = [run for stage in self.plan.stages for run in stage.runs]
        return [_make_task(run, self.prefix + _folder_of(run, self.plan), self.request) for run in runs]


def _announce_plan(job: _SimulatedJob, observer: Observer) -> None:
    groups: dict[tuple[tuple[int, ...], int | None, bool], list[str]] = {}
    for stage in job.plan.stages:
        key = (tuple(run.layers for run in stage.runs), stage.full_layers, bool(stage.factors))
        groups.setdefault(key, []).append(str(stage.run.stage))
    for (layers, full, derived), stages in groups.items():
        if full is None or not (derived or layers == (full,)):
            continue
        text = "stages.plan.derived" if derived else "stages.plan.whole"
        runs = ", ".join(map(str, layers))
        observer.say(msg(text, stages=", ".join(dict.fromkeys(stages)), runs=runs, full=full))


def _plan_request(request: DryrunRequest, loaded: LoadedConfig | None = None) -> _SimulatedJob:
    loaded = loaded or load_config(request)
    if loaded.dialect is Dialect.MINDFORMERS:
        check_graph_engine(loaded.source)
    job = _SimulatedJob(request, loaded, plan_job(request, loaded))
    # Errors of the device's limit are raised before anything runs.
    device = device_of(request.chip, request.device_bytes)
    limit_of(device, job.first.max_device_memory, job.first.limited_by)
    return job


def _look_around(mindspore: MindSpore, jobs: Sequence[_SimulatedJob], observer: Observer) -> _Machine:
    connect_engine(jobs[0].request.engine, observer)
    mindformers = None
    if any(job.first.dialect is Dialect.MINDFORMERS for job in jobs):
        need("ms-tune dryrun", "dryrun", "mindformers")
        mindformers = installed_version("mindformers")
    cann = prepare_cann(mindspore, observer.say)
    check_level(jobs[0].request.level, cann)
    return _Machine(mindspore.version, mindformers, cann)


def _run_processes(
    jobs: Sequence[_SimulatedJob], folder: Path, here: _Machine, observer: Observer, *, keep_going: bool
) -> None:
    owners = {task.folder: job for job in jobs for task in job.tasks()}
    tasks = [task for job in jobs for task in job.tasks()]
    _write_inputs(jobs, folder, here)
    observer.begin(tasks)
    begin = time.monotonic()

    def report_state(task: Task, state: TaskState) -> None:
        observer.state(task, state)
        _load_readers()

    def read(task: Task, ended: ProcessEnd) -> None:
        observer.end(task, ended)
        job = owners[task.folder]
        job.seconds = time.monotonic() - begin
        from ms_tune.dryrun.reading import check_end, read_rank  # noqa: PLC0415 - as in _load_readers

        try:
            check_end(folder / task.folder, ended, task.timeout, level=task.level)
            if task.level:
                reading = read_rank(folder / task.folder, task.rank, ended.seconds)
                job.readings[task.folder.removeprefix(job.prefix)] = reading
                job.on_read(reading)
        except MsTuneError as error:
            job.error = job.error or error
            if not keep_going:
                raise
            job.on_error(error)

    request = jobs[0].request
    engine = engine_for(request.engine, tasks, here.cann, request.jobs)
    with report_folder_if_interrupted(folder, observer):
        engine.run(tasks, folder, report_state, read)


@cache
def _load_readers() -> None:
    # Import the modules that read traces while the processes run: it takes a quarter of a second.
    for name in ("judge", "reading"):
        import_module(f"ms_tune.dryrun.{name}")


def _make_task(run: PreparedRun, folder: str, request: DryrunRequest) -> Task:
    return Task(
        folder=folder,
        files={JOB_FILE: file_text(plain_data(run.job)), **run.files},
        arguments=("-m", "ms_tune.dryrun.child", run.job.module, JOB_FILE),
        rank=run.rank,
        world_size=run.world_size,
        level=request.level,
        timeout=request.timeout,
        host_bytes=machine.host_bytes(run),
        stage=run.stage,
        layers=run.layers,
    )


def _folder_of(run: PreparedRun, job: JobPlan) -> str:
    # ``rank_N``; for another number of layers one level down in a hidden folder, so that it does not count as another rank.
    is_main = any(run is stage.run for stage in job.stages)
    return f"rank_{run.rank}" if is_main else f".layers_{run.layers}/rank_{run.rank}"


def _write_inputs(jobs: Sequence[_SimulatedJob], folder: Path, here: _Machine) -> None:
    first = jobs[0].tasks()[0]
    child = child_of(first, folder / first.folder, here.cann)
    facts = {
        "mindspore": here.mindspore,
        "mindformers": here.mindformers,
        "backend": here.cann.backend.value,
        "simulation_level": first.level,
        "config": jobs[0].loaded.name,
        "working_folder": str(folder / first.folder),
        "ranks": [
            {"folder": task.folder, "rank": task.rank, "stage": task.stage, "layers": task.layers}
            for job in jobs
            for task in job.tasks()
        ],
    }
    write_manifest(folder, make_manifest(list(child.command), child.environment, facts))
    for job in jobs:
        write_config(folder / job.prefix, job.loaded, job.first)
        # Replaced once the job is judged.
        write_run_record(folder / job.prefix, RunRecord(doubts={RUN_FOLDER: msg("verdict.none.unfinished")}))


def _judge_job(job: _SimulatedJob, here: _Machine) -> DryrunResult:
    stages = () if not job.request.level else _judge_stages(job)
    runs = [stage.run for stage in job.plan.stages]
    return DryrunResult(
        folder=job.folder,
        backend=here.cann.backend,
        level=job.request.level,
        mindspore=here.mindspore,
        mindformers=here.mindformers if job.first.dialect is Dialect.MINDFORMERS else None,
        settings=job.request.settings,
        runs=tuple(runs),
        stages=stages,
        skipped=job.plan.skipped,
        seconds=job.seconds,
        not_included=_not_included(here.cann, runs, job.plan),
        warnings=_collect_warnings(job, stages),
    )


def _judge_stages(job: _SimulatedJob) -> tuple[StageResult, ...]:
    found = [_judge_stage(stage, job) for stage in job.plan.stages]
    ranks = {_folder_of(stage.run, job.plan): kept for stage, (_, kept) in zip(job.plan.stages, found, strict=True)}
    write_run_record(job.folder, RunRecord(job.request.chip, job.request.device_bytes, ranks=ranks))
    return tuple(result for result, _ in found)


def _judge_stage(stage: StagePlan, job: _SimulatedJob) -> tuple[StageResult, RankRecord]:
    from ms_tune.dryrun.judge import extrapolate_stage, judge_stage, layer_activations  # noqa: PLC0415 - it needs numpy

    readings = [job.readings[_folder_of(run, job.plan)] for run in stage.runs]
    whole = extrapolate_stage(stage, readings)
    kept, verdict = judge_stage(job.request, stage, readings[0], whole, job.folder)
    result = StageResult(
        run=stage.run,
        reading=readings[0],
        extrapolation=whole,
        full_layers=stage.full_layers,
        verdict=verdict,
        layer_activations=layer_activations(stage.run, readings[0], whole),
    )
    return result, kept


def _not_included(cann: Cann, runs: Sequence[PreparedRun], job: JobPlan) -> tuple[Message, ...]:
    always = [msg("dryrun.not-included.workspace"), msg("dryrun.not-included.communication")]
    if cann.backend is Backend.STAND_IN:
        always.append(msg("dryrun.not-included.never-compared"))
    simulated = {run.stage for run in runs}
    if len(simulated) + len(job.skipped) < job.pipeline_stages:
        always.append(msg("dryrun.not-included.other-stages"))
    return _drop_repeated([*always, *(message for run in runs for message in run.not_included)])


def _collect_warnings(job: _SimulatedJob, stages: Sequence[StageResult]) -> tuple[Message, ...]:
    changed = overridden_variables(os.environ)
    found = [message for stage in job.plan.stages for message in stage.run.warnings]
    found += [stage.reason for stage in job.plan.stages if stage.reason is not None]
    few = any(stage.factors and stage.run.layers < FEWEST_LAYERS for stage in job.plan.stages)
    found += [msg("stages.extrapolate.too-few")] if few else []
    found += [message for reading in job.readings.values() for message in reading.warnings]
    found += [message for stage in stages for message in unlike_theory(stage.theory)]
    if changed:
        found.append(msg("dryrun.warning.overridden", names=", ".join(changed)))
    return _drop_repeated(found)


def _drop_repeated(messages: Sequence[Message]) -> tuple[Message, ...]:
    seen: dict[str, Message] = {}
    for message in messages:
        seen.setdefault(f"{message.id} {sorted(message.params.items())}", message)
    return tuple(seen.values())
