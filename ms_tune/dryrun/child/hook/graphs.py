"""Loops and conditions in compiled graphs that a value of the device decides.

In simulation the condition of such a loop never changes, and the graph runs for ever (MindSpore 2.9). Which loops a graph
kept is not known from outside: those of its source are, and a graph that has one and runs for a minute is stopped. While
a graph runs no Python code does, so that the time limit is one that CPython keeps in a thread without it. Of a condition
the first branch runs, whatever it says.
"""

from __future__ import annotations

import ast
import contextlib
import faulthandler
import importlib
import os
from typing import TYPE_CHECKING, Any

from .support import note, put_around, tell

if TYPE_CHECKING:
    from .support import HookedProcess

STUCK = "stuck.txt"  # is not empty where a graph was stopped
_PATIENCE = float(os.environ.get("MS_TUNE_GRAPH_PATIENCE", "60"))  # seconds; a step in simulation takes a few
_HOMES = ("mindspore.graph", "mindspore.common", "mindspore._extends.parse")  # of 2.9, and of earlier releases
_MOST = 20  # loops that are told, and graphs
_CONDITION = b"\x1a\x06Switch"  # a node's `op_type` in the graph's protobuf (2.9: mind_ir/anf_ir.proto, NodeProto)


class _Limit:
    """The time limit of graphs with loops."""

    loops = False  # whether any source had one
    file: Any = None

    @classmethod
    def begin(cls, process: HookedProcess) -> None:
        if cls.loops:
            cls.file = cls.file or (process.folder / STUCK).open("w", encoding="utf-8")
            faulthandler.dump_traceback_later(_PATIENCE, exit=True, file=cls.file)

    @classmethod
    def end(cls) -> None:
        if cls.loops:
            faulthandler.cancel_dump_traceback_later()


def install(mindspore: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module of a framework without types
    """Look at the source of what is compiled, and at the time that what has loops takes."""
    if process is None:
        return
    _find_loops(_find_home("_parse.parser", "parser").Parser, os.path.dirname(mindspore.__file__) + os.sep, process)  # noqa: PTH120 - the start of file names
    api = _find_home("api")
    compiling, calling, cell = api._JitExecutor, api._JitExecutor, api._CellGraphExecutor  # noqa: SLF001 - there is no other place
    for executor in (compiling, cell):
        _find_conditions(executor, process)
    _limit_time(compiling, "compile", process, before=False, after=True)
    _limit_time(calling, "__call__", process, before=False, after=False)
    _limit_time(cell, "run", process, before=True, after=False)
    for method in ("_item", "_tolist", "asnumpy"):  # what waits for a graph that runs in another thread
        _limit_time(mindspore.Tensor, method, process, before=True, after=False)


def _find_home(*names: str) -> Any:  # noqa: ANN401 - as above
    for place in _HOMES:
        for name in names:
            with contextlib.suppress(ImportError):
                return importlib.import_module(f"{place}.{name}")
    raise ImportError


def _find_loops(parser: Any, own: str, process: HookedProcess) -> None:  # noqa: ANN401 - a class
    def looking(parse: Any, self: Any) -> Any:  # noqa: ANN401 - as the method
        parsed = parse(self)
        if isinstance(parsed, tuple) and not self.filename.startswith(own):
            for node in ast.walk(parsed[1]):
                if isinstance(node, ast.While) and not isinstance(node.test, ast.Constant):
                    _Limit.loops = True
                    place = {"file": self.filename, "line": self.line_offset + node.lineno - 1}
                    note(process, "graph_loops", place, _MOST)
        return parsed

    put_around(parser, "parse", looking)


def _find_conditions(executor: Any, process: HookedProcess) -> None:  # noqa: ANN401 - a class
    # Look at what a graph has become: only there is it known on which values a condition depends.
    seen: set[str] = set()

    def looking(compiling: Any, self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method
        compiled = compiling(self, *arguments, **named)
        graph = getattr(getattr(self, "fn", None), "__qualname__", None) or type(arguments[0]).__qualname__
        if graph not in seen and len(seen) < _MOST:
            phase = compiled if isinstance(compiled, str) else compiled[0]
            with contextlib.suppress(Exception):  # a release that cannot write it down
                if _CONDITION in self._graph_executor.get_func_graph_proto(phase, "anf_ir", False):  # noqa: FBT003
                    seen.add(graph)
                    tell(process, "condition", graph=graph)
        return compiled

    put_around(executor, "compile", looking)


def _limit_time(owner: Any, name: str, process: HookedProcess, *, before: bool, after: bool) -> None:  # noqa: ANN401 - a class
    # Begin or end the time limit before and after a method: ``after`` it began, or else ended.
    def limited(method: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method takes them
        if before:
            _Limit.begin(process)
        try:
            return method(*arguments, **named)
        finally:
            if after:
                _Limit.begin(process)
            else:
                _Limit.end()

    put_around(owner, name, limited)
