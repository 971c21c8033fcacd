"""Plan and dryrun in turns, until a plan fits and the table predicted it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ms_tune.dryrun.plan import plan_job as planned
from ms_tune.dryrun.request import DryrunRequest, StageChoice
from ms_tune.dryrun.result import DryrunResult
from ms_tune.dryrun.run import dryrun_job
from ms_tune.dryrun.task import Observer
from ms_tune.fit.job import PlannedJob, lists_of_plan
from ms_tune.fit.result import NEAR, ConfigFitRequest, RelievedStage, VerifiedStage, VerifyRound
from ms_tune.fit.table_cache import CachedTable
from ms_tune.planning.fit import Alternative, FitReport, with_plan
from ms_tune.planning.fit import fit_table as plan_for
from ms_tune.planning.search import SearchProgress, add_recompute, number_of_stop
from ms_tune.planning.table import CostTable, PlanLists, cells_of
from ms_tune.text import msg
from ms_tune.units import gib

_MOST_ROUNDS = 3
_WORTH, _WORTH_COMPILED = 0.001, 0.01  # fraction of the step to gain by another round; slow in a static graph


class LoopOutcome(NamedTuple):
    """Result of all rounds."""

    rounds: tuple[VerifyRound, ...]
    chosen: VerifyRound | None  # the round whose plan is returned
    lacking: FitReport | None = None  # if none is chosen, the table's report with the figures of all dryruns
    # The bytes reserved in it for fragmentation: the minimum of each stage's dryruns, in addition to peak and reserve.
    fragment_bytes: tuple[int, ...] = ()


class VerifyLoop:
    """Loop that makes plans and verifies them by dryruns.

    If only some stages of a plan fit, the others recompute more layers with the same placement. The stages that fit are
    unchanged, so their dryruns also verify the next plan, and their fragmentation is known.
    """

    def __init__(
        self,
        job: PlannedJob,
        request: ConfigFitRequest,
        observer: Observer,
        on_progress: Callable[[SearchProgress], None],
        reserve: int,
    ) -> None:
        self._job, self._request, self._observer, self._on_progress = job, request, observer, on_progress
        self._reserve = reserve
        self._worth = _WORTH_COMPILED if job.compiled else _WORTH  # least gain to justify a dryrun
        self._rounds: list[VerifyRound] = []
        self._best: VerifyRound | None = None
        self._next: VerifyRound | None = None  # the plan whose dryrun runs or is about to

    def run(self, table: CostTable, fragments: tuple[int, ...]) -> LoopOutcome:
        """Run all rounds and return their result; an interrupt returns the best plan so far, marked as stopped."""
        try:
            return self._run_rounds(table, fragments)
        except KeyboardInterrupt as stop:
            if self._next is not None:
                self._rounds.append(self._next)
            if not self._rounds:
                raise
            return self._outcome_of_stop(number_of_stop(stop))

    def _outcome_of_stop(self, number: int) -> LoopOutcome:
        one = self._best or self._rounds[-1]
        one = replace(one, report=replace(one.report, stopped=number))
        rounds = self._rounds[:-1] if self._best is None else self._rounds
        return LoopOutcome((*rounds, one), None if self._best is None else one)

    def _run_rounds(self, table: CostTable, fragments: tuple[int, ...]) -> LoopOutcome:
        best: VerifyRound | None = None
        relief: VerifyRound | None = None
        for number in range(_MOST_ROUNDS):
            one = relief
            if one is None:
                report, fragments = self._next_plan(table, fragments, less=best is None)
                one = VerifyRound(report, ())
                if report.planned is None:
                    if not self._rounds:
                        self._rounds.append(one)
                    break
                if self._is_final(report) or (best is not None and not self._is_faster(report, best, self._worth)):
                    break
                one = replace(one, peak_bytes=_peaks_without(report, fragments))
                if not self._request.verify and not report.stopped:
                    return LoopOutcome((one,), one)
            self._next = one
            if one.report.stopped:
                raise KeyboardInterrupt(one.report.stopped)
            self._say_plan(one.report)
            self._observer.say(msg("fitting.verify", round=number + 1, most=_MOST_ROUNDS))
            one = self._verify_round(one)
            self._next = None
            self._rounds.append(one)
            good = bool(one.verified) and all(map(self._is_good, one.verified))
            if good and (best is None or self._is_faster(one.report, best)):
                best = self._best = one
            fresh = [stage for stage in one.verified if stage.stage not in one.kept]
            # Results of a simulated stage also apply to the stages that it represents.
            more_bytes = {stage.stage: stage.peak_bytes - stage.predicted_bytes for stage in fresh}
            own = table.stage_bytes or (0,) * table.stages
            corrected = (size + more_bytes.get(other, 0) for size, other in zip(own, one.stands_for, strict=True))
            table = table._replace(stage_bytes=tuple(corrected))
            seen = _observed_fragments(one, fragments, self._reserve)
            margin = round((number + 1) * NEAR * table.limit_bytes)
            relief = None if best is not None else self._relieve_round(one, table, seen, margin)
            # Fragmentation changes with the plan by hundreds of megabytes: lower the reserve at most by half, and add a margin
            # after each plan that did not fit.
            more = 0 if good else margin
            fragments = tuple(max(now, (now + old) // 2) + more for now, old in zip(seen, fragments, strict=True))
        if best is not None or not self._rounds[0].verified:
            return LoopOutcome(tuple(self._rounds), best)
        least = self._least_fragments()
        return LoopOutcome(tuple(self._rounds), None, self._plan_with(table, least), least)

    def _say_plan(self, report: FitReport) -> None:
        # Say the table's plan before its dryruns, which can take long.
        planned = report.planned
        assert planned is not None  # noqa: S101 - the callers have looked
        lists = {"lists": ", ".join(f"{name} {rows}" for name, rows in planned.plan.to_json().items())}
        time = f"{report.relative_time(planned.time):.1f}"
        self._observer.note(msg("fitting.table-plan", time=time, peak=gib(max(planned.peak_bytes)), **lists))
        if self._job.compiled and self._job.chunks > 1:
            self._observer.note(msg("fitting.long-proof", chunks=self._job.chunks))

    def _least_fragments(self) -> tuple[int, ...]:
        # Return the least that each stage needed in addition to its peak and the reserve in any dryrun; 0 if it was not run.
        more: dict[int, int] = {}
        for seen in (stage for one in self._rounds for stage in one.verified):
            size = seen.needed_bytes - self._reserve - seen.peak_bytes
            more[seen.stage] = min(size, more.get(seen.stage, size))
        return tuple(more.get(stage, 0) for stage in range(self._job.stages))

    def _verify_round(self, one: VerifyRound) -> VerifyRound:
        planned = one.report.planned
        assert planned is not None  # noqa: S101 - the callers have looked
        wanted = find_worst_stages(self._job, planned.plan)
        kept = {stage: found for stage in wanted if (found := self._find_proof(planned.plan, stage)) is not None}
        left = tuple(stage for stage in wanted if stage not in kept)
        if kept and left:
            stages, others = (", ".join(map(str, numbers)) for numbers in (kept, left))
            self._observer.say(msg("fitting.kept", stages=stages, left=others))
        fresh = (
            _compare_predicted(simulate_plan(self._job, planned.plan, left, self._observer), one.peak_bytes)
            if left
            else ()
        )
        verified = sorted((*kept.values(), *fresh), key=lambda stage: stage.stage)
        # Map every stage to the simulated one that needs at least as much: itself, or the nearest before it.
        there = [stage.stage for stage in verified]
        every = range(self._job.stages)
        stands_for = tuple(max((one for one in there if one <= stage), default=there[0]) for stage in every)
        return replace(one, verified=tuple(verified), stands_for=stands_for, kept=tuple(kept))

    def _find_proof(self, plan: PlanLists, stage: int) -> VerifiedStage | None:
        # Return the verified stage of an earlier plan if the stage is the same in this plan, else None.
        for one in reversed(self._rounds):
            if one.report.planned is not None and is_same_stage(one.report.planned.plan, plan, stage):
                for found in one.verified:
                    if found.stage == stage:
                        return found
        return None

    def _relieve_round(
        self, one: VerifyRound, table: CostTable, fragments: tuple[int, ...], margin: int
    ) -> VerifyRound | None:
        # Return a round in which the stages that did not fit recompute more; None if none did fit, or if that is not enough.
        planned = one.report.planned
        lacking = [stage for stage in one.verified if not self._is_good(stage)]
        if planned is None or len(lacking) == len(one.verified):
            return None
        whole = _with_fragments(table, fragments)
        # Stages represented by one that does not fit are assumed not to fit either.
        numbers = {stage.stage for stage in lacking}
        stages = [at for at, other in enumerate(one.stands_for) if other in numbers]
        cells = add_recompute(whole, planned.cells, stages, margin)
        if cells is None:
            return None
        report = with_plan(one.report, whole, cells)
        if self._is_final(report):
            return None
        relieved = tuple(
            RelievedStage(
                stage.stage,
                stage.verdict,
                planned.cells[stage.stage :: whole.stages],
                tuple(cells[stage.stage :: whole.stages]),
            )
            for stage in lacking
        )
        return VerifyRound(report, _peaks_without(report, fragments), relieved=relieved)

    def _next_plan(
        self, table: CostTable, fragments: tuple[int, ...], *, less: bool
    ) -> tuple[FitReport, tuple[int, ...]]:
        # Return a plan that no dryrun has settled yet, if there is one, and the bytes reserved for its fragmentation.
        # Fragmentation of other runs does not prove that a plan has as much: if nothing new fits, reserve half, then a quarter,
        # then nothing.
        report = self._plan_with(table, fragments)
        for part in (2, 4, 0) if less and any(fragments) else ():
            if report.stopped or (report.planned is not None and not self._is_final(report)):
                break
            fewer = tuple(size // part if part else 0 for size in fragments)
            report, reserved = self._plan_with(table, fewer), fewer
            if part == 0 or (report.planned is not None and not self._is_final(report)):
                return report, reserved
        return report, fragments

    def _is_final(self, report: FitReport) -> bool:
        # Return whether another dryrun would show nothing new: the plan was simulated, or one of its stages is known not to fit.
        planned = report.planned
        if planned is None:
            return False
        if any(one.report.planned is not None and one.report.planned.plan == planned.plan for one in self._rounds):
            return True
        proofs = (self._find_proof(planned.plan, stage) for stage in range(self._job.stages))
        return any(not self._is_good(found) for found in proofs if found is not None)

    def _plan_with(self, table: CostTable, fragments: Sequence[int]) -> FitReport:
        asked = self._request
        whole = _with_fragments(table, fragments)
        return plan_for(whole, effort=asked.effort, seed=asked.seed, clock=asked.clock, on_progress=self._on_progress)

    @staticmethod
    def _is_faster(report: FitReport, best: VerifyRound, worth: float = 0.0) -> bool:
        # Return whether a plan is faster by more than this fraction of the step time.
        one, other = report.planned, best.report.planned
        return one is not None and other is not None and one.time < other.time * (1 - worth)

    def _is_good(self, stage: VerifiedStage) -> bool:
        return stage.verdict.is_good(allow_tight=self._request.allow_tight)


def _peaks_without(report: FitReport, fragments: Sequence[int]) -> tuple[int, ...]:
    peaks = report.planned.peak_bytes if report.planned is not None else ()
    return tuple(peak - more for peak, more in zip(peaks, fragments, strict=True))


def _with_fragments(table: CostTable, fragments: Sequence[int]) -> CostTable:
    own = table.stage_bytes or (0,) * table.stages
    sizes = tuple(size + more for size, more in zip(own, fragments, strict=True))
    least = min(0, *sizes)  # if negative, subtract it from all stages instead
    update = table.update
    if update is not None:
        stages = tuple(size + more for size, more in zip(update.stage_bytes, fragments, strict=True))
        update = update._replace(stage_bytes=stages)
    return table._replace(
        constant_bytes=table.constant_bytes + least, stage_bytes=tuple(size - least for size in sizes), update=update
    )


def _observed_fragments(one: VerifyRound, before: Sequence[int], reserve: int) -> tuple[int, ...]:
    # Return the bytes that each stage needs in addition to its peak and the reserve; stages that were not simulated keep the
    # earlier value.
    seen = {stage.stage: stage.needed_bytes - reserve - stage.peak_bytes for stage in one.verified}
    return tuple(
        seen[stage] if other == stage else size
        for stage, (other, size) in enumerate(zip(one.stands_for, before, strict=True))
    )


def find_worst_stages(job: PlannedJob, plan: PlanLists) -> tuple[int, ...]:
    """Return the stages of a plan to simulate: each other stage needs no more memory than one of them."""
    loaded = job.with_lists(lists_of_plan(job, plan))
    return tuple(stage.run.stage for stage in planned(_full_stage_request(job, StageChoice.WORST), loaded).stages)


def simulate_plan(job: PlannedJob, plan: PlanLists, stages: tuple[int, ...], observer: Observer) -> DryrunResult:
    """Simulate some stages of a plan, with all their layers and micro-batches."""
    return dryrun_job(_full_stage_request(job, stages), observer, job.with_lists(lists_of_plan(job, plan)))


def _full_stage_request(job: PlannedJob, stages: StageChoice | tuple[int, ...]) -> DryrunRequest:
    return job.request._replace(layers=None, fewest_layers=False, stages=stages)


def is_same_stage(one: PlanLists, other: PlanLists, stage: int) -> bool:
    """Return whether a stage has the same layers and recompute modes in both plans, so that its dryruns are the same."""
    return one.offset == other.offset and _plan_column(one, stage) == _plan_column(other, stage)


def _plan_column(plan: PlanLists, stage: int) -> tuple[tuple[int, ...], ...]:
    rows = (plan.recompute, plan.select_recompute, plan.select_comm_recompute, plan.swap)
    return tuple(tuple(row[stage] for row in every) for every in rows)


def _compare_predicted(result: DryrunResult, predicted: Sequence[int]) -> tuple[VerifiedStage, ...]:
    found = []
    for stage in result.stages:
        need = stage.verdict.need
        peak = stage.judged_bytes
        footprint = need.footprint_bytes if need is not None else peak
        found.append(VerifiedStage(stage.run.stage, predicted[stage.run.stage], peak, footprint, stage.verdict))
    return tuple(found)


def with_rounds(kept: CachedTable, rounds: Sequence[VerifyRound], chosen: VerifyRound | None) -> CachedTable:
    """Return a table to cache that includes the results of the plans' dryruns: plans that exceeded the limit do so in it."""
    costs, fragments = kept.costs, kept.fragment_bytes
    for one in rounds:
        planned = one.report.planned
        if planned is None or not one.verified or planned.plan.swap:
            continue
        peaks = costs.peak_bytes(costs.state_of(planned.cells)[None])[0]
        more = {seen.stage: seen.footprint_bytes - int(peaks[seen.stage]) for seen in one.verified}
        fragments = tuple(max(size, more[at]) for size, at in zip(fragments, one.stands_for, strict=True))
    kept = replace(kept, fragment_bytes=fragments)
    if chosen is None or chosen.report.planned is None or not chosen.verified or chosen.report.planned.plan.swap:
        return kept
    needs = tuple(seen.footprint_bytes for seen in chosen.verified)
    return replace(kept, table=kept.table._replace(present=chosen.report.planned.plan), needs=needs)


def mark_refuted(one: VerifyRound, kept: CachedTable, room_bytes: int) -> VerifyRound:
    """Return a round in which alternatives are marked that exceed the limit according to all dryruns."""

    def is_refuted(other: Alternative) -> bool:
        plan = other.plan
        if plan is None or plan.swap or one.report.planned is None or plan == one.report.planned.plan:
            return False
        peaks = costs.peak_bytes(costs.state_of(cells_of(kept.table, plan, other.name))[None])[0]
        return bool((peaks + kept.fragment_bytes > room_bytes).any())

    costs = kept.costs
    others = tuple(replace(other, refuted=is_refuted(other)) for other in one.report.alternatives)
    return replace(one, report=replace(one.report, alternatives=others))
