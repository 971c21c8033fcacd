"""Run ``ms-tune memory`` and its subcommands on a trace of MindSpore's memory tracker or the log of an out-of-memory run."""

from __future__ import annotations

from argparse import Namespace

from ms_tune.cli.device import exit_code
from ms_tune.cli.output import LONG, ProgressLine, file_to_write, write_text_file
from ms_tune.diagnostics import Severity
from ms_tune.errors import ExitCode, TraceError, UsageError
from ms_tune.footprint.report import MemoryRequest, analyse_memory
from ms_tune.footprint.result import MemoryReport
from ms_tune.memory.diff import compare_reports
from ms_tune.memory.what_if import WhatIfRequest, replay_run
from ms_tune.readers.folder import is_dry_run
from ms_tune.readers.lines import read_json
from ms_tune.readers.oom_log import read_memory_failures
from ms_tune.report import memory_json, memory_text, what_if_text
from ms_tune.report.console import Console
from ms_tune.report.memory_export import write_blocks, write_perfetto, write_snapshot
from ms_tune.report.memory_html import report_html
from ms_tune.report.words import verdict_line
from ms_tune.text import msg
from ms_tune.units import GIB, MIB

_ROWS = 10  # default table length


def _show_trace(arguments: Namespace, console: Console) -> ExitCode:
    request = MemoryRequest(
        frozenset(arguments.rank),
        with_graph=not arguments.no_graph,
        chip=arguments.chip,
        device_bytes=arguments.device_memory,
        reserve_bytes=arguments.reserve,
        measured_bytes=_read_rest(arguments),
    )
    with ProgressLine(console, LONG) as progress:
        report = analyse_memory(arguments.path, request, progress.read)
    _write_files(report, arguments, console)
    _show_report(report, arguments, console)
    found = [finding for finding in report.all_findings if finding.severity is Severity.ERROR]
    code = exit_code([rank.verdict for rank in report.ranks], arguments)
    return ExitCode.FINDINGS if found and code is ExitCode.OK else code


def _read_rest(arguments: Namespace) -> int | None:
    # The bytes that a run reserved beyond its dry-run, as `memory diff --json` wrote them.
    path = arguments.reserve_from
    if path is None:
        return None
    if not is_dry_run(arguments.path):
        raise UsageError(msg("memory.reserve-from.only-dry-runs"))
    wrong = msg("memory.reserve-from.other")
    content = read_json(path, MIB * 64, wrong, "trace.dry-run.not-json")
    rest = content.get("rest_bytes") if isinstance(content, dict) else None
    if type(rest) is not int or abs(rest) > 1024 * GIB:
        raise TraceError(wrong, msg("memory.reserve-from.hint"), path=path)
    return rest


def _show_failures(arguments: Namespace, console: Console) -> ExitCode:
    report = read_memory_failures(arguments.logs)
    if arguments.json:
        console.write_json(memory_json.failures_json(report, arguments.path))
    else:
        memory_text.show_failures(report, console, quiet=arguments.quiet, verbose=arguments.verbose)
    return ExitCode.FINDINGS


def _show_report(report: MemoryReport, arguments: Namespace, console: Console) -> None:
    parts = None
    if arguments.at is not None:
        ticks = report.worst.curve.tick
        if len(ticks) and arguments.at > int(ticks[-1]):
            raise UsageError(msg("memory.no-at-beyond", tick=arguments.at, last=int(ticks[-1])))
        parts = report.worst.breakdown_at(arguments.at)
        if not len(parts.rows):
            raise UsageError(msg("memory.no-at", tick=arguments.at))
    top = arguments.top or _ROWS
    if arguments.json:
        extra = {}
        if parts is not None:
            split = memory_json.breakdown_json(parts, top)
            extra = {"at": {"tick": parts.tick, "categories": parts.contents, **split}}
        console.write_json(memory_json.report_json(report, top) | extra)
    elif arguments.quiet:
        console.write(verdict_line(report.worst.verdict, console))
    elif parts is not None:
        memory_text.show_breakdown(parts, console, top)
    elif arguments.verbose:
        memory_text.show_report(report, console, top)
    else:
        memory_text.show_summary(report, console, arguments.top)


def _write_files(report: MemoryReport, arguments: Namespace, console: Console) -> None:
    if arguments.csv:
        with file_to_write(arguments.csv, console) as path, path.open("w", encoding="utf-8", newline="") as file:
            for number, rank in enumerate(report.ranks):
                parts = rank.peak if arguments.at is None else rank.breakdown_at(arguments.at)
                write_blocks(file, rank, parts, header=not number)
    if arguments.html:
        write_text_file(arguments.html, report_html(report, None, console.language), console)


def _show_trace_diff(arguments: Namespace, console: Console) -> ExitCode:
    request = MemoryRequest(frozenset(arguments.rank), with_graph=bool(arguments.html))
    with ProgressLine(console, LONG) as progress:
        before = analyse_memory(arguments.before, request, progress.read)
        after = analyse_memory(arguments.after, request, progress.read)
    comparison = compare_reports(before, after)
    if arguments.html:
        write_text_file(arguments.html, report_html(after, comparison, console.language), console)
    if arguments.json:
        console.write_json(memory_json.comparison_json(comparison))
    else:
        memory_text.show_comparison(comparison, console, arguments.top, quiet=arguments.quiet)
    same = not any(pair.changes for pair in comparison.ranks) and not (comparison.only_before or comparison.only_after)
    return ExitCode.OK if same else ExitCode.FINDINGS


def _write_trace_export(arguments: Namespace, console: Console) -> ExitCode:
    request = MemoryRequest(frozenset(arguments.rank))
    with ProgressLine(console, LONG) as progress:
        report = analyse_memory(arguments.path, request, progress.read)
    if arguments.perfetto:
        with file_to_write(arguments.perfetto, console) as path, path.open("w", encoding="utf-8") as file:
            write_perfetto(file, report)
    if arguments.snapshot:
        if len(report.ranks) > 1:
            raise UsageError(msg("memory.export.one-rank"))
        with file_to_write(arguments.snapshot, console) as path, path.open("wb") as stream:
            write_snapshot(stream, report.ranks[0])
    return ExitCode.OK


def _show_trace_what_if(arguments: Namespace, console: Console) -> ExitCode:
    request = WhatIfRequest(
        rank=arguments.rank,
        max_memory=arguments.max_memory,
        remove=arguments.remove,
        shard=arguments.shard,
        parts=arguments.parts,
        recompute_layers=arguments.recompute_layers,
        chip=arguments.chip,
        device_bytes=arguments.device_memory,
        reserve_bytes=arguments.reserve,
    )
    with ProgressLine(console) as progress:
        report = replay_run(arguments.run, request, progress.show)
    if arguments.json:
        console.write_json(memory_json.what_if_json(report))
    else:
        length = "show_best" if arguments.quiet else "show_what_if" if arguments.verbose else "show_summary"
        getattr(what_if_text, length)(report, console)
    code = exit_code([report.verdict], arguments)
    return ExitCode.FINDINGS if report.finding is not None and code is ExitCode.OK else code


# By the name of the subcommand.
COMMANDS = {
    "": _show_trace,
    "log": _show_failures,
    "diff": _show_trace_diff,
    "export": _write_trace_export,
    "what-if": _show_trace_what_if,
}
