"""``ms-tune memory plan``: how low the blocks of a trace, or of a placement problem, could lie."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli.output import ProgressLine, new_file, written
from ms_tune.cli.parser import Parser
from ms_tune.errors import ExitCode
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


def _seconds(language: Language) -> Callable[[str], float]:
    """An argparse type: a number of seconds above zero."""

    def convert(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or float(text) <= 0:
            raise ArgumentTypeError(render(msg("placement.help.seconds", value=text), language))
        return float(text)

    return convert


def add_plan_arguments(parser: Parser) -> None:
    """Arguments of every command that plans."""
    limit = _seconds(parser.language)
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
        report = api.memory_plan(arguments.run, request=request, on_progress=progress.tell)
    finish(report, arguments, console)
    if arguments.json:
        console.write_json(placement_render.to_json(report))
    else:
        placement_render.show(report, console)
    return verdict(report)


def verdict(report: PlanReport) -> ExitCode:
    """How the command ends."""
    if not report.valid:  # a defect of the planner, found by the independent checker
        return ExitCode.INTERNAL
    return ExitCode.FINDINGS if report.fits is False else ExitCode.OK


def check_files(arguments: Namespace) -> None:
    """Refuse files that are there, before the long work begins."""
    for path in (arguments.plan, arguments.csv, arguments.svg, arguments.html):
        new_file(path, force=arguments.force)


class PlanProgress(ProgressLine):
    """How far the planner is."""

    def tell(self, progress: PackingProgress) -> None:
        """Show it."""
        height = "-" if progress.height is None else gib(progress.height)
        self.show(
            msg("placement.progress", height=height, bound=gib(progress.lower_bound)),
            progress.seconds / max(progress.limit, 1e-9),
        )


def finish(report: PlanReport, arguments: Namespace, console: Console) -> None:
    """Write the files that were asked for."""
    if report.slow is not None:
        console.warn(msg("placement.slow", reason=report.slow))
    if report.plan.late:
        console.warn(msg("placement.late"))
    for path, text in _files(report, arguments, console):
        with written(path, console) as part:
            part.write_text(text, encoding="utf-8")


def _files(report: PlanReport, arguments: Namespace, console: Console) -> Iterator[tuple[Path, str]]:
    from ms_tune.report import packing_picture as placement_picture  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.report import packing_text as placement  # noqa: PLC0415 - imported late: start-up time

    if arguments.plan:
        yield arguments.plan, placement.plan_file(report)
    if arguments.csv:
        yield arguments.csv, placement.csv_file(report)
    if arguments.svg:
        yield arguments.svg, placement_picture.svg(report, console.language)
    if arguments.html:
        yield arguments.html, placement_picture.html(report, console.language)
