"""``ms-tune memory``: where the memory of a run went. Its sub-commands are modules of their own."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ms_tune import api
from ms_tune.cli.device import add_device_arguments, exit_code
from ms_tune.cli.output import LONG, ProgressLine, new_file, written
from ms_tune.cli.parser import Parser
from ms_tune.diagnostics import Severity
from ms_tune.errors import ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.footprint.request import MemoryRequest
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from ms_tune.cli.parser import CommandModule
    from ms_tune.footprint.result import MemoryReport
    from ms_tune.report.console import Console
    from ms_tune.text import Language

# Sub-command: the module of this package that holds it, and the text with its one-line help.
SUBCOMMANDS = {
    "diff": ("memory_diff", "memory.diff.summary"),
    "export": ("memory_export", "memory.export.summary"),
    "what-if": ("memory_what_if", "allocator.what-if.summary"),
    "plan": ("memory_plan", "placement.plan.summary"),
    "import-memlog": ("memory_import", "memlog.summary"),
}


class _MemoryParser(Parser):
    """Hands the arguments on if the first one names a sub-command."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - as argparse types it
        arguments: Sequence[str] = args or ()
        if arguments and arguments[0] in SUBCOMMANDS:
            command = cast("CommandModule", import_module(f"ms_tune.cli.{SUBCOMMANDS[arguments[0]][0]}"))
            parsed = command.build_parser(self.language).parse_args(arguments[1:], namespace)
            parsed.command = command
            return parsed
        return super().parse_args(args, namespace)


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = _MemoryParser("ms-tune memory", language, "memory.description", "memory.examples")
    parser.option("path", "memory.help.path", type=Path, metavar="RUN")
    parser.option("--rank", "memory.help.rank", type=parser.natural, action="append", default=[], metavar="N")
    parser.option("--device", "snapshot.help.device", type=parser.natural, metavar="N")
    add_device_arguments(parser)
    parser.option("--at", "memory.help.at", type=parser.natural, metavar="TICK")
    parser.option("--top", "memory.help.top", type=parser.count, default=10, metavar="N")
    parser.file("--html", "memory.help.html")
    parser.file("--csv", "memory.help.csv")
    parser.flag("--force", "memory.help.force")
    parser.flag("--no-graph", "memory.help.no-graph")
    parser.add_common_arguments()
    lines = [f"  {name:<22}{parser.tr(summary)}" for name, (_, summary) in SUBCOMMANDS.items()]
    parser.epilog = "\n".join([f"{parser.tr('cli.title.commands')}:", *lines, "", parser.epilog or ""])
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Read, analyse, show."""
    if "command" in arguments:
        return cast("ExitCode", arguments.command.run(arguments, console))
    if api.memory_is_snapshot(arguments.path):
        from ms_tune.cli import memory_snapshot  # noqa: PLC0415 - start-up time

        return memory_snapshot.show(arguments, console)
    if api.memory_is_log(arguments.path):
        return _show_failure(arguments, console)
    if arguments.device is not None:
        raise UsageError(msg("snapshot.only-snapshots", option="--device"))
    for path in (arguments.html, arguments.csv):
        new_file(path, force=arguments.force)
    need("ms-tune memory", "report", "numpy")
    if arguments.html:
        need("ms-tune memory --html", "report", "jinja2")
    request = MemoryRequest(
        frozenset(arguments.rank),
        with_graph=not arguments.no_graph,
        chip=arguments.chip,
        device_bytes=arguments.device_memory,
        reserve_bytes=arguments.reserve,
    )
    with ProgressLine(console, LONG) as progress:
        report = api.memory(arguments.path, request=request, on_bytes=progress.read)
    _write_files(report, arguments, console)
    _show(report, arguments, console)
    found = [finding for finding in report.all_findings if finding.severity is Severity.ERROR]
    code = exit_code([rank.verdict for rank in report.ranks], arguments)
    return ExitCode.FINDINGS if found and code is ExitCode.OK else code


def _show_failure(arguments: Namespace, console: Console) -> ExitCode:
    """A log in place of a trace: what it tells of memory that ran out."""
    need("ms-tune memory", "report", "numpy")
    from ms_tune.report import memory_json, memory_text  # noqa: PLC0415 - imported late: start-up time

    failure = api.memory_failure(arguments.path)
    first = api.memory_first_remedies()
    if arguments.json:
        console.write_json(memory_json.failure_json(failure, first, arguments.path, console))
    else:
        memory_text.show_failure(failure, first, console)
    return ExitCode.FINDINGS


def _show(report: MemoryReport, arguments: Namespace, console: Console) -> None:
    from ms_tune.report import memory_json, memory_text  # noqa: PLC0415 - imported late: start-up time

    parts = None
    if arguments.at is not None:
        ticks = report.worst.curve.tick
        if len(ticks) and arguments.at > int(ticks[-1]):
            raise UsageError(msg("memory.no-at-beyond", tick=arguments.at, last=int(ticks[-1])))
        parts = report.worst.at(arguments.at)
        if not len(parts.rows):
            raise UsageError(msg("memory.no-at", tick=arguments.at))
    if arguments.json:
        extra = {}
        if parts is not None:
            contents = {content.value: size for content, size in parts.contents.items()}
            split = memory_json.breakdown_json(parts, arguments.top)
            extra = {"at": {"tick": parts.tick, "categories": contents, **split}}
        console.write_json(memory_json.report_json(report, console, arguments.top) | extra)
    elif parts is not None:
        memory_text.show_breakdown(parts, console, arguments.top)
    else:
        memory_text.show_report(report, console, arguments.top)


def _write_files(report: MemoryReport, arguments: Namespace, console: Console) -> None:
    if arguments.csv:
        from ms_tune.report.memory_export import write_blocks  # noqa: PLC0415 - imported late: start-up time

        with written(arguments.csv, console) as path, path.open("w", encoding="utf-8", newline="") as file:
            for number, rank in enumerate(report.ranks):
                parts = rank.peak if arguments.at is None else rank.at(arguments.at)
                write_blocks(file, rank, parts, header=not number)
    if arguments.html:
        from ms_tune.report.memory_html import report_html  # noqa: PLC0415 - imported late: start-up time

        with written(arguments.html, console) as path:
            path.write_text(report_html(report, None, console.language), encoding="utf-8")
