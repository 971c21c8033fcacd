"""Count the small mistakes in the code that the tests detect: random mutants of some folders, each run with the folder's tests.

    python benchmarks/mutants.py [--count 60] [--seed 1] [--rooms layers trace ...] [--jobs 2]

A mutant changes one thing: a comparison, an operator, a number, a condition, `and` for `or`, `continue` for `break`, or
a returned value. Two kinds are excluded, because users cannot notice them: a limit on input or tries (``_MOST...``,
``_MAX...``, ``_LONGEST...``, ``_LARGEST...``) of 100 or more that changes by at most a tenth, and ``zip(strict=True)``
made lax.

The tests are those of the folder, those that import the module, those of the commands and folders that use it, and its
oracles (`mutant_tests.json`); all are part of the suite. They run in a copy of the checkout, short ones first, up to the first failure; they must
first pass there without a mutant. A mutant has three times the processor time that they took then, and two minutes. Mutants that cannot
be noticed are listed with their reasons in `equivalent_mutants.json`; every other survivor is listed at the end.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import TypeVar

import pytest
from mutant_sites import Mutant, mutants

T = TypeVar("T")
CHECKOUT = Path(__file__).parents[1]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
# Additional tests of a folder, or a part of it: those of its commands and of the folders that use it, and the oracles,
# which run the frameworks' own code. A module has the tests of each path above it.
MORE_TESTS = json.loads(Path(__file__).with_name("mutant_tests.json").read_text("utf-8"))
ROOMS = ("dialects", "normalize", "facts", "readers", "pools", "estimate", "planning")
# Random cases per oracle; the default is higher for most and lower for some. Oracles that take half a minute with any
# number (`test_whole_static`, `test_frameworks`) are left to the suite.
CASES = "300"
MARKED = ("fast", "not fast and not mindspore")


def copy_of_checkout(place: Path, rooms: list[str]) -> Path:
    """Return a copy of the files that git tracks, without compiled ones.

    The modules of these folders are written like mutants, without comments, so that no test depends on comments.
    """
    names = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, check=True, capture_output=True).stdout  # noqa: S607 - git of the developer
    for name in filter(None, names.decode().split("\0")):
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (CHECKOUT / name).is_file():
            shutil.copy(CHECKOUT / name, target)
    for room in rooms:
        for module in (place / "ms_tune" / room).rglob("*.py"):
            module.write_text(ast.unparse(ast.parse(module.read_text("utf-8"))), "utf-8")
    return place


def tests_of(module: str, checkout: Path) -> list[str]:
    """Return the test files of a module (those that import it, those of its folder, then others), or of all modules of a folder."""
    below = module.split("/", 1)[1]
    room = below.split("/")[0]
    places = [f"tests/{room}"]
    for name, more in MORE_TESTS.items():
        if (below == room and name.startswith(f"{room}/")) or f"{below}/".startswith(f"{name}/"):
            places += more
    files = {
        file
        for place in map(checkout.joinpath, places)
        for file in ([place] if place.is_file() else place.rglob("test_*.py"))
    }
    imported = f"{module.removesuffix('.py').replace('/', '.')} import"
    if module.endswith(".py"):
        every = (checkout / "tests").rglob("test_*.py")
        files |= {file for file in every if imported in file.read_text("utf-8")}

    def order(file: Path) -> tuple[bool, bool, int, Path]:
        text = file.read_text("utf-8")
        return imported not in text, not file.is_relative_to(checkout / "tests" / room), len(text), file

    return [str(file.relative_to(checkout)) for file in sorted(files, key=order)]


def run_tests(checkout: Path, tests: list[str], limits: Sequence[int | None]) -> tuple[str, list[float]]:
    """Return how the tests end (the first failure, "too slow", or "" if all pass) and their processor seconds.

    Short tests run first, then the others; each group has its own time limit.
    """
    taken = []
    for marked, limit in zip(MARKED, limits, strict=True):
        end, seconds = _run_marked(checkout, [marked, *tests], limit)
        taken.append(seconds)
        if end:
            return end, taken
    return "", taken


def _run_marked(checkout: Path, marked: list[str], limit: int | None) -> tuple[str, float]:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", "-m", *marked]
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'ulimit -t {limit or "unlimited"}; exec "$@"', "sh", *command],
        cwd=checkout,
        env={"MS_TUNE_ORACLE_CASES": CASES, **os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    out = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    code = process.returncode = os.waitstatus_to_exitcode(status)
    seconds = usage.ru_utime + usage.ru_stime
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "too slow", seconds
    if code in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
        return "", seconds
    failed = [line for line in out.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else f"exit code {code}", seconds


def limits_of(room: str, checkout: Path) -> list[int]:
    """Return the time limits in seconds for mutants of a folder; exit if its tests fail without a mutant."""
    end, taken = run_tests(checkout, tests_of(f"ms_tune/{room}", checkout), [None] * len(MARKED))
    if end:
        sys.exit(f"the tests of {room} do not pass without a mutant: {end}")
    print(f"{room}: its tests pass in {sum(taken):.0f} s of processor time", flush=True)
    return [round(3 * seconds) + 120 for seconds in taken]  # tests that import a module come on top


def try_mutant(mutant: Mutant, checkout: Path, limits: list[int]) -> str:
    """Return how the tests of its folder end with a mutant in this copy; the copy is restored afterwards."""
    module = checkout / mutant.path
    before = module.read_text("utf-8")
    _write(module, mutant.text)
    end, _ = run_tests(checkout, tests_of(mutant.path, checkout), limits)
    _write(module, before)
    return end


def _write(module: Path, text: str) -> None:
    """Write another text of a module, and remove its compiled file, which Python would use for any text of equal size and time."""
    module.write_text(text, "utf-8")
    for compiled in (module.parent / "__pycache__").glob(f"{module.stem}.*.pyc"):
        compiled.unlink()


def main() -> None:
    """Draw, run, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=ROOMS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    drawn = mutants(CHECKOUT, chosen.rooms, chosen.count, chosen.seed)
    rooms = sorted({mutant.room for mutant in drawn})
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(chosen.jobs) as pool:
        Path(place).chmod(0o755)  # some tests import the package as another user
        copies: Queue[Path] = Queue()
        for number in range(chosen.jobs):
            copies.put(copy_of_checkout(Path(place, str(number)), rooms))

        def in_copy(do: Callable[[Path], T]) -> T:
            checkout = copies.get()
            try:
                return do(checkout)
            finally:
                copies.put(checkout)

        def run(mutant: Mutant) -> str:
            end = in_copy(lambda checkout: try_mutant(mutant, checkout, limits[mutant.room]))
            print(f"{mutant}\n    {end or 'SURVIVED'}", flush=True)
            return end

        found = pool.map(lambda room: in_copy(lambda checkout: limits_of(room, checkout)), rooms)
        limits = dict(zip(rooms, found, strict=True))
        show([*zip(drawn, pool.map(run, drawn), strict=True)])


def show(ends: list[tuple[Mutant, str]]) -> None:
    """Print the share that was killed, and the survivors."""
    equivalent = {
        (each["path"], each["function"], each["change"]) for each in json.loads(EQUIVALENT.read_text("utf-8"))
    }
    alive = [mutant for mutant, end in ends if not end]
    excused = [mutant for mutant in alive if (mutant.path, mutant.function, mutant.change) in equivalent]
    judged = len(ends) - len(excused)
    killed = len(ends) - len(alive)
    slow = sum(end == "too slow" for _, end in ends)
    share = f"{100 * killed / max(judged, 1):.0f} %"
    print(
        f"killed {killed} of {judged} ({share}), {slow} of them by the time limit; {len(excused)} more are equivalent"
    )
    for mutant in alive:
        print("equivalent" if mutant in excused else "SURVIVED", mutant)


if __name__ == "__main__":
    main()
