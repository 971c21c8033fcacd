"""Where a block comes from: operator, line of the script, layer of the model."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ms_tune.footprint.category import STATE_PREFIXES, operator_of
from ms_tune.footprint.phases import CALLS, EAGER, FrameOrigin, origin_of
from ms_tune.readers.scopes import SCOPE_LAYER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.readers.memory_block import Frame
    from ms_tune.readers.table import Table

PARAMETER = "Parameter"  # the "operator" of a parameter that a graph names
_LAYER_OF_SCOPE, _LAYER_OF_NAME = re.compile(r"/\d+(?=-)"), re.compile(r"\.\d+(?=\.)")
_NAME_LAYER = re.compile(r"(?:^|\.)(\w+)\.(\d+)\.")
_WRAPPERS = re.compile(r"^(?:Gradients|Default|recompute_Default|recompute_\w+|Grad_\w+)$")
_CELL = re.compile(r"^(\w+)-\w+$")


@lru_cache(maxsize=262144)
def without_layer(path: str) -> str:
    """A scope path or parameter name with ``*`` for the number of the layer."""
    path = _LAYER_OF_SCOPE.sub("/*", path)
    return _LAYER_OF_NAME.sub(".*", path) if "." in path else path


def is_named(table: Table, row: int) -> bool:
    """Whether the row's node name is the name of a parameter."""
    return table.kind.value_at(row) == "Weight" and table.task.value_at(row) != EAGER


def operator_at(table: Table, row: int) -> str:
    """The operator that allocated the block; ``Parameter`` for a parameter of a graph; empty if unknown."""
    return PARAMETER if is_named(table, row) else operator_of(table.node.value_at(row))


def location_at(table: Table, row: int) -> str:
    """``file:line`` of the script; in graph mode the scope path or the parameter's name without the layer's number."""
    node = table.node.value_at(row)
    if is_named(table, row):
        return without_layer(node)
    scope = node.rpartition("/")[0]
    if scope and table.task.value_at(row) != EAGER:
        return without_layer(scope)
    return line_of(table.stack.value_at(row))


@lru_cache(maxsize=65536)
def line_of(stack: tuple[Frame, ...]) -> str:
    """``file:line`` of the frame that tells most; empty if none does."""
    frame = _telling_frame(stack)
    return f"{frame.file}:{frame.line}" if frame else ""


def layer_at(table: Table, row: int, name: str | None) -> str:
    """The model layer of a block, such as ``layers.27`` or ``embedding``; empty if unknown."""
    if name is not None:
        return layer_of_name(name)
    return "" if table.task.value_at(row) == EAGER else layer_of_scope(table.node.value_at(row))


def parameter_of(name: str) -> str:
    """The parameter that a gradient buffer or optimizer state belongs to; a parameter's own name as it is."""
    prefix, _, rest = name.partition(".")
    return rest if rest and prefix in STATE_PREFIXES else name


def layer_of_name(name: str) -> str:
    """The layer of a parameter: ``layers.3`` of ``adam_m.decoder.layers.3.mlp.weight``."""
    name = parameter_of(name)
    match = _NAME_LAYER.search(name)
    if match:
        return f"{match[1]}.{match[2]}"
    parts = name.split(".")
    return parts[-2] if len(parts) > 1 else name


@lru_cache(maxsize=262144)
def layer_of_scope(path: str) -> str:
    """The layer of an operator: ``layers.3`` of ``Default/net-Net/layers-CellList/3-Block/Add-op0``.

    Outside the layers it is the innermost cell, and nothing for operators of compiler passes, which have no scope.
    """
    match = SCOPE_LAYER.search(path)
    if match:
        return f"{match[1]}.{match[2]}"
    cells = [part for part in path.split("/")[:-1] if not _WRAPPERS.match(part)]
    found = _CELL.match(cells[-1]) if cells else None
    return found[1] if found else ""


def _telling_frame(stack: Sequence[Frame]) -> Frame | None:
    """The innermost frame of the user's code; of a model library's, if the user's code only starts the forward pass.

    Where there is neither, it is MindSpore's innermost.
    """
    called = next((i for i, frame in enumerate(stack) if frame.function in CALLS), 0)
    for frames in (stack[called:], stack):
        for whose in (FrameOrigin.USER, FrameOrigin.LIBRARY):
            for frame in reversed(frames):
                if origin_of(frame) is whose:
                    return frame
    return next((frame for frame in reversed(stack) if origin_of(frame) is FrameOrigin.FRAMEWORK), None)
