"""``ms-tune fit --table``: the cheapest plan of a table that fits; and what was measured, and the tables to write, of configs, too."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.cli.native_output import without_native_output
from ms_tune.cli.output import ProgressLine, written
from ms_tune.encode import json_text
from ms_tune.errors import ConfigError, ExitCode, UsageError, reason_of
from ms_tune.planning.fit import fit_table
from ms_tune.planning.request import FitRequest
from ms_tune.planning.sapp import SappPipeline, is_sapp
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.search import Effort
from ms_tune.planning.table_file import table_json
from ms_tune.planning.time_scale import Clock, parse_times, read_times
from ms_tune.report import fit_html, fit_json, fit_text
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace

    from ms_tune.planning.search import SearchProgress
    from ms_tune.planning.table import CostTable
    from ms_tune.planning.time_scale import LayerTimes
    from ms_tune.report.console import Console

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_PIPELINE = ("stages", "micro_batches", "order")
_ONLY_SAPP = (*_PIPELINE, "chunks", "constant")
_MOST = {"stages": 1024, "chunks": 64, "micro_batches": 100_000}
_MOST_BYTES = 16_000_000  # of a file


def run(arguments: Namespace, console: Console) -> int:
    """Read, plan, show."""
    file: Path = arguments.table
    text = _read_text(file)
    request = _table_request(arguments, sapp=is_sapp(text, str(file)))
    progress = _FitProgress(console)
    with progress, without_native_output():
        table, clock = request.table_of(text, str(file))
        report = fit_table(table, effort=request.effort, seed=request.seed, clock=clock, on_progress=progress.tell)
    if arguments.html:
        with written(arguments.html, console) as part:
            part.write_text(
                fit_html.plan_page(partial(fit_text.fit_page, report), [file], console.language), encoding="utf-8"
            )
    write_tables(report.table, arguments, console)
    if arguments.json:
        console.write_json(fit_json.table_fit_json(report))
    else:
        fit_text.show_report(fit_text.fit_page(report, console), console)
    if report.stopped:
        return INTERRUPTED
    return ExitCode.FINDINGS if report.planned is None else ExitCode.OK


class _FitProgress(ProgressLine):
    """How far the search is."""

    def tell(self, progress: SearchProgress) -> None:
        """Show it."""
        figures = {"time": _shorten_figure(progress.time), "bound": _shorten_figure(progress.bound)}
        self.show(msg("fit.progress", part=msg(f"fit.progress.{progress.part}"), **figures), progress.done)


def _shorten_figure(number: float | None) -> str:
    return "-" if number is None else f"{number:,.6g}"


def _table_request(arguments: Namespace, *, sapp: bool) -> FitRequest:
    if arguments.seed >= 2**63:
        raise UsageError(msg("cli.usage.natural", value=arguments.seed))
    pipeline = _sapp_pipeline(arguments) if sapp else None
    if pipeline is None:
        given = [name for name in _ONLY_SAPP if getattr(arguments, name) is not None]
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise UsageError(msg("fit.only-sapp", options=options), msg("fit.only-sapp.hint"))
    limit = arguments.limit if pipeline is None else None
    return FitRequest(
        Effort(arguments.effort), arguments.seed, limit, pipeline, clock_of(arguments), arguments.swap_bandwidth
    )


def _sapp_pipeline(arguments: Namespace) -> SappPipeline:
    missing = [name for name in (*_PIPELINE, "limit") if getattr(arguments, name) is None]
    if missing:
        raise UsageError(msg("fit.sapp-needs", options=", ".join(f"--{name.replace('_', '-')}" for name in missing)))
    known = [schedule.value for schedule in Schedule]
    if arguments.order not in known:
        choices = {"argument": "--order", "value": arguments.order, "choices": ", ".join(known)}
        raise UsageError(msg("cli.usage.choice", **choices))
    for name, most in _MOST.items():
        if (getattr(arguments, name) or 1) > most:
            raise UsageError(msg("fit.too-many", option=f"--{name.replace('_', '-')}", most=most))
    return SappPipeline(
        stages=arguments.stages,
        chunks=arguments.chunks or 1,
        micro_batches=arguments.micro_batches,
        limit_bytes=arguments.limit,
        order=Schedule(arguments.order),
        constant_bytes=arguments.constant,
    )


def clock_of(arguments: Namespace) -> Clock:
    """What the user measured.

    Raises:
        UsageError: ``--times`` is neither times nor a file; or the log's step time is not to be believed.
        ConfigError: The file has no times.
        TraceError: The log or the profile cannot be read.
    """
    step = arguments.calibrate
    clock = Clock(step)
    if isinstance(step, Path):
        from ms_tune.workflows.step_clock import measure_clock  # noqa: PLC0415 - two engines that few runs need

        clock = measure_clock(step)
    return replace(clock, times=_layer_times(arguments.times)) if arguments.times else clock


def _layer_times(source: str) -> dict[str, LayerTimes]:
    """Measured times of layers: a JSON file (docs/fit.md), or times such as ``dense=12.5/25,tail=3``."""
    if "=" not in source:
        return read_times(_read_text(Path(source)), source)
    try:
        return parse_times(source)
    except ValueError:
        raise UsageError(msg("fit.usage.times", value=source)) from None


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(msg("planning.file.too-long", limit=_MOST_BYTES), path=path)
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = reason_of(error) if isinstance(error, OSError) else msg("planning.file.no-text")
        raise ConfigError(msg("planning.file.unreadable", why=why), path=path) from None


def write_tables(table: CostTable, arguments: Namespace, console: Console) -> None:
    """Write the table, where that is asked for."""
    if arguments.export_table:
        with written(arguments.export_table, console) as part:
            part.write_text(json_text(table_json(table), indent=1) + "\n", encoding="utf-8")
