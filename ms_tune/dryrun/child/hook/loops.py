"""Detect loops that depend on a value of the device, and therefore never end in simulation.

A value of the device never changes in simulation. So a ``while`` whose condition reads one never ends, unless something
else in its condition changes: only loops without such a change are stopped. ``while True`` counts if an ``if`` with
such a condition guards its only exit. Conditions that call unknown functions are ignored.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NamedTuple

EXIT_CODE = 2
_SUSPECT = 100  # rounds after which the values in the condition are compared
_SURE = 200  # rounds after which the loop is endless, if nothing has changed since
OUTWARD = 15  # frames that are searched
_LARGEST = 1 << 20  # characters of a source file
_HARMLESS = {"bool", "int", "float", "abs", "len", "max", "min", "any", "all", "round", "isinstance"}
_PLAIN = (int, float, str, bool, type(None))


@dataclass
class _Rounds:
    """The number of times that one call of a function evaluated a loop's condition; it is stored in the call's frame."""

    line: int
    count: int = 0
    values: object = None

    def __call__(self, *_: object) -> None:
        """Do nothing: a frame's ``f_trace`` is called while tracing is active."""


def find_endless(frame: FrameType) -> tuple[str, int] | None:
    """Return the place of an endless loop that is reading a value now; None if not found."""
    for outer in _frames_outward(frame):
        file = outer.f_code.co_filename
        condition = _loop_conditions(file).get(outer.f_lineno)
        if condition is not None and _repeats(outer, condition):
            return file, condition.lineno
    return None


def _frames_outward(frame: FrameType | None) -> Iterator[FrameType]:
    # Yields nothing while tracing is active.
    for _ in range(OUTWARD if sys.gettrace() is None else 0):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _repeats(frame: FrameType, condition: ast.expr) -> bool:
    rounds: Any = frame.f_trace
    if rounds is None or (isinstance(rounds, _Rounds) and rounds.line != condition.lineno):
        frame.f_trace = _Rounds(condition.lineno)
        return False
    if not isinstance(rounds, _Rounds):
        return False
    rounds.count += 1
    if rounds.count < _SUSPECT:
        return False
    values = _condition_values(frame, condition)
    if values is None or values != rounds.values:
        rounds.values, rounds.count = values, _SUSPECT - 1 if values is not None else 0
        return False
    return rounds.count >= _SURE


def _condition_values(frame: FrameType, condition: ast.expr) -> list[object] | None:
    # Return the plain values in the condition; None if it calls an unknown function.
    names, nodes = frame.f_locals, list(ast.walk(condition))
    try:
        if not all(_is_known(call.func, frame, names) for call in nodes if isinstance(call, ast.Call)):
            return None
        return [_plain_value(node, frame, names) for node in nodes if isinstance(node, ast.Name | ast.Attribute)]
    finally:
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(names, dict):
            names.clear()  # a copy, which would keep the function's tensors alive (Python 3.12 and earlier)


def _is_known(function: ast.expr, frame: FrameType, names: Any) -> bool:  # noqa: ANN401 - a mapping
    root = function
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    if isinstance(root, ast.Call):
        return True  # a method of another call's result; that call is checked itself
    if not isinstance(root, ast.Name):
        return isinstance(root, ast.Compare | ast.BinOp | ast.BoolOp | ast.UnaryOp)
    found = names.get(root.id, frame.f_globals.get(root.id, getattr(builtins, root.id, None)))
    if root is function and root.id in _HARMLESS and found is getattr(builtins, root.id):
        return True
    home = found.__name__ if inspect.ismodule(found) else type(found).__module__
    if inspect.isfunction(found) or inspect.isclass(found):
        home = found.__module__
    return home.partition(".")[0] == "mindspore"


def _plain_value(node: ast.Name | ast.Attribute, frame: FrameType, names: Any) -> object:  # noqa: ANN401 - as above
    # Return the value of a name if it is a number or a text, or the length of a container.
    if isinstance(node, ast.Attribute):
        if not isinstance(node.value, ast.Name):
            return None
        owner = names.get(node.value.id, frame.f_globals.get(node.value.id))
        found = getattr(owner, "__dict__", {}).get(node.attr)
    else:
        found = names.get(node.id, frame.f_globals.get(node.id))
    if isinstance(found, _PLAIN):
        return found
    return len(found) if isinstance(found, list | tuple | dict | set) else None


def _tree_of(file: str) -> ast.Module:
    # Parse a source file; an empty tree if it is too large or cannot be parsed.
    text = "".join(linecache.getlines(file))
    try:
        return ast.parse(text if len(text) <= _LARGEST else "")
    except (SyntaxError, ValueError, RecursionError):
        return ast.parse("")


@functools.lru_cache(maxsize=256)
def _loop_conditions(file: str) -> dict[int, ast.expr]:
    # Return, by line, the conditions that decide whether a loop continues.
    found = {}
    for node in ast.walk(_tree_of(file)):
        condition = _deciding_condition(node) if isinstance(node, ast.While) else None
        if condition is not None:
            lines = range(condition.lineno, (condition.end_lineno or condition.lineno) + 1)
            found.update(dict.fromkeys(lines, condition))
    return found


def _deciding_condition(loop: ast.While) -> ast.expr | None:
    if not isinstance(loop.test, ast.Constant):
        return None if _find_exits(loop) else loop.test
    exits = _find_exits(loop)
    guards = [
        node
        for node in loop.body
        if isinstance(node, ast.If) and not node.orelse and any(exit_ in ast.walk(node) for exit_ in exits)
    ]
    return guards[0].test if len(exits) == 1 and len(guards) == 1 and exits[0] in guards[0].body else None


def _find_exits(loop: ast.While) -> list[ast.stmt]:
    def inside(node: ast.AST, *, deeper: bool) -> Iterator[ast.stmt]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Return | ast.Raise) or (isinstance(child, ast.Break) and not deeper):
                yield child
            elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                yield from inside(child, deeper=deeper or isinstance(child, ast.For | ast.While))

    return [leaving for statement in loop.body for leaving in inside(ast.Module([statement], []), deeper=False)]


class _Entry(NamedTuple):
    """The lines of a ``while``: its condition and its body."""

    condition: range
    body: range


def watch_entry(frame: FrameType, tell: Callable[[str, int], None]) -> None:
    """Call ``tell`` if the loop whose condition is being evaluated for the first time is not entered.

    ``while optimizer.global_step < 1`` trains on a device but is skipped in simulation, where all values are zero, so the whole
    training would be missing from the figures. The line that the function reaches after the condition shows whether the loop was
    entered; only this function is traced until then. A loop that ran at least one round is not reported, however it ends.
    """
    for outer in _frames_outward(frame):
        entry = _loop_entries(outer.f_code.co_filename).get(outer.f_lineno)
        if entry is not None:
            if _is_first(outer, entry):
                _trace_entry(outer, entry, tell)
            return


def _is_first(frame: FrameType, entry: _Entry) -> bool:
    # Check that this is the first evaluation: CPython (3.10 on) compiles the condition before the body and after it.
    starts = [offset for offset, line in _line_starts(frame.f_code) if line in entry.body]
    return bool(starts) and frame.f_lasti < min(starts)


@functools.lru_cache(maxsize=256)
def _line_starts(code: CodeType) -> tuple[tuple[int, int], ...]:
    return tuple((offset, line) for offset, line in dis.findlinestarts(code) if line is not None)


def _trace_entry(frame: FrameType, entry: _Entry, report: Callable[[str, int], None]) -> None:
    before, raised = frame.f_trace, False

    def look(here: FrameType, event: str, _: object) -> object:
        nonlocal raised
        if event == "exception":
            raised = True
        if event not in ("line", "return") or (event == "line" and here.f_lineno in entry.condition):
            return look
        sys.settrace(None)
        here.f_trace = before
        if not raised and (event == "return" or here.f_lineno not in entry.body):
            report(here.f_code.co_filename, entry.condition.start)
        return before

    frame.f_trace = look
    sys.settrace(lambda *_: None)


@functools.lru_cache(maxsize=256)
def _loop_entries(file: str) -> dict[int, _Entry]:
    # Return the loops of a file by each line of their conditions, except those whose body begins on such a line.
    found = {}
    for node in ast.walk(_tree_of(file)):
        if not isinstance(node, ast.While) or isinstance(node.test, ast.Constant):
            continue
        last = node.test.end_lineno or node.test.lineno
        end = node.body[-1].end_lineno or node.body[-1].lineno
        entry = _Entry(range(node.test.lineno, last + 1), range(node.body[0].lineno, end + 1))
        if entry.body.start > last:
            found.update(dict.fromkeys(entry.condition, entry))
    return found
