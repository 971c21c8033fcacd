"""Record where the program reads values from the device, all zero in simulation, and stop loops that depend on them.

A read is recorded with the line of the program, not of the framework, that requested it. Values of tensors on the host
are real, and so are results that :mod:`finite_checks` computed; neither is recorded.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from . import finite_checks, loops
from .support import HookedProcess, note, put_around

_METHODS = ("_item", "_tolist", "asnumpy", "get_bytes")  # all other reads end in these
# Operators whose result size depends on a tensor's values without an upper bound; the index of the first such argument.
_BY_VALUES = {"repeat_interleave": 1, "bincount": 0}
_MOST = 50  # places that are recorded
_MOST_COUNTED = 1000  # distinct places that are counted
_OPERATORS = {
    "__bool__": "bool()",
    "__float__": "float()",
    "__int__": "int()",
    "__index__": "index",
    "__str__": "str()",
}
_TENSOR = os.path.join("common", "tensor.py")  # noqa: PTH118 - the end of a file name
_OWN = str(Path(__file__).resolve().parent)


class _Reads:
    """The places recorded so far."""

    def __init__(self, process: HookedProcess | None, mindspore: Any) -> None:  # noqa: ANN401 - a module without types
        self.process = process
        self.mindspore = mindspore
        self.seen: set[tuple[str, int, str]] = set()

    def note(self, method: str) -> None:
        """Record that the caller's caller reads a value."""
        frame, how = find_asker(self.mindspore, sys._getframe(2))  # noqa: SLF001 - its public name
        if frame is None:
            return
        place = (
            frame.f_code.co_filename,
            frame.f_lineno,
            _OPERATORS.get(how or method, f"{(how or method).strip('_')}()"),
        )
        if place not in self.seen and len(self.seen) < _MOST_COUNTED:
            self.seen.add(place)
            note(self.process, "reads", dict(zip(("file", "line", "how"), place, strict=True)), _MOST)
            if self.process is not None:
                self.process.facts["places"] = len(self.seen)  # written with the next record
        endless = loops.find_endless(frame)
        if endless is not None:
            _stop_loop(self.process, endless)
            raise SystemExit(loops.EXIT_CODE)
        loops.watch_entry(frame, self._record_skipped)

    def _record_skipped(self, file: str, line: int) -> None:
        if self.process is not None and "skipped" not in self.process.facts:
            self.process.facts["skipped"] = {"file": file, "line": line}
            self.process.write()


def find_asker(mindspore: Any, frame: FrameType | None) -> tuple[FrameType | None, str]:  # noqa: ANN401 - as above
    """Return the frame of the program that reads, and the method of a tensor that it calls, empty if none."""
    inside = (os.path.dirname(mindspore.__file__) + os.sep, _OWN + os.sep, "<frozen ")  # noqa: PTH120 - every read pays
    how = ""
    while frame is not None and frame.f_code.co_filename.startswith(inside):
        if frame.f_code.co_filename.endswith(_TENSOR):
            how = frame.f_code.co_name
        frame = frame.f_back
    return frame, how


def _stop_loop(process: HookedProcess | None, place: tuple[str, int]) -> None:
    file, line = place
    sys.stderr.write(f"ms-tune: {file}:{line}: stopped: this loop waits for a value, and in simulation none changes\n")
    sys.stderr.flush()
    if process is not None:
        process.facts["endless"] = {"file": file, "line": line}
        process.write()


def install(mindspore: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module of a framework without types
    """Record every read of a tensor's value."""
    reads = _Reads(process, mindspore)
    tensor = mindspore.Tensor

    def note_read(name: str, read: Any, self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method takes them
        if finite_checks.NAME not in self.__dict__ and _on_the_device(self):
            reads.note(name)
        return read(self, *arguments, **named)

    def note_values(name: str, function: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        given = [*arguments[_BY_VALUES[name] :], *named.values()]
        if any(isinstance(one, tensor) and _on_the_device(one) for one in given):
            reads.note(name)
        return function(*arguments, **named)

    for method in _METHODS:
        if hasattr(tensor, method):
            put_around(tensor, method, functools.partial(note_read, method))
    for home in (importlib.import_module("mindspore.mint"), mindspore.ops, tensor):
        for name in _BY_VALUES:
            if hasattr(home, name):
                put_around(home, name, functools.partial(note_values, name))


def _on_the_device(tensor: Any) -> bool:  # noqa: ANN401 - as above
    # Return whether the value would have to be fetched; MindSpore has no such property before 2.8.
    with contextlib.suppress(Exception):
        return not str(tensor.device).startswith("CPU")
    return True
