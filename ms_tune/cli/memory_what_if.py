"""``ms-tune memory what-if``: the trace replayed in MindSpore's pool under other settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli import memory_snapshot
from ms_tune.cli.device import add_device_arguments, exit_code
from ms_tune.cli.output import ProgressLine
from ms_tune.cli.parser import Parser
from ms_tune.errors import ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.memory.request import WhatIfRequest
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace

    from ms_tune.report.console import Console
    from ms_tune.text import Language


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
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


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Replay, compare, advise."""
    if api.memory_is_snapshot(arguments.run):
        return memory_snapshot.what_if(arguments, console)
    memory_snapshot.refuse_settings(arguments)
    if arguments.parts and not arguments.shard:
        raise UsageError(msg("allocator.parts-alone"))
    need("ms-tune memory what-if", "report", "numpy")
    from ms_tune.report.memory_json import what_if_json  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.report.what_if_text import show  # noqa: PLC0415

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
        show(report, console)
    code = exit_code([report.verdict], arguments)
    return ExitCode.FINDINGS if report.finding is not None and code is ExitCode.OK else code
