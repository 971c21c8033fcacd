"""``ms-tune memory export``: the trace for other viewers."""

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
    parser = Parser("ms-tune memory export", language, "memory.export.summary")
    parser.option("path", "memory.help.path", type=Path, metavar="RUN")
    parser.option("--rank", "memory.help.rank", type=parser.natural, action="append", default=[], metavar="N")
    parser.option("--device", "snapshot.help.device", type=parser.natural, metavar="N")
    parser.file("--perfetto", "memory.help.perfetto")
    parser.file("--snapshot", "memory.help.snapshot")
    parser.flag("--force", "memory.help.force")
    parser.add_common_arguments(json=False)
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Read, convert, write."""
    if not arguments.perfetto and not arguments.snapshot:
        raise UsageError(msg("memory.export.nothing"))
    for path in (arguments.perfetto, arguments.snapshot):
        new_file(path, force=arguments.force)
    if api.memory_is_snapshot(arguments.path):
        return memory_snapshot.export(arguments, console)
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
