"""``ms-tune memory plan`` and ``import-memlog``: how low the blocks of a trace, of a placement problem or of STAlloc's trace could lie."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli.output import ProgressLine, new_file, written
from ms_tune.cli.parser import Parser
from ms_tune.errors import ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.memory.request import PlanRequest
from ms_tune.text import msg, render
from ms_tune.units import gib

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

    from ms_tune.memory.plan import PlanReport
    from ms_tune.packing.plan import PackingProgress
    from ms_tune.report.console import Console
    from ms_tune.text import Language


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser("ms-tune memory plan", language, "placement.plan.description", "placement.plan.examples")
    parser.option("run", "placement.help.run", type=Path, metavar="RUN")
    parser.option("--rank", "allocator.help.rank", type=parser.natural, metavar="N")
    parser.option("--capacity", "placement.help.capacity", type=parser.size, metavar="SIZE")
    add_plan_arguments(parser)
    parser.add_common_arguments()
    return parser


def _seconds_argument(language: Language) -> Callable[[str], float]:

    def convert(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or float(text) <= 0:
            raise ArgumentTypeError(render(msg("placement.help.seconds", value=text), language))
        return float(text)

    return convert


def add_plan_arguments(parser: Parser) -> None:
    """Arguments of every command that plans."""
    limit = _seconds_argument(parser.language)
    parser.option("--time-limit", "placement.help.time-limit", type=limit, metavar="SECONDS")
    for kind in ("plan", "csv", "svg", "html"):
        parser.file(f"--{kind}", f"placement.help.{kind}")
    parser.flag("--force", "memory.help.force")


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Read, plan, check, show."""
    need("ms-tune memory plan", "report", "numpy")
    check_files(arguments)
    from ms_tune.report import packing_text as placement_render  # noqa: PLC0415 - imported late: start-up time

    request = PlanRequest(arguments.rank, arguments.capacity, arguments.time_limit)
    progress = PlanProgress(console)
    with progress:
        report = api.memory_plan(arguments.run, request=request, on_progress=progress.show_progress)
    write_files(report, arguments, console)
    if arguments.json:
        console.write_json(placement_render.to_json(report))
    else:
        placement_render.show_plan_report(report, console)
    return exit_code_of(report)


def exit_code_of(report: PlanReport) -> ExitCode:
    """How the command ends."""
    if not report.is_valid:  # a defect of the planner, found by the independent checker
        return ExitCode.INTERNAL
    return ExitCode.FINDINGS if report.fits_capacity is False else ExitCode.OK


def check_files(arguments: Namespace) -> None:
    """Refuse files that are there, before the long work begins."""
    for path in (arguments.plan, arguments.csv, arguments.svg, arguments.html):
        new_file(path, force=arguments.force)


class PlanProgress(ProgressLine):
    """How far the planner is."""

    def show_progress(self, progress: PackingProgress) -> None:
        """Show it."""
        height = "-" if progress.height is None else gib(progress.height)
        self.show(
            msg("placement.progress", height=height, bound=gib(progress.lower_bound)),
            progress.seconds / max(progress.limit, 1e-9),
        )


def write_files(report: PlanReport, arguments: Namespace, console: Console) -> None:
    """Write the files that were asked for."""
    if report.slow is not None:
        console.warn(msg("placement.slow", reason=report.slow))
    if report.plan.late:
        console.warn(msg("placement.late"))
    for path, text in _texts_to_write(report, arguments, console):
        with written(path, console) as part:
            part.write_text(text, encoding="utf-8")


def _texts_to_write(report: PlanReport, arguments: Namespace, console: Console) -> Iterator[tuple[Path, str]]:
    from ms_tune.report import packing_picture as placement_picture  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.report import packing_text as placement  # noqa: PLC0415 - imported late: start-up time

    if arguments.plan:
        yield arguments.plan, placement.plan_file(report)
    if arguments.csv:
        yield arguments.csv, placement.csv_file(report)
    if arguments.svg:
        yield arguments.svg, placement_picture.plan_svg(report, console.language)
    if arguments.html:
        yield arguments.html, placement_picture.plan_html(report, console.language)


def build_import_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser("ms-tune memory import-memlog", language, "memlog.description", "memlog.examples")
    parser.option("file", "memlog.help.file", type=Path, metavar="FILE")
    parser.flag("--npu", "memlog.help.npu")
    parser.option("--stalloc", "memlog.help.stalloc", type=Path, metavar="FOLDER")
    add_plan_arguments(parser)
    parser.add_common_arguments()
    return parser


def run_import(arguments: Namespace, console: Console) -> ExitCode:
    """Read, analyse, plan, show."""
    need("ms-tune memory import-memlog", "report", "numpy")
    check_files(arguments)
    from ms_tune.report import packing_text as memlog_render  # noqa: PLC0415 - imported late: start-up time

    files = _memlog_files(arguments)
    if arguments.stalloc is not None:
        for file in files:
            new_file(
                arguments.stalloc / "output" / "plan" / f"dev_{_device_number(file)}.txt",
                force=arguments.force,
                makes_folders=True,
            )
    request = PlanRequest(seconds=arguments.time_limit)
    results: list[dict[str, object]] = []
    code = ExitCode.OK
    for file in files:
        progress = PlanProgress(console)
        with progress:
            asked = arguments.stalloc is not None
            found = api.memory_import(
                file, request=request, on_progress=progress.show_progress, npu=arguments.npu, stalloc=asked
            )
        write_files(found.plan, arguments, console)
        if found.stalloc is not None:
            for name, text in memlog_render.stalloc_files(found.stalloc, _device_number(file)).items():
                path = arguments.stalloc / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with written(path, console) as part:
                    part.write_text(text, encoding="utf-8")
        if arguments.json:
            results.append(
                {"file": str(file), **memlog_render.memlog_json(found.log, found.report, found.plan, found.stalloc)}
            )
        else:
            if len(files) > 1:
                console.write(str(file))
            memlog_render.show_memlog(found.log, found.report, found.plan, found.stalloc, console)
        code = max([code, exit_code_of(found.plan), *([exit_code_of(found.stalloc.plan)] if found.stalloc else [])])
    if arguments.json:
        console.write_json({"devices": results} if arguments.file.is_dir() else results[0])
    return code


def _device_number(file: Path) -> int:
    found = re.fullmatch(r"mem_log_dev([0-9]{1,6})\.txt", file.name)
    return int(found[1]) if found else 0


def _memlog_files(arguments: Namespace) -> list[Path]:
    """The file, or those of all devices in a folder, in order of the devices' numbers.

    Raises:
        UsageError: The folder has none, or several devices are to be written into one file.
    """
    if not arguments.file.is_dir():
        return [arguments.file]
    found = [path for path in arguments.file.rglob("mem_log_dev*.txt") if path.is_file()]
    if not found:
        raise UsageError(msg("memlog.no-files", path=arguments.file))
    if len(found) > 1 and any((arguments.plan, arguments.csv, arguments.svg, arguments.html)):
        raise UsageError(msg("memlog.several", count=len(found)))
    return sorted(found, key=lambda path: (len(path.name), str(path)))
