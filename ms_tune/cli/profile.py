"""``ms-tune profile``: why a run is slow, from what Ascend's profilers exported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli.output import LONG, ProgressLine, new_file, written
from ms_tune.cli.parser import Parser, integer_argument
from ms_tune.errors import ExitCode
from ms_tune.texts import msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from argparse import Namespace

    from ms_tune.render.console import Console
    from ms_tune.texts import Language


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser(
        prog="ms-tune profile",
        language=language,
        description=msg("profile.description"),
        epilog=msg("profile.examples"),
    )
    parser.add_argument("paths", type=Path, nargs="+", metavar="DIR", help=parser.tr("profile.help.paths"))
    parser.add_argument(
        "--top",
        type=integer_argument(language, minimum=1),
        default=10,
        metavar="N",
        help=parser.tr("profile.help.top"),
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help=parser.tr("profile.help.html"))
    parser.add_argument("--force", action="store_true", help=parser.tr("memory.help.force"))
    parser.add_common_arguments()
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Read, judge, show."""
    new_file(arguments.html, force=arguments.force)
    with ProgressLine(console, LONG) as progress:
        report = api.profile(
            arguments.paths,
            gaps=arguments.top,
            on_bytes=lambda done, total: progress.show(
                msg("profile.progress", done=done // MIB, total=total // MIB), done / max(total, 1)
            ),
        )
    if arguments.html:
        from ms_tune.render.profile.html import report_html  # noqa: PLC0415 - imported late: start-up time

        with written(arguments.html, console) as path:
            path.write_text(report_html(report, arguments.top, console.language), encoding="utf-8")
    if arguments.json:
        from ms_tune.render.profile.json import report_json  # noqa: PLC0415 - imported late: start-up time

        console.write_json(report_json(report, arguments.top, console))
    else:
        from ms_tune.render.profile.text import show_report  # noqa: PLC0415 - imported late: start-up time

        show_report(report, arguments.top, console)
    serious = any(problem.serious for problem in report.problems)
    return ExitCode.FINDINGS if serious else ExitCode.OK
