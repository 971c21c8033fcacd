"""Define ``ms-tune runs``, which lists the folders of dryruns and removes old ones."""

from __future__ import annotations

import datetime as dt
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ms_tune.cli.parser import Parser
from ms_tune.dryrun.stored_runs import RUNS, StoredRun, list_runs, remove_run
from ms_tune.errors import ExitCode, UsageError
from ms_tune.native import cache_root
from ms_tune.report.console import Console, shown_path
from ms_tune.text import Language, msg
from ms_tune.units import mib


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = Parser("ms-tune runs", language, "runs.description", "runs.examples")
    parser.option("folder", "runs.help.folder", nargs="?", metavar="FOLDER", type=Path)
    parser.flag("--clean", "runs.help.clean")
    parser.option("--older-than", "runs.help.older-than", metavar="DAYS", type=parser.positive)
    parser.add_common_arguments(verdict=False)
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """List the runs, or remove them."""
    folder: Path | None = arguments.folder
    if folder is not None and not folder.is_dir():
        raise UsageError(msg("runs.no-folder", folder=folder))
    runs = [
        one
        for one in list_runs(_places(folder))
        if arguments.older_than is None or _days_since(one) > arguments.older_than
    ]
    removed: list[StoredRun] = []
    if not arguments.json:
        _show_table(runs, console)
    if arguments.clean and runs:
        if arguments.older_than is None and not _is_confirmed(runs, console):
            return ExitCode.OK
        removed = [one for one in runs if remove_run(one)]
        if len(removed) < len(runs):
            console.warn(msg("runs.in-use", count=len(runs) - len(removed)))
    if arguments.json:
        entries = [{**one._asdict(), "begin": one.begin.isoformat(), "removed": one in removed} for one in runs]
        console.write_json({"version": 1, "runs": entries, "bytes": _total(runs)})
    elif removed:
        console.write_text("runs.removed", count=len(removed), size=mib(_total(removed)))
    return ExitCode.OK


def _places(folder: Path | None) -> tuple[Path, ...]:
    if folder is None:
        return (Path(RUNS), cache_root() / RUNS)
    return (folder if folder.resolve().name == RUNS else folder / RUNS,)


def _days_since(run: StoredRun) -> float:
    return (dt.datetime.now(dt.timezone.utc) - run.begin) / dt.timedelta(days=1)


def _total(runs: Sequence[StoredRun]) -> int:
    return sum(one.bytes for one in runs)


def _is_confirmed(runs: Sequence[StoredRun], console: Console) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(msg("runs.no-terminal"), msg("runs.no-terminal.hint"))
    console.note(console.text("runs.confirm", count=len(runs), size=mib(_total(runs))))
    return sys.stdin.readline().strip().lower() in ("y", "yes", "是")


def _show_table(runs: Sequence[StoredRun], console: Console) -> None:
    if not runs:
        console.write_text("runs.none")
        return
    rows = [
        (
            shown_path(one.folder),
            mib(one.bytes),
            f"{_days_since(one):.1f}",
            console.text(f"verdict.word.{one.verdict}") if one.verdict else "–",
        )
        for one in runs
    ]
    console.write_table(
        [console.text(f"runs.column.{name}") for name in ("run", "size", "days", "verdict")], rows, right={1, 2}
    )
    console.write_text("runs.total", count=len(runs), size=mib(_total(runs)))
