"""What has to be run: which stages, which rank of each, and with how many layers."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ms_tune.dryrun.extrapolate import counts_of, weights
from ms_tune.dryrun.prepare import prepare
from ms_tune.dryrun.request import StageChoice
from ms_tune.errors import MsTuneError, UsageError
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from ms_tune.dryrun.prepare import LoadedConfig
    from ms_tune.dryrun.request import DryrunRequest, PreparedRun
    from ms_tune.texts import Message

_MOST_SIZES = 8  # further numbers of layers that are tried


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One rank of one stage.

    Attributes:
        run: As the user asked for it.
        others: The same with other numbers of layers, from which the full stage is derived.
        factors: The weights of ``run`` and ``others`` in the full stage; empty if it is not derived.
        full_layers: Layers that the config gives the stage; None if that is not known.
        reason: Why the full stage is not derived, where it was asked for.
    """

    run: PreparedRun
    others: tuple[PreparedRun, ...]
    factors: tuple[Fraction, ...]
    full_layers: int | None
    reason: Message | None

    @property
    def runs(self) -> tuple[PreparedRun, ...]:
        """All runs, the user's first."""
        return (self.run, *self.others)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """All that has to be run.

    Attributes:
        stages: One entry for each rank to simulate.
        pipeline_stages: Pipeline stages of the job.
        skipped: Stages that need no more than one that is simulated.
    """

    stages: tuple[StagePlan, ...]
    pipeline_stages: int
    skipped: tuple[int, ...]


def plan(request: DryrunRequest, loaded: LoadedConfig) -> JobPlan:
    """What has to be run for a request.

    Raises:
        MsTuneError: The config or the request is at fault.
    """
    first = prepare(replace(request, stage=0), loaded)
    stages = first.stages
    per_stage = first.world_size // stages
    if request.ranks:
        chosen = _stages_of_ranks(request.ranks, first.world_size, per_stage)
        skipped: tuple[int, ...] = ()
    else:
        numbers, skipped = _stages(request, loaded, stages)
        chosen = [(stage, None) for stage in numbers]
    return JobPlan(tuple(_stage_plan(request, loaded, *one) for one in chosen), stages, skipped)


def _stages_of_ranks(ranks: Sequence[int], world_size: int, per_stage: int) -> list[tuple[int, int | None]]:
    unknown = [rank for rank in ranks if rank >= world_size]
    if unknown:
        raise UsageError(msg("dryrun.ranks", rank=unknown[0], size=world_size))
    return [(rank // per_stage, rank) for rank in dict.fromkeys(ranks)]


def _stages(request: DryrunRequest, loaded: LoadedConfig, stages: int) -> tuple[list[int], tuple[int, ...]]:
    """The stages to simulate, and those that are left out because another one needs at least as much."""
    if isinstance(request.stages, tuple):
        unknown = [stage for stage in request.stages if stage >= stages]
        if unknown:
            raise UsageError(msg("dryrun.stage", stage=unknown[0], stages=stages))
        return list(dict.fromkeys(request.stages)), ()
    everything = list(range(stages))
    if request.stages is StageChoice.ALL:
        return everything, ()
    counts = [_full_counts(replace(request, stage=stage), loaded) for stage in everything]
    kept = [stage for stage in everything if not _outdone(stage, counts)]
    return kept, tuple(stage for stage in everything if stage not in kept)


def _counts(run: PreparedRun) -> dict[str, int]:
    return counts_of(run.kinds, run.layers)


def _full_counts(request: DryrunRequest, loaded: LoadedConfig) -> dict[str, int]:
    """Layers by kind of the stage that is judged: the full one where it is derived."""
    if request.extrapolate and request.layers is not None:
        with contextlib.suppress(MsTuneError):
            return _counts(prepare(replace(request, layers=None), loaded))
    return _counts(prepare(request, loaded))


def _outdone(stage: int, counts: Sequence[dict[str, int]]) -> bool:
    """Whether an earlier stage holds at least as many layers of every kind.

    With 1F1B, interleaved or not, an earlier stage never has fewer micro-batches in flight. The last stage has the head
    and its logits and is never outdone.
    """
    if stage == len(counts) - 1:
        return False
    mine = counts[stage]
    return any(all(other.get(kind, 0) >= count for kind, count in mine.items()) for other in counts[:stage])


def _stage_plan(request: DryrunRequest, loaded: LoadedConfig, stage: int, rank: int | None) -> StagePlan:
    one = replace(request, stage=stage)

    def sized(layers: int | None) -> PreparedRun:
        made = prepare(replace(one, layers=layers), loaded)
        return made if rank is None else replace(made, rank=rank)

    run = sized(request.layers)
    if request.layers is None or not run.shrunk or not request.extrapolate:
        return StagePlan(run, (), (), run.layers if not run.shrunk else None, None)
    try:
        full = sized(None)
    except MsTuneError as error:
        return StagePlan(run, (), (), None, msg("stages.extrapolate.no-full", reason=error.message))
    if full.layers == run.layers and _counts(full) == _counts(run):
        return StagePlan(run, (), (), full.layers, None)
    found: list[PreparedRun] = []
    for layers in range(request.layers + 1, request.layers + 1 + _MOST_SIZES):
        try:
            found.append(sized(layers))
        except MsTuneError:  # a number that does not divide into the chunks of a stage, for example
            continue
        solved = weights(_counts(full), [_counts(one) for one in (run, *found)])
        if solved is not None:
            others = tuple(one for one, factor in zip(found, solved[1:], strict=True) if factor)
            factors = (solved[0], *(factor for factor in solved[1:] if factor))
            return StagePlan(run, others, factors, full.layers, None)
    return StagePlan(run, (), (), full.layers, msg("stages.extrapolate.no-sizes", layers=request.layers))
