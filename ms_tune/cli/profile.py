"""Define ``ms-tune profile``, which explains why a run is slow, from the exports of Ascend's profilers."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ms_tune.cli.output import LONG, ProgressLine, new_file, write_text_file
from ms_tune.cli.parser import Parser
from ms_tune.diagnostics import Severity
from ms_tune.errors import ExitCode
from ms_tune.profile.run import analyse_profiles
from ms_tune.report.console import Console
from ms_tune.report.profile import report_html, report_json, show_report, show_summary, show_verdict
from ms_tune.text import Language


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = Parser("ms-tune profile", language, "profile.description", "profile.examples")
    parser.option("paths", "profile.help.paths", type=Path, nargs="+", metavar="DIR")
    parser.option("--top", "profile.help.top", type=parser.count, default=10, metavar="N")
    parser.file("--html", "profile.help.html")
    parser.flag("--force", "memory.help.force")
    parser.add_common_arguments()
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Analyse the profiles and show the report."""
    new_file(arguments.html, force=arguments.force)
    with ProgressLine(console, LONG) as progress:
        report = analyse_profiles(*arguments.paths, gaps=arguments.top, on_bytes=progress.read)
    if arguments.html:
        write_text_file(arguments.html, report_html(report, arguments.top, console.language), console)
    if arguments.json:
        console.write_json(report_json(report, arguments.top))
    elif arguments.quiet:
        show_verdict(report, console)
    elif arguments.verbose:
        show_report(report, arguments.top, console)
    else:
        show_summary(report, console)
    serious = not report.shares or any(problem.severity is Severity.ERROR for problem in report.problems)
    return ExitCode.FINDINGS if serious else ExitCode.OK
