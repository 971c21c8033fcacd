"""List functions of ms-tune that no real file ever enters, to find code before adding more.

    python benchmarks/reach.py FOLDER... [--examples] [--commands all] [--releases 1.6 2.1] [--report FILE]

Every file of the folders is given to each command that accepts it, as in ``same_answers.py`` (whose options apply), and
``coverage`` records the executed lines. By folder, then by module, it prints the number of lines in functions that were
never entered; ``--report`` writes those functions with their lines as JSON. Child processes of a command (dryrun's
children, the reference) are not traced; code that only ``fit``, ``dryrun`` and the commands about ms-tune itself run is
missing, too. Needs the package `coverage`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from same_answers import COMMANDS, tasks_of
from version_answers import Task, Version

CHECKOUT = Path(__file__).parents[1]
PACKAGE = CHECKOUT / "ms_tune"
_USUAL = ("lint", "normalize-recompute", "check", "migrate", "memory", "metrics", "profile")


class Function(NamedTuple):
    """A function that was never entered."""

    module: str  # its file, below the package
    name: str
    first_line: int
    lines: int


def run_tasks(tasks: Sequence[Task], data_file: Path, seconds: int) -> None:
    """Run command lines in this process, with the lines that they run written to a file of ``coverage``."""
    from coverage import Coverage  # noqa: PLC0415 - in the processes that measure

    coverage = Coverage(data_file=str(data_file), source=[str(PACKAGE)])
    coverage.start()
    from ms_tune.cli.main import main as run  # noqa: PLC0415 - what its import runs counts

    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError))
    for task in tasks:
        os.chdir(task.folder)
        signal.alarm(seconds)
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(BaseException),  # a command that crashes, exits or times out has executed lines as well
        ):
            run([*task.words, task.file])
        signal.alarm(0)
    coverage.stop()
    coverage.save()


def functions_without_lines(module: Path, ran: frozenset[int]) -> Iterator[Function]:
    """Return the functions of a module without an executed line in the body; functions inside such a function belong to it."""

    def visit(node: ast.AST, prefix: str) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            name = f"{prefix}{getattr(child, 'name', '')}"
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from visit(child, f"{name}." if isinstance(child, ast.ClassDef) else prefix)
                continue
            end = child.end_lineno or child.lineno
            if ran.isdisjoint(range(child.body[0].lineno, end + 1)):
                yield Function(str(module.relative_to(PACKAGE)), name, child.lineno, end - child.lineno + 1)
            else:
                yield from visit(child, f"{name}.")

    yield from visit(ast.parse(module.read_text("utf-8")), "")


def unreached(data_files: Sequence[Path]) -> list[Function]:
    """Return the functions of the package that no measured process entered."""
    from coverage import CoverageData  # noqa: PLC0415 - as above

    ran: dict[str, set[int]] = {}
    for file in data_files:
        data = CoverageData(str(file))
        data.read()
        for name in data.measured_files():
            ran.setdefault(name, set()).update(data.lines(name) or ())
    return [
        function
        for module in sorted(PACKAGE.rglob("*.py"))
        for function in functions_without_lines(module, frozenset(ran.get(str(module), ())))
    ]


def print_figures(functions: Sequence[Function]) -> None:
    """Print the lines of functions that were never entered, by folder and module, largest first."""
    rooms, modules = Counter[str](), Counter[str]()
    for one in functions:
        rooms[one.module.partition("/")[0]] += one.lines
        modules[one.module] += one.lines
    print(f"{sum(rooms.values())} lines in {len(functions)} functions that nothing entered")
    for room, lines in rooms.most_common():
        print(f"{lines:6} {room}")
        for module, count in modules.most_common():
            if module.partition("/")[0] == room:
                print(f"       {count:6} {module}")


def measure(tasks: Sequence[Task], chosen: argparse.Namespace, scratch: Path) -> list[Path]:
    """Run the tasks in processes, each a share of them; the files that these have written."""
    running, files = [], []
    for number in range(chosen.jobs):
        share, data_file = scratch / f"tasks{number}", scratch / f"coverage{number}"
        share.write_bytes(pickle.dumps(tasks[number :: chosen.jobs]))
        command = [sys.executable, __file__, "--share", str(share), "--seconds", str(chosen.seconds)]
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "HOME": str(scratch), "LANG": "C"}
        running.append(subprocess.Popen([*command, str(data_file)], env=environment, cwd=scratch))
        files.append(data_file)
    for process in running:
        process.wait()
    return [file for file in files if file.is_file()]


def main() -> None:
    """Measure, or run one share of the work."""
    parser: Any = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--examples", action="store_true", help="examples of the checks, templates and test data as well"
    )
    parser.add_argument("--commands", nargs="*", default=_USUAL, choices=("all", *COMMANDS))
    parser.add_argument("--releases", nargs="*", default=(), help="framework releases for which all is asked once more")
    parser.add_argument("--zh", action="store_true", help="ask in Chinese as well")
    parser.add_argument("--limit", type=int, help="so many files, drawn by chance")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=60, help="the longest that a command may take")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report", type=Path, help="where to write the functions as JSON")
    parser.add_argument("--share", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.share is not None:
        run_tasks(pickle.loads(chosen.share.read_bytes()), chosen.folders[0], chosen.seconds)  # noqa: S301 - our own file
        return
    with tempfile.TemporaryDirectory() as name:
        scratch, folders = Path(name), [folder.resolve() for folder in chosen.folders]
        if chosen.examples:
            (scratch / "examples").mkdir()
            Version(sys.executable, CHECKOUT, scratch / "home", chosen.seconds).write_examples(scratch / "examples")
            folders.append(scratch / "examples")
        functions = unreached(measure(tasks_of(folders, chosen), chosen, scratch))
    print_figures(functions)
    if chosen.report is not None:
        chosen.report.write_text(json.dumps([one._asdict() for one in functions], indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parent))
    main()
