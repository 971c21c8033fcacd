"""Plan the runs of a job: which stages, which rank of each, and with how many layers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from ms_tune.dialects.stage import StageLayerKind
from ms_tune.dryrun.extrapolate import solve_weights, undominated_stages
from ms_tune.dryrun.prepare import LoadedConfig, prepare_run
from ms_tune.dryrun.request import DryrunRequest, PreparedRun, StageChoice
from ms_tune.errors import MsTuneError, TooFewLayersError, UsageError
from ms_tune.text import Message, msg

_MOST_SIZES = 8  # further numbers of layers to try
# A single layer is both the first and the last, so an extrapolation from it may differ. In a static graph, from one layer and
# two, it is mostly exact to the last kilobyte, but 0.64 % too low for a last stage with context parallelism (docs/accuracy-dryrun.md).
FEWEST_LAYERS = 2
_MOST_TRIED = 64  # numbers of layers to start with


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The runs of one rank of one stage."""

    run: PreparedRun  # as the user requested it
    full_layers: int | None  # layers of the stage by the config; None if unknown
    reason: Message | None = None  # why the full stage is not derived, if it was requested
    extra_runs: tuple[PreparedRun, ...] = ()  # further runs with other numbers of layers, to derive the full stage
    factors: tuple[
        Fraction, ...
    ] = ()  # the weights of `run` and `others` in the full stage; empty if it is not derived

    @property
    def runs(self) -> tuple[PreparedRun, ...]:
        """Return all runs, the user's first."""
        return (self.run, *self.extra_runs)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """All runs of a job."""

    stages: tuple[StagePlan, ...]  # one entry per rank to simulate
    pipeline_stages: int  # pipeline stages of the job
    skipped: tuple[int, ...]  # stages that need no more memory than a simulated one


def plan_job(request: DryrunRequest, loaded: LoadedConfig) -> JobPlan:
    """Plan the runs for a request."""
    prepared = _PreparedRuns(request, loaded)
    try:
        return _plan_stages(request, prepared)
    except TooFewLayersError as error:
        if request.layers is None:
            raise
        raise UsageError(error.message, _enough_layers(request, prepared, request.layers)) from None


class _PreparedRuns:
    """The prepared runs of a request's config, each made once, on first use."""

    def __init__(self, request: DryrunRequest, loaded: LoadedConfig) -> None:
        self._request, self._loaded = request, loaded
        self._prepared: dict[tuple[int, int | None], PreparedRun | MsTuneError] = {}

    def prepare(self, stage: int, layers: int | None, rank: int | None = None) -> PreparedRun:
        """Return the run of a stage with ``layers`` layers, None for all, as one of its ranks."""
        key = (stage, layers)
        if key not in self._prepared:
            try:
                self._prepared[key] = prepare_run(self._request._replace(stage=stage, layers=layers), self._loaded)
            except MsTuneError as error:
                self._prepared[key] = error
        found = self._prepared[key]
        if isinstance(found, MsTuneError):
            raise found
        return found if rank is None else found._replace(rank=rank)


def _enough_layers(request: DryrunRequest, prepared: _PreparedRuns, layers: int) -> Message:
    for least in range(layers + 1, _MOST_TRIED):
        with contextlib.suppress(MsTuneError):
            made = _plan_stages(request._replace(layers=least), prepared)
            if all(stage.reason is None for stage in made.stages):
                return msg("stages.layers.least", least=least)
    return msg("stages.layers.hint")


def _plan_stages(request: DryrunRequest, prepared: _PreparedRuns) -> JobPlan:
    first = prepared.prepare(0, request.layers)
    stages = first.stages
    per_stage = first.world_size // stages
    chosen: list[tuple[int, int | None]]  # stages, with ranks if the user named them
    skipped: tuple[int, ...] = ()
    if request.ranks:
        unknown = [rank for rank in request.ranks if rank >= first.world_size]
        if unknown:
            raise UsageError(msg("dryrun.ranks", rank=unknown[0], size=first.world_size))
        chosen = [(rank // per_stage, rank) for rank in dict.fromkeys(request.ranks)]
    else:
        numbers, skipped = _choose_stages(request, prepared, stages)
        chosen = [(stage, None) for stage in numbers]
    planned = tuple(_stage_plan(request, prepared, *one) for one in chosen)
    most = [stage.full_layers for stage in planned]
    if request.layers is not None and all(layers is not None and layers < request.layers for layers in most):
        full = max(layers for layers in most if layers is not None)
        raise UsageError(msg("stages.layers.many", layers=request.layers, full=full), msg("stages.layers.hint"))
    return JobPlan(planned, stages, skipped)


def _choose_stages(request: DryrunRequest, prepared: _PreparedRuns, stages: int) -> tuple[list[int], tuple[int, ...]]:
    if isinstance(request.stages, tuple):
        unknown = [stage for stage in request.stages if stage >= stages]
        if unknown:
            raise UsageError(msg("dryrun.stage", stage=unknown[0], stages=stages))
        return list(dict.fromkeys(request.stages)), ()
    everything = list(range(stages))
    if request.stages is StageChoice.ALL:
        return everything, ()
    counts = [_full_counts(request, prepared, stage) for stage in everything]
    kept = list(undominated_stages(counts))
    return kept, tuple(stage for stage in everything if stage not in kept)


def _full_counts(request: DryrunRequest, prepared: _PreparedRuns, stage: int) -> Mapping[StageLayerKind, int]:
    # Count the layers by kind of the stage that is judged: the full stage if it is derived.
    if request.extrapolate and request.layers is not None:
        with contextlib.suppress(MsTuneError):
            return prepared.prepare(stage, None).layer_counts
    return prepared.prepare(stage, request.layers).layer_counts


def _stage_plan(request: DryrunRequest, prepared: _PreparedRuns, stage: int, rank: int | None) -> StagePlan:
    prepare = partial(prepared.prepare, stage, rank=rank)
    if request.fewest_layers:
        return _cheapest_plan(prepare)
    full, reason = None, None
    try:
        full = prepare(None)
    except MsTuneError as error:
        reason = msg("stages.extrapolate.no-full", reason=error.message)
    run = prepare(request.layers if full is None or request.layers is None else min(request.layers, full.layers))
    if not run.shrunk:
        return StagePlan(run, run.layers)
    if full is None:
        return StagePlan(run, None, reason if request.extrapolate else None)
    if not request.extrapolate or (full.layers == run.layers and full.layer_counts == run.layer_counts):
        return StagePlan(run, full.layers)
    if (found := _derive_plan(prepare, run, full)) is not None:
        return found
    more = range(run.layers + 1, full.layers)
    least = next((number for number in more if _plan_from(prepare, number, full) is not None), None)
    hint = msg("stages.extrapolate.needs", least=least) if least else msg("stages.extrapolate.whole")
    return StagePlan(run, full.layers, msg("stages.extrapolate.no-sizes", layers=run.layers, hint=hint))


def _cheapest_plan(prepare: Callable[[int | None], PreparedRun]) -> StagePlan:
    # Choose the smallest number of layers that works, unless running all of them costs no more.
    full = prepare(None)
    for layers in range(FEWEST_LAYERS, min(full.layers, _MOST_TRIED)):
        found = _plan_from(prepare, layers, full)
        if found is not None and found.extra_runs and sum(run.layers for run in found.runs) < full.layers:
            return found
    return StagePlan(full, full.layers)


def _plan_from(prepare: Callable[[int | None], PreparedRun], layers: int, full: PreparedRun) -> StagePlan | None:
    with contextlib.suppress(MsTuneError):
        return _derive_plan(prepare, prepare(layers), full)
    return None


def _derive_plan(prepare: Callable[[int | None], PreparedRun], run: PreparedRun, full: PreparedRun) -> StagePlan | None:
    # Derive the full stage from a run and larger ones, or run it in full if only that is possible. None if neither.
    found: list[PreparedRun] = []
    for layers in range(run.layers + 1, min(run.layers + 1 + _MOST_SIZES, full.layers)):
        try:
            found.append(prepare(layers))
        except MsTuneError:  # for example, a number that does not divide into the chunks of a stage
            continue
        solved = solve_weights(full.layer_counts, [one.layer_counts for one in (run, *found)])
        if solved is not None:
            others = tuple(one for one, factor in zip(found, solved[1:], strict=True) if factor)
            factors = (solved[0], *(factor for factor in solved[1:] if factor))
            return StagePlan(run, full.layers, None, others, factors)
    # If it cannot be derived, the full stage is run.
    return StagePlan(full, full.layers) if full.layers <= run.layers + _MOST_SIZES else None
