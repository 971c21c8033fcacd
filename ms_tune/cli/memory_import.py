"""``ms-tune memory import-memlog``: what STAlloc's report tells about a trace that STAlloc recorded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli.memory_plan import PlanProgress, add_plan_arguments, check_files, finish, verdict
from ms_tune.cli.parser import Parser
from ms_tune.extras import need
from ms_tune.memory.request import PlanRequest
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
    from ms_tune.render.packing import memlog as memlog_render  # noqa: PLC0415 - imported late: start-up time

    request = PlanRequest(seconds=arguments.time_limit)
    progress = PlanProgress(console)
    with progress:
        found = api.memory_import(arguments.file, request=request, on_progress=progress.tell, npu=arguments.npu)
    finish(found.plan, arguments, console)
    if arguments.json:
        console.write_json(memlog_render.to_json(found.log, found.report, found.plan))
    else:
        memlog_render.show(found.log, found.report, found.plan, console)
    return verdict(found.plan)
