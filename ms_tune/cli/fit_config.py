"""``ms-tune fit CONFIG``: a config's table from small dryruns, the cheapest plan that fits, and its own dryrun."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ms_tune.cli.dryrun_progress import DryrunProgress
from ms_tune.cli.fit_table import INTERRUPTED, clock_of, write_tables
from ms_tune.cli.native_output import without_native_output
from ms_tune.cli.output import ProgressLine, written
from ms_tune.diagnostics import Severity
from ms_tune.dryrun.request import DryrunRequest, Setting
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.fit.costs import explain_config
from ms_tune.fit.result import ConfigFitRequest
from ms_tune.fit.run import fit_config
from ms_tune.fit.search import SearchHooks, SearchRequest, search_layouts
from ms_tune.lint.result import LintRequest
from ms_tune.lint.runner import lint_files
from ms_tune.planning.layouts import DIMENSIONS
from ms_tune.planning.search import Effort
from ms_tune.report import fit_config as report
from ms_tune.report import fit_html, fit_json, fit_search, fit_text
from ms_tune.source.atomic_write import write_back
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.fit.result import ConfigFit
    from ms_tune.fit.search import SearchFit
    from ms_tune.planning.search import SearchProgress
    from ms_tune.report.console import Console
    from ms_tune.source.yaml import SourceFile
    from ms_tune.text import Message

_KINDS = ("select", "comm", "both", "full")  # by default; swap needs a bandwidth
_MOST_SIZE = 1_000_000  # of a dimension that is kept


def run(arguments: Namespace, console: Console) -> int:
    """Measure, plan, simulate, show, write."""
    if arguments.write and arguments.diff:
        raise UsageError(msg("cli.usage.not-allowed", argument="--diff", other="--write"))
    if arguments.write and arguments.set:
        raise UsageError(msg("cli.usage.not-allowed", argument="--set", other="--write"))
    if arguments.search is not None:
        return _search(arguments, console)
    for name in ("keep", "top", "node_devices"):
        if getattr(arguments, name) is not None:
            raise UsageError(msg("layouts.usage.only-search", option=f"--{name.replace('_', '-')}"))
    if arguments.explain:
        return _explain_config(arguments, console)
    return _plan_config(arguments, console)


def _plan_config(arguments: Namespace, console: Console) -> int:
    need("ms-tune fit", "dryrun", "mindspore")
    with DryrunProgress(console) as progress, without_native_output():
        told = _Searching(progress)
        found = fit_config(_fit_request(arguments), progress, told.tell)
    if arguments.html:
        with written(arguments.html, console) as part:
            part.write_text(
                fit_html.plan_page(partial(report.shown_of, found), [found.source.path], console.language),
                encoding="utf-8",
            )
    write_tables(found.last.report.table, arguments, console)
    if arguments.json:
        console.write_json(fit_json.config_fit_json(found))
    elif arguments.diff:
        console.write_whole(report.diff_of_plan(found).rstrip("\n"))
        for sentence in report.verdict_lines_of(found):
            console.note(console.say(sentence))
    else:
        fit_text.show_report(report.shown_of(found, console), console)
    if arguments.write and found.chosen is not None:
        _write_plan(found, arguments.config, console)
    if found.last.report.stopped:
        return INTERRUPTED
    return ExitCode.OK if found.chosen is not None else ExitCode.FINDINGS


def _explain_config(arguments: Namespace, console: Console) -> int:
    for name in ("write", "diff", "no_verify", "html", "export_table", "swap_bandwidth"):
        if getattr(arguments, name):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(msg("cli.usage.not-allowed", argument=option, other="--explain"))
    found = explain_config(_dryrun_request(arguments), clock_of(arguments))
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
    known = [kind.value for kind in RecomputeMode if kind is not RecomputeMode.NONE]
    names = _KINDS if arguments.kinds is None else tuple(filter(None, arguments.kinds.split(",")))
    unknown = [name for name in names if name not in known]
    if unknown:
        choices = {"argument": "--kinds", "value": unknown[0], "choices": ", ".join(known)}
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


def _search(arguments: Namespace, console: Console) -> int:
    request = _search_request(arguments, _fit_request(arguments))
    if request.top:
        need("ms-tune fit", "dryrun", "mindspore")
    known = {one.id for one in _lint_errors(LintRequest(), arguments.config)}
    ranking = ProgressLine(console)
    with DryrunProgress(console) as progress:
        hooks = SearchHooks(
            progress,
            _Searching(progress).tell,
            lambda done, count: ranking.show(msg("layouts.ranking", done=done, count=count), done / count),
            lambda source: _new_error(source, known),
        )
        found = search_layouts(request, hooks)
    best = found.best
    if best is not None:
        write_tables(best.last.report.table, arguments, console)
    if arguments.html and best is not None:
        with written(arguments.html, console) as part:
            show = partial(report.shown_of, best, more=fit_search.search_notes(found))
            part.write_text(fit_html.plan_page(show, [best.source.path], console.language), encoding="utf-8")
    if arguments.json:
        console.write_json(fit_json.search_json(found))
    elif arguments.diff and best is not None:
        console.write_whole(report.diff_of_plan(best).rstrip("\n"))
    else:
        fit_search.show_search(found, console)
    if arguments.write and best is not None:
        _write_layout(found, arguments, console)
    if found.stopped:
        return INTERRUPTED
    good = best is not None or (not request.top and bool(found.ranking.candidates))
    return ExitCode.OK if good else ExitCode.FINDINGS


def _lint_errors(request: LintRequest, file: Path | str) -> list[Diagnostic]:
    return [one for one in lint_files(file, request=request).findings if one.severity is Severity.ERROR]


def _new_error(source: SourceFile, known: set[str]) -> Message | None:
    """What the framework would stop at, by lint's checks, that it does not stop at in the config as it is."""
    for one in _lint_errors(LintRequest(stdin=source.text.encode()), "-"):
        if one.id not in known:
            return msg("layouts.refused.lint", id=one.id, name=one.name)
    return None


def _write_layout(found: SearchFit, arguments: Namespace, console: Console) -> None:
    best = found.best
    if best is None or found.chosen is None:
        return
    if best.source.path != arguments.config:  # what a base_config says was put together for the run
        raise ConfigError(msg("fitting.write.base"), msg("fitting.write.base.hint"), path=arguments.config)
    write_back(arguments.config, best.source.text, best.text)
    console.note(console.text("layouts.written", layout=str(found.chosen.candidate.layout), path=str(arguments.config)))


def _search_request(arguments: Namespace, request: ConfigFitRequest) -> SearchRequest:
    for name in ("calibrate", "times", "explain"):
        if getattr(arguments, name):
            raise UsageError(msg("cli.usage.not-allowed", argument=f"--{name}", other="--search"))
    free = tuple(dict.fromkeys(filter(None, arguments.search.split(","))))
    keep = dict(map(_kept_dimension, filter(None, (arguments.keep or "").split(","))))
    unknown = [name for name in (*free, *keep) if name not in DIMENSIONS]
    if unknown or not free:
        choices = {"argument": "--search", "value": (unknown or [""])[0], "choices": ", ".join(DIMENSIONS)}
        raise UsageError(msg("cli.usage.choice", **choices))
    sizes = {"top": arguments.top, "node": arguments.node_devices}
    return SearchRequest(request, free, keep, **{name: size for name, size in sizes.items() if size is not None})


def _kept_dimension(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not (
        number.isascii() and number.isdigit() and 0 < int(number[:8]) <= _MOST_SIZE and len(number) < len("10000000")
    ):
        raise UsageError(msg("layouts.usage.keep", value=text))
    return name.strip(), int(number)
