"""Plan and run the processes of ``ms-tune dryrun -- COMMAND``, and list the parts of the command that are read one by one."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ms_tune.dryrun.cann_sim.environment import Cann
from ms_tune.dryrun.environment import LaunchPlan
from ms_tune.dryrun.launcher import LOG, ProcessEnd
from ms_tune.dryrun.launchers.job import JobRank, LaunchedJob
from ms_tune.dryrun.launchers.shrink import AUTO
from ms_tune.dryrun.local_engine import engine_for
from ms_tune.dryrun.machine import processes_at_once, usable_cores
from ms_tune.dryrun.request import CommandRequest, StageChoice
from ms_tune.dryrun.rundir import report_folder_if_interrupted
from ms_tune.dryrun.task import Observer, Task
from ms_tune.enums import CHECKED_ONLY, Dialect
from ms_tune.errors import ConfigError, UsageError
from ms_tune.facts.launchers import is_launcher
from ms_tune.facts.query import load
from ms_tune.job import Job, not_simulated
from ms_tune.source import SCRIPTS
from ms_tune.source.files import read_source_text
from ms_tune.source.yaml import load_source
from ms_tune.text import Message, msg
from ms_tune.units import GIB, whole_number

_HOST_BYTES = GIB  # of an unknown process


def check_request(request: CommandRequest) -> None:
    """Check that the program and the ranks exist, and that it trains with MindSpore as far as its files show."""
    program = request.command[0]  # a launcher that ms-tune replaces need not be installed
    if shutil.which(program) is None and not is_launcher(program):
        raise UsageError(msg("stages.command.absent", program=program), msg("stages.command.absent.hint"))
    _refuse_torch_jobs(request.command)
    size = _world_size(request)
    outside = [rank for rank in request.ranks if rank >= size]
    if outside and not request.launches:
        raise UsageError(msg("dryrun.ranks", rank=outside[0], size=size))


def _refuse_torch_jobs(words: Iterable[str]) -> None:
    # Refuse programs and configs of HyperParallel's Trainer, for which MindSpore would start in vain.
    packages = "|".join(map(re.escape, load(f"keys_{Dialect.HYPER_PARALLEL.value}")["targets"]))
    for path in [path for path in map(Path, words) if path.is_file()]:
        if path.suffix in (".yaml", ".yml"):
            with contextlib.suppress(ConfigError):
                if (dialect := Job(load_source(path)).dialect) in CHECKED_ONLY:
                    raise not_simulated(dialect, path)
        elif path.suffix in (".py", *SCRIPTS):
            text = read_source_text(path)
            if re.search(
                rf"^(?:export +HYPER_PARALLEL_PLATFORM=.?torch|\s*(?:from|import) +(?:{packages})\b)",
                text,
                re.MULTILINE,
            ):
                raise not_simulated(Dialect.HYPER_PARALLEL, Path("CONFIG"))
            if path.suffix != ".py":
                _refuse_torch_jobs(one for one in re.findall(r"[\w./-]+\.ya?ml\b", text))


def tasks_of(request: CommandRequest) -> list[Task]:
    """Return one process per requested rank; a single one for a command that launches the ranks itself."""
    ranks = dict.fromkeys(request.ranks or (whole_number(os.environ.get("RANK_ID", "")) or 0,))
    return [_make_task(request, rank, _world_size(request)) for rank in ranks]


def run_tasks(
    request: CommandRequest, tasks: Sequence[Task], folder: Path, cann: Cann, observer: Observer
) -> Mapping[str, ProcessEnd]:
    """Run a command's processes, move their outputs to the run folder, and return how each ended, by folder."""
    ends: dict[str, ProcessEnd] = {}

    def end(task: Task, ended: ProcessEnd) -> None:
        observer.end(task, ended)
        ends[task.folder] = ended

    observer.begin(tasks)
    before = _output_names(Path.cwd())
    try:
        with report_folder_if_interrupted(folder, observer):
            engine_for(request.engine, tasks, cann, request.jobs).run(tasks, folder, observer.state, end)
    finally:
        _collect_outputs(Path.cwd(), before, folder)
    return ends


def _world_size(request: CommandRequest) -> int:
    return request.devices or whole_number(os.environ.get("RANK_SIZE", "")) or 1


def name_of(command: Sequence[str]) -> str:
    """Return the name of a run: its script, or its program."""
    return next((word for word in command if word.endswith(SCRIPTS)), command[0])


def _make_task(request: CommandRequest, rank: int, size: int) -> Task:
    at_once = (
        processes_at_once([_HOST_BYTES] * usable_cores(), request.jobs)
        if request.engine == "local" and not request.ranks
        else 1
    )
    wanted = LaunchPlan(
        stages=request.stages.value if isinstance(request.stages, StageChoice) else request.stages,
        ranks=(rank,) if request.ranks else (),
        devices=request.devices,
        jobs=at_once,
        python=request.python,
        settings=request.settings,
        layers=AUTO if request.fewest_layers else request.layers,
        look=request.look,
    )
    return Task(
        folder="script" if request.launches and not request.ranks else f"rank_{rank}",
        files={},
        arguments=(),
        rank=rank,
        world_size=size,
        level=request.level,
        timeout=request.timeout,
        host_bytes=_HOST_BYTES,
        stage=0,
        layers=0,
        command=request.command,
        working_folder=str(Path.cwd()),
        launched=wanted,
    )


_MINDSPORE_OUTPUTS = ("offload", "execute_order", "om", "kernel_meta", "graph_ir_validate_failed")
_NAME = re.compile(rf"rank_\d{{1,9}}|{'|'.join(_MINDSPORE_OUTPUTS)}")


def _output_names(folder: Path) -> frozenset[str]:
    with contextlib.suppress(OSError):
        return frozenset(name for name in os.listdir(folder) if _NAME.fullmatch(name))  # noqa: PTH208 - names are enough
    return frozenset()


def _collect_outputs(working_folder: Path, before: frozenset[str], run_folder: Path) -> None:
    # Move MindSpore's outputs that appeared during the command next to the trace of their rank. MindSpore 2.7 to 2.10
    # writes them to the working folder, which cannot be changed: ``offload``, ``execute_order`` and, with
    # communication, ``rank_N`` with further ones.
    for name in sorted(_output_names(working_folder) - before):
        path = working_folder / name
        with contextlib.suppress(OSError):
            if path.is_symlink() or not path.is_dir():
                continue
            if name in _MINDSPORE_OUTPUTS:
                _move_folder(path, _trace_folder(run_folder, None) / name)
            elif set(os.listdir(path)) <= set(_MINDSPORE_OUTPUTS):  # noqa: PTH208 - names are enough
                for part in sorted(path.iterdir()):
                    _move_folder(part, _trace_folder(run_folder, name) / part.name)
                path.rmdir()


def _move_folder(path: Path, aim: Path) -> None:
    if not any(path.iterdir()):
        path.rmdir()
    elif not aim.exists():
        shutil.move(path, aim)


def _trace_folder(run_folder: Path, rank: str | None) -> Path:
    # Return the folder of a rank's trace, or of the only trace; else the rank's folder, or the run folder.
    traces = [path.parent for path in sorted(run_folder.rglob("memory_block.csv"))]
    own = [folder for folder in traces if rank is None or rank in (folder.name, folder.parent.name)]
    if len(own) == 1 or (rank is not None and own):
        return own[0]
    place = run_folder / rank if rank is not None else run_folder
    place.mkdir(exist_ok=True)
    return place


_ENDED_WITH_LAUNCHER = -9  # the exit code of a rank that was ended with its launcher


@dataclass(frozen=True, slots=True)
class CommandPart:
    """The command's own process, or a rank that one of its launchers started."""

    folder: Path  # where its log and its traces are
    ended: ProcessEnd  # how it ended
    launched: bool = False  # whether it launched jobs, whose ranks are separate parts
    rank: JobRank | None = None  # the rank; None for the command's own process
    job: int | None = None  # the number of the rank's job

    @property
    def stage(self) -> int | None:
        """Return the rank's pipeline stage, if it was chosen by its stage."""
        return self.rank.stage if self.rank is not None else None

    def name_problem(self, problem: Message) -> Message:
        """Return a problem with the rank's name before it."""
        if self.rank is None:
            return problem
        kind = "launch.rank" if self.stage is None else "launch.stage"
        return msg(kind, job=self.job, rank=self.rank.rank, stage=self.stage, problem=problem)


def rank_parts(jobs: Iterable[LaunchedJob], command: ProcessEnd | None) -> Iterator[CommandPart]:
    """Yield the ranks that jobs started; ``command`` is the end of the command itself, which ends its ranks, too."""
    for job in jobs:
        for rank in job.ranks:
            timed_out = rank.code is None and command is not None and command.timed_out
            code = rank.code if rank.code is not None else _ENDED_WITH_LAUNCHER
            if (rank.folder / LOG).is_file():
                yield CommandPart(rank.folder, ProcessEnd(code, rank.seconds, timed_out), rank=rank, job=job.number)


def without_ranks(jobs: Sequence[LaunchedJob], folder: Path) -> list[tuple[Message, Message]]:
    """Return why nothing was simulated, if launchers were called but none of them started a rank."""
    if not jobs or any(job.ranks for job in jobs):
        return []
    last = jobs[-1]
    problem = msg("launch.refused", launcher=last.launcher, problem=last.problem or "")
    return [(problem, last.hint or msg("dryrun.run.log", log=folder / LOG))]
