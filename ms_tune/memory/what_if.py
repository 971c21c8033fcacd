"""The allocations of a run replayed in MindSpore's pool under other settings, and without some of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.errors import UsageError
from ms_tune.footprint.attribution import is_named, layer_at, layer_of_scope, operator_at
from ms_tune.footprint.category import CONTENTS, Contents
from ms_tune.footprint.curve import curve_of
from ms_tune.footprint.judgement import judge_trace, verdict_terms
from ms_tune.footprint.phases import Phase
from ms_tune.pools.scenarios import TraceFacts, freed_after_last_use, layers_with, outcome_of, recomputed, sharded
from ms_tune.pools.settings import infer
from ms_tune.pools.whatif import what_if
from ms_tune.pools.workload import pools_of
from ms_tune.readers.block_table import read_block_table
from ms_tune.readers.comm_order import read_communication_order
from ms_tune.readers.folder import find_trace
from ms_tune.readers.runtime_log import read_runtime_log
from ms_tune.readers.table import HOST_POOL
from ms_tune.readers.tensor_list import read_tensor_list
from ms_tune.readers.uncountable import find_uncountable
from ms_tune.text import msg
from ms_tune.units import MIB
from ms_tune.verdict.outcome import Need, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ms_tune.footprint.judgement import VerdictTerms
    from ms_tune.memory.request import WhatIfRequest
    from ms_tune.pools.scenarios import Scenario, TraceChange
    from ms_tune.pools.whatif import WhatIf
    from ms_tune.pools.workload import Workload
    from ms_tune.readers.folder import RankFiles
    from ms_tune.readers.runtime_log import RuntimeLog
    from ms_tune.readers.table import Table
    from ms_tune.text import Message
    from ms_tune.verdict.outcome import Verdict

_SHARDS = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class RankTrace:
    """One rank of a run."""

    files: RankFiles  # where it was read from
    table: Table  # its blocks
    others: tuple[int, ...]  # the numbers of the ranks that were not read
    log: RuntimeLog | None  # what the log says; None if there is none

    @property
    def limit(self) -> int | None:
        """Bytes that MindSpore could take of the device in the run; None if no log tells."""
        statistics = self.log.statistics if self.log is not None else None
        return statistics.used_mib * MIB if statistics and statistics.used_mib else None


@dataclass(frozen=True, slots=True)
class WhatIfReport:
    """The settings side by side, and what would have become of other allocations."""

    rank: int | None  # the rank; None if no folder tells
    others: tuple[int, ...]  # ranks of the run that were not read
    limit_by: str  # what told the limit: `user`, `device`, `run`, `log`, or `assumed` if nothing did
    verdict: Verdict  # about the run, the same that `memory` and `dryrun` give
    result: WhatIf  # the settings
    # About each of the settings; None for all where the run is a part of what its verdict is about.
    verdicts: tuple[Verdict | None, ...]
    scenarios: tuple[Scenario, ...]  # the what-ifs on the trace itself
    scenario_verdicts: tuple[Verdict | None, ...]  # about each of them, likewise
    names: tuple[str, ...]  # what the trace calls the operator or parameter of each request
    seconds: float  # time of all replays

    @property
    def rows(self) -> int:
        """Allocations that were replayed."""
        return len(self.result.inferred.work.requests)


def replayed(path: Path, request: WhatIfRequest, on_progress: Callable[[Message, float], None]) -> WhatIfReport:
    """All replays of one rank of a run.

    Args:
        path: A ``memory_block.csv``, its folder, or a folder above it.
        request: What to replay.
        on_progress: Told what is being done, and how much of it.

    Raises:
        TraceError: There is no trace, or it cannot be read.
        UsageError: There is no such rank, or nothing of what is to be left out.
    """
    trace = read_rank(path, request.rank)
    start = time.perf_counter()
    pool, work, rows = largest_pool(trace.table)
    on_progress(msg("allocator.progress.infer"), 0)
    inferred = infer(work, pool, trace.limit)
    order = read_communication_order(trace.files.collectives) if trace.files.collectives else None
    terms = verdict_terms(trace.files, trace.log, order, request, request.max_memory)
    result = what_if(
        pool,
        inferred,
        terms.limit.bytes,
        lambda done, total: on_progress(msg("allocator.progress.settings"), done / total),
    )
    uncountable = find_uncountable(trace.files.graph) if trace.files.graph else None
    changes = _changes(request, inferred.work, _facts(trace, rows))
    scenarios = tuple(outcome_of(change, inferred, result.total) for change in changes)
    verdict = judge_trace(terms, trace.table, curve_of(trace.table), trace.log, uncountable)
    others = [_judged(one.used, one.actual, one.reserved, terms, fits=one.fits) for one in result.outcomes[1:]]
    return WhatIfReport(
        rank=trace.files.rank,
        others=trace.others,
        limit_by=terms.limit_by,
        verdict=verdict,
        result=result,
        verdicts=(None if terms.is_part else verdict, *others),
        scenarios=scenarios,
        scenario_verdicts=tuple(_judged(one.used, one.actual, one.reserved, terms, fits=one.fits) for one in scenarios),
        names=tuple(_names(trace.table, rows)),
        seconds=time.perf_counter() - start,
    )


def _judged(used: int, actual: int, reserved: int, terms: VerdictTerms, *, fits: bool) -> Verdict | None:
    """The verdict about a replay: a pool that needs more than there is needs all that it reserved."""
    if terms.is_part:
        return None
    footprint = actual if fits else max(actual, reserved)
    doubts = [] if terms.doubt is None else [terms.doubt]
    return judge(Need.of_trace(used, footprint), terms.limit, terms.outside, doubts)


def read_rank(path: Path, rank: int | None) -> RankTrace:
    """Read one rank of a run.

    Args:
        path: A ``memory_block.csv``, its folder, or a folder above it.
        rank: Which rank; None: the first.

    Raises:
        TraceError: There is no trace, or it cannot be read.
        UsageError: There is no such rank.
    """
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
    """The device's memory pool that was asked for most: its name, its workload, and the trace's row of every request.

    Raises:
        UsageError: The trace holds no blocks, as on the CPU.
    """
    pools = pools_of(table)
    if not pools:
        raise UsageError(msg("allocator.empty"))
    if len(pools) > 1:
        pools.pop(HOST_POOL, None)
    name = max(pools, key=lambda pool: sum(request.size for request in pools[pool][0].requests))
    return name, *pools[name]


def _names(table: Table, rows: list[int]) -> Iterator[str]:
    """What holds each row, in a few words: the parameter's name, or layer and operator."""
    for row in rows:
        node = table.node.at(row)
        if is_named(table, row):
            yield node
        else:
            yield " ".join(part for part in (layer_of_scope(node), operator_at(table, row)) if part) or "-"


def _facts(trace: RankTrace, rows: list[int]) -> TraceFacts:
    """What the analysis of the trace knows about the requests."""
    table = trace.table
    contents = Contents(table, read_tensor_list(trace.files.tensors) if trace.files.tensors else None)
    return TraceFacts(
        last_use=[None if tick < 0 else tick for tick in table.last_user[rows].tolist()],
        content=[CONTENTS[code].value for code in contents.codes[rows].tolist()],
        name=[table.node.at(row) for row in rows],
        layer=[layer_at(table, row, contents.names.get(row)) for row in rows],
        forward=contents.phases.is_(Phase.FORWARD)[rows].tolist(),
        backward=contents.phases.is_(Phase.BACKWARD)[rows].tolist(),
    )


def _changes(request: WhatIfRequest, work: Workload, facts: TraceFacts) -> Iterator[TraceChange]:
    """What the user asks for; else what is most often tried."""
    asked = request.remove or request.shard or request.recompute_layers
    if not asked:
        yield freed_after_last_use(work, facts)
    wanted = [(request.remove, 0)] if request.remove else []
    if request.shard:
        wanted.append((request.shard, request.parts or 2))
    if not asked and "optimizer_state" in facts.content:
        wanted = [("optimizer_state", parts) for parts in _SHARDS]
    for group, parts in wanted:
        change = sharded(work, facts, group, parts)
        if not change.changed:
            raise UsageError(msg("allocator.no-group", group=group), msg("allocator.no-group.hint"))
        yield change
    layers = layers_with(work, facts, "activations")
    if request.recompute_layers and not layers:
        raise UsageError(msg("allocator.no-layers"))
    counts = [request.recompute_layers] if request.recompute_layers else [] if asked else [1, len(layers)]
    for count in dict.fromkeys(min(count, len(layers)) for count in counts if layers):
        yield recomputed(work, facts, "activations", set(layers[:count]))
