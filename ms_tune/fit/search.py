"""Find the fastest layout of a config: rank layouts by estimates, then measure, plan and dryrun the best few."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ms_tune.dialects.mindformers.read import names_devices
from ms_tune.dryrun.prepare import limit_before, load_config
from ms_tune.dryrun.task import Observer
from ms_tune.errors import MsTuneError, UsageError
from ms_tune.estimate.flops import require_widths
from ms_tune.fit.costs import present_cells
from ms_tune.fit.job import PlannedJob, read_job
from ms_tune.fit.layouts import read_layout, with_layout, with_samples
from ms_tune.fit.predict import calibrate, cluster_of
from ms_tune.fit.rank import LayoutCandidate, Ranking, RankTarget, rank_layouts
from ms_tune.fit.result import ConfigFit, ConfigFitRequest
from ms_tune.fit.run import fit_config
from ms_tune.fit.step_time import StepTime
from ms_tune.planning.layouts import MOST_DEVICES, Layout, LayoutSpace, list_layouts
from ms_tune.planning.search import SearchProgress, number_of_stop
from ms_tune.planning.time_scale import Clock
from ms_tune.source.yaml import SourceFile
from ms_tune.text import Message, msg
from ms_tune.verdict.limit import Limit


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Layouts to search."""

    fit: ConfigFitRequest = field(default_factory=ConfigFitRequest)  # the job, and how to plan each layout
    # Dimensions that may change, by their short names (`ms_tune.planning.layouts.DIMENSIONS`).
    free: tuple[str, ...] = ()
    keep: Mapping[str, int] = field(default_factory=dict)  # fixed values of dimensions
    top: int = 3  # number of layouts to dryrun; 0: ranking only
    node: int = 8  # devices per machine, an upper bound of TP
    samples: int | None = None  # per step, of the whole job; None: as in the config
    shards: bool = False  # also let the ranks with the same weights shard their optimizer states


class SearchHooks(NamedTuple):
    """Callbacks of a search."""

    observer: Observer  # receives messages about the simulation
    on_progress: Callable[[SearchProgress], None] = lambda _progress: None  # progress of the plan search
    on_ranked: Callable[[int, int], None] = lambda _done, _all: None  # numbers of ranked and of all layouts
    # Returns why the framework would refuse this config, or None.
    refusal: Callable[[SourceFile], Message | None] = lambda _source: None


@dataclass(frozen=True, slots=True, eq=False)
class TriedLayout:
    """A layout for which a plan was tried."""

    candidate: LayoutCandidate  # the layout and its estimate
    fit: ConfigFit | None  # its plan, or None
    error: Message | None = None  # why it has no plan
    estimated_bytes: tuple[int, ...] = ()  # estimated peak of each stage of that plan
    step: StepTime | None = None  # of that plan; None without one


@dataclass(frozen=True, slots=True, eq=False)
class SearchFit:
    """Result of a search."""

    source: SourceFile  # the config before any change
    now: Layout
    devices: int  # number of devices of every layout
    samples: int  # samples per step
    limit: Limit  # usable device memory of a stage
    ranking: Ranking  # the ranked layouts
    refused: Mapping[str, int]  # number of layouts rejected by arithmetic, by text id of the reason
    tried: tuple[TriedLayout, ...]  # the layouts that were tried, in order
    chosen: TriedLayout | None  # the fastest that fits, or None
    stopped: int = 0  # the number of the signal with which the user stopped the search

    @property
    def best(self) -> ConfigFit | None:
        """Return the chosen layout's plan as a change of the original config; None without one."""
        fit = None if self.chosen is None else self.chosen.fit
        if fit is None:
            return None
        return replace(fit, source=self.source, changed=max(fit.changed, int(fit.text != self.source.text)))

    def relative_time(self, step: StepTime) -> float:
        """Return the time relative to the current layout's estimate (100), or to the best estimate if that is unknown."""
        return 100 * step.seconds / self.ranking.candidates[self.ranking.present or 0].estimate.step.seconds


def search_layouts(request: SearchRequest, hooks: SearchHooks) -> SearchFit:
    """Find the fastest layout of a config that fits on its devices, with a plan."""
    asked = request.fit.dryrun
    if (asked.devices or 0) > MOST_DEVICES:
        raise UsageError(msg("layouts.too-many-devices", devices=asked.devices, most=MOST_DEVICES))
    loaded = load_config(asked)
    source = loaded.source
    if request.samples is not None:
        loaded = with_samples(loaded, request.samples)
    own = loaded._replace(devices=loaded.devices._replace(npus=None)) if names_devices(loaded.source) else loaded
    job = read_job(asked._replace(devices=None), own)
    now = read_layout(loaded, job.first)
    devices, samples = asked.devices or now.devices, request.samples or now.samples
    if samples % (now.data * now.size) == 0:
        now = now._replace(micro_batches=samples // (now.data * now.size))
    space = _layout_space(job, now, devices, samples, request)
    possible = list_layouts(space)
    limit, _ = limit_before(job.request, job.first)
    # With another number of devices, sizes that depend on it are read again.
    there = job._replace(loaded=loaded._replace(devices=loaded.devices._replace(npus=devices)))
    cluster = request.fit.cluster or cluster_of(asked.chip)
    if cluster is None:
        raise UsageError(msg("seconds.no-links", chip=str(asked.chip)), msg("seconds.no-links.hint"))
    cluster = calibrate(job, present_cells(job), cluster, request.fit.clock.step_seconds) or cluster
    target = RankTarget(now, limit.bytes, cluster, request.shards)
    ranking = rank_layouts(job, there.loaded, possible.found, target, hooks.on_ranked)
    tried, stopped = _try_layouts(request, ranking, there, hooks)
    good = [one for one in tried if one.step is not None]
    return SearchFit(
        source=source,
        now=now,
        devices=devices,
        samples=samples,
        limit=limit,
        ranking=ranking,
        refused=possible.refused,
        tried=tuple(tried),
        chosen=min(good, key=lambda one: one.step.seconds if one.step else 0.0, default=None),
        stopped=stopped,
    )


def _layout_space(job: PlannedJob, now: Layout, devices: int, samples: int, request: SearchRequest) -> LayoutSpace:
    widths = require_widths(job.loaded.job.model)
    one = widths.attention
    return LayoutSpace(
        now=now,
        devices=devices,
        layers=job.layers,
        heads=one.heads,
        groups=None if one.key_rank else one.groups,
        experts=max(widths.experts, 1),
        node=request.node,
        free=request.free,
        keep=request.keep,
        samples=samples,
        tokens=widths.tokens,
    )


def _try_layouts(
    request: SearchRequest, ranking: Ranking, job: PlannedJob, hooks: SearchHooks
) -> tuple[list[TriedLayout], int]:
    found: list[TriedLayout] = []
    runs = 0
    for candidate in ranking.fitting:
        if runs >= request.top:
            break
        layout = candidate.layout
        there = request.fit.dryrun._replace(devices=layout.devices, settings=())
        # The measured step is one of the current layout; the cluster is scaled to it.
        asked = replace(request.fit, dryrun=there, clock=Clock(), cluster=ranking.cluster)
        try:
            shards = request.shards and candidate is not ranking.now
            loaded = with_layout(job.loaded, layout, job.layers, shards=shards)
            refused = hooks.refusal(loaded.source)
        except MsTuneError as error:
            refused = error.message
        if refused is not None:
            found.append(TriedLayout(candidate, None, refused))
            continue
        runs += 1
        hooks.observer.say(msg("layouts.trying", number=runs, count=request.top, layout=str(layout)))
        try:
            fit = fit_config(asked, hooks.observer, hooks.on_progress, loaded)
        except MsTuneError as failed:
            found.append(TriedLayout(candidate, None, failed.message))
            continue
        except KeyboardInterrupt as stop:
            if not found:
                raise
            return found, number_of_stop(stop)
        found.append(_judge_layout(candidate, fit))
        if fit.last.report.stopped:
            return found, fit.last.report.stopped
    return found, 0


def _judge_layout(candidate: LayoutCandidate, fit: ConfigFit) -> TriedLayout:
    plan = fit.last.report.planned
    if plan is None:
        return TriedLayout(candidate, fit)
    layout = candidate.layout
    stages = [plan.cells[stage :: layout.pipeline] for stage in range(layout.pipeline)]
    estimated = tuple(
        candidate.facts.peak_bytes(
            stage,
            sum(sum(cell.values()) for cell in cells),
            sum(count for cell in cells for kind, count in cell.items() if kind.value == "full"),
        )
        for stage, cells in enumerate(stages)
    )
    step = candidate.predict(plan.cells) if fit.chosen is not None else None
    return TriedLayout(candidate, fit, None, estimated, step)
