"""Replace a launcher: start one simulated rank per stage, and keep their results.

Run by path with ms-tune's own Python, independent of the script's environment: ``python -I -S stand_in.py LAUNCHER ARGUMENT
...``. Its record is ``job_N/launch.json`` in the command's folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import FrameType
from typing import Any, NoReturn

from ms_tune.dialects.stage import kinds_to_json
from ms_tune.dryrun.cann_sim.environment import Backend, Cann
from ms_tune.dryrun.environment import ALLOCATOR, LOOK, allocator_settings, simulation_environment
from ms_tune.dryrun.launchers.arguments import (
    LAUNCHERS,
    MSRUN,
    LauncherCall,
    SimulatedRank,
    choose_ranks,
    parallel_of,
    parse_launcher,
)
from ms_tune.dryrun.launchers.job import LOOKED, RECORD, folder_of
from ms_tune.dryrun.launchers.megatron import EACH_RANK, simulation_arguments
from ms_tune.dryrun.launchers.shrink import SmallStage, StageSizes, sizes_of, worst_of
from ms_tune.dryrun.stack import find_refusals, module_names, parts_of
from ms_tune.errors import UsageError
from ms_tune.text import msg

LOG = "log.txt"
_PYTHONS = ("python", "python3")
REFUSED = 2  # argparse's exit code for errors
_MOST_JOBS = 1000
_POLL = 0.05  # seconds
_ANSWER = 60.0  # seconds in which a Python must report its modules
_POLITE = 3.0  # seconds between SIGTERM and SIGKILL
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_OWN_ENV = ("MS_TUNE_LAUNCH", "MS_TUNE_INTERPRETER", LOOK)  # a rank's own subprocesses are not launchers of the script
_LOOKS = str(Path(__file__).resolve().parents[1] / "child" / "look.py")
_PIECE = 1 << 20


@dataclass(slots=True)
class _RankRun:
    """A run of a rank with some number of layers; the first one uses the rank's own folder, further ones hidden folders."""

    rank: SimulatedRank
    launch: LauncherCall
    size: SmallStage
    number: int
    code: int | None = None
    seconds: float = 0.0
    process: subprocess.Popen[bytes] | None = None  # once it runs
    slot: int = 0  # descriptor of the lock that it has while running
    start: float = 0.0

    def told(self) -> dict[str, Any]:
        return {
            "rank": self.rank.rank,
            "stage": self.rank.stage,
            "run": self.number,
            "layers": self.size.layers,
            "kinds": kinds_to_json(self.size.kinds),
            "code": self.code,
            "seconds": self.seconds,
        }

    def has_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None


@dataclass(slots=True)
class _StandInJob:
    """A job with the facts recorded in its folder."""

    folder: Path
    facts: dict[str, Any]
    runs: Sequence[_RankRun] = ()

    def write(self) -> None:
        fresh = self.folder / f".{RECORD}"
        fresh.write_text(json.dumps({**self.facts, "ranks": [run.told() for run in self.runs]}), encoding="utf-8")
        fresh.replace(self.folder / RECORD)


def main(launcher: str, words: Sequence[str], plan: Mapping[str, Any]) -> int:
    """Run a launcher's job in simulation; return the launcher's exit code."""
    if launcher == "tee":
        return _run_tee(words, Path(plan["folder"]))
    job = _StandInJob(_claim_folder(Path(plan["folder"])), {"launcher": launcher, "arguments": list(words[:1000])})
    if launcher not in LAUNCHERS:
        return _refuse_job(job, UsageError(msg("launch.other"), msg("launch.other.hint")))
    try:
        launch = parse_launcher(launcher, words, os.environ, plan["devices"])
        given = simulation_arguments(launch.arguments, launch.world, job.folder, plan["settings"])
        launch = replace(launch, arguments=given.arguments())
        parallel, stages = parallel_of(launch.arguments), plan["stages"]
        if isinstance(stages, str):
            stages = worst_of(launch.arguments, parallel.pipeline) if parallel is not None else None
        ranks = choose_ranks(launch.world, parallel, stages, plan["ranks"])
        sizes = [_choose_sizes(launch, rank, plan["layers"]) for rank in ranks]
    except UsageError as error:
        return _refuse_job(job, error)
    job.facts |= {
        "world": launch.world,
        "program": launch.program,
        "changes": [change._asdict() for change in (*launch.changes, *given.changes)],
        "split": asdict(parallel) if parallel is not None else None,
    }
    runs = [
        _RankRun(rank, launch if plan["look"] else replace(launch, arguments=run.arguments), run, number)
        for rank, stage in zip(ranks, sizes, strict=True)
        for number, run in enumerate(stage.runs)
    ]
    if plan["look"]:
        runs = [_RankRun(ranks[0], _look_only(launch, job.folder), runs[0].size, 0)]
    elif parallel is not None:
        refused = _why_refused(launch, ranks[0].rank, job.folder, plan)
        if refused is not None:
            return _refuse_job(job, refused)
    job.runs = runs
    job.facts["stages"] = [
        {
            "rank": rank.rank,
            "layers": stage.layers,
            "factors": list(map(str, stage.factors)),
            "reason": None if stage.reason is None else {"text": stage.reason.id, "params": stage.reason.params},
        }
        for rank, stage in zip(ranks, sizes, strict=True)
    ]
    job.write()
    return _run_ranks(job, plan, show=launch.waits)


def _choose_sizes(launch: LauncherCall, rank: SimulatedRank, layers: int | str | None) -> StageSizes:
    if rank.stage is None:
        reason = msg("launch.layers.ranks") if layers is not None else None
        return StageSizes(None, (SmallStage(0, {}, launch.arguments),), reason=reason)
    return sizes_of(launch.arguments, rank.stage, layers)


def _look_only(launch: LauncherCall, folder: Path) -> LauncherCall:
    words = [launch.program, *launch.arguments]
    if not launch.prefix and Path(launch.program).name in _PYTHONS:
        words = words[1:]
    elif "-m" in launch.prefix:
        words = ["-m", *words]
    elif not launch.prefix and Path(launch.program).suffix != ".py":
        words = []  # not a Python program: only the modules are reported
    answer = str(folder / LOOKED)
    words = [answer, ",".join(module_names()), *words]
    return replace(launch, prefix=("python",), program=_LOOKS, arguments=tuple(words), names_local_rank=False)


def _why_refused(launch: LauncherCall, rank: int, folder: Path, plan: Mapping[str, Any]) -> UsageError | None:
    # Return why the frameworks that a rank would import are incompatible, according to their metadata.
    answer = folder / LOOKED
    command = [_choose_python(plan), _LOOKS, str(answer), ",".join(module_names())]
    environment = _rank_environment(os.environ, launch, rank, folder, plan)
    try:
        subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, timeout=_ANSWER, check=False)
        folders = json.loads(answer.read_bytes())["folders"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        return None  # if its Python fails, the rank's own log shows why
    found = next(find_refusals(parts_of(folders), folders), None)
    return None if found is None else UsageError(*found)


def _claim_folder(folder: Path) -> Path:
    for number in range(1, _MOST_JOBS):
        with contextlib.suppress(FileExistsError):
            place = folder / f"job_{number}"
            place.mkdir()
            return place
    raise SystemExit(REFUSED)


def _refuse_job(job: _StandInJob, error: UsageError) -> int:
    for name, message in (("problem", error.message), ("hint", error.hint)):
        if message is not None:
            job.facts[name] = {"text": message.id, "params": message.params}
    job.write()
    sys.stderr.write(f"ms-tune: {job.facts['launcher']}: {error.message}\n")
    return REFUSED


def _run_ranks(job: _StandInJob, plan: Mapping[str, Any], *, show: bool) -> int:
    waiting = list(job.runs)
    running: list[_RankRun] = []
    with _ended_by_signals(running):
        while waiting or running:
            slot = _take_slot(Path(plan["folder"]), plan["jobs"]) if waiting else None
            if slot is not None:
                running.append(waiting.pop(0))
                _start_rank(job.folder, running[-1], plan, slot)
            for one in [one for one in running if one.has_ended()]:
                running.remove(one)
                _end_rank(job, one, show=show)
            time.sleep(_POLL)
    return int(show and any(run.code for run in job.runs))


def _rank_command(launch: LauncherCall, rank: int, plan: Mapping[str, Any]) -> list[str]:
    prefix = [_choose_python(plan), *launch.prefix[1:]] if launch.prefix else []
    local = [f"--local-rank={rank % launch.local}"] if launch.names_local_rank else []
    return [*prefix, launch.program, *local, *launch.arguments]


def _choose_python(plan: Mapping[str, Any]) -> str:
    own = str(Path(plan["folder"]) / "bin")
    path = os.pathsep.join(part for part in os.environ.get("PATH", os.defpath).split(os.pathsep) if part != own)
    chosen = plan["chosen_python"] or os.environ.get("MS_TUNE_INTERPRETER")
    return chosen or shutil.which("python", path=path) or shutil.which("python3", path=path) or "python"


def _take_slot(folder: Path, count: int) -> int | None:
    for number in range(count):
        place = os.open(folder / f".slot_{number}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(place)
        else:
            return place
    return None


def _start_rank(job: Path, run: _RankRun, plan: Mapping[str, Any], slot: int) -> None:
    launch, rank = run.launch, run.rank.rank
    folder = folder_of(job, rank, run.number)
    folder.mkdir(parents=True)
    common = str(job / EACH_RANK)
    command = [str(folder) if word == common else word for word in _rank_command(launch, rank, plan)]
    layers = f", {run.size.layers} layers" if run.number or (plan["layers"] is not None and run.size.layers) else ""
    sys.stdout.write(f"ms-tune: rank {rank} of {launch.world}{layers}, its log is {folder / LOG}\n")
    sys.stdout.flush()
    with (folder / LOG).open("wb") as log:
        if shutil.which(command[0]) is None:
            log.write(f"{command[0]}: command not found\n".encode())
            command = ["/bin/sh", "-c", "exit 127"]
        run.process = subprocess.Popen(
            command,
            env=_rank_environment(os.environ, launch, rank, folder, plan),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    run.slot, run.start = slot, time.monotonic()


def _rank_environment(
    base: Mapping[str, str], launch: LauncherCall, rank: int, folder: Path, plan: Mapping[str, Any]
) -> dict[str, str]:
    # Return the environment of one simulated rank: the script's own, the simulation's, and the launcher's variables.
    cann = Cann(Backend(plan["backend"]), Path(plan["home"]))
    kept = {name: value for name, value in base.items() if name not in _OWN_ENV}
    found = simulation_environment(kept, cann, rank, launch.world, level=plan["level"], trace=folder)
    found[ALLOCATOR] = allocator_settings(base.get(ALLOCATOR, ""), found[ALLOCATOR])
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [plan["startup"], found.get("PYTHONPATH")]))
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        found[name] = os.pathsep.join(dict.fromkeys(found.get(name, "").split(os.pathsep)))
    local = str(rank % launch.local)
    found |= {
        "DEVICE_ID": local,
        "MS_TUNE_DEVICES": str(launch.local),  # the number of devices per node that MindSpore reports
        "MS_TUNE_TRACES": str(folder),
        **{key: base.get(key, _OFFLINE[key]) for key in _OFFLINE},
    }
    if launch.launcher == MSRUN:  # process_entity/_api.py, MindSpore 2.9; a simulation has no scheduler and no role
        return found | {"MS_WORKER_NUM": str(launch.world), "MS_NODE_ID": str(rank)}
    address, port = launch.master
    return found | {  # torch/distributed/elastic/agent/server/local_elastic_agent.py
        "RANK": str(rank),
        "LOCAL_RANK": local,
        "WORLD_SIZE": str(launch.world),
        "LOCAL_WORLD_SIZE": str(launch.local),
        "GROUP_RANK": str(rank // launch.local),
        "GROUP_WORLD_SIZE": str(-(-launch.world // launch.local)),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(launch.world),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }


def _end_rank(job: _StandInJob, run: _RankRun, *, show: bool) -> None:
    os.close(run.slot)
    run.code = run.process.returncode if run.process is not None else None
    run.seconds = round(time.monotonic() - run.start, 3)
    job.write()
    if not show:
        return
    with (
        contextlib.suppress(BrokenPipeError),
        (folder_of(job.folder, run.rank.rank, run.number) / LOG).open("rb") as log,
    ):
        while piece := log.read(_PIECE):
            sys.stdout.buffer.write(piece)
        sys.stdout.flush()


@contextlib.contextmanager
def _ended_by_signals(running: Sequence[_RankRun]) -> Iterator[None]:
    def end(number: int, _frame: FrameType | None) -> NoReturn:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            for one in running:
                with contextlib.suppress(OSError):
                    if one.process is not None:
                        one.process.send_signal(sign)
            limit = time.monotonic() + _POLITE
            while time.monotonic() < limit and not all(one.has_ended() for one in running):
                time.sleep(_POLL)
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background job
            signal.signal(number, end)
    yield


def _run_tee(words: Sequence[str], folder: Path) -> int:
    # Run ``tee``, with its log files in the run folder: a script's log folder often does not exist, and must stay unchanged.
    files = [word for word in words if not word.startswith("-")]
    mode = "ab" if {"-a", "--append"} & set(words) else "wb"
    code = 0
    with contextlib.ExitStack() as stack:
        outputs = [sys.stdout.buffer]
        for file in files:
            try:
                outputs.append(stack.enter_context(_place_of_log(Path(file), folder).open(mode)))
            except OSError as error:
                sys.stderr.write(f"tee: {file}: {error.strerror}\n")
                code = 1
        while piece := os.read(0, 1 << 16):
            for output in list(outputs):
                try:
                    output.write(piece)
                    output.flush()
                except BrokenPipeError:
                    outputs.remove(output)
    return code


def _place_of_log(file: Path, folder: Path) -> Path:
    # Return the place of a file: in the run folder for logs, and for files that could not be written otherwise.
    if file.parent.is_dir() and ".log" not in file.suffixes:
        return file
    parts = [part for part in file.parts if part not in ("/", "..")]
    aim = folder.joinpath("written", *parts)
    aim.parent.mkdir(parents=True, exist_ok=True)
    return aim


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:], json.loads(os.environ["MS_TUNE_LAUNCH"])))
