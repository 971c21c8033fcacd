"""Run ``ms-tune fit``: find the fastest plan that fits, for a table or for a config measured by small dryruns."""

from __future__ import annotations

import signal
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from ms_tune.cli.device import device_fields
from ms_tune.cli.dryrun_progress import DryrunProgress
from ms_tune.cli.output import ProgressLine, without_native_output, write_text_file
from ms_tune.cli.parser import refuse_options
from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dryrun.request import ENGINES, DryrunRequest, Setting
from ms_tune.encode import json_text
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, ExitCode, UsageError, reason_of
from ms_tune.extras import need
from ms_tune.fit.costs import explain_config
from ms_tune.fit.predict import Cluster, cluster_of
from ms_tune.fit.result import ConfigFit, ConfigFitRequest
from ms_tune.fit.run import fit_config
from ms_tune.fit.search import SearchHooks, SearchRequest, search_layouts
from ms_tune.lint.result import LintRequest
from ms_tune.lint.runner import lint_files
from ms_tune.planning.fit import FitRequest, fit_table
from ms_tune.planning.layouts import DIMENSIONS
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.search import Effort, SearchProgress
from ms_tune.planning.table import CostTable
from ms_tune.planning.table_file import SappPipeline, is_sapp, table_json
from ms_tune.planning.time_scale import Clock
from ms_tune.report import fit_config as report
from ms_tune.report import fit_json, fit_text
from ms_tune.report.console import Console
from ms_tune.source.atomic_write import write_back
from ms_tune.source.files import read_bytes
from ms_tune.source.yaml import SourceFile
from ms_tune.text import Message, msg
from ms_tune.workflows.step_clock import measure_clock

_STOPPED = 128  # plus the number of the signal, as shells report it
_PIPELINE = ("stages", "micro_batches", "order")
_MOST = {"stages": 1024, "chunks": 64, "micro_batches": 100_000}
_MOST_BYTES = 16_000_000  # of a file


def run_table(arguments: Namespace, console: Console) -> int:
    """Read a table, find a plan and show it."""
    file: Path = arguments.table
    text = _read_text(file)
    request = _table_request(arguments, sapp=is_sapp(text, str(file)))
    with _stop_at_sigterm(), ProgressLine(console) as line, without_native_output():
        table, clock = request.table_of(text, str(file))
        on_progress = partial(_show_search, line)
        report = fit_table(table, effort=request.effort, seed=request.seed, clock=clock, on_progress=on_progress)
    if arguments.html:
        page = fit_text.plan_page(partial(fit_text.fit_page, report), [file], console.language)
        write_text_file(arguments.html, page, console)
    _write_tables(report.table, arguments, console)
    if arguments.json:
        console.write_json(fit_json.table_fit_json(report))
    else:
        fit_text.show_report(fit_text.fit_page(report, console), console, **_length_of(arguments))
    if report.stopped:
        return _STOPPED + report.stopped
    return ExitCode.FINDINGS if report.planned is None else ExitCode.OK


@contextmanager
def _stop_at_sigterm() -> Iterator[None]:
    # Let SIGTERM, like Ctrl-C, end a search with its best plan so far. Dryruns have handlers of their own.
    def stop(number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _length_of(arguments: Namespace) -> dict[str, bool]:
    written = bool(getattr(arguments, "write", False))
    return {"verbose": arguments.verbose, "quiet": arguments.quiet, "written": written}


def _show_search(line: ProgressLine | DryrunProgress, progress: SearchProgress) -> None:
    line.show(msg(f"fit.progress.{progress.part}"), progress.done)


def _table_request(arguments: Namespace, *, sapp: bool) -> FitRequest:
    if arguments.seed >= 2**63:
        raise UsageError(msg("cli.usage.natural", value=arguments.seed))
    pipeline = _sapp_pipeline(arguments) if sapp else None
    if pipeline is None:
        given = [name for name in (*_PIPELINE, "chunks", "constant") if getattr(arguments, name) is not None]
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise UsageError(msg("fit.only-sapp", options=options), msg("fit.only-sapp.hint"))
    limit = arguments.limit if pipeline is None else None
    return FitRequest(
        Effort(arguments.effort), arguments.seed, limit, pipeline, _clock_of(arguments), arguments.swap_bandwidth
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


def _clock_of(arguments: Namespace) -> Clock:
    step = arguments.calibrate
    return measure_clock(step) if isinstance(step, Path) else Clock(step)


def _read_text(path: Path) -> str:
    try:
        content = read_bytes(path, _MOST_BYTES)
        if len(content) > _MOST_BYTES:
            raise ConfigError(msg("planning.file.too-long", limit=_MOST_BYTES), path=path)
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = reason_of(error) if isinstance(error, OSError) else msg("planning.file.no-text")
        raise ConfigError(msg("planning.file.unreadable", why=why), path=path) from None


def _write_tables(table: CostTable, arguments: Namespace, console: Console) -> None:
    if arguments.export_table:
        write_text_file(arguments.export_table, json_text(table_json(table), indent=1) + "\n", console)


_KINDS = ("select", "comm", "both", "full")  # by default; swap needs a bandwidth
_MOST_SIZE = 1_000_000  # of a tensor dimension


def run_config(arguments: Namespace, console: Console) -> int:
    """Measure the layers of a config, find a plan, verify it by simulation, show and write it."""
    if arguments.write:
        refuse_options(arguments, ("diff", "set"), "cli.usage.not-allowed", other="--write")
    if arguments.search is not None:
        return _search_layouts(arguments, console)
    refuse_options(arguments, ("keep", "top", "node_devices", "global_batch"), "layouts.usage.only-search")
    if arguments.explain:
        return _explain_config(arguments, console)
    return _plan_config(arguments, console)


def _plan_config(arguments: Namespace, console: Console) -> int:
    need("ms-tune fit", "dryrun", "mindspore")
    with _stop_at_sigterm(), DryrunProgress(console) as progress, without_native_output():
        found = fit_config(_fit_request(arguments), progress, partial(_show_search, progress))
    if arguments.html:
        page = fit_text.plan_page(partial(report.shown_of, found), [found.source.path], console.language)
        write_text_file(arguments.html, page, console)
    _write_tables(found.last.report.table, arguments, console)
    if arguments.json:
        console.write_json(fit_json.config_fit_json(found))
    elif arguments.diff:
        console.write_raw(report.diff_of_plan(found).rstrip("\n"))
        for sentence in report.verdict_lines_of(found):
            console.note(console.say(sentence))
    else:
        fit_text.show_report(report.shown_of(found, console), console, **_length_of(arguments))
    if arguments.write and found.chosen is not None:
        _write_plan(found, arguments.config, console)
    if found.last.report.stopped:
        return _STOPPED + found.last.report.stopped
    return ExitCode.OK if found.chosen is not None else ExitCode.FINDINGS


def _explain_config(arguments: Namespace, console: Console) -> int:
    names = ("write", "diff", "no_verify", "html", "export_table", "swap_bandwidth", "verbose", "quiet")
    refuse_options(arguments, names, "cli.usage.not-allowed", other="--explain")
    found = explain_config(_dryrun_request(arguments), _clock_of(arguments))
    if arguments.json:
        console.write_json(fit_json.explanation_json(found))
    else:
        fit_text.show_explanation(found, console)
    return ExitCode.OK


def _write_plan(found: ConfigFit, path: Path, console: Console) -> None:
    if not found.changed:
        console.note(console.text("fitting.same"))
        return
    _write_text(found, path, msg("fitting.written", count=found.changed, path=path), console)


def _write_text(found: ConfigFit, path: Path, message: Message, console: Console) -> None:
    if found.source.path != path:  # the config was merged with its base_config
        raise ConfigError(msg("fitting.write.base"), msg("fitting.write.base.hint"), path=path)
    write_back(path, found.source.text, found.text)
    console.note(console.say(message))


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
        clock=_clock_of(arguments),
        swap_bandwidth=arguments.swap_bandwidth,
        cluster=_cluster_of(arguments),
    )


def _cluster_of(arguments: Namespace) -> Cluster | None:
    file: Path | None = arguments.cluster
    return cluster_of(arguments.chip, None if file is None else (_read_text(file), str(file)))


def _dryrun_request(arguments: Namespace) -> DryrunRequest:
    return DryrunRequest(
        config=arguments.config,
        devices=arguments.devices,
        **device_fields(arguments),
        timeout=arguments.timeout or 3600,
        jobs=arguments.jobs,
        engine=arguments.engine or ENGINES[0],
        settings=tuple(map(Setting.parse, arguments.set)),
        model_config=arguments.model_config,
    )


def _search_layouts(arguments: Namespace, console: Console) -> int:
    request = _search_request(arguments, _fit_request(arguments))
    if request.top:
        need("ms-tune fit", "dryrun", "mindspore")
    known = {one.id for one in _lint_errors(LintRequest(), arguments.config)}
    with DryrunProgress(console) as progress:
        hooks = SearchHooks(
            progress,
            partial(_show_search, progress),
            lambda done, count: progress.show(msg("layouts.ranking", done=done, count=count), done / count),
            lambda source: _new_error(source, known),
        )
        found = search_layouts(request, hooks)
    best = found.best
    if best is not None:
        _write_tables(best.last.report.table, arguments, console)
    if arguments.html and best is not None:
        show = partial(report.shown_of, best, more=report.search_notes(found))
        write_text_file(arguments.html, fit_text.plan_page(show, [best.source.path], console.language), console)
    if arguments.json:
        console.write_json(fit_json.search_json(found))
    elif arguments.diff and best is not None:
        console.write_raw(report.diff_of_plan(best).rstrip("\n"))
    else:
        report.show_search(found, console, **_length_of(arguments))
    if arguments.write and best is not None and found.chosen is not None:
        written = msg("layouts.written", layout=str(found.chosen.candidate.layout), path=str(arguments.config))
        _write_text(best, arguments.config, written, console)
    if found.stopped:
        return _STOPPED + found.stopped
    good = best is not None or (not request.top and bool(found.ranking.fitting))
    return ExitCode.OK if good else ExitCode.FINDINGS


def _lint_errors(request: LintRequest, file: Path | str) -> list[Diagnostic]:
    return [one for one in lint_files(file, request=request).findings if one.severity is Severity.ERROR]


def _new_error(source: SourceFile, known: set[str]) -> Message | None:
    # Return a lint error that the original config does not have.
    for one in _lint_errors(LintRequest(stdin=source.text.encode()), "-"):
        if one.id not in known:
            return msg("layouts.refused.lint", id=one.id, name=one.name)
    return None


def _search_request(arguments: Namespace, request: ConfigFitRequest) -> SearchRequest:
    refuse_options(arguments, ["explain"], "cli.usage.not-allowed", other="--search")
    is_free = arguments.search == "all"  # without names
    free = tuple(DIMENSIONS) if is_free else tuple(dict.fromkeys(arguments.search.split(",")))
    keep = dict(map(_parse_fixed_size, filter(None, (arguments.keep or "").split(","))))
    unknown = [name for name in (*free, *keep) if name not in DIMENSIONS]
    if unknown:
        choices = {"argument": "--search", "value": unknown[0], "choices": ", ".join(DIMENSIONS)}
        raise UsageError(msg("cli.usage.choice", **choices))
    sizes = {"top": arguments.top, "node": arguments.node_devices, "samples": arguments.global_batch}
    return SearchRequest(
        request, free, keep, shards=is_free, **{name: size for name, size in sizes.items() if size is not None}
    )


def _parse_fixed_size(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not (
        number.isascii() and number.isdigit() and 0 < int(number[:8]) <= _MOST_SIZE and len(number) < len("10000000")
    ):
        raise UsageError(msg("layouts.usage.keep", value=text))
    return name.strip(), int(number)
