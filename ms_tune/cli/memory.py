"""``ms-tune memory``: where the memory of a run went; and its sub-commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ms_tune import api
from ms_tune.cli import memory_plan, memory_snapshot
from ms_tune.cli.device import add_device_arguments, exit_code
from ms_tune.cli.output import LONG, ProgressLine, new_file, written
from ms_tune.cli.parser import Parser
from ms_tune.diagnostics import Severity
from ms_tune.errors import ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.footprint.request import MemoryRequest
from ms_tune.memory.request import WhatIfRequest
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from ms_tune.footprint.result import MemoryReport
    from ms_tune.report.console import Console
    from ms_tune.text import Language


class SubCommand(NamedTuple):
    """What a module provides for a command, here for each sub-command."""

    summary: str  # the text with its one-line help
    build_parser: Callable[[Language], Parser]
    run: Callable[[Namespace, Console], ExitCode]


class _MemoryParser(Parser):
    """Hands the arguments on if the first one names a sub-command."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - as argparse types it
        arguments: Sequence[str] = args or ()
        if arguments and arguments[0] in SUBCOMMANDS:
            command = SUBCOMMANDS[arguments[0]]
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
    lines = [f"  {name:<22}{parser.tr(command.summary)}" for name, command in SUBCOMMANDS.items()]
    parser.epilog = "\n".join([f"{parser.tr('cli.title.commands')}:", *lines, "", parser.epilog or ""])
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Read, analyse, show."""
    if "command" in arguments:
        return cast("ExitCode", arguments.command.run(arguments, console))
    if api.memory_is_snapshot(arguments.path):
        from ms_tune.cli import memory_snapshot  # noqa: PLC0415 - start-up time

        return memory_snapshot.show_snapshot(arguments, console)
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
    _show_report(report, arguments, console)
    found = [finding for finding in report.all_findings if finding.severity is Severity.ERROR]
    code = exit_code([rank.verdict for rank in report.ranks], arguments)
    return ExitCode.FINDINGS if found and code is ExitCode.OK else code


def _show_failure(arguments: Namespace, console: Console) -> ExitCode:
    need("ms-tune memory", "report", "numpy")
    from ms_tune.report import memory_json, memory_text  # noqa: PLC0415 - imported late: start-up time

    failure = api.memory_failure(arguments.path)
    first = api.memory_first_remedies()
    if arguments.json:
        console.write_json(memory_json.failure_json(failure, first, arguments.path, console))
    else:
        memory_text.show_failure(failure, first, console)
    return ExitCode.FINDINGS


def _show_report(report: MemoryReport, arguments: Namespace, console: Console) -> None:
    from ms_tune.report import memory_json, memory_text  # noqa: PLC0415 - imported late: start-up time

    parts = None
    if arguments.at is not None:
        ticks = report.worst.curve.tick
        if len(ticks) and arguments.at > int(ticks[-1]):
            raise UsageError(msg("memory.no-at-beyond", tick=arguments.at, last=int(ticks[-1])))
        parts = report.worst.breakdown_at(arguments.at)
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
                parts = rank.peak if arguments.at is None else rank.breakdown_at(arguments.at)
                write_blocks(file, rank, parts, header=not number)
    if arguments.html:
        from ms_tune.report.memory_html import report_html  # noqa: PLC0415 - imported late: start-up time

        with written(arguments.html, console) as path:
            path.write_text(report_html(report, None, console.language), encoding="utf-8")


def build_diff_parser(language: Language) -> Parser:
    """The parser of ``diff``: what two runs have, one more than the other."""
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


def run_diff(arguments: Namespace, console: Console) -> ExitCode:
    """Read both, compare, show; findings are differences, so that a script can tell."""
    snapshots = [api.memory_is_snapshot(path) for path in (arguments.before, arguments.after)]
    if any(snapshots):
        if not all(snapshots):
            raise UsageError(msg("snapshot.two-kinds"))
        return memory_snapshot.diff_snapshots(arguments, console)
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


def build_export_parser(language: Language) -> Parser:
    """The parser of ``export``: the trace for other viewers."""
    parser = Parser("ms-tune memory export", language, "memory.export.summary")
    parser.option("path", "memory.help.path", type=Path, metavar="RUN")
    parser.option("--rank", "memory.help.rank", type=parser.natural, action="append", default=[], metavar="N")
    parser.option("--device", "snapshot.help.device", type=parser.natural, metavar="N")
    parser.file("--perfetto", "memory.help.perfetto")
    parser.file("--snapshot", "memory.help.snapshot")
    parser.flag("--force", "memory.help.force")
    parser.add_common_arguments(json=False)
    return parser


def run_export(arguments: Namespace, console: Console) -> ExitCode:
    """Read, convert, write."""
    if not arguments.perfetto and not arguments.snapshot:
        raise UsageError(msg("memory.export.nothing"))
    for path in (arguments.perfetto, arguments.snapshot):
        new_file(path, force=arguments.force)
    if api.memory_is_snapshot(arguments.path):
        return memory_snapshot.export_snapshot(arguments, console)
    if arguments.device is not None:
        raise UsageError(msg("snapshot.only-snapshots", option="--device"))
    need("ms-tune memory export", "report", "numpy")
    request = MemoryRequest(frozenset(arguments.rank))
    with ProgressLine(console, LONG) as progress:
        report = api.memory(arguments.path, request=request, on_bytes=progress.read)
    if arguments.perfetto:
        from ms_tune.report.memory_export import write_perfetto  # noqa: PLC0415 - imported late: start-up time

        with written(arguments.perfetto, console) as path, path.open("w", encoding="utf-8") as file:
            write_perfetto(file, report)
    if arguments.snapshot:
        if len(report.ranks) > 1:
            raise UsageError(msg("memory.export.one-rank"))
        from ms_tune.report.memory_export import write_snapshot  # noqa: PLC0415 - imported late: start-up time

        with written(arguments.snapshot, console) as path, path.open("wb") as stream:
            write_snapshot(stream, report.ranks[0])
    return ExitCode.OK


def build_what_if_parser(language: Language) -> Parser:
    """The parser of ``what-if``: the trace replayed in MindSpore's pool under other settings."""
    parser = Parser("ms-tune memory what-if", language, "allocator.what-if.description", "allocator.what-if.examples")
    parser.option("run", "allocator.help.run", type=Path, metavar="RUN")
    parser.option("--rank", "allocator.help.rank", type=parser.natural, metavar="N")
    add_device_arguments(parser, "--max-memory", "--limit")
    parser.option("--remove", "allocator.help.remove", metavar="GROUP")
    parser.option("--shard", "allocator.help.shard", metavar="GROUP")
    parser.option("--parts", "allocator.help.parts", type=parser.count, metavar="N")
    parser.option("--recompute-layers", "allocator.help.recompute", type=parser.count, metavar="K")
    memory_snapshot.add_setting_arguments(parser)
    parser.add_common_arguments()
    return parser


def run_what_if(arguments: Namespace, console: Console) -> ExitCode:
    """Replay, compare, advise."""
    if api.memory_is_snapshot(arguments.run):
        return memory_snapshot.replay_snapshot(arguments, console)
    memory_snapshot.refuse_settings(arguments)
    if arguments.parts and not arguments.shard:
        raise UsageError(msg("allocator.parts-alone"))
    need("ms-tune memory what-if", "report", "numpy")
    from ms_tune.report.memory_json import what_if_json  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.report.what_if_text import show_what_if  # noqa: PLC0415

    request = WhatIfRequest(
        rank=arguments.rank,
        max_memory=arguments.max_memory,
        remove=arguments.remove,
        shard=arguments.shard,
        parts=arguments.parts,
        recompute_layers=arguments.recompute_layers,
        chip=arguments.chip,
        device_bytes=arguments.device_memory,
        reserve_bytes=arguments.reserve,
    )
    with ProgressLine(console) as progress:
        report = api.memory_what_if(arguments.run, request=request, on_progress=progress.show)
    if arguments.json:
        console.write_json(what_if_json(report, console))
    else:
        show_what_if(report, console)
    code = exit_code([report.verdict], arguments)
    return ExitCode.FINDINGS if report.finding is not None and code is ExitCode.OK else code


SUBCOMMANDS = {
    "diff": SubCommand("memory.diff.summary", build_diff_parser, run_diff),
    "export": SubCommand("memory.export.summary", build_export_parser, run_export),
    "what-if": SubCommand("allocator.what-if.summary", build_what_if_parser, run_what_if),
    "plan": SubCommand("placement.plan.summary", memory_plan.build_parser, memory_plan.run),
    "import-memlog": SubCommand("memlog.summary", memory_plan.build_import_parser, memory_plan.run_import),
}
