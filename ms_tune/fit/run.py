"""From a config to the cheapest plan that fits: table, search, the plan's own dryrun, and what it teaches the table."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ms_tune.dryrun.dynamic import OWN_MODEL
from ms_tune.dryrun.limits import limit_before
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.errors import ConfigError, MsTuneError, UsageError
from ms_tune.fit.check import Checked, check_probe, foretold
from ms_tune.fit.costs import costs_of
from ms_tune.fit.ends import emptied_probes, with_ends
from ms_tune.fit.explain import table_without_sizes
from ms_tune.fit.job import present_plan, read_job
from ms_tune.fit.kept import keep_table
from ms_tune.fit.measure import measure
from ms_tune.fit.measured import Measured, Seen
from ms_tune.fit.probes import asked, first_chunk_recomputed, model_in, some_of_first_chunk, some_recomputed
from ms_tune.fit.remedies import with_remedies
from ms_tune.fit.result import ConfigFit, Round
from ms_tune.fit.table import DENSE_UNITS, table_of
from ms_tune.fit.verify import NEAR, beside, corrected, lists_of, simulated
from ms_tune.normalize.sapp import merge
from ms_tune.planning.clock import Clock, timed
from ms_tune.planning.fit import fit as plan_for
from ms_tune.planning.link import swaps
from ms_tune.planning.request import linked_by
from ms_tune.planning.search import Effort, without
from ms_tune.planning.table import Kept, Recompute, check
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ms_tune.dryrun.prepare import LoadedConfig
    from ms_tune.dryrun.result import DryrunResult
    from ms_tune.dryrun.task import Observer
    from ms_tune.fit.job import PlannedJob
    from ms_tune.fit.measure import Figures
    from ms_tune.fit.verify import Verified
    from ms_tune.planning.fit import FitReport
    from ms_tune.planning.search import Progress
    from ms_tune.planning.table import Table
    from ms_tune.texts import Message

_MOST_ROUNDS = 3
_WORTH, _WORTH_COMPILED = 0.001, 0.01  # of the step, that another round has to promise: a static graph's takes minutes


@dataclass(frozen=True, slots=True)
class ConfigFitRequest:
    """What a plan is asked for.

    Attributes:
        dryrun: The config, its job and its device.
        kinds: Kinds of recompute that a plan may use.
        effort: How long to search.
        seed: Where the search's random numbers begin.
        verify: Whether the plan is simulated before it is handed over.
        allow_tight: Whether a plan is good enough that fits only without fragments, or only inside the reserve.
        clock: What was measured.
        swap_bandwidth: Bytes a second that go to the host, and as many that come back; with the kind ``swap`` only.
    """

    dryrun: DryrunRequest = field(default_factory=DryrunRequest)
    kinds: tuple[Recompute, ...] = tuple(kind for kind in Recompute if kind is not Recompute.SWAP)
    effort: Effort = Effort.NORMAL
    seed: int = 1
    verify: bool = True
    allow_tight: bool = False
    clock: Clock = field(default_factory=Clock)
    swap_bandwidth: int | None = None

    def __post_init__(self) -> None:
        """Refuse swap of which nothing tells what it takes.

        Raises:
            UsageError: Swap is one of the kinds and no bandwidth is given, or the other way round.
        """
        if Recompute.SWAP in self.kinds and self.swap_bandwidth is None:
            raise UsageError(msg("fitting.swap.bandwidth"), msg("fitting.swap.bandwidth.hint"))
        if Recompute.SWAP not in self.kinds and self.swap_bandwidth is not None:
            raise UsageError(msg("fitting.swap.kind"), msg("fitting.swap.kind.hint"))


def fit_config(
    request: ConfigFitRequest,
    observer: Observer,
    on_progress: Callable[[Progress], None] = lambda _progress: None,
    loaded: LoadedConfig | None = None,
) -> ConfigFit:
    """The cheapest plan of a config that fits: where layers lie, and what they recompute.

    Args:
        request: What is asked for.
        observer: Told what is simulated.
        on_progress: Told how far a search is.
        loaded: The config; None for the one that the request names.

    Raises:
        MsTuneError: The config, this machine or a run is at fault.
    """
    job = read_job(request.dryrun, loaded)
    costs, source = costs_of(job), str(job.loaded.source.path)
    timed(table_without_sizes(job, costs), request.clock.times, source)  # before minutes of dryruns
    begin = time.monotonic()
    limit, reserve = limit_before(job.request, job.first)
    measured, emptied, check_run, notes = _measured(job, request.kinds, observer)
    notes += [note for note in job.first.not_included if note.id == OWN_MODEL]
    table = raw = with_ends(table_of(job, measured, costs, limit.bytes - reserve), job, measured, emptied)
    table, idle = _without_idle(replace(table, present=present_plan(job, table)))
    table = timed(table, request.clock.times, source)
    if swaps(table) and request.swap_bandwidth is not None:
        shortest = None if costs.shortest is None else costs.shortest / DENSE_UNITS
        try:
            table = linked_by(table, request.swap_bandwidth, request.clock, shortest, source)
        except ConfigError as error:  # a link far too slow: what was measured is worth a plan without it
            notes.append(msg("fitting.kind-fails", kind=Recompute.SWAP.value, reason=error.message))
            kept = table.present if table.present is None or not table.present.swap else None
            table = replace(without(table, [Recompute.SWAP]), present=kept)
    table = check(table, source)
    checked = _checked(job, table, check_run)
    margin = checked.margin_bytes if checked is not None else 0
    fragments = tuple(size + margin for size in measured.fragments(job.stages))
    keep_table(job, without(raw, [Recompute.SWAP]) if Recompute.SWAP in raw.kinds else raw, fragments)
    made = time.monotonic()
    rounds, chosen, stands_for = _Rounds(job, request, observer, on_progress, reserve).of(table, fragments)
    if chosen is None:
        rounds = (*rounds[:-1], replace(rounds[-1], report=with_remedies(rounds[-1].report, job)))
    text, changed = job.loaded.source.text, 0
    if chosen is not None and chosen.report.planned is not None:
        merged = merge(job.loaded.source, lists_of(job, chosen.report.planned.plan), job.now.framework_version)
        text, changed = merged.text, merged.count
    return ConfigFit(
        source=job.loaded.source,
        table=table,
        limit=limit,
        reserve_bytes=reserve,
        fragment_bytes=fragments,
        costs=costs,
        idle=idle,
        checked=checked,
        rounds=rounds,
        chosen=chosen,
        text=text,
        changed=changed,
        stands_for=stands_for,
        notes=tuple(notes),
        seconds=(made - begin, time.monotonic() - made),
    )


def _measured(
    job: PlannedJob, kinds: Sequence[Recompute], observer: Observer
) -> tuple[Measured, list[Figures], Figures | None, list[Message]]:
    """What small dryruns of the job hold; a kind of recompute that cannot be run is left out, and told.

    Returns:
        What they hold; what those with an empty end hold; what the table's check run holds, None where there is none; what to tell.

    Raises:
        MsTuneError: A run of layers that recompute nothing or everything failed, or this machine cannot simulate.
    """
    model = model_in(job)
    probes, notes = asked(job, model, kinds)
    full = any(one.kind is Recompute.FULL for one in probes)
    beside = {
        "some": some_recomputed(job) if full else [],
        "first": some_of_first_chunk(job) if full else [],
        "alone": first_chunk_recomputed(job, model) if full and job.compiled else [],
        "ends": emptied_probes(job, model),
        "check": [check_probe(job)] if full else [],
    }
    observer.say(msg("fitting.table", count=len(probes) + sum(map(len, beside.values())) - len(beside["check"])))
    for run in beside["check"]:
        observer.say(msg("fitting.check", stage=run.stage, layers=run.layers))
    groups = [[one.probe for one in probes], *beside.values()]
    every = iter(measure(job.request, [probe for group in groups for probe in group], observer))
    found = [next(every) for _ in probes]
    runs = {name: [next(every) for _ in group] for name, group in beside.items()}
    failed: dict[Recompute, MsTuneError] = {}
    for one, figures in zip(probes, found, strict=True):
        if isinstance(figures, MsTuneError):
            if one.kind is Recompute.NONE:
                raise figures
            failed.setdefault(one.kind, figures)
    notes += [msg("fitting.kind-fails", kind=kind.value, reason=error.message) for kind, error in failed.items()]
    seen = [
        Seen(one, figures)
        for one, figures in zip(probes, found, strict=True)
        if not isinstance(figures, MsTuneError) and one.kind not in failed
    ]
    lost = [one for group in runs.values() for one in group if isinstance(one, MsTuneError)]
    if lost and Recompute.FULL not in failed:
        notes.append(msg("fitting.runs-fail", count=len(lost), reason=lost[0].message))
    there = {name: [one for one in group if not isinstance(one, MsTuneError)] for name, group in runs.items()}
    measured = Measured(seen, model)
    measured.with_some(there["some"])
    measured.with_first(there["first"])
    alone = there["alone"]
    if measured.hidden and not beside["alone"]:
        more = measure(job.request, first_chunk_recomputed(job, model), observer)
        alone = [one for one in more if not isinstance(one, MsTuneError)]
    measured.with_alone(alone)
    return measured, there["ends"], next(iter(there["check"]), None), notes


def _checked(job: PlannedJob, table: Table, run: Figures | None) -> Checked | None:
    """The table's check run; None where the framework does not run it, or no plan recomputes layers in full."""
    if run is None or Recompute.FULL not in table.kinds:
        return None
    return Checked(run.stage, run.layers, foretold(job, table, run.stage), run.peak)


def _without_idle(table: Table) -> tuple[Table, tuple[Recompute, ...]]:
    """The table without kinds of recompute that free nothing: a plan would pay for them all the same.

    Returns:
        The table, and these kinds. What the present plan uses stays.
    """
    used = {
        kind
        for kind, rows in (
            (Recompute.SELECT, "select_recompute"),
            (Recompute.COMM, "select_comm_recompute"),
        )
        if table.present is not None and any(map(any, getattr(table.present, rows)))
    }
    if len(used) > 1:
        used.add(Recompute.BOTH)
    idle = tuple(
        kind
        for kind in table.kinds
        if kind is not Recompute.NONE
        and kind not in used
        and all(_frees(layer.recompute[Recompute.NONE], layer.recompute[kind]) <= 0 for layer in table.layers)
    )
    layers = tuple(
        replace(layer, recompute={kind: kept for kind, kept in layer.recompute.items() if kind not in idle})
        for layer in table.layers
    )
    return replace(table, layers=layers), idle


def _frees(plain: Kept, kept: Kept) -> int:
    return plain.activation_bytes + plain.once_bytes - kept.activation_bytes - kept.once_bytes


class _Rounds:
    """Plans and their dryruns, one after the other, until one fits and the table has foretold it."""

    def __init__(
        self,
        job: PlannedJob,
        request: ConfigFitRequest,
        observer: Observer,
        on_progress: Callable[[Progress], None],
        reserve: int,
    ) -> None:
        self._job, self._request, self._observer, self._on_progress = job, request, observer, on_progress
        self._reserve = reserve
        self._done: list[Round] = []
        self._stands_for: tuple[int, ...] = ()

    def of(self, table: Table, fragments: tuple[int, ...]) -> tuple[tuple[Round, ...], Round | None, tuple[int, ...]]:
        """All rounds, the one whose plan is handed over, and the simulated stage that stands for each."""
        best: Round | None = None
        for number in range(_MOST_ROUNDS):
            report, fragments = self._next(table, fragments, less=best is None)
            if report.planned is None:
                self._done.append(Round(report, ()))
                break
            if self._simulated(report):
                break
            if best is not None and not _promises(report, best, _WORTH_COMPILED if self._job.compiled else _WORTH):
                break
            peaks = tuple(peak - more for peak, more in zip(report.planned.peak_bytes, fragments, strict=True))
            one = Round(report, peaks)
            if not self._request.verify or report.stopped:
                self._done.append(one)
                return tuple(self._done), best if report.stopped else one, self._stands_for
            self._observer.say(msg("fitting.verify", round=number + 1, most=_MOST_ROUNDS))
            result = simulated(self._job, report.planned.plan, self._observer)
            verified = beside(result, peaks)
            one = replace(one, verified=verified, result=result)
            self._done.append(one)
            self._stands_for = _stands_for(result, self._job.stages)
            if self._good(one) and (best is None or _faster(one, best)):
                best = one
            table = corrected(table, verified, self._stands_for)
            seen = _fragments(verified, self._stands_for, fragments, self._reserve)
            # What is lost between blocks moves with the plan by hundreds of megabytes: half the way is ventured, no more,
            # and after each plan that did not fit something is added.
            more = 0 if self._good(one) else round((number + 1) * NEAR * table.limit_bytes)
            fragments = tuple(max(now, (now + old) // 2) + more for now, old in zip(seen, fragments, strict=True))
        return tuple(self._done), best, self._stands_for

    def _next(self, table: Table, fragments: tuple[int, ...], *, less: bool) -> tuple[FitReport, tuple[int, ...]]:
        """A plan that was not simulated yet, where there is one, and what was set aside for its fragments.

        What other runs lost is no proof that a plan would. Where nothing new fits beside it, half of it is set aside, then a
        quarter, then nothing.

        Args:
            table: The table.
            fragments: What other runs lost, by stage.
            less: Whether a plan is wanted that may have no room for them.
        """
        report = self._plan(table, fragments)
        for part in (2, 4, 0) if less and any(fragments) else ():
            if report.stopped or (report.planned is not None and not self._simulated(report)):
                break
            fewer = tuple(size // part if part else 0 for size in fragments)
            report, held = self._plan(table, fewer), fewer
            if part == 0 or (report.planned is not None and not self._simulated(report)):
                return report, held
        return report, fragments

    def _simulated(self, report: FitReport) -> bool:
        """Whether a plan's dryrun is there already: another one would show the same."""
        plan = report.planned and report.planned.plan
        return any(one.report.planned is not None and one.report.planned.plan == plan for one in self._done)

    def _plan(self, table: Table, fragments: Sequence[int]) -> FitReport:
        """The plan of a table whose stages also hold their fragments."""
        own = table.stage_bytes or (0,) * table.stages
        held = tuple(size + more for size, more in zip(own, fragments, strict=True))
        least = min(0, *held)  # what is taken off a stage is given back to all
        update = table.update
        if update is not None:
            stages = tuple(size + more for size, more in zip(update.stage_bytes, fragments, strict=True))
            update = replace(update, stage_bytes=stages)
        whole = replace(
            table,
            constant_bytes=table.constant_bytes + least,
            stage_bytes=tuple(size - least for size in held),
            update=update,
        )
        asked = self._request
        return plan_for(whole, effort=asked.effort, seed=asked.seed, clock=asked.clock, on_progress=self._on_progress)

    def _good(self, one: Round) -> bool:
        return bool(one.verified) and all(
            stage.verdict.is_good(allow_tight=self._request.allow_tight) for stage in one.verified
        )


def _promises(report: FitReport, best: Round, worth: float) -> bool:
    """Whether a plan is faster by so much of the step that another dryrun is worth it."""
    one, other = report.planned, best.report.planned
    return one is not None and other is not None and one.time < other.time * (1 - worth)


def _faster(one: Round, other: Round) -> bool:
    mine, theirs = one.report.planned, other.report.planned
    return mine is not None and theirs is not None and mine.time < theirs.time


def _stands_for(result: DryrunResult, stages: int) -> tuple[int, ...]:
    """For every stage the simulated one that holds at least as much: itself, or the nearest before it."""
    there = sorted(stage.run.stage for stage in result.stages)
    return tuple(max((one for one in there if one <= stage), default=there[0]) for stage in range(stages))


def _fragments(
    verified: Sequence[Verified], stands_for: Sequence[int], before: Sequence[int], reserve: int
) -> tuple[int, ...]:
    """What each stage needs beside its peak and the reserve, as its plan had it.

    Args:
        verified: The stages that were simulated.
        stands_for: For each stage the one that stands for it.
        before: What was set aside before, which stays for stages that were not simulated.
        reserve: The reserve by the job's split; a run may create other communicators.
    """
    seen = {one.stage: one.needed_bytes - reserve - one.peak_bytes for one in verified}
    return tuple(
        seen[stage] if other == stage else size
        for stage, (other, size) in enumerate(zip(stands_for, before, strict=True))
    )
