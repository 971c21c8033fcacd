"""Check whether two versions of ms-tune give the same answers for the files in some folders, before and after a change of the code.

    python benchmarks/same_answers.py OLD_PYTHON NEW_PYTHON FOLDER... [--old-results FILE] [--examples] [--zh]
    [--releases 1.6 2.1]

OLD_PYTHON is an interpreter with the old version installed; NEW_PYTHON runs the ms-tune of this checkout
(``--old-checkout`` and ``--new-checkout`` name others). Every config, launch script, settings file, trace, log and
snapshot, and every Python file that names MindSpore, is given to each command of ``COMMANDS`` that accepts it. Exit
codes, JSON output and standard error are compared, and differences counted by kind. Differences listed in
``answer_differences.py`` are intended; any other one ends it with exit code 1. Command lines that neither version can
answer (unexpected exceptions, crashes, more than ``--seconds``) are listed.

``--examples`` adds the bad and good examples of the old version's checks, and its templates, examples and test data.
``--old-results`` stores the old version's answers for the next time. They are valid while the old version and all files
in the folder are unchanged; remove FILE if files elsewhere that are named there, or other installed Python packages,
have changed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sqlite3
import sys
import tempfile
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from answer_differences import Answer, differences
from version_answers import SKIPPED, Task, Version

_CODE = r"\.ya?ml|\.sh|\.bash"
_CHECKED = rf"{_CODE}|\.env|\.py|/tools\.json"
_RUN = r"\.log|/log|\.jsonl|\.txt|/"
_TRACED = rf"{_RUN}|\.csv|\.pickle|\.pkl"
# Command lines, with the file name endings that each accepts, a folder with "/". Those without JSON output run on
# request.
COMMANDS = {
    "lint": ("lint --json", _CHECKED),
    "normalize-recompute": ("normalize-recompute --json", _CODE),
    "check": ("check --json", _CODE),
    "migrate": ("migrate --json", _CODE),
    "memory": ("memory --json", _TRACED),
    "metrics": ("metrics --json", _RUN),
    "profile": ("profile --json", "/"),
    "lint-text": ("lint --verbose", _CHECKED),
    "lint-diff": ("lint --diff=unsafe", _CHECKED),
    "normalize-recompute-text": ("normalize-recompute", _CODE),
    "normalize-recompute-diff": ("normalize-recompute --diff", r"\.ya?ml"),
    "check-text": ("check", _CODE),
    "migrate-text": ("migrate", _CODE),
    "memory-text": ("memory", _TRACED),
}
_USUAL = tuple(name for name, (line, _) in COMMANDS.items() if line.endswith("--json"))
_OF_RELEASES = ("lint", "normalize-recompute", "check", "migrate")  # commands that --releases repeats for each release
_CHECKOUT = Path(__file__).parents[1]
_RUN_FOLDER = re.compile(r"memory_block\.csv|rank_\d+|worker_\d+\.log|ASCEND_PROFILER_OUTPUT|.*_ascend_(pt|ms)")
_MINDSPORE = re.compile(rb"mindspore|msadapter")


def files_of(folder: Path) -> Iterator[str]:
    """Return the inputs for commands in a folder: its files, and folders written by a run, which end with "/"."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        if any(map(_RUN_FOLDER.fullmatch, (*folders, *files))):
            yield f"{Path(here).relative_to(folder)}/"
        for name in sorted(files):
            path = Path(here, name)
            if path.is_file() and (path.suffix != ".py" or _MINDSPORE.search(path.read_bytes())):
                yield str(path.relative_to(folder))


def tasks_of(folders: Sequence[Path], chosen: argparse.Namespace) -> list[Task]:
    """Return all command lines, grouped by file."""
    names = list(COMMANDS) if "all" in chosen.commands else chosen.commands
    forms = [(name, *COMMANDS[name]) for name in names]
    for release in chosen.releases:
        for name in filter(_OF_RELEASES.__contains__, names):
            line, taken = COMMANDS[name]
            forms.append((f"{name}@{release}", f"{line} --framework-version {release}", taken))
    by_file = [
        [
            Task(name, (*line.split(), "--lang", language), folder, file)
            for name, line, taken in forms
            if re.search(rf"(?:{taken})$", f"/{file}")
            for language in (("en", "zh") if chosen.zh else ("en",))
        ]
        for folder in folders
        for file in files_of(folder)
    ]
    by_file = [tasks for tasks in by_file if tasks]
    if chosen.limit is not None and chosen.limit < len(by_file):
        numbers = random.Random(chosen.seed).sample(range(len(by_file)), chosen.limit)  # noqa: S311 - no secret
        by_file = [by_file[number] for number in sorted(numbers)]
    return [task for tasks in by_file for task in tasks]


class Kept:
    """The old version's answers, stored in a file.

    Args:
        file: A database, which may exist already.
        version: A unique digest of the version.
    """

    def __init__(self, file: Path, version: str) -> None:
        self._version = version
        self._base = sqlite3.connect(file, timeout=600)  # another run may be writing
        self._base.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, whole INTEGER, answer BLOB)")

    def missing(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the command lines that need an answer, including those that failed before, which may have been chance."""
        known = {key for (key,) in self._base.execute("SELECT key FROM answers WHERE whole")}
        return [task for task in tasks if task.key(self._version) not in known]

    def keep(self, found: Iterable[tuple[Task, Answer]]) -> None:
        """Put answers into the file, soon enough that not all is lost if the program is ended."""
        for number, (task, answer) in enumerate(found):
            row = (task.key(self._version), isinstance(answer.code, int), zlib.compress(json.dumps(answer).encode(), 1))
            self._base.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", row)
            if number % 100 == 0:
                self._base.commit()
        self._base.commit()

    def answer(self, task: Task) -> Answer:
        """Return one stored answer."""
        row = self._base.execute("SELECT answer FROM answers WHERE key = ?", (task.key(self._version),)).fetchone()
        return Answer(*json.loads(zlib.decompress(row[0])))


def show_progress(who: str, found: Iterable[tuple[Task, Answer]], count: int) -> Iterator[tuple[Task, Answer]]:
    """Yield the answers, and show the progress on standard error."""
    begin = time.monotonic()
    for number, one in enumerate(found, start=1):
        yield one
        if number == count or (number % 100 == 0 and sys.stderr.isatty()):
            line = f"{who} version: {number} of {count} answers, {time.monotonic() - begin:.0f} s"
            print(f"\r{line}" if number < count else f"\r{line}\n", end="", file=sys.stderr, flush=True)


def compare(old: Kept, new: Iterable[tuple[Task, Answer]], most: int) -> int:
    """Print what is unlike; how many differences nothing explains."""
    unlike: dict[str, list[tuple[Task, str]]] = defaultdict(list)
    meant: dict[str, list[tuple[Task, str]]] = defaultdict(list)
    neither: dict[str, list[tuple[Task, str]]] = defaultdict(list)
    counts: Counter[str] = Counter()
    for task, answer in new:
        counts[task.command] += 1
        before = old.answer(task)
        if answer.trouble is not None and answer.trouble == before.trouble:
            neither[f"{task.command}: {answer.trouble}"].append((task, ""))
        for difference in differences(task.command, before, answer) if before != answer else ():
            reason = difference.expected
            group = unlike[difference.kind] if reason is None else meant[f"{reason} ({difference.kind})"]
            group.append((task, difference.change))
    print(f"{sum(counts.values())} answers compared: {', '.join(f'{name} {count}' for name, count in counts.items())}")
    _show("Neither version answers", neither, most)
    _show("Meant to be other", meant, most)
    _show("OTHER ANSWERS", unlike, most)
    files = {(task.folder, task.file) for found in unlike.values() for task, _ in found}
    count = sum(map(len, unlike.values()))
    print(f"{count} differences of {len(unlike)} kinds in {len(files)} files that nothing explains")
    return count


def _show(heading: str, groups: dict[str, list[tuple[Task, str]]], most: int) -> None:
    """Print groups of differences, largest first, with examples from some files."""
    for kind, found in sorted(groups.items(), key=lambda group: -len(group[1])):
        print(f"{heading}, {len(found)} times: {kind}")
        examples: dict[str, str] = {}
        for task, change in found:
            examples.setdefault(f"{task.folder.name}/{task.file}{' (zh)' if task.words[-1] == 'zh' else ''}", change)
        for file, change in [*examples.items()][:most]:
            print(f"    {file}  {change[:400]}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old_python")
    parser.add_argument("new_python")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--old-checkout", type=Path, help="where the old version is imported from")
    parser.add_argument("--new-checkout", type=Path, default=_CHECKOUT, help="and the new one (default: this checkout)")
    parser.add_argument("--old-results", type=Path, metavar="FILE", help="keeps the old version's answers")
    parser.add_argument("--examples", action="store_true", help="the checks' examples, templates, test data, too")
    parser.add_argument("--zh", action="store_true", help="Chinese, too")
    parser.add_argument("--releases", nargs="+", default=[], help="with each of these as --framework-version, too")
    parser.add_argument("--commands", nargs="+", default=_USUAL, choices=[*COMMANDS, "all"], metavar="COMMAND")
    parser.add_argument("--limit", type=int, metavar="N", help="a random sample of so many files")
    parser.add_argument("--seed", type=int, default=1, help="another sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--seconds", type=float, default=60, help="the longest that an answer may take")
    parser.add_argument("--show", type=int, default=5, metavar="N", help="examples of each kind of difference")
    return parser.parse_intermixed_args()


def main() -> int:
    """Query both versions, and compare."""
    chosen = _arguments()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name).resolve()
        old = Version(chosen.old_python, chosen.old_checkout, scratch / "old", chosen.seconds)
        new = Version(chosen.new_python, chosen.new_checkout, scratch / "new", chosen.seconds)
        print(f"old: {old.package}\nnew: {new.package}")
        folders = [folder.resolve() for folder in chosen.folders]
        if chosen.examples:
            folders.append(scratch / "examples")
            folders[-1].mkdir()
            old.write_examples(folders[-1])
        tasks = tasks_of(folders, chosen)
        kept = Kept(chosen.old_results or scratch / "results", old.digest())
        missing = kept.missing(tasks)
        kept.keep(show_progress("old", old.answers(missing, chosen.jobs), len(missing)))
        found = show_progress("new", new.answers(tasks, chosen.jobs), len(tasks))
        return 1 if compare(kept, found, chosen.show) else 0


if __name__ == "__main__":
    sys.exit(main())
