"""``ms-tune memory import-memlog``: what STAlloc's report tells about a trace that STAlloc recorded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.cli.memory_plan import add_plan_arguments, check_files, faults, finish, planned, verdict
from ms_tune.cli.parser import Parser
from ms_tune.extras import need
from ms_tune.texts import msg

if TYPE_CHECKING:
    from argparse import Namespace

    from ms_tune.errors import ExitCode
    from ms_tune.render.console import Console
    from ms_tune.texts import Language


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser(
        prog="ms-tune memory import-memlog",
        language=language,
        description=msg("memlog.description"),
        epilog=msg("memlog.examples"),
    )
    parser.add_argument("file", type=Path, metavar="FILE", help=parser.tr("memlog.help.file"))
    parser.add_argument("--npu", action="store_true", help=parser.tr("memlog.help.npu"))
    add_plan_arguments(parser, language)
    parser.add_common_arguments()
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Read, analyse, plan, show."""
    need("ms-tune memory import-memlog", "report", "numpy")
    check_files(arguments)
    from ms_tune.allocator.memlog_report import analyse, problem_of  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.render.packing import memlog as memlog_render  # noqa: PLC0415
    from ms_tune.render.packing.text import PlanReport  # noqa: PLC0415
    from ms_tune.trace.memlog import read_memlog  # noqa: PLC0415

    log = read_memlog(arguments.file)
    analysis = analyse(log, npu=arguments.npu)
    result = planned(problem_of(log), arguments, console)
    report = PlanReport(result, str(arguments.file), faults(result))
    finish(report, arguments, console)
    if arguments.json:
        console.write_json(memlog_render.to_json(log, analysis, report))
    else:
        memlog_render.show(log, analysis, report, console)
    return verdict(report)
