"""``ms-tune fit CONFIG``: a config's table from small dryruns, the cheapest plan that fits, and its own dryrun."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli import fit_search
from ms_tune.cli.device import add_device_arguments
from ms_tune.cli.dryrun_progress import DryrunProgress
from ms_tune.cli.fit_files import clock_of, write_tables
from ms_tune.cli.fit_search import add_search_arguments
from ms_tune.cli.native_output import without_native_output
from ms_tune.cli.output import written
from ms_tune.dryrun.request import ENGINES, DryrunRequest, Setting
from ms_tune.errors import ConfigError, ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.source.atomic_write import write_back
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from ms_tune.cli.parser import Parser
    from ms_tune.fit.result import ConfigFit, ConfigFitRequest
    from ms_tune.planning.search import SearchProgress
    from ms_tune.report.console import Console

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
        request = _request(arguments)
        return fit_search.run(arguments, console, request, lambda progress: _Searching(progress).tell)
    fit_search.refuse_without(arguments)
    if arguments.explain:
        return _explain(arguments, console)
    return _plan(arguments, console)


def _plan(arguments: Namespace, console: Console) -> int:
    """The plan of one layout."""
    need("ms-tune fit", "dryrun", "mindspore")
    from ms_tune.report import fit_config, fit_html, fit_shown  # noqa: PLC0415 - imported late: start-up time

    with DryrunProgress(console) as progress, without_native_output():
        told = _Searching(progress)
        found = api.fit_config(request=_request(arguments), observer=progress, on_progress=told.tell)
    parts = fit_config.shown_of(found, console)
    if arguments.html:
        with written(arguments.html, console) as part:
            part.write_text(fit_html.page(parts, [found.source.path], console), encoding="utf-8")
    write_tables(found.last.report.table, arguments, console)
    if arguments.json:
        console.write_json(fit_config.to_json(found, console.language))
    elif arguments.diff:
        console.write_whole(fit_config.difference(found).rstrip("\n"))
        for sentence in fit_config.verdict(found):
            console.note(console.say(sentence))
    else:
        fit_shown.show(parts, console)
    if arguments.write and found.chosen is not None:
        _write(found, arguments.config, console)
    if found.last.report.stopped:
        return INTERRUPTED
    return ExitCode.OK if found.chosen is not None else ExitCode.FINDINGS


def _explain(arguments: Namespace, console: Console) -> int:
    """Where the present config's time goes."""
    for name in ("write", "diff", "no_verify", "html", "export_table", "export_sapp", "swap_bandwidth"):
        if getattr(arguments, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(msg("cli.usage.not-allowed", argument=option, other="--explain"))
    from ms_tune.report import fit_explain  # noqa: PLC0415 - imported late: start-up time

    found = api.explain_config(arguments.config, request=_job(arguments), clock=clock_of(arguments))
    if arguments.json:
        console.write_json(fit_explain.to_json(found))
    else:
        fit_explain.show(found, console)
    return ExitCode.OK


def _write(found: ConfigFit, path: Path, console: Console) -> None:
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


def _request(arguments: Namespace) -> ConfigFitRequest:
    from ms_tune.enums import RecomputeMode  # noqa: PLC0415 - as above
    from ms_tune.fit.result import ConfigFitRequest  # noqa: PLC0415 - imported late: it needs scipy
    from ms_tune.planning.search import Effort  # noqa: PLC0415 - as above

    names = _KINDS if arguments.kinds is None else tuple(filter(None, arguments.kinds.split(",")))
    unknown = [name for name in names if name not in (*_KINDS, "swap")]
    if unknown:
        choices = {"argument": "--kinds", "value": unknown[0], "choices": ", ".join((*_KINDS, "swap"))}
        raise UsageError(msg("cli.usage.choice", **choices))
    return ConfigFitRequest(
        dryrun=_job(arguments),
        kinds=tuple(map(RecomputeMode, names)),
        effort=Effort(arguments.effort),
        seed=arguments.seed,
        verify=not arguments.no_verify,
        allow_tight=arguments.allow_tight,
        clock=clock_of(arguments),
        swap_bandwidth=arguments.swap_bandwidth,
    )


def _job(arguments: Namespace) -> DryrunRequest:
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
