"""Plans and their dryruns, one after the other, until one fits and the table has foretold it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.fit.result import Relief, Round
from ms_tune.fit.verify import NEAR, beside, corrected, same_stage, simulated, worst_stages
from ms_tune.planning.fit import fit as plan_for
from ms_tune.planning.fit import with_plan
from ms_tune.planning.search import relieved
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ms_tune.dryrun.task import Observer
    from ms_tune.fit.job import PlannedJob
    from ms_tune.fit.request import ConfigFitRequest
    from ms_tune.fit.verify import Verified
    from ms_tune.planning.fit import FitReport
    from ms_tune.planning.search import SearchProgress
    from ms_tune.planning.table import CostTable, PlanLists

_MOST_ROUNDS = 3
_WORTH, _WORTH_COMPILED = 0.001, 0.01  # of the step, that another round has to promise: a static graph's takes minutes


class StopReason(NamedTuple):
    """What came of all rounds.

    Args:
        rounds: All of them.
        chosen: The one whose plan is handed over.
        lacking: Without one, what the table says of plans with all that the dryruns showed.
        fragment_bytes: The least that they showed each stage to need beside its peak and the reserve, which is set aside there.
    """

    rounds: tuple[Round, ...]
    chosen: Round | None
    lacking: FitReport | None = None
    fragment_bytes: tuple[int, ...] = ()


class Rounds:
    """Plans and their dryruns.

    A plan of which some stages fit and others do not is not given up: those that do not recompute more where they stand. What the
    others hold stays, so their dryruns are proof of the next plan, too, and what fragments do there is known.
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
        self._done: list[Round] = []

    def of(self, table: CostTable, fragments: tuple[int, ...]) -> StopReason:
        """All rounds, and what came of them."""
        best: Round | None = None
        relief: Round | None = None
        for number in range(_MOST_ROUNDS):
            one = relief
            if one is None:
                report, fragments = self._next(table, fragments, less=best is None)
                one = Round(report, ())
                if report.planned is None:
                    if not self._done:
                        self._done.append(one)
                    break
                if self._settled(report) or (best is not None and not self._promises(report, best)):
                    break
                one = replace(one, peak_bytes=_without(report, fragments))
                if not self._request.verify or report.stopped:
                    self._done.append(one)
                    return StopReason(tuple(self._done), best if report.stopped else one)
            self._observer.say(msg("fitting.verify", round=number + 1, most=_MOST_ROUNDS))
            one = self._verified(one)
            self._done.append(one)
            good = self._good(one)
            if good and (best is None or _faster(one, best)):
                best = one
            fresh = [stage for stage in one.verified if stage.stage not in one.kept]
            table = corrected(table, fresh, one.stands_for)
            seen = _fragments(one, fragments, self._reserve)
            margin = round((number + 1) * NEAR * table.limit_bytes)
            relief = None if best is not None else self._relief(one, table, seen, margin)
            # What is lost between blocks moves with the plan by hundreds of megabytes: half the way is ventured, no more,
            # and after each plan that did not fit something is added.
            more = 0 if good else margin
            fragments = tuple(max(now, (now + old) // 2) + more for now, old in zip(seen, fragments, strict=True))
        if best is not None or not self._done[0].verified:
            return StopReason(tuple(self._done), best)
        least = self._least_fragments()
        return StopReason(tuple(self._done), None, self._plan(table, least), least)

    def _least_fragments(self) -> tuple[int, ...]:
        """The least that each stage was seen to need beside its peak and the reserve, in any dryrun; 0 of one that was not run."""
        more: dict[int, int] = {}
        for seen in (stage for one in self._done for stage in one.verified):
            size = seen.needed_bytes - self._reserve - seen.peak_bytes
            more[seen.stage] = min(size, more.get(seen.stage, size))
        return tuple(more.get(stage, 0) for stage in range(self._job.stages))

    def _verified(self, one: Round) -> Round:
        """The round with the dryruns of its stages: those that plans before had, and a run of the others."""
        planned = one.report.planned
        assert planned is not None  # noqa: S101 - the callers have looked
        wanted = worst_stages(self._job, planned.plan)
        kept = {stage: found for stage in wanted if (found := self._proof(planned.plan, stage)) is not None}
        left = tuple(stage for stage in wanted if stage not in kept)
        if kept and left:
            self._observer.say(msg("fitting.kept", stages=_numbers(tuple(kept)), left=_numbers(left)))
        fresh = beside(simulated(self._job, planned.plan, left, self._observer), one.peak_bytes) if left else ()
        verified = sorted((*kept.values(), *fresh), key=lambda stage: stage.stage)
        stands_for = _stands_for([stage.stage for stage in verified], self._job.stages)
        return replace(one, verified=tuple(verified), stands_for=stands_for, kept=tuple(kept))

    def _proof(self, plan: PlanLists, stage: int) -> Verified | None:
        """What a stage of a plan held in the dryrun of a plan before, where it is the same stage; None where it is not."""
        for one in reversed(self._done):
            if one.report.planned is not None and same_stage(one.report.planned.plan, plan, stage):
                for found in one.verified:
                    if found.stage == stage:
                        return found
        return None

    def _relief(self, one: Round, table: CostTable, fragments: tuple[int, ...], margin: int) -> Round | None:
        """The plan of a round whose stages that did not fit recompute more; None where none did fit, or that does not suffice.

        Args:
            one: The round.
            table: The table, with what the round has taught it.
            fragments: What each stage needs beside its peak.
            margin: What these stages are to leave of the limit, for other fragments.
        """
        planned = one.report.planned
        lacking = [stage for stage in one.verified if not self._is_good(stage)]
        if planned is None or len(lacking) == len(one.verified):
            return None
        whole = _holding(table, fragments)
        # A stage that the lacking one stands for does not fit either, as far as is known.
        numbers = {stage.stage for stage in lacking}
        stages = [at for at, other in enumerate(one.stands_for) if other in numbers]
        cells = relieved(whole, planned.cells, stages, margin)
        if cells is None:
            return None
        report = with_plan(one.report, whole, cells)
        if self._settled(report):
            return None
        told = tuple(
            Relief(
                stage.stage,
                stage.verdict,
                planned.cells[stage.stage :: whole.stages],
                tuple(cells[stage.stage :: whole.stages]),
            )
            for stage in lacking
        )
        return Round(report, _without(report, fragments), relieved=told)

    def _next(self, table: CostTable, fragments: tuple[int, ...], *, less: bool) -> tuple[FitReport, tuple[int, ...]]:
        """A plan that dryruns have not settled yet, where there is one, and what was set aside for its fragments.

        What other runs lost is no proof that a plan would. Where nothing new fits beside it, half of it is set aside, then a
        quarter, then nothing.

        Args:
            table: The table.
            fragments: What other runs lost, by stage.
            less: Whether a plan is wanted that may have no room for them.
        """
        report = self._plan(table, fragments)
        for part in (2, 4, 0) if less and any(fragments) else ():
            if report.stopped or (report.planned is not None and not self._settled(report)):
                break
            fewer = tuple(size // part if part else 0 for size in fragments)
            report, held = self._plan(table, fewer), fewer
            if part == 0 or (report.planned is not None and not self._settled(report)):
                return report, held
        return report, fragments

    def _settled(self, report: FitReport) -> bool:
        """Whether another dryrun would tell nothing: the plan's is there already, or that of a stage of it which does not fit."""
        planned = report.planned
        if planned is None:
            return False
        if any(one.report.planned is not None and one.report.planned.plan == planned.plan for one in self._done):
            return True
        proofs = (self._proof(planned.plan, stage) for stage in range(self._job.stages))
        return any(not self._is_good(found) for found in proofs if found is not None)

    def _plan(self, table: CostTable, fragments: Sequence[int]) -> FitReport:
        """The plan of a table whose stages also hold their fragments."""
        asked = self._request
        whole = _holding(table, fragments)
        return plan_for(whole, effort=asked.effort, seed=asked.seed, clock=asked.clock, on_progress=self._on_progress)

    def _promises(self, report: FitReport, best: Round) -> bool:
        """Whether a plan is faster by so much of the step that another dryrun is worth it."""
        one, other = report.planned, best.report.planned
        worth = _WORTH_COMPILED if self._job.compiled else _WORTH
        return one is not None and other is not None and one.time < other.time * (1 - worth)

    def _good(self, one: Round) -> bool:
        return bool(one.verified) and all(map(self._is_good, one.verified))

    def _is_good(self, stage: Verified) -> bool:
        return stage.verdict.is_good(allow_tight=self._request.allow_tight)


def _faster(one: Round, other: Round) -> bool:
    mine, theirs = one.report.planned, other.report.planned
    return mine is not None and theirs is not None and mine.time < theirs.time


def _stands_for(there: Sequence[int], stages: int) -> tuple[int, ...]:
    """For every stage the simulated one that holds at least as much: itself, or the nearest before it."""
    return tuple(max((one for one in there if one <= stage), default=there[0]) for stage in range(stages))


def _numbers(stages: Sequence[int]) -> str:
    return ", ".join(map(str, stages))


def _without(report: FitReport, fragments: Sequence[int]) -> tuple[int, ...]:
    """The peaks of a report's plan without what was set aside for fragments."""
    peaks = report.planned.peak_bytes if report.planned is not None else ()
    return tuple(peak - more for peak, more in zip(peaks, fragments, strict=True))


def _holding(table: CostTable, fragments: Sequence[int]) -> CostTable:
    """The table whose stages also hold their fragments."""
    own = table.stage_bytes or (0,) * table.stages
    held = tuple(size + more for size, more in zip(own, fragments, strict=True))
    least = min(0, *held)  # what is taken off a stage is given back to all
    update = table.update
    if update is not None:
        stages = tuple(size + more for size, more in zip(update.stage_bytes, fragments, strict=True))
        update = replace(update, stage_bytes=stages)
    return replace(
        table,
        constant_bytes=table.constant_bytes + least,
        stage_bytes=tuple(size - least for size in held),
        update=update,
    )


def _fragments(one: Round, before: Sequence[int], reserve: int) -> tuple[int, ...]:
    """What each stage needs beside its peak and the reserve, as a round had it.

    Args:
        one: The round.
        before: What was set aside before, which stays for stages that were not simulated.
        reserve: The reserve by the job's split; a run may create other communicators.
    """
    seen = {stage.stage: stage.needed_bytes - reserve - stage.peak_bytes for stage in one.verified}
    return tuple(
        seen[stage] if other == stage else size
        for stage, (other, size) in enumerate(zip(one.stands_for, before, strict=True))
    )
