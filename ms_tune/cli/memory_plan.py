"""Run ``ms-tune memory plan`` and ``import-memlog``: place the blocks of a trace or placement problem as low as possible."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ms_tune.cli.output import ProgressLine, write_text_file
from ms_tune.errors import ExitCode, UsageError
from ms_tune.memory.plan import PlanReport, PlanRequest, analyse_memlog, plan_blocks
from ms_tune.packing.plan import PackingProgress
from ms_tune.report import packing
from ms_tune.report.console import Console
from ms_tune.text import msg
from ms_tune.units import gib


def _run_plan(arguments: Namespace, console: Console) -> ExitCode:
    request = PlanRequest(arguments.rank, arguments.capacity, arguments.time_limit)
    progress = _PlanProgress(console)
    with progress:
        report = plan_blocks(arguments.run, request, progress.show_progress)
    _write_files(report, arguments, console)
    if arguments.json:
        console.write_json(packing.plan_json(report))
    elif arguments.quiet:
        packing.show_height(report, console)
    else:
        packing.show_plan_report(report, console)
    return _exit_code_of(report)


def _exit_code_of(report: PlanReport) -> ExitCode:
    if not report.is_valid:  # a defect of the planner, found by the independent checker
        return ExitCode.INTERNAL
    return ExitCode.FINDINGS if report.fits_capacity is False else ExitCode.OK


class _PlanProgress(ProgressLine):
    def show_progress(self, progress: PackingProgress) -> None:
        height = "-" if progress.height is None else gib(progress.height)
        self.show(
            msg("placement.progress", height=height, bound=gib(progress.lower_bound)),
            progress.seconds / max(progress.limit, 1e-9),
        )


def _write_files(report: PlanReport, arguments: Namespace, console: Console) -> None:
    if report.slow is not None:
        console.warn(msg("placement.slow", reason=report.slow))
    if report.plan.late:
        console.warn(msg("placement.late"))
    if arguments.plan:
        write_text_file(arguments.plan, packing.plan_file(report), console)
    if arguments.csv:
        write_text_file(arguments.csv, packing.csv_file(report), console)
    if arguments.html:
        write_text_file(arguments.html, packing.plan_html(report, console.language), console)


def _run_import(arguments: Namespace, console: Console) -> ExitCode:
    files = _memlog_files(arguments)
    request = PlanRequest(seconds=arguments.time_limit)
    results: list[dict[str, object]] = []
    code = ExitCode.OK
    for file in files:
        progress = _PlanProgress(console)
        with progress:
            found = analyse_memlog(file, request, progress.show_progress, npu=arguments.npu)
        _write_files(found.plan, arguments, console)
        if arguments.json:
            results.append({"file": file, **packing.memlog_json(found.log, found.report, found.plan)})
        else:
            if len(files) > 1:
                console.write(str(file))
            if arguments.quiet:
                packing.show_height(found.plan, console)
            else:
                packing.show_memlog(found.log, found.report, found.plan, console)
        code = max(code, _exit_code_of(found.plan))
    if arguments.json:
        console.write_json({"devices": results} if arguments.file.is_dir() else results[0])
    return code


def _memlog_files(arguments: Namespace) -> list[Path]:
    if not arguments.file.is_dir():
        return [arguments.file]
    found = [path for path in arguments.file.rglob("mem_log_dev*.txt") if path.is_file()]
    if not found:
        raise UsageError(msg("memlog.no-files", path=arguments.file))
    if len(found) > 1 and any((arguments.plan, arguments.csv, arguments.html)):
        raise UsageError(msg("memlog.several", count=len(found)))
    return sorted(found, key=lambda path: (len(path.name), str(path)))


COMMANDS = {"plan": _run_plan, "import-memlog": _run_import}
