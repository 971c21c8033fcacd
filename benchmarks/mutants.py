"""How many small mistakes in the code the tests notice: random mutants of some rooms, each run against its room's tests.

    python benchmarks/mutants.py [--count 60] [--seed 1] [--rooms layers trace ...] [--jobs 2]

A mutant changes one thing: a comparison, an operator, a number, a condition, `and` for `or`, `continue` for `break`, or what
is returned. Two kinds are not drawn, as no user could tell them: a bound on what is read or tried (``_MOST...``, ``_MAX...``,
``_LONGEST...``, ``_LARGEST...``) of 100 and more that changes by a tenth at most, and ``zip(strict=True)`` made lax.

The tests are those of the room, of the commands and rooms that build upon it, and of the oracles that hold it (`MORE_TESTS`): all
are part of the suite. They run in a copy of the checkout, those that take little first, and end at the first that fails; before
that they have to pass in it without a mutant. A mutant has three times the processor time that they took then. Mutants that
nobody could notice stand with their reasons in `equivalent_mutants.json`; every other survivor is listed at the end.
"""

from __future__ import annotations

import argparse
import ast
import json
import operator
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")
CHECKOUT = Path(__file__).parents[1]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
ROOMS = ("layers", "normalize", "frameworks", "trace", "allocator", "estimate", "planning")
# What holds a room, or a part of it, beside the tests in its own folder: those of its commands and of the rooms that build upon
# it, and the oracles, which run the frameworks' own code. A module has those of each path that it is below.
MORE_TESTS = {
    "layers": ("tests/normalize", "tests/cli/test_normalize.py"),
    "planning/schedule.py": ("tests/dryrun/test_devices.py",),
    "layers/mindformers": (
        "tests/oracle/test_against.py",
        "tests/oracle/test_layer_lines.py",
        "tests/oracle/test_layer_setting.py",
    ),
    "layers/mindspeed_ms": ("tests/lint/test_checks_mindspeed.py", "tests/oracle/test_mindspeed_ms.py"),
    "layers/pynative": (
        "tests/oracle/test_against.py",
        "tests/oracle/test_pynative.py",
        "tests/oracle/test_whole_dynamic.py",
    ),
    "layers/megatron": ("tests/cli/test_normalize_script.py", "tests/lint/test_megatron.py"),
    "layers/stage.py": ("tests/dryrun/test_job.py", "tests/dryrun/test_judge.py", "tests/dryrun/test_stages.py"),
    "normalize": (
        "tests/cli/test_normalize.py",
        "tests/cli/test_normalize_script.py",
        "tests/config/test_edits.py",
        "tests/lint/test_checks_legacy.py",
        "tests/lint/test_checks_relations.py",
    ),
    **dict.fromkeys(["normalize/against.py", "normalize/one_log.py"], ("tests/oracle/test_against.py",)),
    "normalize/mindformers.py": ("tests/lint/test_checks_mindformers.py", "tests/oracle/test_layer_setting.py"),
    "normalize/mindspeed_ms.py": ("tests/lint/test_checks_mindspeed.py", "tests/oracle/test_mindspeed_ms.py"),
    "normalize/pynative.py": (
        "tests/lint/test_checks_pynative.py",
        "tests/oracle/test_pynative.py",
        "tests/oracle/test_whole_dynamic.py",
    ),
    "normalize/remedies/mindspeed_ms.py": ("tests/oracle/test_mindspeed_ms.py",),
    "normalize/remedies/pynative.py": ("tests/oracle/test_whole_dynamic.py",),
    "frameworks": (
        "tests/config/test_recognise.py",
        "tests/config/test_schema.py",
        "tests/layers/test_trees.py",
        "tests/layers/test_versions.py",
        "tests/lint/test_class_names.py",
        "tests/lint/test_context_tables.py",
        "tests/lint/test_old_releases.py",
        "tests/lint/test_versions.py",
        "tests/normalize/test_class_defaults.py",
        "tests/normalize/test_explicit.py",
        "tests/verdict/test_limit.py",
    ),
    "frameworks/fingerprints.py": ("tests/config/test_recognise_foreign.py",),
    "frameworks/launchers.py": ("tests/launch/test_read.py",),
    "frameworks/megatron.py": ("tests/launch/test_options.py", "tests/lint/test_megatron.py"),
    "frameworks/mindspeed_mm.py": ("tests/lint/test_multimodal.py",),
    "trace": (
        "tests/allocator/test_memlog_report.py",
        "tests/allocator/test_workload.py",
        "tests/cli/test_memory.py",
        "tests/memory/test_contents.py",
        "tests/memory/test_report.py",
        "tests/normalize/test_against.py",
    ),
    "trace/logged_memory.py": ("tests/dryrun/test_compare_log.py",),
    "trace/oom_log.py": ("tests/memory/test_oom.py",),
    **dict.fromkeys(
        [f"trace/{name}.py" for name in ("comm_order", "communicators", "runtime_log")],
        ("tests/memory/test_judgement.py",),
    ),
    **dict.fromkeys(
        [f"trace/{name}.py" for name in ("logged_steps", "profile_events", "profile_export", "profile_tables")]
        + [f"trace/{name}.py" for name in ("scopes", "step_lines", "training_log")],
        ("tests/performance",),
    ),
    "allocator": ("tests/cli/test_what_if.py", "tests/dryrun/test_extrapolate.py", "tests/memory/test_report.py"),
    "estimate": ("tests/memory/test_theory.py", "tests/overview"),
}
# Random cases of each oracle, some of which try fewer by default and most of which try more. Those that take half a minute with any
# number (`test_whole_static`, `test_frameworks`) are left to the suite.
CASES = "300"
MARKED = ("fast", "not fast and not mindspore")
_OTHER: dict[type[ast.AST], Callable[[], ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_BOUND = re.compile("_?(MOST|MAX|LONGEST|LARGEST)(_|$)")
_LARGE = 100  # fewer are counted by people
_COMPUTED: dict[type[ast.AST], Callable[[Any, Any], float]] = {
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}


@dataclass(frozen=True)
class Mutant:
    """One changed module.

    Attributes:
        path: The module, from the checkout.
        function: The function that was changed; empty at the top of a module.
        line: Where.
        change: The statement before and after, in one line.
        text: The module with the change.
    """

    path: str
    function: str
    line: int
    change: str
    text: str

    @property
    def room(self) -> str:
        """The room of the module."""
        return self.path.split("/")[1]

    def __str__(self) -> str:
        """Its place and its change."""
        return f"{self.path}:{self.line} {self.function}: {self.change}"


@dataclass(frozen=True)
class Site:
    """Something that can be changed: how, and back."""

    line: int
    statement: ast.stmt
    function: str
    do: Callable[[], None]
    undo: Callable[[], None]


def sites(tree: ast.Module) -> Iterator[Site]:
    """Everything in a module that can be changed, but types, decorators and texts."""
    yield from (site for site in _sites(tree, "", None) if not _is_same_bound(site))


def _sites(node: ast.AST, function: str, statement: ast.stmt | None) -> Iterator[Site]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        function = f"{function}.{node.name}".lstrip(".")
    if isinstance(node, ast.stmt):
        statement = node
    if statement is not None:
        for do, undo in _changes(node):
            yield Site(getattr(node, "lineno", statement.lineno), statement, function, do, undo)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or _is_typing(node):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_promise(child):
                yield from _sites(child, function, statement)


def _is_promise(node: ast.AST) -> bool:
    """Whether it is the ``strict=True`` of a ``zip``: no input makes the lengths differ, or it would be an error of ours."""
    return isinstance(node, ast.keyword) and node.arg == "strict" and ast.unparse(node.value) == "True"


def _is_same_bound(site: Site) -> bool:
    """Whether only the last digits of a bound on what is read or tried change: 10,001 layers in place of 10,000."""
    statement = site.statement
    if site.function or not isinstance(statement, ast.Assign) or not _BOUND.match(ast.unparse(statement.targets[0])):
        return False
    before = _value(statement.value)
    site.do()
    after = _value(statement.value)
    site.undo()
    return before is not None and after is not None and before >= _LARGE and abs(after - before) <= before / 10


def _value(node: ast.expr) -> float | None:
    """The value of a number, or of a product, power or shift of such numbers."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        left, right = _value(node.left), _value(node.right)
        return None if left is None or right is None else _COMPUTED[type(node.op)](left, right)
    return None


def _is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _changes(node: ast.AST) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    if isinstance(node, ast.Compare):
        operators: list[Any] = node.ops
        for place, old in enumerate(node.ops):
            yield from _swaps(operators, place, _OTHER[type(old)]())
    if isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)) and type(node.op) in _OTHER:
        yield from _sets(node, "op", _OTHER[type(node.op)]())
    if isinstance(node, (ast.If, ast.IfExp, ast.While)) and not _is_typing(node):
        yield from _sets(node, "test", ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int)):
        yield from _sets(node, "value", not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield from _sets(node, "value", ast.Constant(None))
    for name in ("body", "orelse"):
        body: list[Any] = found if isinstance(found := getattr(node, name, None), list) else []
        for place, each in enumerate(body):
            if isinstance(each, (ast.Break, ast.Continue)):
                other = ast.Continue() if isinstance(each, ast.Break) else ast.Break()
                yield from _swaps(body, place, ast.copy_location(other, each))


def _sets(node: ast.AST, name: str, new: object) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    old = getattr(node, name)
    yield lambda: setattr(node, name, new), lambda: setattr(node, name, old)


def _swaps(items: list[Any], place: int, new: ast.AST) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    old = items[place]
    yield lambda: items.__setitem__(place, new), lambda: items.__setitem__(place, old)


def mutants(rooms: list[str], count: int, seed: int) -> list[Mutant]:
    """So many mutants of these rooms, drawn from all their sites alike."""
    trees = {
        path: ast.parse(path.read_text("utf-8"))
        for room in rooms
        for path in sorted((CHECKOUT / "ms_tune" / room).rglob("*.py"))
    }
    found = [(path, site) for path, tree in trees.items() for site in sites(tree)]
    print(f"{len(found)} places in {len(trees)} modules")
    drawn = random.Random(seed).sample(found, min(count, len(found)))  # noqa: S311 - a sample, no secret
    made = []
    for path, site in drawn:
        before = ast.unparse(site.statement).splitlines()
        site.do()
        after, text = ast.unparse(ast.fix_missing_locations(site.statement)).splitlines(), ast.unparse(trees[path])
        site.undo()
        pairs = [pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]] or [("", "")]
        made.append(Mutant(path.relative_to(CHECKOUT).as_posix(), site.function, site.line, _change(*pairs[0]), text))
    return made


def _change(before: str, after: str) -> str:
    """A line before and after: of a long one, what is around the change."""
    pairs = enumerate(zip(before, after, strict=False))
    at = next((place for place, pair in pairs if pair[0] != pair[1]), min(len(before), len(after)))
    return " -> ".join(line[max(0, at - 50) : at + 50].strip() for line in (before, after))


def copy_of_checkout(place: Path, rooms: list[str]) -> Path:
    """A copy of what git knows, without anything compiled.

    The rooms' modules are written as mutants are, without comments, so that no test is content or discontent with those.
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
    """The files of tests that hold a module: those that import it, its room's, the others; of a room, those of all its modules."""
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

    def order(file: Path) -> tuple[bool, bool, int, Path]:
        text = file.read_text("utf-8")
        return imported not in text, not file.is_relative_to(checkout / "tests" / room), len(text), file

    return [str(file.relative_to(checkout)) for file in sorted(files, key=order)]


def run_tests(checkout: Path, tests: list[str], limits: Sequence[int | None]) -> tuple[str, list[float]]:
    """How the tests end (the first failure, "too slow", or "" if they all pass), and seconds of processor time.

    First those that take little, then the others; each of the two has its limit and its seconds.
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
    """The seconds that a mutant of a room has; ends if its tests fail without a mutant."""
    end, taken = run_tests(checkout, tests_of(f"ms_tune/{room}", checkout), [None] * len(MARKED))
    if end:
        sys.exit(f"the tests of {room} do not pass without a mutant: {end}")
    print(f"{room}: its tests pass in {sum(taken):.0f} s of processor time", flush=True)
    return [round(3 * seconds) + 10 for seconds in taken]


def try_mutant(mutant: Mutant, checkout: Path, limits: list[int]) -> str:
    """How the tests of its room end with a mutant in this copy, which is as before afterwards."""
    module = checkout / mutant.path
    before = module.read_text("utf-8")
    _write(module, mutant.text)
    end, _ = run_tests(checkout, tests_of(mutant.path, checkout), limits)
    _write(module, before)
    return end


def _write(module: Path, text: str) -> None:
    """Another text of a module, and nothing compiled of it, which would be taken for that of any file of its size and second."""
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
    drawn = mutants(chosen.rooms, chosen.count, chosen.seed)
    rooms = sorted({mutant.room for mutant in drawn})
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(chosen.jobs) as pool:
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
