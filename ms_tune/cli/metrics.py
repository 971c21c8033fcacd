"""``ms-tune metrics``: figures of real runs from their logs."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli.output import LONG, ProgressLine, new_file, written
from ms_tune.cli.parser import Parser, integer_argument
from ms_tune.errors import ExitCode
from ms_tune.performance.request import MetricsRequest
from ms_tune.performance.work import Convention
from ms_tune.texts import msg, render
from ms_tune.units import MIB

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ms_tune.render.console import Console
    from ms_tune.texts import Language


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser(
        prog="ms-tune metrics",
        language=language,
        description=msg("metrics.description"),
        epilog=msg("metrics.examples"),
    )
    count = integer_argument(language, minimum=1)
    parser.add_argument("logs", type=Path, nargs="+", metavar="LOG", help=parser.tr("metrics.help.logs"))
    parser.add_argument("--cards", type=count, metavar="N", help=parser.tr("metrics.help.cards"))
    parser.add_argument("--gbs", type=count, metavar="N", help=parser.tr("metrics.help.gbs"))
    parser.add_argument("--seq", type=count, metavar="N", help=parser.tr("metrics.help.seq"))
    parser.add_argument("--config", type=Path, metavar="FILE", help=parser.tr("metrics.help.config"))
    parser.add_argument("--framework-version", metavar="VERSION", help=parser.tr("metrics.help.framework-version"))
    parser.add_argument(
        "--count",
        choices=[one.value for one in Convention],
        default=Convention.FULL.value,
        help=parser.tr("metrics.help.count"),
    )
    device = parser.add_mutually_exclusive_group()
    device.add_argument("--chip", metavar="NAME", help=parser.tr("metrics.help.chip"))
    device.add_argument("--peak", type=_positive(language), metavar="TFLOPS", help=parser.tr("metrics.help.peak"))
    parser.add_argument("--baseline", type=Path, metavar="LOG", help=parser.tr("metrics.help.baseline"))
    parser.add_argument("--baseline-cards", type=count, metavar="N", help=parser.tr("metrics.help.baseline-cards"))
    parser.add_argument("--baseline-gbs", type=count, metavar="N", help=parser.tr("metrics.help.baseline-gbs"))
    parser.add_argument("--html", type=Path, metavar="FILE", help=parser.tr("metrics.help.html"))
    parser.add_argument("--force", action="store_true", help=parser.tr("memory.help.force"))
    parser.add_common_arguments()
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Read, work out, show."""
    new_file(arguments.html, force=arguments.force)
    request = MetricsRequest(
        cards=arguments.cards,
        batch=arguments.gbs,
        tokens=arguments.seq,
        peak_tflops=arguments.peak,
        chip=arguments.chip,
        config=arguments.config,
        version=arguments.framework_version,
        convention=Convention(arguments.count),
        baseline_cards=arguments.baseline_cards,
        baseline_batch=arguments.baseline_gbs,
    )
    with ProgressLine(console, LONG) as progress:
        report = api.metrics(
            arguments.logs,
            request=request,
            baseline=arguments.baseline,
            on_bytes=lambda done, total: progress.show(
                msg("metrics.progress", done=done // MIB, total=total // MIB), done / max(total, 1)
            ),
        )
    if arguments.html:
        from ms_tune.render.metrics.html import report_html  # noqa: PLC0415 - imported late: start-up time

        with written(arguments.html, console) as path:
            path.write_text(report_html(report, console.language), encoding="utf-8")
    if arguments.json:
        from ms_tune.render.metrics.json import report_json  # noqa: PLC0415 - imported late: start-up time

        console.write_json(report_json(report, console))
    else:
        from ms_tune.render.metrics.text import show_report  # noqa: PLC0415 - imported late: start-up time

        show_report(report, console)
    serious = any(problem.serious for problem in report.all_problems)
    return ExitCode.FINDINGS if serious else ExitCode.OK


def _positive(language: Language) -> Callable[[str], float]:
    """An argparse type: a number above zero."""

    def convert(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = 0.0
        if not 0 < number < float("inf"):
            raise ArgumentTypeError(render(msg("metrics.positive", value=text), language))
        return number

    return convert
