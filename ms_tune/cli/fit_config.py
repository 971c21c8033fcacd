"""``ms-tune fit CONFIG``: a config's table from small dryruns, the cheapest plan that fits, and its own dryrun."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli.device import add_device_arguments
from ms_tune.cli.dryrun_progress import DryrunProgress
from ms_tune.cli.native_output import without_native_output
from ms_tune.cli.output import ProgressLine, new_file, written
from ms_tune.dryrun.request import ENGINES, DryrunRequest, Setting
from ms_tune.encode import json_text
from ms_tune.errors import ConfigError, ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.source.atomic_write import write_back
from ms_tune.text import msg, render
from ms_tune.units import parse_size

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping

    from ms_tune.cli.parser import Parser
    from ms_tune.fit.result import ConfigFit, ConfigFitRequest
    from ms_tune.fit.search import SearchFit, SearchRequest
    from ms_tune.planning.search import SearchProgress
    from ms_tune.planning.table import CostTable
    from ms_tune.planning.time_scale import Clock
    from ms_tune.report.console import Console
    from ms_tune.text import Language

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
# Options for configs, with what they are when they are not given.
ONLY_CONFIG: Mapping[str, object] = {
    **dict.fromkeys(("devices", "device_memory", "chip", "reserve", "kinds", "jobs"), None),
    **dict.fromkeys(("search", "keep", "top", "node_devices"), None),
    **dict.fromkeys(("allow_tight", "no_verify", "write", "diff", "explain"), False),
    "set": [],
    "engine": ENGINES[0],
    "timeout": 3600,
}
_KINDS = ("select", "comm", "both", "full")  # by default; swap needs a bandwidth


def add_config_arguments(parser: Parser) -> None:
    """The options for configs."""
    parser.option("config", "fitting.help.config", nargs="?", type=Path, metavar="CONFIG")
    parser.option("--devices", "dryrun_help.devices", type=parser.count, metavar="N")
    add_device_arguments(parser)
    parser.option("--set", "dryrun_help.set", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument(
        "--kinds", metavar="KIND,..", help=parser.tr("fitting.help.kinds", kinds=", ".join((*_KINDS, "swap")))
    )
    add_search_arguments(parser)
    parser.flag("--explain", "fitting.help.explain")
    parser.flag("--no-verify", "fitting.help.no-verify")
    parser.flag("--write", "fitting.help.write")
    parser.flag("--diff", "fitting.help.diff")
    parser.option("--jobs", "dryrun_help.jobs", type=parser.count, metavar="N")
    parser.option("--engine", "dryrun_help.engine", choices=ENGINES, default=ENGINES[0])
    parser.option("--timeout", "dryrun_help.timeout", type=parser.count, default=3600, metavar="SECONDS")


def run(arguments: Namespace, console: Console) -> int:
    """Measure, plan, simulate, show, write."""
    if arguments.write and arguments.diff:
        raise UsageError(msg("cli.usage.not-allowed", argument="--diff", other="--write"))
    if arguments.write and arguments.set:
        raise UsageError(msg("cli.usage.not-allowed", argument="--set", other="--write"))
    if arguments.search is not None:
        request = _fit_request(arguments)
        return search_layouts(arguments, console, request, lambda progress: _Searching(progress).tell)
    refuse_without(arguments)
    if arguments.explain:
        return _explain_config(arguments, console)
    return _plan_config(arguments, console)


def _plan_config(arguments: Namespace, console: Console) -> int:
    need("ms-tune fit", "dryrun", "mindspore")
    from ms_tune.report import fit_config, fit_html, fit_text  # noqa: PLC0415 - imported late: start-up time

    with DryrunProgress(console) as progress, without_native_output():
        told = _Searching(progress)
        found = api.fit_config(request=_fit_request(arguments), observer=progress, on_progress=told.tell)
    parts = fit_config.shown_of(found, console)
    if arguments.html:
        with written(arguments.html, console) as part:
            part.write_text(fit_html.plan_page(parts, [found.source.path], console), encoding="utf-8")
    write_tables(found.last.report.table, arguments, console)
    if arguments.json:
        console.write_json(fit_config.config_fit_json(found, console.language))
    elif arguments.diff:
        console.write_whole(fit_config.diff_of_plan(found).rstrip("\n"))
        for sentence in fit_config.verdict_lines_of(found):
            console.note(console.say(sentence))
    else:
        fit_text.show_report(parts, console)
    if arguments.write and found.chosen is not None:
        _write_plan(found, arguments.config, console)
    if found.last.report.stopped:
        return INTERRUPTED
    return ExitCode.OK if found.chosen is not None else ExitCode.FINDINGS


def _explain_config(arguments: Namespace, console: Console) -> int:
    for name in ("write", "diff", "no_verify", "html", "export_table", "export_sapp", "swap_bandwidth"):
        if getattr(arguments, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(msg("cli.usage.not-allowed", argument=option, other="--explain"))
    from ms_tune.report import fit_json, fit_text  # noqa: PLC0415 - imported late: start-up time

    found = api.explain_config(arguments.config, request=_dryrun_request(arguments), clock=clock_of(arguments))
    if arguments.json:
        console.write_json(fit_json.explanation_json(found))
    else:
        fit_text.show_explanation(found, console)
    return ExitCode.OK


def _write_plan(found: ConfigFit, path: Path, console: Console) -> None:
    if not found.changed:
        console.note(console.text("fitting.same"))
        return
    if found.source.path != path:  # what a base_config says was put together for the run
        raise ConfigError(msg("fitting.write.base"), msg("fitting.write.base.hint"), path=path)
    write_back(path, found.source.text, found.text)
    console.note(console.text("fitting.written", count=found.changed, path=path))


class _Searching:
    """Tells of a search between the runs of processes: once for each of its parts."""

    def __init__(self, progress: DryrunProgress) -> None:
        self._progress, self._part = progress, ""

    def tell(self, progress: SearchProgress) -> None:
        """A part has begun."""
        if progress.part != self._part:
            self._part = progress.part
            self._progress.say(msg("fitting.searching", part=msg(f"fit.progress.{progress.part}")))


def _fit_request(arguments: Namespace) -> ConfigFitRequest:
    from ms_tune.enums import RecomputeMode  # noqa: PLC0415 - as above
    from ms_tune.fit.result import ConfigFitRequest  # noqa: PLC0415 - imported late: it needs scipy
    from ms_tune.planning.search import Effort  # noqa: PLC0415 - as above

    names = _KINDS if arguments.kinds is None else tuple(filter(None, arguments.kinds.split(",")))
    unknown = [name for name in names if name not in (*_KINDS, "swap")]
    if unknown:
        choices = {"argument": "--kinds", "value": unknown[0], "choices": ", ".join((*_KINDS, "swap"))}
        raise UsageError(msg("cli.usage.choice", **choices))
    return ConfigFitRequest(
        dryrun=_dryrun_request(arguments),
        kinds=tuple(map(RecomputeMode, names)),
        effort=Effort(arguments.effort),
        seed=arguments.seed,
        verify=not arguments.no_verify,
        allow_tight=arguments.allow_tight,
        clock=clock_of(arguments),
        swap_bandwidth=arguments.swap_bandwidth,
    )


def _dryrun_request(arguments: Namespace) -> DryrunRequest:
    return DryrunRequest(
        config=arguments.config,
        devices=arguments.devices,
        device_bytes=arguments.device_memory,
        chip=arguments.chip,
        reserve_bytes=arguments.reserve or 0,
        timeout=arguments.timeout,
        jobs=arguments.jobs,
        engine=arguments.engine,
        settings=tuple(map(Setting.parse, arguments.set)),
    )


_NAMES = ("dp", "tp", "pp", "vpp", "cp", "ep", "mbs")  # of ms_tune.planning.layouts
_NODE, _TOP, _MOST = 8, 3, 1_000_000


def add_search_arguments(parser: Parser) -> None:
    """The options for other layouts."""
    names = ",".join(_NAMES)
    parser.add_argument("--search", metavar="DIM,..", help=parser.tr("layouts.help.search", names=names))
    parser.option("--keep", "layouts.help.keep", metavar="DIM=N,..")
    parser.add_argument("--top", type=parser.natural, metavar="N", help=parser.tr("layouts.help.top", count=_TOP))
    parser.add_argument(
        "--node-devices", type=parser.count, metavar="N", help=parser.tr("layouts.help.node-devices", count=_NODE)
    )


def search_layouts(
    arguments: Namespace,
    console: Console,
    request: ConfigFitRequest,
    telling: Callable[[DryrunProgress], Callable[[SearchProgress], None]],
) -> int:
    """Rank, measure, plan, simulate, show, write.

    Args:
        arguments: The command line.
        console: Where to show it.
        request: How to plan each layout.
        telling: What tells how far a search for a plan is.
    """
    asked = _search_request(arguments, request)
    if asked.top:
        need("ms-tune fit", "dryrun", "mindspore")
    from ms_tune.report import fit_config, fit_html, fit_search  # noqa: PLC0415 - imported late: start-up time

    ranking = ProgressLine(console)
    with DryrunProgress(console) as progress:
        found = api.search_layouts(
            request=asked,
            observer=progress,
            on_progress=telling(progress),
            on_ranked=lambda done, count: ranking.show(msg("layouts.ranking", done=done, count=count), done / count),
        )
    best = found.best
    if best is not None:
        write_tables(best.last.report.table, arguments, console)
    if arguments.html and best is not None:
        with written(arguments.html, console) as part:
            parts = fit_config.shown_of(best, console, fit_search.search_notes(found))
            part.write_text(fit_html.plan_page(parts, [best.source.path], console), encoding="utf-8")
    if arguments.json:
        console.write_json(fit_search.search_json(found, console.language))
    elif arguments.diff and best is not None:
        console.write_whole(fit_config.diff_of_plan(best).rstrip("\n"))
    else:
        fit_search.show_search(found, console)
    if arguments.write and best is not None:
        _write_layout(found, arguments, console)
    if found.stopped:
        return INTERRUPTED
    good = best is not None or (not asked.top and bool(found.ranking.candidates))
    return ExitCode.OK if good else ExitCode.FINDINGS


def refuse_without(arguments: Namespace) -> None:
    """Refuse what goes with ``--search`` only."""
    for name in ("keep", "top", "node_devices"):
        if getattr(arguments, name) is not None:
            raise UsageError(msg("layouts.usage.only-search", option=f"--{name.replace('_', '-')}"))


def _write_layout(found: SearchFit, arguments: Namespace, console: Console) -> None:
    best = found.best
    if best is None or found.chosen is None:
        return
    if best.source.path != arguments.config:  # what a base_config says was put together for the run
        raise ConfigError(msg("fitting.write.base"), msg("fitting.write.base.hint"), path=arguments.config)
    write_back(arguments.config, best.source.text, best.text)
    console.note(console.text("layouts.written", layout=str(found.chosen.candidate.layout), path=str(arguments.config)))


def _search_request(arguments: Namespace, request: ConfigFitRequest) -> SearchRequest:
    from ms_tune.fit.search import SearchRequest  # noqa: PLC0415 - imported late: it needs scipy

    for name in ("calibrate", "times", "explain"):
        if getattr(arguments, name):
            raise UsageError(msg("cli.usage.not-allowed", argument=f"--{name}", other="--search"))
    free = tuple(dict.fromkeys(filter(None, arguments.search.split(","))))
    keep = dict(map(_kept_dimension, filter(None, (arguments.keep or "").split(","))))
    unknown = [name for name in (*free, *keep) if name not in _NAMES]
    if unknown or not free:
        choices = {"argument": "--search", "value": (unknown or [""])[0], "choices": ", ".join(_NAMES)}
        raise UsageError(msg("cli.usage.choice", **choices))
    top = _TOP if arguments.top is None else arguments.top
    return SearchRequest(request, free, keep, top, arguments.node_devices or _NODE)


def _kept_dimension(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not (number.isascii() and number.isdigit() and 0 < int(number[:8]) <= _MOST and len(number) < len("10000000")):
        raise UsageError(msg("layouts.usage.keep", value=text))
    return name.strip(), int(number)


_MOST_BANDWIDTH = 2**50  # bytes a second
_WRITTEN = ("html", "export_table", "export_sapp")


def add_file_arguments(parser: Parser) -> None:
    """What was measured, and files to write."""
    parser.option("--calibrate", "fit.help.calibrate", type=_step_type(parser.language), metavar="step=TIME|LOG")
    parser.option("--times", "fit.help.times", metavar="NAME=MS,..|FILE")
    parser.option(
        "--swap-bandwidth", "fit.help.swap-bandwidth", type=_bandwidth_type(parser.language), metavar="SIZE/s"
    )
    parser.file("--html", "fit.help.html")
    parser.file("--export-table", "fit.help.export-table")
    parser.file("--export-sapp", "fit.help.export-sapp")
    parser.flag("--force", "memory.help.force")


def _step_type(language: Language) -> Callable[[str], float | Path]:
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


def _bandwidth_type(language: Language) -> Callable[[str], int]:
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
    from ms_tune.workflows.step_clock import measure_clock  # noqa: PLC0415 - as above

    step = arguments.calibrate
    clock = measure_clock(step) if isinstance(step, Path) else Clock(step)
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
