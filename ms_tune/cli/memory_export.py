"""``ms-tune memory export``: the trace for other viewers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli import memory_snapshot
from ms_tune.cli.output import LONG, ProgressLine, new_file, written
from ms_tune.cli.parser import Parser, integer_argument
from ms_tune.errors import ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.memory.request import MemoryRequest
from ms_tune.texts import msg

if TYPE_CHECKING:
    from argparse import Namespace

    from ms_tune.render.console import Console
    from ms_tune.texts import Language


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser(prog="ms-tune memory export", language=language, description=msg("memory.export.summary"))
    parser.add_argument("path", type=Path, metavar="RUN", help=parser.tr("memory.help.path"))
    natural = integer_argument(language, minimum=0)
    parser.add_argument(
        "--rank", type=natural, action="append", default=[], metavar="N", help=parser.tr("memory.help.rank")
    )
    parser.add_argument("--device", type=natural, metavar="N", help=parser.tr("snapshot.help.device"))
    parser.add_argument("--perfetto", type=Path, metavar="FILE", help=parser.tr("memory.help.perfetto"))
    parser.add_argument("--snapshot", type=Path, metavar="FILE", help=parser.tr("memory.help.snapshot"))
    parser.add_argument("--force", action="store_true", help=parser.tr("memory.help.force"))
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
        from ms_tune.render.memory.perfetto import write_perfetto  # noqa: PLC0415 - imported late: start-up time

        with written(arguments.perfetto, console) as path, path.open("w", encoding="utf-8") as file:
            write_perfetto(file, report)
    if arguments.snapshot:
        if len(report.ranks) > 1:
            raise UsageError(msg("memory.export.one-rank"))
        from ms_tune.render.memory.snapshot import write_snapshot  # noqa: PLC0415 - imported late: start-up time

        with written(arguments.snapshot, console) as path, path.open("wb") as stream:
            write_snapshot(stream, report.ranks[0])
    return ExitCode.OK
