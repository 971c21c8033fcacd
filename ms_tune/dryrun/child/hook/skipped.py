"""Loops that a value of the device keeps from being entered: in simulation all values are zero.

``while optimizer.global_step < 1`` trains on a device and is passed over in simulation, so that the whole training would be missing
from the figures. Whether a loop is entered shows in the line that its function comes to behind the condition, for which that one
function is traced until it gets there. A loop whose first rounds ran is none of these, however it ends.
"""

from __future__ import annotations

import ast
import dis
import functools
import sys
from typing import TYPE_CHECKING, NamedTuple

from . import loops

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType


class _Entry(NamedTuple):
    """A ``while`` by the lines of its condition and of its body."""

    condition: range
    body: range


def watch(frame: FrameType, tell: Callable[[str, int], None]) -> None:
    """Have it told if a loop whose first condition is being asked now is not entered.

    Args:
        frame: The frame of the program that reads a value.
        tell: What is called with the file and the line of such a loop.
    """
    if sys.gettrace() is not None:
        return
    outer: FrameType | None = frame
    for _ in range(loops.OUTWARD):
        if outer is None:
            return
        entry = _entries(outer.f_code.co_filename).get(outer.f_lineno)
        if entry is not None:
            if _is_first(outer, entry):
                _trace(outer, entry, tell)
            return
        outer = outer.f_back


def _is_first(frame: FrameType, entry: _Entry) -> bool:
    """Whether the condition is asked before the loop: CPython (3.10 on) compiles it once before the body and once behind it."""
    starts = [offset for offset, line in _starts(frame.f_code) if line in entry.body]
    return bool(starts) and frame.f_lasti < min(starts)


@functools.lru_cache(maxsize=256)
def _starts(code: CodeType) -> tuple[tuple[int, int], ...]:
    return tuple((offset, line) for offset, line in dis.findlinestarts(code) if line is not None)


def _trace(frame: FrameType, entry: _Entry, tell: Callable[[str, int], None]) -> None:
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
            tell(here.f_code.co_filename, entry.condition.start)
        return before

    frame.f_trace = look
    sys.settrace(lambda *_: None)


@functools.lru_cache(maxsize=256)
def _entries(file: str) -> dict[int, _Entry]:
    """The loops of a file by each line of their conditions; none whose body begins in a line of its condition."""
    found = {}
    for node in ast.walk(loops.tree_of(file)):
        if not isinstance(node, ast.While) or isinstance(node.test, ast.Constant):
            continue
        last = node.test.end_lineno or node.test.lineno
        entry = _Entry(range(node.test.lineno, last + 1), range(node.body[0].lineno, _end(node.body[-1]) + 1))
        if entry.body.start > last:
            found.update(dict.fromkeys(entry.condition, entry))
    return found


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno
