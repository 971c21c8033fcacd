"""One simulated run from wish to verdict: prepare, find or build CANN, launch, read, judge."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.config.dialects.recognise import Dialect
from ms_tune.dryrun.cann_sim.environment import Backend, find_mindspore, prepare_cann
from ms_tune.dryrun.device import memory_limit
from ms_tune.dryrun.environment import overridden, simulation_environment
from ms_tune.dryrun.launcher import LOG, run_child
from ms_tune.dryrun.prepare import prepare
from ms_tune.dryrun.result import DryrunResult, Verdict
from ms_tune.dryrun.rundir import create_run_folder, manifest, write_json
from ms_tune.errors import MissingExtraError, RunError
from ms_tune.memory.attribution import attribute
from ms_tune.memory.timeline import peak_of
from ms_tune.texts import msg
from ms_tune.trace.memory_block import read_memory_block
from ms_tune.trace.runtime_log import RuntimeLog, read_runtime_log
from ms_tune.trace.tensor_list import read_tensor_list
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from ms_tune.dryrun.cann_sim.environment import Cann
    from ms_tune.dryrun.request import DryrunRequest, PreparedRun
    from ms_tune.memory.attribution import Attribution
    from ms_tune.memory.timeline import Peak
    from ms_tune.texts import Message
    from ms_tune.trace.memory_block import BlockTrace

_JOB = "job.json"


def dryrun(request: DryrunRequest, on_progress: Callable[[Message], None]) -> DryrunResult:
    """Simulate one rank of a training job and judge whether it fits.

    Args:
        request: What the user asks for.
        on_progress: Told what is going on, several times a second while the process runs.

    Raises:
        MsTuneError: The config, this machine or the run is at fault; the text says which.
    """
    mindspore = find_mindspore()
    run = prepare(request)
    mindformers = _mindformers_version() if run.dialect is Dialect.MINDFORMERS else None
    cann = prepare_cann(mindspore, on_progress)
    machine = _Machine(mindspore.version, mindformers, cann)
    folder = create_run_folder(request.run_folder, run.config_name)
    rank_folder = _write_inputs(folder, run)
    seconds = _launch(machine, run, rank_folder, request.timeout, on_progress)
    return _judge(request, run, rank_folder, machine, seconds)


@dataclass(frozen=True, slots=True)
class _Machine:
    """What the run runs on."""

    mindspore: str
    mindformers: str | None
    cann: Cann


def _launch(
    machine: _Machine, run: PreparedRun, rank_folder: Path, timeout: float, on_progress: Callable[[Message], None]
) -> float:
    """Run the child process to a good end; returns its seconds."""
    command = [sys.executable, "-m", "ms_tune.dryrun.child", _JOB]
    environment = _child_environment(machine.cann, run)
    facts = {
        "mindspore": machine.mindspore,
        "mindformers": machine.mindformers,
        "backend": machine.cann.backend.value,
        "config": run.config_name,
    }
    write_json(rank_folder.parent / "manifest.json", manifest(command, environment, facts))
    start = time.monotonic()
    code = run_child(
        command, environment, rank_folder, timeout, lambda elapsed: on_progress(_progress(rank_folder, elapsed))
    )
    seconds = time.monotonic() - start
    _check_end(rank_folder, code)
    return seconds


def _write_inputs(folder: Path, run: PreparedRun) -> Path:
    """The user's config as it was, the job, and what the job needs."""
    (folder / "config.yaml").write_text(run.config_text, encoding="utf-8")
    changes = [{"key": change.key, "before": change.before, "after": change.after} for change in run.changes]
    write_json(folder / "changes.json", {"version": 1, "changes": changes})
    rank_folder = folder / f"rank_{run.rank}"
    rank_folder.mkdir()
    write_json(rank_folder / _JOB, run.job.to_json())
    for name, text in run.files.items():
        (rank_folder / name).write_text(text, encoding="utf-8")
    return rank_folder


def _child_environment(cann: Cann, run: PreparedRun) -> dict[str, str]:
    environment = simulation_environment(os.environ, cann, run.rank, run.world_size)
    # A checkout that is run in place must be found from the run's folder too.
    checkout = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), checkout]))
    return environment


def _mindformers_version() -> str:
    if importlib.util.find_spec("mindformers") is None:
        raise MissingExtraError(msg("dryrun.no-mindformers"))
    return importlib.metadata.version("mindformers")


def _progress(rank_folder: Path, elapsed: float) -> Message:
    """What the process last said that it is doing."""
    try:
        said = json.loads((rank_folder / "progress").read_text(encoding="utf-8"))
        phase, step, steps = str(said["phase"]), int(said["step"]), int(said["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        phase, step, steps = "start", 0, 0
    known = phase if phase in ("start", "build", "compile", "step", "write") else "start"
    return msg(f"dryrun.progress.{known}", step=step, steps=steps, seconds=round(elapsed))


def _check_end(rank_folder: Path, code: int) -> None:
    """Raise :class:`RunError` unless the process came to a good end.

    A process that crashed may still have written a trace, and one that failed to train may exit with 0: only exit code
    0 and MindSpore's statistics in the log together make a run that may be judged.
    """
    log = read_runtime_log(rank_folder / LOG)
    if code != 0:
        reason = log.last_error or msg("dryrun.run.silent")
        raise RunError(msg("dryrun.run.failed", code=code, reason=reason), _see_log(rank_folder))
    if log.statistics is None:
        raise RunError(msg("dryrun.run.no-statistics"), _see_log(rank_folder))


def _see_log(rank_folder: Path) -> Message:
    return msg("dryrun.run.log", log=rank_folder / LOG)


def _find_trace(rank_folder: Path) -> Path:
    """The tracker's file: in the working folder, or one down when communication was initialised (MindSpore's rule)."""
    candidates = [rank_folder / "memory_block.csv", *sorted(rank_folder.glob("rank_*/memory_block.csv"))]
    found = [path for path in candidates if path.is_file()]
    if len(found) != 1:
        raise RunError(msg("dryrun.run.no-trace", count=len(found)), _see_log(rank_folder))
    return found[0]


def _judge(
    request: DryrunRequest, run: PreparedRun, rank_folder: Path, machine: _Machine, seconds: float
) -> DryrunResult:
    trace_file = _find_trace(rank_folder)
    trace = read_memory_block(trace_file)
    peak = peak_of(trace.blocks)
    if not peak.bytes:
        raise RunError(msg("dryrun.run.empty-trace"), _see_log(rank_folder))
    attribution = attribute(peak, trace, read_tensor_list(rank_folder / "tensors.json"))
    limit = memory_limit(request.device_bytes, run.max_device_memory)
    fits = peak.bytes <= limit.bytes
    agreement = _disagreements(read_runtime_log(rank_folder / LOG), peak, trace, attribution)
    return DryrunResult(
        folder=rank_folder.parent,
        trace=trace_file,
        backend=machine.cann.backend,
        mindspore=machine.mindspore,
        mindformers=machine.mindformers,
        run=run,
        peak=peak,
        attribution=attribution,
        limit=limit,
        verdict=Verdict.FITS if fits else Verdict.DOES_NOT_FIT,
        seconds=seconds,
        not_included=_not_included(machine.cann, run),
        warnings=(*run.warnings, *agreement, *_warnings(fragmented=fits and peak.footprint_bytes > limit.bytes)),
    )


def _not_included(cann: Cann, run: PreparedRun) -> tuple[Message, ...]:
    always = (msg("dryrun.not-included.workspace"), msg("dryrun.not-included.communication"))
    never_compared = (msg("dryrun.not-included.never-compared"),) if cann.backend is Backend.STAND_IN else ()
    return (*always, *never_compared, *run.not_included)


def _disagreements(log: RuntimeLog, peak: Peak, trace: BlockTrace, attribution: Attribution) -> tuple[Message, ...]:
    """Whatever does not agree: MindSpore counts the same memory in two other ways, and the child listed its tensors."""
    found = []
    if log.statistics is not None and log.statistics.peak_mib != peak.bytes // MIB:
        found.append(msg("dryrun.warning.log-differs", log=log.statistics.peak_mib, trace=peak.bytes // MIB))
    if peak.mismatches:
        found.append(msg("dryrun.warning.column-differs", rows=peak.mismatches))
    if trace.dropped_count or trace.truncated:
        found.append(msg("dryrun.warning.dropped", rows=trace.dropped_count))
    if not attribution.stacks_useful:
        found.append(msg("memory.stacks-useless"))
    if attribution.tensors_missing:
        found.append(msg("memory.tensors-missing", missing=attribution.tensors_missing))
    return tuple(found)


def _warnings(*, fragmented: bool) -> tuple[Message, ...]:
    changed = overridden(os.environ)
    return (
        *((msg("dryrun.warning.fragmentation"),) if fragmented else ()),
        *((msg("dryrun.warning.overridden", names=", ".join(changed)),) if changed else ()),
    )
