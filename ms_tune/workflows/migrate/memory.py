"""Both files simulated: what each stage holds before and after, by content, and what the figures rest on."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dryrun.run import dryrun_job
from ms_tune.errors import UsageError
from ms_tune.memory.diff import find_surpluses
from ms_tune.text import msg
from ms_tune.workflows.migrate.proof import parameters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.dryrun.request import DryrunRequest
    from ms_tune.dryrun.result import DryrunResult, StageResult
    from ms_tune.dryrun.task import Observer
    from ms_tune.memory.diff import Surplus
    from ms_tune.text import Message
    from ms_tune.workflows.migrate.result import Migration

_WEIGHTS, _STATE = "weights", "optimizer_state"


@dataclass(frozen=True, slots=True)
class DifferenceReason:
    """What makes up the difference between two simulated peaks of one stage.

    Attributes:
        layers: The layers that both runs have; fewer than the stage's where its peaks are derived.
        peaks: Both runs' peaks, in bytes.
        phases: The phase of the training step in which each is reached; None where nothing tells.
        more: What one side holds and the other does not; adds up to the difference of these peaks.
        each_layer: What one more layer adds to each side's peak; None where the peaks are the runs' own.
    """

    layers: int
    peaks: tuple[int, int]
    phases: tuple[str | None, str | None]
    more: tuple[Surplus, ...]
    each_layer: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class StageMemory:
    """One stage on both sides, in bytes.

    Attributes:
        stage: The stage.
        old_peak: Its peak in the static graph.
        new_peak: Its peak in the dynamic graph.
        old: What the old peak is made of, by content; empty if nothing tells.
        new: What the new one is made of.
        same: Weights and optimizer state by theory on both sides: float32 weights with Adam's moments as a rank holds them,
            without the copy that the dynamic graph computes with; None where theory does not tell.
        explained: What makes up the difference; None where the two runs have different numbers of layers.
    """

    stage: int
    old_peak: int
    new_peak: int
    old: Mapping[str, int]
    new: Mapping[str, int]
    same: tuple[int, int] | None
    explained: DifferenceReason | None = None


@dataclass(frozen=True, slots=True)
class BothSides:
    """The memory of both files.

    Attributes:
        stages: The stages that both sides simulated.
        limits: What the figures leave out, and what makes them less certain than they look.
        unproved: What the dynamic graph's figures, and the differences, rest on that was not held to real code; or that the
            two files do the same is not proved.
    """

    stages: tuple[StageMemory, ...]
    limits: tuple[Message, ...]
    unproved: tuple[Message, ...] = ()


def simulate_both(found: Migration, request: DryrunRequest, observer: Observer) -> BothSides:
    """Simulate the old file and the new one, the same stages of both.

    Args:
        found: The migration.
        request: How to simulate; its config is not looked at.
        observer: Told what is going on.

    Raises:
        UsageError: There is no new file.
        MsTuneError: As ``dryrun`` says of either file.
    """
    if found.refused:
        raise UsageError(msg("migrate.memory.refused"))
    with tempfile.TemporaryDirectory(prefix="ms-tune-migrate-") as folder:
        before = found.path
        if found.merged:  # its model's file is not where the config says, so its sizes are in the text
            before = Path(folder) / found.path.name
            before.write_text(found.merged, encoding="utf-8")
        old = dryrun_job(request._replace(config=before), observer)
        file = Path(folder) / f"{found.path.stem}.migrated.yaml"
        file.write_text(found.text, encoding="utf-8")
        devices = request.devices or (old.runs[0].world_size if old.runs else None)
        new = dryrun_job(request._replace(config=file, devices=devices), observer)
    told = _told(old, new)
    resting = [message for run in (*old.runs, *new.runs) for message in run.unproved]
    unproved = [one for one in told if one in resting]
    if not found.same:
        unproved.append(msg("migrate.memory.not-same"))
    return BothSides(_beside(old, new), tuple(one for one in told if one not in unproved), tuple(unproved))


def _beside(old: DryrunResult, new: DryrunResult) -> tuple[StageMemory, ...]:
    after = {one.run.stage: one for one in new.stages}
    rows = []
    for one in old.stages:
        other = after.get(one.run.stage)
        if other is None:
            continue
        rows.append(
            StageMemory(
                one.run.stage,
                one.judged_bytes,
                other.judged_bytes,
                {content.value: size for content, size in one.contents.items()},
                {content.value: size for content, size in other.contents.items()},
                _same(one.run.theory, other.run.theory) if one.run.layers == other.run.layers else None,
                _explained(one, other) if one.run.layers == other.run.layers else None,
            )
        )
    return tuple(rows)


def _explained(old: StageResult, new: StageResult) -> DifferenceReason:
    derived = [one.extrapolation for one in (old, new) if one.extrapolation is not None]
    return DifferenceReason(
        old.run.layers,
        (old.reading.peak_bytes, new.reading.peak_bytes),
        (_phase(old), _phase(new)),
        find_surpluses(old.reading.report, new.reading.report),
        (derived[0].layer_bytes, derived[1].layer_bytes) if len(derived) == len((old, new)) else None,
    )


def _phase(one: StageResult) -> str | None:
    """The phase in which a run's peak is reached."""
    return next(
        (
            phase.value
            for phase, peak in one.reading.phase_peaks.items()
            if phase is not None and peak.bytes == one.reading.peak_bytes
        ),
        None,
    )


def _same(old: Mapping[str, int], new: Mapping[str, int]) -> tuple[int, int] | None:
    if not old or not new:
        return None
    narrow, _ = parameters(new)
    return old[_WEIGHTS] + old[_STATE], new[_WEIGHTS] + new[_STATE] - 2 * narrow


def _told(old: DryrunResult, new: DryrunResult) -> tuple[Message, ...]:
    """Of both sides what their figures leave out and rest on, each once; the reference says of itself that it is one."""
    models = [told for one in new.runs[:1] for told in (one.model, *one.standing)]
    told = (*old.not_included, *old.warnings, *models, *new.not_included, *new.warnings)
    return tuple({str(one): one for one in told}.values())
