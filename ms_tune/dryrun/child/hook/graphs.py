"""Detect loops and conditions in compiled graphs that depend on a value of the device.

In simulation the condition of such a loop never changes, and the graph runs forever (MindSpore 2.9). The loops in a compiled
graph cannot be queried, but those in its source can: a graph with one that runs for a minute is stopped. No Python code runs
during that time, so the time limit is ``faulthandler``'s, which works from a C thread. If a graph contains a condition, its
first branch always runs.
"""

from __future__ import annotations

import ast
import contextlib
import faulthandler
import importlib
import os
from typing import Any

from .support import HookedProcess, note, put_around, report

STUCK = "stuck.txt"  # not empty if a graph was stopped
_PATIENCE = float(os.environ.get("MS_TUNE_GRAPH_PATIENCE", "60"))  # seconds; a step in simulation takes a few
_HOMES = ("mindspore.graph", "mindspore.common", "mindspore._extends.parse")  # in 2.9, and in earlier releases
_MOST = 20  # loops and graphs that are recorded
_CONDITION = b"\x1a\x06Switch"  # a node's `op_type` in the graph's protobuf (2.9: mind_ir/anf_ir.proto, NodeProto)


class _Limit:
    """The time limit for graphs with loops."""

    loops = False  # whether any source had a loop
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
    """Look for loops in compiled source code, and limit the run time of graphs with loops."""
    if process is None:
        return
    _find_loops(_find_home("_parse.parser", "parser").Parser, os.path.dirname(mindspore.__file__) + os.sep, process)  # noqa: PTH120 - the start of file names
    api = _find_home("api")
    compiling, calling, cell = api._JitExecutor, api._JitExecutor, api._CellGraphExecutor  # noqa: SLF001 - no public name
    for executor in (compiling, cell):
        _find_conditions(executor, process)
    _limit_time(compiling, "compile", process, before=False, after=True)
    _limit_time(calling, "__call__", process, before=False, after=False)
    _limit_time(cell, "run", process, before=True, after=False)
    for method in ("_item", "_tolist", "asnumpy"):  # these wait for a graph that runs in another thread
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
    # Inspect the compiled graph: only there it is known on which values a condition depends.
    seen: set[str] = set()

    def looking(compiling: Any, self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method
        compiled = compiling(self, *arguments, **named)
        graph = getattr(getattr(self, "fn", None), "__qualname__", None) or type(arguments[0]).__qualname__
        if graph not in seen and len(seen) < _MOST:
            phase = compiled if isinstance(compiled, str) else compiled[0]
            with contextlib.suppress(Exception):  # a release that cannot export the graph
                if _CONDITION in self._graph_executor.get_func_graph_proto(phase, "anf_ir", False):  # noqa: FBT003
                    seen.add(graph)
                    report(process, "condition", graph=graph)
        return compiled

    put_around(executor, "compile", looking)


def _limit_time(owner: Any, name: str, process: HookedProcess, *, before: bool, after: bool) -> None:  # noqa: ANN401 - a class
    # Begin or end the time limit before and after a method: ``after`` begins it, otherwise it ends.
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
