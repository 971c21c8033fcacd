"""Analyse the memory traces of a run, from the tracker's files to a report with verdict, remedies and findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ms_tune.errors import TraceError
from ms_tune.footprint.breakdown import break_down_memory, compare_with_theory, group_activations
from ms_tune.footprint.category import Contents
from ms_tune.footprint.curve import compute_curve, map_addresses
from ms_tune.footprint.dry_run import collect_dry_run_terms, place_tensors
from ms_tune.footprint.findings import compare_findings, list_findings
from ms_tune.footprint.judgement import JudgedRequest, VerdictTerms, collect_terms, judge_trace
from ms_tune.footprint.lifetimes import analyse_lifetimes
from ms_tune.footprint.remedies import (
    MemoryRemedy,
    RemedyFacts,
    find_remedies,
    scale_remedies,
    sum_peak_contents,
)
from ms_tune.footprint.result import MemoryReport, RankReport, describe_tensor, find_tensor
from ms_tune.footprint.savings import recompute_all_layers
from ms_tune.footprint.steps import find_spans, find_steps, join_tasks
from ms_tune.footprint.whole_stage import BlockTrace, derive_stage_trace, measure_host_use
from ms_tune.readers.dry_run import read_dry_run_report
from ms_tune.readers.folder import RankFiles, find_trace
from ms_tune.readers.lines import ByteCounter
from ms_tune.readers.runtime_log import read_communication_order, read_runtime_log
from ms_tune.readers.table import Table
from ms_tune.readers.tensors import find_size_overflow, read_tensor_list, read_tracker_graph
from ms_tune.readers.tracker_tables import Tasks, read_block_table, read_tasks
from ms_tune.text import msg

_LAYER_OF_PARAMETER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)\.(\d{1,6})\.")
_MOST_SPANS = 400  # more phases cannot be distinguished in a picture


def number_stages(ranks: Sequence[RankReport]) -> tuple[int | None, ...]:
    """Return the pipeline stage of each rank, numbered among the stages that are present.

    Ranks of one stage have the same layers, ranks of other stages have others. Ranks whose parameters have no names
    (dynamic graph) have None, and so do all ranks if they have the same layers: only one stage is present.
    """
    if any(rank.dry_run is not None and rank.dry_run.stages for rank in ranks):
        return tuple(rank.dry_run.stages[0] if rank.dry_run and rank.dry_run.stages else None for rank in ranks)
    found = [map(_LAYER_OF_PARAMETER.search, rank.contents.names.values()) for rank in ranks]
    layer_sets = [frozenset(int(match[1]) for match in matches if match) for matches in found]
    different = sorted({layers for layers in layer_sets if layers}, key=min)
    if len(different) < 2:  # noqa: PLR2004 - one stage is not a pipeline
        return tuple(None for _ in ranks)
    return tuple(different.index(layers) if layers else None for layers in layer_sets)


Item = TypeVar("Item")


def analyse_memory(
    run: str | Path,
    request: MemoryRequest | None = None,
    on_bytes: Callable[[int, int], None] = lambda _done, _all: None,
) -> MemoryReport:
    """Analyse where the memory of a run went, from the files of its memory tracker. Requires the extra ``report``.

    Args:
        run: A ``memory_block.csv``, its folder, or a folder of ranks.
        request: Which ranks to look at, and how closely.
        on_bytes: Called with the bytes read so far, and the bytes of all files.

    Raises:
        TraceError: The trace is missing or unreadable.

    Example::

        worst = ms_tune.analyse_memory("run/").worst
        print(worst.curve.peak_bytes, {content.value: size for content, size in worst.peak.contents.items()})
    """
    path, request = Path(run), request or MemoryRequest()
    found = find_trace(path)
    chosen = [files for files in found.ranks if not request.ranks or files.rank in request.ranks]
    if not chosen:
        present = ", ".join(str(files.rank) for files in found.ranks if files.rank is not None)
        hint = msg("memory.no-such-rank.hint")
        raise TraceError(msg("memory.no-such-rank", ranks=present or "–"), hint, path=path)
    read = [(files.blocks, files.tasks, files.graph if request.with_graph else None) for files in chosen]
    total = sum(path.stat().st_size for paths in read for path in paths if path is not None)
    progress = ByteCounter(total, on_bytes)
    ranks = tuple(analyse_rank(files, request, progress.add) for files in chosen)
    return MemoryReport(path, ranks, number_stages(ranks), compare_findings(ranks, stale=found.stale))


def analyse_rank(files: RankFiles, request: MemoryRequest, on_bytes: Callable[[int], None]) -> RankReport:
    """Return the analysis of one rank."""
    everything = read_block_table(files.blocks, on_bytes)
    on_device = everything.on_device()
    table = everything if on_device.all() else everything.select_rows(on_device)
    unread: list[TraceError] = []
    dry_run, placed = None, None
    if table.is_logical:
        dry_run = _read_optional(read_dry_run_report, files.report, unread)
        placed = place_tensors(table, dry_run)
        table, files = placed.table, RankFiles(files.rank, files.blocks, None, None, None, None, None, files.report)
    tasks: Tasks | None = _read_optional(lambda path: read_tasks(path, on_bytes), files.tasks, unread)
    graph = _read_optional(
        lambda path: read_tracker_graph(path, on_bytes), files.graph if request.with_graph else None, unread
    )
    log = _read_optional(read_runtime_log, files.log, unread)
    contents = Contents(table, _read_optional(read_tensor_list, files.tensors, unread))
    curve = compute_curve(table)
    overflow = _read_optional(find_size_overflow, files.graph, unread)
    order = _read_optional(read_communication_order, files.collectives, unread)
    if placed is None:
        terms = collect_terms(files, log, order, request, request.limit_bytes)
    else:
        terms = collect_dry_run_terms(placed, dry_run, request)
    verdict = judge_trace(terms, table, curve, log, overflow)
    host = measure_host_use(everything)
    stage = derive_stage_trace(terms, BlockTrace(table, contents, graph, host), with_graph=request.with_graph)
    if stage is not None:
        table, contents, graph, host = stage
        curve, tasks, log = compute_curve(table), None, log._replace(statistics=None) if log else None
    steps = find_steps(table, contents, tasks)
    parts = break_down_memory(table, contents, curve, curve.peak_tick, lambda row: describe_tensor(table, graph, row))
    activations = group_activations(table, contents, parts)
    report = RankReport(
        files=files,
        rank=files.rank,
        table=table,
        contents=contents,
        curve=curve,
        tasks=tasks,
        graph=graph,
        collectives=order,
        log=log,
        join=join_tasks(table, tasks) if tasks is not None else None,
        steps=steps,
        spans=find_spans(table, contents, _MOST_SPANS),
        lifetimes=analyse_lifetimes(table, contents, curve, steps),
        map=map_addresses(table, curve, curve.peak_tick),
        peak=parts,
        activations=activations,
        recompute=recompute_all_layers(table, contents, curve),
        theory=compare_with_theory(table, contents, parts, lambda row: find_tensor(table, graph, row)),
        verdict=verdict,
        sample=terms.sample if stage is None else None,
        extrapolation=terms.stage_layers if stage is not None else None,
        overflow=overflow,
        host_rows=host.rows,
        host_bytes=host.peak_bytes,
        host_moved_bytes=host.moved_bytes,
        unread=tuple(unread),
        dry_run=dry_run,
        placed=placed,
    )
    known = RemedyFacts(table, contents, curve, report.recompute, report.lifetimes, report.theory)
    by_phase, judged = sum_peak_contents(known, parts.rows), known
    if placed is not None and placed.later_peak_bytes:
        judged = _collect_facts(placed.whole)
    report = replace(report, held_at_peak=by_phase, remedies=find_remedies(judged))
    if report.sample is not None and (scaled := _scale_remedies(report, terms, request)) is not None:
        report = replace(report, remedies=scaled, scaled_from=terms.stage_layers)
    return replace(report, findings=list_findings(report))


def _collect_facts(table: Table) -> RemedyFacts:
    contents, curve = Contents(table, None), compute_curve(table)
    parts = break_down_memory(table, contents, curve, curve.peak_tick, lambda _row: "")
    lives = analyse_lifetimes(table, contents, curve, find_steps(table, contents, None))
    theory = compare_with_theory(table, contents, parts, lambda _row: None)
    return RemedyFacts(table, contents, curve, recompute_all_layers(table, contents, curve), lives, theory)


def _scale_remedies(sample: RankReport, terms: VerdictTerms, request: MemoryRequest) -> tuple[MemoryRemedy, ...] | None:
    # Another phase can have the peak in the whole stage, so real savings can be smaller, but with two runs never larger: the
    # largest of several sums over layers grows at least linearly.
    record, folder = terms.record, terms.folder
    if record is None or folder is None or record.stage_need is None or not record.stage_runs:
        return None
    runs = [sample]
    for run in record.stage_runs[1:]:
        try:
            (files,) = find_trace(folder / run.folder).ranks
            runs.append(analyse_rank(files, request, lambda _: None))
        except TraceError:
            return None
    return scale_remedies(
        record.stage_need.peak_bytes,
        [run.weight for run in record.stage_runs],
        [(run.curve.peak_bytes, run.remedies) for run in runs],
    )


def _read_optional(read: Callable[[Path], Item], path: Path | None, unread: list[TraceError]) -> Item | None:
    # The analysis works without the file.
    if path is None:
        return None
    try:
        return read(path)
    except TraceError as error:
        unread.append(error)
        return None


@dataclass(frozen=True, slots=True)
class MemoryRequest(JudgedRequest):
    """The ranks to analyse, how closely, and the terms of their verdict.

    Attributes:
        ranks: The ranks to look at; empty for all.
        limit_bytes: Usable memory of the pool, regardless of the device.
        with_graph: Whether to read ``tracker_graph.ir``, the slowest file.
    """

    ranks: frozenset[int] = frozenset()
    limit_bytes: int | None = None
    with_graph: bool = True
