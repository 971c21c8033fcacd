"""What ``ms-tune fit`` takes beside its table, and the tables that it writes."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli.output import new_file, written
from ms_tune.encode import json_text
from ms_tune.text import msg, render
from ms_tune.units import parse_size

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ms_tune.cli.parser import Parser
    from ms_tune.planning.table import CostTable
    from ms_tune.planning.time_scale import Clock
    from ms_tune.report.console import Console
    from ms_tune.text import Language

_MOST_BANDWIDTH = 2**50  # bytes a second
_WRITTEN = ("html", "export_table", "export_sapp")


def add_file_arguments(parser: Parser) -> None:
    """What was measured, and files to write."""
    parser.option("--calibrate", "fit.help.calibrate", type=_step(parser.language), metavar="step=TIME|LOG")
    parser.option("--times", "fit.help.times", metavar="NAME=MS,..|FILE")
    parser.option("--swap-bandwidth", "fit.help.swap-bandwidth", type=_bandwidth(parser.language), metavar="SIZE/s")
    parser.file("--html", "fit.help.html")
    parser.file("--export-table", "fit.help.export-table")
    parser.file("--export-sapp", "fit.help.export-sapp")
    parser.flag("--force", "memory.help.force")


def _step(language: Language) -> Callable[[str], float | Path]:
    """An argparse type: ``step=11.5s`` to seconds, and what is a file or folder to its path."""

    def convert(text: str) -> float | Path:
        if not text.startswith("step=") and Path(text).exists():
            return Path(text)
        from ms_tune.planning.time_scale import parse_step  # noqa: PLC0415 - imported late: start-up time

        try:
            return parse_step(text)
        except ValueError:
            raise ArgumentTypeError(render(msg("fit.usage.calibrate", value=text), language)) from None

    return convert


def _bandwidth(language: Language) -> Callable[[str], int]:
    """An argparse type: ``20GB/s`` to bytes a second."""

    def convert(text: str) -> int:
        size, slash, second = text.partition("/")
        try:
            bandwidth = parse_size(size) if slash and second.strip() == "s" else 0
        except (ValueError, OverflowError):
            bandwidth = 0
        if not 0 < bandwidth <= _MOST_BANDWIDTH:
            raise ArgumentTypeError(render(msg("fit.usage.bandwidth", value=text), language))
        return bandwidth

    return convert


def clock_of(arguments: Namespace) -> Clock:
    """What the user measured.

    Raises:
        UsageError: ``--times`` is neither times nor a file; or the log's step time is not to be believed.
        ConfigError: The file has no times.
        TraceError: The log or the profile cannot be read.
    """
    from ms_tune.planning.time_scale import Clock  # noqa: PLC0415 - imported late: start-up time

    step = arguments.calibrate
    clock = api.measured_clock(step) if isinstance(step, Path) else Clock(step)
    return replace(clock, times=api.layer_times(arguments.times)) if arguments.times else clock


def new_files(arguments: Namespace) -> None:
    """Refuse to overwrite; before the long work begins."""
    for name in _WRITTEN:
        new_file(getattr(arguments, name), force=arguments.force)


def write_tables(table: CostTable, arguments: Namespace, console: Console) -> None:
    """Write the table in the forms that are asked for."""
    from ms_tune.planning.sapp import export_sapp  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.planning.table_file import table_json  # noqa: PLC0415 - as above

    if arguments.export_table:
        with written(arguments.export_table, console) as part:
            part.write_text(json_text(table_json(table), indent=1) + "\n", encoding="utf-8")
    if not arguments.export_sapp:
        return
    exported = export_sapp(table, arguments.export_sapp.stem)
    with written(arguments.export_sapp, console) as part:
        part.write_text(json_text(exported.content, indent=1) + "\n", encoding="utf-8")
    pipeline = exported.pipeline
    sizes = {
        "stages": pipeline.stages,
        "chunks": pipeline.chunks,
        "micro-batches": pipeline.micro_batches,
        "limit": f"{pipeline.limit_bytes}B",
        "order": pipeline.order.value,
    }
    options = " ".join(f"--{name} {value}" for name, value in sizes.items())
    console.note(console.text("fit.sapp.written", file=arguments.export_sapp, options=options))
    for what in exported.left:
        console.note(console.say(msg("fit.sapp.left", what=what)))
