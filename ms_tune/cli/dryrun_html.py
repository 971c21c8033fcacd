"""``ms-tune dryrun --html``: what was run as a page for the browser."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli.output import new_file, written
from ms_tune.dryrun.result import DryrunResult
from ms_tune.errors import UsageError, reason_of
from ms_tune.extras import need
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from ms_tune.dryrun.command_result import CommandResult
    from ms_tune.report.console import Console

# The page keeps all blocks of four ranks and the curves of the others: half a megabyte each.
_MOST_RANKS = 12
_ABOUT_SEVERAL_RUNS = ("sweep", "compare_real")


def check_page(arguments: Namespace) -> None:
    """Tell before the long work begins what would be in the way of a page at its end.

    Raises:
        UsageError: The page would be about more than one run, is there already, or its folder cannot be written.
        MissingExtraError: A package that makes pages is not installed.
    """
    path: Path | None = arguments.html
    if path is None:
        return
    for name in _ABOUT_SEVERAL_RUNS:
        if getattr(arguments, name):
            raise UsageError(msg("dryrun.html.one-run", option=f"--{name.replace('_', '-')}"), msg("dryrun.html.hint"))
    new_file(path, force=arguments.force)
    need("ms-tune dryrun --html", "dryrun,report", "jinja2")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        detail = msg("memory.unwritable", detail=reason_of(error))
        raise UsageError(msg("cli.usage.value", argument=str(path), detail=detail)) from error


def write_page(result: DryrunResult | CommandResult, path: Path, console: Console) -> None:
    """The page about all stages of a job, or all ranks of a command."""
    if not (result.stages if isinstance(result, DryrunResult) else result.ranks):
        console.warn(msg("dryrun.html.nothing", file=path))
        return
    from ms_tune.report.dryrun_html import report_html  # noqa: PLC0415 - imported late: start-up time

    report = api.job_report(result, most=_MOST_RANKS)
    with written(path, console) as part:
        part.write_text(report_html(report, console.language), encoding="utf-8")
    if report.left_out:
        console.note(console.text("dryrun.html.left-out", shown=len(report.memory.ranks), left_out=report.left_out))
