"""``ms-tune memory diff``: what two runs have, one more than the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli import memory_snapshot
from ms_tune.cli.output import LONG, ProgressLine, new_file, written
from ms_tune.cli.parser import Parser
from ms_tune.errors import ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.footprint.request import MemoryRequest
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace

    from ms_tune.report.console import Console
    from ms_tune.text import Language


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser("ms-tune memory diff", language, "memory.diff.summary")
    parser.option("before", "memory.help.before", type=Path, metavar="BEFORE")
    parser.option("after", "memory.help.after", type=Path, metavar="AFTER")
    parser.option("--rank", "memory.help.rank", type=parser.natural, action="append", default=[], metavar="N")
    parser.option("--device", "snapshot.help.device", type=parser.natural, metavar="N")
    parser.option("--top", "memory.help.top", type=parser.count, default=20, metavar="N")
    parser.file("--html", "memory.help.html")
    parser.flag("--force", "memory.help.force")
    parser.add_common_arguments()
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Read both, compare, show; findings are differences, so that a script can tell."""
    snapshots = [api.memory_is_snapshot(path) for path in (arguments.before, arguments.after)]
    if any(snapshots):
        if not all(snapshots):
            raise UsageError(msg("snapshot.two-kinds"))
        return memory_snapshot.diff(arguments, console)
    new_file(arguments.html, force=arguments.force)
    need("ms-tune memory diff", "report", "numpy")
    from ms_tune.report import memory_json, memory_text  # noqa: PLC0415 - imported late: start-up time

    request = MemoryRequest(frozenset(arguments.rank), with_graph=bool(arguments.html))
    with ProgressLine(console, LONG) as progress:
        before = api.memory(arguments.before, request=request, on_bytes=progress.read)
        after = api.memory(arguments.after, request=request, on_bytes=progress.read)
    comparison = api.memory_diff(before, after)
    if arguments.html:
        need("ms-tune memory diff --html", "report", "jinja2")
        from ms_tune.report.memory_html import report_html  # noqa: PLC0415 - imported late: start-up time

        with written(arguments.html, console) as path:
            path.write_text(report_html(after, comparison, console.language), encoding="utf-8")
    if arguments.json:
        console.write_json(memory_json.comparison_json(comparison))
    else:
        memory_text.show_comparison(comparison, console, arguments.top)
    same = not any(pair.changes for pair in comparison.ranks) and not (comparison.only_before or comparison.only_after)
    return ExitCode.OK if same else ExitCode.FINDINGS
