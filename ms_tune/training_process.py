"""What every kind of job does: say where it is, make initialisation cheap, list the long-lived tensors."""

from __future__ import annotations

import json
import linecache
from pathlib import Path
from typing import TYPE_CHECKING

import mindspore
from mindspore import Tensor
from mindspore.common.initializer import Initializer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def report(phase: str, step: int = 0, steps: int = 0) -> None:
    """Tell the parent process what is going on; it reads the file now and then."""
    fresh = Path(".progress")
    fresh.write_text(json.dumps({"phase": phase, "step": step, "steps": steps}), encoding="utf-8")
    fresh.replace("progress")


def begin_dynamic_graph() -> None:
    """Set the mode and the device, before a framework looks at either, and make what costs only time cheap."""
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    mindspore.set_device("Ascend", 0)
    make_initialisation_cheap()
    make_stacks_cheap()


def make_initialisation_cheap() -> None:
    """Leave parameters uninitialised: in simulation nobody reads a value, and random numbers cost minutes.

    Shapes and number formats stay as they are. MindSpore allocates the host array before it calls the initializer
    (``Tensor.init_data``); untouched, its pages cost no memory.
    """

    def leave_as_it_is(_self: Initializer, _array: object) -> None:
        return None

    Initializer.__call__ = leave_as_it_is


def make_stacks_cheap() -> None:
    """Do not look on the disk, for every frame of every operator's Python stack, whether a source file has changed.

    MindSpore's tracker asks ``traceback`` for the stack of each operator. Those looks were half of a dynamic-graph run's
    time.
    """

    def unchanged(filename: str | None = None) -> None:  # noqa: ARG001 - as it is called
        return None

    linecache.checkcache = unchanged


def write_tensor_list(tensors: Mapping[str, Iterable[Tensor]]) -> None:
    """Write ``tensors.json``: name, device address and bytes of the tensors that live for the whole run."""
    listed = {
        category: [
            {"name": getattr(tensor, "name", category), "address": tensor.data_ptr(), "bytes": tensor.nbytes}
            for tensor in members
        ]
        for category, members in tensors.items()
    }
    Path("tensors.json").write_text(json.dumps({"version": 1, **listed}), encoding="utf-8")


def tensors_in(thing: object) -> Iterator[Tensor]:
    """All tensors in lists, tuples and dictionaries, one in the other."""
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, list | tuple):
        for item in thing:
            yield from tensors_in(item)
    elif isinstance(thing, dict):
        for item in thing.values():
            yield from tensors_in(item)


def lies_in(tensor: Tensor, others: Iterable[Tensor]) -> bool:
    """Whether a tensor is one of the others, or a part of one."""
    return any(0 <= tensor.data_ptr() - other.data_ptr() < other.nbytes for other in others)
