"""``ms-tune memory plan``: how low the blocks of a trace, or of a placement problem, could lie."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.cli.allocator_inputs import ProgressLine, largest_pool, read_rank
from ms_tune.cli.memory_inputs import new_file, written
from ms_tune.cli.parser import Parser, integer_argument, size_argument
from ms_tune.errors import ExitCode
from ms_tune.extras import need
from ms_tune.texts import msg, render
from ms_tune.units import gib

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

    from ms_tune.packing.checker import Fault
    from ms_tune.packing.placement import Plan, Problem
    from ms_tune.packing.plan import Progress
    from ms_tune.render.console import Console
    from ms_tune.render.packing.text import PlanReport
    from ms_tune.texts import Language


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser(
        prog="ms-tune memory plan",
        language=language,
        description=msg("placement.plan.description"),
        epilog=msg("placement.plan.examples"),
    )
    parser.add_argument("run", type=Path, metavar="RUN", help=parser.tr("placement.help.run"))
    parser.add_argument(
        "--rank", type=integer_argument(language, minimum=0), metavar="N", help=parser.tr("allocator.help.rank")
    )
    parser.add_argument(
        "--capacity", type=size_argument(language), metavar="SIZE", help=parser.tr("placement.help.capacity")
    )
    add_plan_arguments(parser, language)
    parser.add_common_arguments()
    return parser


def _seconds(language: Language) -> Callable[[str], float]:
    """An argparse type: a number of seconds above zero."""

    def convert(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text) or float(text) <= 0:
            raise ArgumentTypeError(render(msg("placement.help.seconds", value=text), language))
        return float(text)

    return convert


def add_plan_arguments(parser: Parser, language: Language) -> None:
    """Arguments of every command that plans."""
    limit = _seconds(language)
    parser.add_argument("--time-limit", type=limit, metavar="SECONDS", help=parser.tr("placement.help.time-limit"))
    for kind in ("plan", "csv", "svg", "html"):
        parser.add_argument(f"--{kind}", type=Path, metavar="FILE", help=parser.tr(f"placement.help.{kind}"))
    parser.add_argument("--force", action="store_true", help=parser.tr("memory.help.force"))


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Read, plan, check, show."""
    need("ms-tune memory plan", "report", "numpy")
    check_files(arguments)
    from ms_tune.render.packing import text as placement_render  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.trace.placement_csv import is_placement_csv  # noqa: PLC0415

    path: Path = arguments.run
    if path.is_file() and is_placement_csv(path):
        problem, recorded, rank = problem_of_csv(path, arguments.capacity), None, None
    else:
        problem, recorded, rank = problem_of_trace(path, arguments.rank, arguments.capacity)
    result = planned(problem, arguments, console)
    report = placement_render.PlanReport(result, str(path), faults(result), recorded, rank, arguments.capacity)
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


def problem_of_csv(path: Path, capacity: int | None) -> Problem:
    """A placement problem; its name may state the capacity."""
    import numpy as np  # noqa: PLC0415 - imported late: start-up time

    from ms_tune.packing.placement import Problem  # noqa: PLC0415
    from ms_tune.trace.placement_csv import capacity_in_name, read_placement_csv  # noqa: PLC0415

    rows = read_placement_csv(path)
    names, *columns = zip(*rows, strict=True)
    lower, upper, size, alignment = (np.array(column, np.int64) for column in columns)
    return Problem(lower, upper, size, alignment, tuple(names), capacity or capacity_in_name(path))


def problem_of_trace(path: Path, rank: int | None, capacity: int | None) -> tuple[Problem, int | None, int | None]:
    """The blocks of a run's largest memory pool, the footprint that the pool had, and the rank."""
    trace = read_rank(path, rank)
    import numpy as np  # noqa: PLC0415 - imported late: start-up time

    from ms_tune.allocator.pool import ALIGNMENT  # noqa: PLC0415
    from ms_tune.packing.placement import Problem  # noqa: PLC0415

    _, work, rows = largest_pool(trace.table)
    start = np.array([request.start for request in work.requests], np.int64)
    last = 1 + max(int(start.max()), *(request.end or 0 for request in work.requests))
    end = np.array([last if request.end is None else request.end for request in work.requests], np.int64)
    size = np.array([request.size for request in work.requests], np.int64)
    names = tuple(str(line) for line in trace.table.line[rows].tolist())
    footprint = max((row.actual or 0 for row in work.recorded), default=0)
    problem = Problem(start, np.maximum(end, start + 1), size, np.full(len(size), ALIGNMENT), names, capacity)
    return problem, footprint or None, trace.files.rank


def planned(problem: Problem, arguments: Namespace, console: Console) -> Plan:
    """Plan with the best engine that there is, and show how far it is."""
    from ms_tune.packing.native import best_engine  # noqa: PLC0415
    from ms_tune.packing.plan import plan  # noqa: PLC0415 - imported late: start-up time

    engine, trouble = best_engine()
    if trouble is not None:
        console.warn(msg("placement.slow", reason=trouble))
    line = ProgressLine(console)

    def show(progress: Progress) -> None:
        height = "-" if progress.height is None else gib(progress.height)
        line.show(
            msg("placement.progress", height=height, bound=gib(progress.lower_bound)),
            progress.seconds / max(progress.limit, 1e-9),
        )

    try:
        return plan(problem, engine, arguments.time_limit, show)
    finally:
        line.clear()


def faults(result: Plan) -> tuple[Fault, ...]:
    """What an independent check finds wrong with a plan."""
    from ms_tune.packing.checker import Placed, faults_of  # noqa: PLC0415 - imported late: start-up time

    problem = result.problem
    columns = (problem.lower, problem.upper, problem.size, problem.alignment, result.address)
    return tuple(faults_of(list(map(Placed, *(column.tolist() for column in columns)))))


def finish(report: PlanReport, arguments: Namespace, console: Console) -> None:
    """Write the files that were asked for."""
    for path, text in _files(report, arguments, console):
        with written(path, console) as part:
            part.write_text(text, encoding="utf-8")


def _files(report: PlanReport, arguments: Namespace, console: Console) -> Iterator[tuple[Path, str]]:
    from ms_tune.render.packing import picture as placement_picture  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.render.packing import text as placement  # noqa: PLC0415 - imported late: start-up time

    if arguments.plan:
        yield arguments.plan, placement.plan_file(report)
    if arguments.csv:
        yield arguments.csv, placement.csv_file(report)
    if arguments.svg:
        yield arguments.svg, placement_picture.svg(report, console.language)
    if arguments.html:
        yield arguments.html, placement_picture.html(report, console.language)
