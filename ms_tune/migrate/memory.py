"""Both files simulated: what each stage holds before and after, by content, and what the figures rest on."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dryrun.run import dryrun
from ms_tune.errors import UsageError
from ms_tune.migrate.proof import parameters
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.dryrun.request import DryrunRequest
    from ms_tune.dryrun.result import DryrunResult
    from ms_tune.dryrun.task import Observer
    from ms_tune.migrate.result import Migration
    from ms_tune.texts import Message

_WEIGHTS, _STATE = "weights", "optimizer_state"


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
    """

    stage: int
    old_peak: int
    new_peak: int
    old: Mapping[str, int]
    new: Mapping[str, int]
    same: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class BothSides:
    """The memory of both files.

    Attributes:
        stages: The stages that both sides simulated.
        limits: What the figures leave out, and what makes them less certain than they look.
    """

    stages: tuple[StageMemory, ...]
    limits: tuple[Message, ...]


def both_sides(found: Migration, request: DryrunRequest, observer: Observer) -> BothSides:
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
    old = dryrun(replace(request, config=found.path), observer)
    with tempfile.TemporaryDirectory(prefix="ms-tune-migrate-") as folder:
        file = Path(folder) / f"{found.path.stem}.migrated.yaml"
        file.write_text(found.text, encoding="utf-8")
        devices = request.devices or (old.runs[0].world_size if old.runs else None)
        new = dryrun(replace(request, config=file, devices=devices), observer)
    return BothSides(_beside(old, new), _limits(old, new))


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
            )
        )
    return tuple(rows)


def _same(old: Mapping[str, int], new: Mapping[str, int]) -> tuple[int, int] | None:
    if not old or not new:
        return None
    narrow, _ = parameters(new)
    return old[_WEIGHTS] + old[_STATE], new[_WEIGHTS] + new[_STATE] - 2 * narrow


def _limits(old: DryrunResult, new: DryrunResult) -> tuple[Message, ...]:
    """Of both sides what their figures leave out, each once; the reference says of itself that it is one."""
    told = (*old.not_included, *old.warnings, *(one.model for one in new.runs[:1]), *new.not_included, *new.warnings)
    return tuple({str(one): one for one in told}.values())
