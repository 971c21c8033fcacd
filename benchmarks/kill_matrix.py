"""Find which test files detect which mutants: each mutant of `mutants.py` runs with every test that executes its function.

    python benchmarks/kill_matrix.py [--count 200] [--seed 1] [--rooms dialects ...] [--tests tests --marked fast] [--write FILE]

One pytest session runs all tests once, and `coverage` records the functions that each enters. A fork without a mutant runs
them again: those that fail there are left out, because they would detect anything. Then, for each mutant, a
fork of that session replaces the functions of the mutant's module and runs the tests that enter the changed one, up to
the first failure in each file. So a mutant takes only the time of its tests, without imports. A process that a test
starts does not see the mutant, and mutants outside functions are not tried.

The output lists mutants that no test detects and, for each test file, how many it detects, and how many only it
detects: a file that alone detects none can be removed, as far as mutants show.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import select
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from mutant_sites import Mutant, mutants
from mutants import CHECKOUT, ROOMS

_SLOWER, _GRACE = 10, 5  # a test has ten times its seconds plus five; beyond that the mutant counts as detected
_LONGEST = 120  # total seconds of all tests for one mutant
_STALLED = 30  # seconds after which a test of the control hangs


def _name_of(code: CodeType) -> str:
    name: str = getattr(code, "co_qualname", code.co_name)  # Python 3.10 has the function's own name alone
    return name


def function_codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """Return the code objects of a module's functions, by name and by number among functions of that name."""
    seen: Counter[str] = Counter()

    def walk(outer: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
        for inner in outer.co_consts:
            if isinstance(inner, CodeType):
                name = _name_of(inner)
                seen[name] += 1
                yield (name, seen[name]), inner
                yield from walk(inner)

    yield from walk(code)


def forget_results() -> None:
    """Empty the caches of functions, so that none keeps what it returned without the mutant, or a module like polars."""
    gc.unfreeze()  # commands freeze what is loaded, and frozen objects would not be found
    for thing in gc.get_objects():
        if isinstance(thing, functools._lru_cache_wrapper) and thing.__module__.startswith("ms_tune"):  # noqa: SLF001 - what `cache` makes
            thing.cache_clear()


def replace_functions(mutant: Mutant) -> None:
    """Put the mutant's functions in place of those that are loaded."""
    file = str(CHECKOUT / mutant.path)
    before = compile(Path(file).read_text("utf-8"), file, "exec", dont_inherit=True)
    after = dict(function_codes(compile(mutant.text, file, "exec", dont_inherit=True)))
    places = {
        (_name_of(code), code.co_firstlineno): after[name] for name, code in function_codes(before) if name in after
    }
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename == file:
            code = places.get((_name_of(thing.__code__), thing.__code__.co_firstlineno))
            if code is not None and code.co_freevars == thing.__code__.co_freevars:
                thing.__code__ = code


@dataclass
class _Fork:
    """A process that tests one mutant."""

    mutant: Mutant
    pid: int
    pipe: int
    began: float
    output: bytes = b""


class Matrix:
    """A pytest plugin that runs each test once, then for each mutant the tests that it may affect."""

    def __init__(self, drawn: Sequence[Mutant], jobs: int) -> None:
        self.drawn, self.jobs = [mutant for mutant in drawn if mutant.function], jobs
        self.killers: dict[str, dict[str, str]] = {}  # by mutant, the first test of each file that fails
        self.tried: dict[str, int] = {}  # by mutant, how many tests run its function
        self.items: list[pytest.Item] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Replace pytest's own loop."""
        seconds, entered = self._run_all(session.items)
        passing = [item for item in session.items if item.nodeid in seconds]
        unsteady = self._find_unsteady(passing, seconds)
        self.items = [item for item in passing if item.nodeid not in unsteady]
        print(f"\n{len(unsteady)} tests fail in a fork without a mutant, and are left out")
        print(f"\n{len(self.items)} of {len(session.items)} tests pass, {sum(seconds.values()):.0f} s", flush=True)
        running: dict[int, _Fork] = {}
        left = list(reversed(self.drawn))
        while left or running:
            while left and len(running) < self.jobs:
                mutant = left.pop()
                tests = [item for item in self.items if str(mutant) in entered[item.nodeid]]
                self.tried[str(mutant)], self.killers[str(mutant)] = len(tests), {}
                if tests:
                    fork = self._start(mutant, tests, seconds)
                    running[fork.pipe] = fork
            for pipe in select.select(list(running), [], [], 5)[0]:
                part = os.read(pipe, 1 << 16)
                running[pipe].output += part
                if not part:
                    self._finish(running.pop(pipe))
            for fork in [one for one in running.values() if time.monotonic() - one.began > 2 * _LONGEST]:
                os.kill(fork.pid, signal.SIGKILL)  # it probably waits for a lock of a thread in the parent
                self._finish(running.pop(fork.pipe))
        return True

    def _find_unsteady(self, tests: Sequence[pytest.Item], seconds: Mapping[str, float]) -> set[str]:
        """Return the tests that fail in a fork without a mutant (a control): they would detect every mutant."""
        unsteady: set[str] = set()
        left = sorted(tests, key=lambda one: seconds[one.nodeid])
        while left:
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(read)
                self._try(None, left, seconds, write)
            os.close(write)
            output = b""
            while select.select([read], [], [], _STALLED)[0] and (part := os.read(read, 1 << 16)):
                output += part
            os.close(read)
            os.kill(pid, signal.SIGKILL)  # it has ended, or waits for a thread that it does not have
            os.waitpid(pid, 0)
            lines = output.decode().splitlines()
            unsteady |= {line.removeprefix("failed ") for line in lines if line.startswith("failed ")}
            if "end" in lines:
                break
            current = lines[-1].partition(" ")[2] if lines else left[0].nodeid
            unsteady.add(current)
            left = left[1 + next(place for place, item in enumerate(left) if item.nodeid == current) :]
        return unsteady

    def _start(self, mutant: Mutant, tests: Sequence[pytest.Item], seconds: Mapping[str, float]) -> _Fork:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            self._try(mutant, tests, seconds, write)
        os.close(write)
        return _Fork(mutant, pid, read, time.monotonic())

    def _finish(self, fork: _Fork) -> None:
        os.close(fork.pipe)
        os.waitpid(fork.pid, 0)
        lines = fork.output.decode().splitlines()
        failed = [line.removeprefix("failed ") for line in lines if line.startswith("failed ")]
        if "end" not in lines:  # it ended, or was ended, in the current test
            failed += [line.removeprefix("at ") for line in lines[-1:] if line.startswith("at ")]
        found = self.killers[str(fork.mutant)] = {test.partition("::")[0]: test for test in failed}
        print(f"{len(found)} files of {self.tried[str(fork.mutant)]} tests: {fork.mutant}", flush=True)

    def _run_all(self, items: Sequence[pytest.Item]) -> tuple[dict[str, float], dict[str, set[str]]]:
        """Return the seconds of each passing test, and the mutants whose function each test runs."""
        from coverage import Coverage  # noqa: PLC0415 - only the parent measures

        seconds: dict[str, float] = {}
        coverage = Coverage(data_file=None, source=[str(CHECKOUT / "ms_tune")], config_file=False)
        coverage.set_option("run:disable_warnings", ["no-data-collected", "module-not-imported"])
        for number, item in enumerate(items):
            began = time.monotonic()
            coverage.start()  # start again for each test: tests that trace stop the tracer
            coverage.switch_context(item.nodeid)
            reports = runtestprotocol(item, log=False, nextitem=items[(number + 1) % len(items)])
            coverage.stop()
            if all(report.passed for report in reports):
                seconds[item.nodeid] = time.monotonic() - began
            if number % 500 == 0:
                print(f"\r{number}", end="", flush=True)
        entered = defaultdict[str, set[str]](set)
        data = coverage.get_data()
        for path in sorted({mutant.path for mutant in self.drawn}):
            tests = data.contexts_by_lineno(str(CHECKOUT / path))
            for mutant in (one for one in self.drawn if one.path == path):
                for line in self._body(path, mutant.function) & tests.keys():
                    for test in tests[line]:
                        entered[test].add(str(mutant))
        return seconds, entered

    @staticmethod
    @functools.cache
    def _body(path: str, function: str) -> frozenset[int]:
        import ast  # noqa: PLC0415 - here alone

        def find(node: ast.AST, names: list[str]) -> Iterator[ast.AST]:
            for child in ast.iter_child_nodes(node):
                if names and isinstance(child, (ast.FunctionDef, ast.ClassDef)) and child.name == names[0]:
                    if len(names) == 1:
                        yield child
                    yield from find(child, names[1:])
                elif not isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                    yield from find(child, names)

        tree = ast.parse((CHECKOUT / path).read_text("utf-8"))
        lines: set[int] = set()
        for node in find(tree, function.split(".")):
            if isinstance(node, ast.FunctionDef):
                lines.update(range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1))
        return frozenset(lines)

    def _try(
        self, mutant: Mutant | None, tests: Sequence[pytest.Item], seconds: Mapping[str, float], write: int
    ) -> None:
        """Run the tests in the fork: report the first failing test of each file (without a mutant, each), then end."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        forget_results()
        if mutant is not None:
            replace_functions(mutant)

        def stop(*_: object) -> None:
            raise TimeoutError

        # Threads of polars are missing in a fork, which would wait for them: readers work without it, and tests that
        # need it are skipped.
        sys.modules["polars"] = None  # type: ignore[assignment]
        tests = [item for item in tests if not hasattr(getattr(item, "module", None), "polars")]
        signal.signal(signal.SIGALRM, stop)
        began, done = time.monotonic(), set[str]()
        for item in sorted(tests, key=lambda one: seconds[one.nodeid]):
            file = item.nodeid.partition("::")[0]
            if mutant is not None and (file in done or time.monotonic() - began > _LONGEST):
                continue
            os.write(write, f"at {item.nodeid}\n".encode())
            signal.setitimer(signal.ITIMER_REAL, _SLOWER * seconds[item.nodeid] + _GRACE)
            try:
                failed = any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))
            except BaseException:  # noqa: BLE001 - whatever it is, it was noticed
                failed = True
            signal.setitimer(signal.ITIMER_REAL, 0)
            if failed:
                done.add(file)
                os.write(write, f"failed {item.nodeid}\n".encode())
        os.write(write, b"end\n")
        os._exit(0)


def show(matrix: Matrix, written: Path | None) -> None:
    """Print, and write the whole matrix."""
    files: defaultdict[str, list[str]] = defaultdict(list)
    alone: Counter[str] = Counter()
    for mutant, killers in matrix.killers.items():
        for file in killers:
            files[file].append(mutant)
        if len(killers) == 1:
            alone[next(iter(killers))] += 1
    killed = sum(map(bool, matrix.killers.values()))
    print(f"noticed {killed} of {len(matrix.killers)}")
    for mutant, killers in matrix.killers.items():
        if not killers:
            print("SURVIVED", mutant, f"({matrix.tried[mutant]} tests run it)")
    lines = _count_lines(item.nodeid.partition("::")[0] for item in matrix.items)
    for file in sorted(lines, key=lambda one: (alone[one], len(files[one]), -lines[one])):
        print(f"{alone[file]:5} alone {len(files[file]):5} noticed {lines[file]:6} lines  {file}")
    if written is not None:
        content = {"killers": matrix.killers, "tried": matrix.tried, "lines": lines}
        written.write_text(json.dumps(content, indent=1, ensure_ascii=False), "utf-8")


def _count_lines(names: Iterable[str]) -> dict[str, int]:
    return {name: (CHECKOUT / name).read_text("utf-8").count("\n") for name in set(names)}


def main() -> None:
    """Draw, run, and print."""
    parser: Any = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", nargs="+", default=list(ROOMS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--tests", nargs="+", default=["tests"], help="files and folders of tests")
    parser.add_argument("--marked", default="fast", help="the tests that pytest's -m takes")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the whole matrix as JSON")
    chosen = parser.parse_args()
    os.chdir(CHECKOUT)
    matrix = Matrix(mutants(CHECKOUT, chosen.rooms, chosen.count, chosen.seed), chosen.jobs)
    options = ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", chosen.marked, *chosen.tests]
    code = pytest.main(options, plugins=[matrix])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(int(code))
    show(matrix, chosen.write)


if __name__ == "__main__":
    main()
