"""Provide common functions of simulated training processes: progress, fast initialisation, the list of long-lived tensors."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FrameType

import mindspore
from mindspore import Parameter, Tensor
from mindspore.common.initializer import Initializer, initializer


def report(phase: str, step: int = 0, steps: int = 0) -> None:
    """Report the progress to the parent process, which polls the file."""
    fresh = Path(".progress")
    fresh.write_text(json.dumps({"phase": phase, "step": step, "steps": steps}), encoding="utf-8")
    fresh.replace("progress")


def begin_dynamic_graph() -> None:
    """Set mode and device before a framework reads them, and disable work that only costs time."""
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mindspore.set_device("Ascend", 0)
    make_initialisation_cheap()
    make_stacks_cheap()


def make_initialisation_cheap() -> None:
    """Leave parameters uninitialised: in simulation no value is read, and random numbers cost minutes.

    Shapes and number formats do not change. MindSpore allocates the host array before it calls the initializer
    (``Tensor.init_data``); untouched, its pages use no memory.
    """

    def leave_as_it_is(_self: Initializer, _array: object) -> None:
        return None

    Initializer.__call__ = leave_as_it_is


def make_stacks_cheap() -> None:
    """Cache the description of each code location in stack traces.

    MindSpore's tracker asks ``traceback`` for the stack of each operator (``trace_base.cc``), which looks up every
    frame again and whether its source file has changed on disk. That took more than half of a dynamic-graph run. The
    result is the same: file, line, function, and the line's text.
    """
    extract = traceback.extract_stack
    known: dict[tuple[CodeType, int], traceback.FrameSummary] = {}

    def stack(frame: FrameType | None = None, limit: int | None = None) -> traceback.StackSummary:
        if frame is not None or limit is not None:
            return extract(frame or sys._getframe(1), limit)  # noqa: SLF001 - as traceback does it
        at: FrameType | None = sys._getframe(1)  # noqa: SLF001
        found = []
        while at is not None:
            place = (at.f_code, at.f_lineno)
            if place not in known:
                known[place] = extract(at, 1)[0]
            found.append(known[place])
            at = at.f_back
        found.reverse()
        return traceback.StackSummary(found)

    traceback.extract_stack = stack  # type: ignore[assignment]


def make_clones_cheap() -> None:
    """Stop ``Parameter.clone`` from copying values that are replaced anyway.

    ``Parameter.clone(init="zeros")``, with which ``mint.optim.AdamW`` creates its state, copies the parameter first,
    and with it every page of its values on the host (MindSpore 2.7 to 2.10).
    """
    clone, reduce = Parameter.clone, Parameter.__reduce_ex__

    def without_numbers(weight: Parameter, _protocol: int) -> tuple[object, ...]:
        numbers = initializer("zeros", weight.shape, weight.dtype)
        return Parameter, (numbers, weight.name, weight.requires_grad, weight.layerwise_parallel)

    def cloned(weight: Parameter, init: object = "same") -> Parameter:
        if init == "same":
            return clone(weight, init)
        Parameter.__reduce_ex__ = without_numbers
        try:
            return clone(weight, init)
        finally:
            Parameter.__reduce_ex__ = reduce

    Parameter.clone = cloned


def write_tensor_list(tensors: Mapping[str, Iterable[Tensor]]) -> None:
    """Write ``tensors.json``: name, device address and bytes of the tensors that live for the whole run."""
    listed = {
        category: [
            {"name": getattr(tensor, "name", category), "address": tensor.data_ptr(), "bytes": tensor.nbytes}
            for tensor in members
        ]
        for category, members in tensors.items()
    }
    Path("tensors.json").write_text(json.dumps({"schema_version": 1, **listed}), encoding="utf-8")


def tensors_in(thing: object) -> Iterator[Tensor]:
    """Yield all tensors in nested lists, tuples and dictionaries."""
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, list | tuple):
        for item in thing:
            yield from tensors_in(item)
    elif isinstance(thing, dict):
        for item in thing.values():
            yield from tensors_in(item)


def lies_in(tensor: Tensor, others: Iterable[Tensor]) -> bool:
    """Return whether a tensor is one of some others, or a view of one."""
    return any(0 <= tensor.data_ptr() - other.data_ptr() < other.nbytes for other in others)
