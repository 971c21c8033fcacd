"""Simulate both files, and compare the memory of each stage by content, with the limits of the figures."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ms_tune.dryrun.request import DryrunRequest
from ms_tune.dryrun.result import DryrunResult, StageResult
from ms_tune.dryrun.run import dryrun_job
from ms_tune.dryrun.task import Observer
from ms_tune.errors import UsageError
from ms_tune.memory.diff import Surplus, find_surpluses
from ms_tune.text import Message, msg
from ms_tune.workflows.migrate.proof import count_parameters
from ms_tune.workflows.migrate.result import Migration

_WEIGHTS, _STATE = "weights", "optimizer_state"


@dataclass(frozen=True, slots=True)
class DifferenceReason:
    """Breakdown of the difference between two simulated peaks of one stage."""

    layers: int  # layers that both runs have; fewer than the stage's if its peaks are extrapolated
    peaks: tuple[int, int]  # both runs' peaks, in bytes
    # The phase of the training step of each peak; None if unknown.
    phases: tuple[str | None, str | None]
    more: tuple[Surplus, ...]  # excess content of one side; adds up to the difference of these peaks
    each_layer: tuple[int, int] | None  # bytes per layer on each side; None if the peaks are not extrapolated


@dataclass(frozen=True, slots=True)
class StageMemory:
    """One stage on both sides, in bytes."""

    stage: int
    old_peak: int  # peak in the static graph
    new_peak: int  # peak in the dynamic graph
    old: Mapping[str, int]  # old peak by content; empty if unknown
    new: Mapping[str, int]  # new peak by content
    # Expected weights and optimizer state on both sides: float32 weights with Adam's moments on a rank, without the dynamic
    # graph's copy for computation; None if theory does not determine them.
    same: tuple[int, int] | None
    explained: DifferenceReason | None = None  # None if the runs have different numbers of layers


@dataclass(frozen=True, slots=True)
class BothSides:
    """Memory of both files."""

    stages: tuple[StageMemory, ...]  # stages simulated on both sides
    limits: tuple[Message, ...]  # what the figures omit, and their uncertainties
    # Parts of the figures that were not validated against real code; or that the two files are not proved to be equivalent.
    unproved: tuple[Message, ...] = ()


def simulate_both(found: Migration, request: DryrunRequest, observer: Observer) -> BothSides:
    """Simulate the same stages of the old and the new file."""
    if found.refused:
        raise UsageError(msg("migrate.memory.refused"))
    with tempfile.TemporaryDirectory(prefix="ms-tune-migrate-") as folder:
        before = found.path
        if found.merged:  # the model's file is not at the config's path, so the text contains its sizes
            before = Path(folder) / found.path.name
            before.write_text(found.merged, encoding="utf-8")
        old = dryrun_job(request._replace(config=before), observer)
        file = Path(folder) / f"{found.path.stem}.migrated.yaml"
        file.write_text(found.text, encoding="utf-8")
        devices = request.devices or (old.runs[0].world_size if old.runs else None)
        new = dryrun_job(request._replace(config=file, devices=devices), observer)
    after = {one.run.stage: one for one in new.stages}
    pairs = [(one, after[one.run.stage]) for one in old.stages if one.run.stage in after]
    stages = tuple(_compare_stage(one, other) for one, other in pairs)
    return BothSides(stages, *_split_remarks(old, new, same=found.same))


def _split_remarks(
    old: DryrunResult, new: DryrunResult, *, same: bool
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    # Split the remarks of both sides, each once, into limits and unproved parts; the reference's own remarks are included.
    models = [remark for one in new.runs[:1] for remark in (one.model, *one.standing)]
    remarks = (*old.not_included, *old.warnings, *models, *new.not_included, *new.warnings)
    resting = [message for run in (*old.runs, *new.runs) for message in run.unproved]
    once = tuple({str(one): one for one in remarks}.values())
    unproved = [one for one in once if one in resting]
    if not same:
        unproved.append(msg("migrate.memory.not-same"))
    return tuple(one for one in once if one not in unproved), tuple(unproved)


def _compare_stage(old: StageResult, new: StageResult) -> StageMemory:
    comparable = old.run.layers == new.run.layers
    return StageMemory(
        old.run.stage,
        old.judged_bytes,
        new.judged_bytes,
        {content.value: size for content, size in old.contents.items()},
        {content.value: size for content, size in new.contents.items()},
        _persistent_bytes(old.run.theory, new.run.theory) if comparable else None,
        _explain_difference(old, new) if comparable else None,
    )


def _explain_difference(old: StageResult, new: StageResult) -> DifferenceReason:
    derived = [one.extrapolation for one in (old, new) if one.extrapolation is not None]
    return DifferenceReason(
        old.run.layers,
        (old.reading.peak_bytes, new.reading.peak_bytes),
        (_peak_phase(old), _peak_phase(new)),
        find_surpluses(old.reading.report, new.reading.report),
        (derived[0].layer_bytes, derived[1].layer_bytes) if len(derived) == len((old, new)) else None,
    )


def _peak_phase(one: StageResult) -> str | None:
    peaks = ((phase, peak.bytes) for phase, peak in one.reading.phase_peaks.items() if phase is not None)
    return next((phase.value for phase, size in peaks if size == one.reading.peak_bytes), None)


def _persistent_bytes(old: Mapping[str, int], new: Mapping[str, int]) -> tuple[int, int] | None:
    if not old or not new:
        return None
    narrow, _ = count_parameters(new)
    return old[_WEIGHTS] + old[_STATE], new[_WEIGHTS] + new[_STATE] - 2 * narrow
