"""``ms-tune fit CONFIG --search``: other layouts of the same devices, the best few dry-run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli.dryrun_progress import DryrunProgress
from ms_tune.cli.fit_files import write_tables
from ms_tune.cli.output import ProgressLine, written
from ms_tune.errors import ConfigError, ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.source.atomic_write import write_back
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ms_tune.cli.parser import Parser
    from ms_tune.fit.result import ConfigFitRequest
    from ms_tune.fit.search import SearchFit, SearchRequest
    from ms_tune.planning.search import SearchProgress
    from ms_tune.report.console import Console

_NAMES = ("dp", "tp", "pp", "vpp", "cp", "ep", "mbs")  # of ms_tune.planning.layouts
_NODE, _TOP, _MOST = 8, 3, 1_000_000
_INTERRUPTED = 130


def add_search_arguments(parser: Parser) -> None:
    """The options for other layouts."""
    names = ",".join(_NAMES)
    parser.add_argument("--search", metavar="DIM,..", help=parser.tr("layouts.help.search", names=names))
    parser.option("--keep", "layouts.help.keep", metavar="DIM=N,..")
    parser.add_argument("--top", type=parser.natural, metavar="N", help=parser.tr("layouts.help.top", count=_TOP))
    parser.add_argument(
        "--node-devices", type=parser.count, metavar="N", help=parser.tr("layouts.help.node-devices", count=_NODE)
    )


def run(
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
    asked = _request(arguments, request)
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
            parts = fit_config.shown_of(best, console, fit_search.notes(found))
            part.write_text(fit_html.page(parts, [best.source.path], console), encoding="utf-8")
    if arguments.json:
        console.write_json(fit_search.to_json(found, console.language))
    elif arguments.diff and best is not None:
        console.write_whole(fit_config.difference(best).rstrip("\n"))
    else:
        fit_search.show(found, console)
    if arguments.write and best is not None:
        _write(found, arguments, console)
    if found.stopped:
        return _INTERRUPTED
    good = best is not None or (not asked.top and bool(found.ranking.candidates))
    return ExitCode.OK if good else ExitCode.FINDINGS


def refuse_without(arguments: Namespace) -> None:
    """Refuse what goes with ``--search`` only."""
    for name in ("keep", "top", "node_devices"):
        if getattr(arguments, name) is not None:
            raise UsageError(msg("layouts.usage.only-search", option=f"--{name.replace('_', '-')}"))


def _write(found: SearchFit, arguments: Namespace, console: Console) -> None:
    best = found.best
    if best is None or found.chosen is None:
        return
    if best.source.path != arguments.config:  # what a base_config says was put together for the run
        raise ConfigError(msg("fitting.write.base"), msg("fitting.write.base.hint"), path=arguments.config)
    write_back(arguments.config, best.source.text, best.text)
    console.note(console.text("layouts.written", layout=str(found.chosen.candidate.layout), path=str(arguments.config)))


def _request(arguments: Namespace, request: ConfigFitRequest) -> SearchRequest:
    from ms_tune.fit.search import SearchRequest  # noqa: PLC0415 - imported late: it needs scipy

    for name in ("calibrate", "times", "explain"):
        if getattr(arguments, name):
            raise UsageError(msg("cli.usage.not-allowed", argument=f"--{name}", other="--search"))
    free = tuple(dict.fromkeys(filter(None, arguments.search.split(","))))
    keep = dict(map(_kept, filter(None, (arguments.keep or "").split(","))))
    unknown = [name for name in (*free, *keep) if name not in _NAMES]
    if unknown or not free:
        choices = {"argument": "--search", "value": (unknown or [""])[0], "choices": ", ".join(_NAMES)}
        raise UsageError(msg("cli.usage.choice", **choices))
    top = _TOP if arguments.top is None else arguments.top
    return SearchRequest(request, free, keep, top, arguments.node_devices or _NODE)


def _kept(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not (number.isascii() and number.isdigit() and 0 < int(number[:8]) <= _MOST and len(number) < len("10000000")):
        raise UsageError(msg("layouts.usage.keep", value=text))
    return name.strip(), int(number)
