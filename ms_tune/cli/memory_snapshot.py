"""Run ``ms-tune memory`` and its subcommands on a snapshot of PyTorch's or torch_npu's allocator."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ms_tune.cli.output import LONG, ProgressLine, file_to_write, write_text_file
from ms_tune.errors import ExitCode, TraceError, UsageError
from ms_tune.footprint.dry_run import usable_bytes
from ms_tune.footprint.judgement import JudgedRequest
from ms_tune.footprint.torch_report import (
    LineChange,
    TorchRemedy,
    TorchReport,
    analyse_snapshot,
    compare_snapshots,
    torch_remedies,
    trace_lives,
)
from ms_tune.footprint.torch_runs import RankPeaks, analyse_ranks, calibrate, read_reserved_bytes
from ms_tune.memory.what_if import TorchWhatIfRequest, replay_snapshot
from ms_tune.readers.folder import is_dry_run
from ms_tune.readers.plain_pickle import find_snapshots
from ms_tune.report import memory_json, torch_text
from ms_tune.report.console import Console
from ms_tune.report.memory_export import write_torch_perfetto
from ms_tune.report.torch_html import snapshot_html
from ms_tune.text import msg

_ROWS = 10  # default table length with -v


def _show_snapshot(arguments: Namespace, console: Console) -> ExitCode:
    found = find_snapshots(arguments.path) if arguments.path.is_dir() else {}
    ranks = {rank: path for rank, path in found.items() if not arguments.rank or rank in arguments.rank}
    if found and not ranks:
        raise UsageError(msg("memory.no-such-rank", ranks=", ".join(map(str, found))))
    peaks: tuple[RankPeaks, ...] = ()
    if ranks:
        with ProgressLine(console, LONG) as progress:
            report, peaks = analyse_ranks(ranks, arguments.device, arguments.at, progress.show)
    else:
        report = _read_snapshot(arguments.path, arguments, console)
    remedies = torch_remedies(report)
    _write_snapshot_page(report, None, remedies, arguments, console)
    if arguments.json:
        console.write_json(memory_json.snapshot_json(report, remedies, arguments.top or _ROWS, peaks))
    elif arguments.quiet:
        torch_text.show_peak(report, console)
    else:
        torch_text.show_ranks(peaks, console)
        top = arguments.top or (_ROWS if arguments.verbose else _ROWS // 2)
        torch_text.show_report(report, remedies, console, top, verbose=arguments.verbose)
    return ExitCode.USAGE if any(one.error for one in peaks) else ExitCode.OK


def _show_snapshot_what_if(arguments: Namespace, console: Console) -> ExitCode:
    limit, number = arguments.max_memory, arguments.device
    if is_dry_run(arguments.run):
        asked = JudgedRequest(
            chip=arguments.chip, device_bytes=arguments.device_memory, reserve_bytes=arguments.reserve
        )
        number = arguments.rank
        if limit is None and (asked.names_device or arguments.garbage_collection_threshold):
            limit = usable_bytes(asked)
    request = TorchWhatIfRequest(
        device=number,
        expandable=arguments.expandable,
        max_split=arguments.max_split_size_mb * 2**20 if arguments.max_split_size_mb is not None else None,
        roundup=arguments.roundup_power2_divisions,
        keep_cache=arguments.keep_cache,
        empty_each_step=arguments.empty_cache_each_step,
        collect_above=arguments.garbage_collection_threshold,
        limit=limit,
    )
    with ProgressLine(console, LONG) as progress:
        result = replay_snapshot(arguments.run, request, progress.show)
    if arguments.json:
        console.write_json(memory_json.torch_what_if_json(result))
    else:
        torch_text.show_what_if(result, console, quiet=arguments.quiet, verbose=arguments.verbose)
    return ExitCode.FINDINGS if result.is_over_limit else ExitCode.OK


def _show_snapshot_diff(arguments: Namespace, console: Console) -> ExitCode:
    before, after = (_read_snapshot(path, arguments, console) for path in (arguments.before, arguments.after))
    changes = compare_snapshots(before, after)
    found = None if after.simulated else calibrate(before, after.reserved_peak_bytes)
    _write_snapshot_page(after, (before, changes), (), arguments, console)
    if arguments.json:
        console.write_json(memory_json.torch_comparison_json(before, after, changes, found))
    else:
        if found is not None:
            torch_text.show_calibration(found, arguments.before, arguments.after, console, quiet=arguments.quiet)
        torch_text.show_comparison(before, after, changes, console, None if arguments.quiet else arguments.top)
    return ExitCode.FINDINGS if changes else ExitCode.OK


def _show_calibration(arguments: Namespace, console: Console) -> ExitCode:
    dry_run = _read_snapshot(arguments.before, arguments, console)
    found = calibrate(dry_run, read_reserved_bytes(arguments.after))
    if found is None:
        raise TraceError(dry_run.refused_because or msg("snapshot.no-history"), path=arguments.before)
    if arguments.json:
        console.write_json(memory_json.calibration_json(found, arguments.before, arguments.after))
    else:
        torch_text.show_calibration(found, arguments.before, arguments.after, console, quiet=arguments.quiet)
    return ExitCode.FINDINGS if found.rest_bytes else ExitCode.OK


def _write_snapshot_export(arguments: Namespace, console: Console) -> ExitCode:
    report = _read_snapshot(arguments.path, arguments, console)
    with file_to_write(arguments.perfetto, console) as path, path.open("w", encoding="utf-8") as file:
        write_torch_perfetto(file, trace_lives(report))
    return ExitCode.OK


def _write_snapshot_page(
    report: TorchReport,
    before: tuple[TorchReport, Sequence[LineChange]] | None,
    remedies: Sequence[TorchRemedy],
    arguments: Namespace,
    console: Console,
) -> None:
    if not arguments.html:
        return
    other = (trace_lives(before[0]), before[1]) if before else None
    write_text_file(arguments.html, snapshot_html(trace_lives(report), other, console.language, remedies), console)


def _read_snapshot(path: Path, arguments: Namespace, console: Console) -> TorchReport:
    with ProgressLine(console, LONG) as progress:
        return analyse_snapshot(path, arguments.device, getattr(arguments, "at", None), progress.show)


# By the name of the subcommand.
COMMANDS = {
    "": _show_snapshot,
    "diff": _show_snapshot_diff,
    "calibrate": _show_calibration,
    "export": _write_snapshot_export,
    "what-if": _show_snapshot_what_if,
}
