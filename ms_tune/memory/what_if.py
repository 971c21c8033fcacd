"""Replay a run's allocations in MindSpore's pool, or a snapshot's in PyTorch's, with other settings and changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ms_tune.diagnostics import Category, Diagnostic, Severity
from ms_tune.errors import TraceError, UsageError
from ms_tune.footprint.category import CONTENTS, Contents
from ms_tune.footprint.curve import compute_curve
from ms_tune.footprint.judgement import JudgedRequest, VerdictTerms, collect_terms, judge_trace
from ms_tune.footprint.layers import find_layer, find_operator, is_parameter, parse_layer_scope
from ms_tune.footprint.phases import Phase
from ms_tune.footprint.torch_report import TorchReport, analyse_snapshot
from ms_tune.footprint.whole_stage import derive_stage_trace, read_block_trace
from ms_tune.pools.settings import infer_settings
from ms_tune.pools.torch_replay import Cache, TorchOutcome, change_segments, replay_setting
from ms_tune.pools.torch_space import TorchSettings
from ms_tune.pools.what_if import (
    WASTE_LIMIT,
    ReplayOutcome,
    TraceChange,
    TraceFacts,
    WhatIf,
    free_after_last_use,
    list_layers_with,
    recompute_layers,
    replay_change,
    shard_blocks,
    what_if,
)
from ms_tune.pools.workload import Workload, split_by_pool
from ms_tune.readers.folder import RankFiles, find_trace
from ms_tune.readers.runtime_log import RuntimeLog, read_communication_order, read_runtime_log
from ms_tune.readers.table import HOST_POOL, Table
from ms_tune.readers.tensors import find_size_overflow, read_tensor_list
from ms_tune.readers.tracker_tables import read_block_table
from ms_tune.records import Record
from ms_tune.text import Message, msg
from ms_tune.units import MIB, gib
from ms_tune.verdict.outcome import Need, Verdict, judge

_SHARDS = (2, 4, 8)
_SPLITS = (64 * MIB, 128 * MIB, 256 * MIB)  # tried if the user names none
_COLLECT = 0.8  # the threshold in PyTorch's own notes


class RankTrace(Record):
    """One rank of a run."""

    files: RankFiles  # the files that it was read from
    table: Table  # its blocks
    others: tuple[int, ...]  # ranks that were not read
    log: RuntimeLog | None  # the log, if there is one

    @property
    def limit_bytes(self) -> int | None:
        """Return the bytes that MindSpore could use of the device in the run; None if unknown."""
        statistics = self.log.statistics if self.log is not None else None
        return statistics.used_mib * MIB if statistics and statistics.used_mib else None


class WhatIfReport(Record):
    """The comparison of pool settings and of changed allocations."""

    rank: int | None  # the rank; None if unknown
    others: tuple[int, ...]  # ranks of the run that were not read
    terms: VerdictTerms  # the terms of all verdicts
    verdict: Verdict  # on the run, the same as of `memory` and `dryrun`
    result: WhatIf  # comparison of the settings
    scenarios: tuple[ReplayOutcome, ...]  # the changed allocations
    names: tuple[str, ...]  # operator or parameter of each request, as named in the trace
    # Layers of the stage and of the runs that its requests are extrapolated from; None if they were recorded.
    extrapolation: tuple[int, tuple[int, ...]] | None
    seconds: float  # duration of all replays
    unreleased: int = 0  # blocks whose release the trace lacks

    @property
    def finding(self) -> Diagnostic | None:
        """Return a finding if the run's setting wastes much of its reserved memory."""
        recorded = self.result.recorded_outcome
        used, reserved, waste = recorded.used_bytes, recorded.reserved_bytes, recorded.waste_share
        if reserved is None or waste is None or waste <= WASTE_LIMIT:
            return None
        sizes = {"reserved": gib(reserved), "used": gib(used)}
        return Diagnostic(
            "MSM301",
            Severity.WARNING,
            msg("allocator.finding.waste", waste=f"{waste:.1%}", **sizes),
            msg("allocator.finding.waste.help"),
            "pool-waste",
            Category.MEMORY,
            bytes=reserved - used,
            rank=self.rank,
        )

    @property
    def limit_by(self) -> str:
        """Return the source of the limit: ``user``, ``device``, ``run``, ``log``, or ``assumed``."""
        return self.terms.limit_by

    def verdict_about(self, outcome: ReplayOutcome) -> Verdict | None:
        """Return the verdict on a setting or a what-if; None if unknown, as for a trace that is only a sample of its stage."""
        if self.terms.sample is not None and self.extrapolation is None:
            return None
        if outcome.recorded:
            return self.verdict
        if outcome.actual_bytes is None or outcome.reserved_bytes is None:
            return None
        # A pool that does not fit needs all the memory that it reserves.
        footprint = outcome.actual_bytes if outcome.fits else max(outcome.actual_bytes, outcome.reserved_bytes)
        doubts = [] if self.terms.doubt is None else [self.terms.doubt]
        need = Need.of_trace(outcome.used_bytes, footprint)
        return judge(need, self.terms.limit, self.terms.outside, doubts)

    @property
    def allocation_count(self) -> int:
        """Return the number of replayed allocations."""
        return len(self.result.inferred.work.requests)


def replay_run(path: Path, request: WhatIfRequest, on_progress: Callable[[Message, float], None]) -> WhatIfReport:
    """Run all replays of one rank of a run."""
    trace = read_rank(path, request.rank)
    start = time.perf_counter()
    order = read_communication_order(trace.files.collectives) if trace.files.collectives else None
    terms = collect_terms(trace.files, trace.log, order, request, request.max_memory)
    sample = read_block_trace(trace.files, with_graph=False) if terms.sample is not None else None
    stage = derive_stage_trace(terms, sample, with_graph=False) if sample is not None else None
    table = trace.table if stage is None else stage.table
    pool, work, rows = largest_pool(table)
    on_progress(msg("allocator.progress.infer"), 0)
    inferred = infer_settings(work, pool, trace.limit_bytes)
    result = what_if(
        pool,
        inferred,
        terms.limit.bytes,
        lambda done, total: on_progress(msg("allocator.progress.settings"), done / total),
    )
    overflow = find_size_overflow(trace.files.graph) if trace.files.graph else None
    tensors = read_tensor_list(trace.files.tensors) if trace.files.tensors else None
    contents = Contents(table, tensors) if stage is None else stage.contents
    changes = _changes_to_try(request, inferred.work, _trace_facts(table, contents, rows))
    return WhatIfReport(
        rank=trace.files.rank,
        others=trace.others,
        terms=terms,
        verdict=judge_trace(terms, trace.table, compute_curve(trace.table), trace.log, overflow),
        result=result,
        scenarios=tuple(replay_change(change, inferred, result.total) for change in changes),
        names=tuple(_request_names(table, rows)),
        extrapolation=terms.stage_layers if stage is not None else None,
        seconds=time.perf_counter() - start,
        unreleased=table.unreleased,
    )


def read_rank(path: Path, rank: int | None) -> RankTrace:
    """Read one rank of a run, by default the first: a ``memory_block.csv``, its folder, or a folder above it."""
    ranks = find_trace(path).ranks
    chosen = next((files for files in ranks if rank is None or files.rank == rank), None)
    numbers = tuple(files.rank for files in ranks if files.rank is not None)
    if chosen is None:
        raise UsageError(msg("allocator.rank", rank=rank, ranks=", ".join(map(str, numbers)) or "-"))
    return RankTrace(
        files=chosen,
        table=read_block_table(chosen.blocks),
        others=tuple(number for number in numbers if number != chosen.rank),
        log=read_runtime_log(chosen.log) if chosen.log else None,
    )


def largest_pool(table: Table) -> tuple[str, Workload, list[int]]:
    """Return the device's largest memory pool: its name, its workload, and the trace's row of every request."""
    pools = split_by_pool(table)
    if not pools:
        raise UsageError(msg("allocator.empty"))
    if len(pools) > 1:
        pools.pop(HOST_POOL, None)
    name = max(pools, key=lambda pool: sum(request.size for request in pools[pool][0].requests))
    return name, *pools[name]


def _request_names(table: Table, rows: list[int]) -> Iterator[str]:
    for row in rows:
        node = table.node.value_at(row)
        if is_parameter(table, row):
            yield node
        else:
            yield " ".join(part for part in (parse_layer_scope(node), find_operator(table, row)) if part) or "-"


def _trace_facts(table: Table, contents: Contents, rows: list[int]) -> TraceFacts:
    return TraceFacts(
        last_use=[None if tick < 0 else tick for tick in table.last_user[rows].tolist()],
        content=[CONTENTS[code].value for code in contents.codes[rows].tolist()],
        name=[table.node.value_at(row) for row in rows],
        layer=[find_layer(table, row, contents.names.get(row)) for row in rows],
        forward=contents.phases.rows_of(Phase.FORWARD)[rows].tolist(),
        backward=contents.phases.rows_of(Phase.BACKWARD)[rows].tolist(),
    )


def _changes_to_try(request: WhatIfRequest, work: Workload, facts: TraceFacts) -> Iterator[TraceChange]:
    asked = request.remove or request.shard or request.recompute_layers
    if not asked:
        yield free_after_last_use(work, facts)
    wanted = [(request.remove, 0)] if request.remove else []
    if request.shard:
        wanted.append((request.shard, request.parts or 2))
    if not asked and "optimizer_state" in facts.content:
        wanted = [("optimizer_state", parts) for parts in _SHARDS]
    for group, parts in wanted:
        change = shard_blocks(work, facts, group, parts)
        if not change.changed:
            raise UsageError(msg("allocator.no-group", group=group), msg("allocator.no-group.hint"))
        yield change
    layers = list_layers_with(work, facts, "activations")
    if request.recompute_layers and not layers:
        raise UsageError(msg("allocator.no-layers"))
    counts = [request.recompute_layers] if request.recompute_layers else [] if asked else [1, len(layers)]
    for count in dict.fromkeys(min(count, len(layers)) for count in counts if layers):
        yield recompute_layers(work, facts, "activations", set(layers[:count]))


class TorchWhatIf(Record):
    """A recording replayed under several settings."""

    report: TorchReport  # the recording
    # The recorded setting first, also replayed, to show the error of allocating the first blocks again.
    outcomes: tuple[TorchOutcome, ...]
    limit: int | None  # the limit of the allocator; None: no limit
    error_bytes: int  # difference of the peak between the recording and its replay without a limit

    @property
    def is_over_limit(self) -> bool:
        """Return whether the requested setting, or else the best one, is over the limit."""
        asked = [one for one in self.outcomes if not one.recorded] or list(self.outcomes)
        return all(one.over_limit for one in asked)


def replay_snapshot(
    path: Path, request: TorchWhatIfRequest, on_progress: Callable[[Message, float], None]
) -> TorchWhatIf:
    """Replay a snapshot under other settings."""
    if request.collect_above is not None and request.limit is None:
        raise UsageError(msg("snapshot.no-limit"), msg("snapshot.no-limit.hint"))
    report = analyse_snapshot(path, request.device, None, on_progress)
    reason = report.refused_because
    if reason is not None:
        raise TraceError(msg("snapshot.refused", reason=reason), msg("snapshot.refused.hint"), path=path)
    if request.empty_each_step and not report.step_ends:
        raise UsageError(msg("snapshot.no-steps"), msg("snapshot.no-steps.hint"))
    recorded = report.replay.settings
    tried = [(recorded, Cache.AS_RECORDED), *_settings_to_try(request, recorded, steps=bool(report.step_ends))]
    outcomes = []
    for number, (settings, cache) in enumerate(tried):
        on_progress(msg("snapshot.progress.what-if"), number / len(tried))
        limited = replace(settings, total=request.limit)
        found = replay_setting(report.recording, limited, cache, recorded=not number)
        outcomes.append(found)
    plain = outcomes[0]
    if request.limit is not None:
        plain = replay_setting(report.recording, recorded, Cache.AS_RECORDED, recorded=True)
    error = plain.reserved_peak_bytes - (report.reserved_peak_bytes or 0)
    return TorchWhatIf(report, tuple(outcomes), request.limit, error)


def _settings_to_try(
    request: TorchWhatIfRequest, recorded: TorchSettings, *, steps: bool
) -> list[tuple[TorchSettings, Cache]]:
    if request.names_settings:
        settings = recorded
        if request.expandable is not None and request.expandable is not recorded.expandable:
            settings = change_segments(settings, expandable=request.expandable)
        if request.max_split is not None:
            settings = replace(settings, max_split=request.max_split)
        if request.roundup is not None:
            settings = replace(settings, roundup=(request.roundup,))
        settings = replace(settings, collect_above=request.collect_above)
        each_step = Cache.EMPTIED_EACH_STEP if request.empty_each_step else Cache.AS_RECORDED
        return [(settings, Cache.KEPT if request.keep_cache else each_step)]
    classic = change_segments(recorded, expandable=False)
    other = classic if recorded.expandable else change_segments(recorded, expandable=True)
    found = [(other, Cache.AS_RECORDED)]
    found += [(replace(classic, max_split=limit), Cache.AS_RECORDED) for limit in _SPLITS]
    if request.limit is not None:
        found.append((replace(recorded, collect_above=_COLLECT), Cache.AS_RECORDED))
    if steps:
        found.append((recorded, Cache.EMPTIED_EACH_STEP))
    return found


@dataclass(frozen=True, slots=True)
class WhatIfRequest(JudgedRequest):
    """The changes to a run's allocations, in addition to other pool settings; see also :class:`JudgedRequest`.

    Attributes:
        rank: The rank; None for the first.
        max_memory: Limit of the pool in bytes; None for that of the run.
        remove: Blocks to leave out: a category, or the name of a parameter.
        shard: Blocks to shard, likewise.
        parts: Number of ranks that share them; None for two.
        recompute_layers: How many layers to recompute in full.
    """

    rank: int | None = None
    max_memory: int | None = None
    remove: str | None = None
    shard: str | None = None
    parts: int | None = None
    recompute_layers: int | None = None


@dataclass(frozen=True, slots=True)
class TorchWhatIfRequest:
    """The settings to replay."""

    device: int | None = None  # the device's number; None for the one with the most events
    expandable: bool | None = None  # `expandable_segments`; None as recorded
    max_split: int | None = None  # `max_split_size_mb` in bytes; None as recorded
    roundup: int | None = None  # `roundup_power2_divisions`; None as recorded
    keep_cache: bool = False  # whether the script's calls of `empty_cache` are left out
    empty_each_step: bool = False  # whether it is called after each training step
    collect_above: float | None = None  # `garbage_collection_threshold`, a share of `limit`; None: not set
    limit: int | None = None  # the limit of the allocator in bytes; None: no limit

    @property
    def names_settings(self) -> bool:
        """Return whether a setting is requested."""
        named = (self.expandable, self.max_split, self.roundup, self.collect_above)
        return self.keep_cache or self.empty_each_step or any(each is not None for each in named)
