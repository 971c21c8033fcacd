"""Reads ``tensors.json``: the addresses of weights, optimizer state and gradients after the last training step.

The child process of ``dryrun`` writes it, because the tracker does not name tensors in the dynamic graph::

    {"version": 1, "weights": [{"name": "head.weight", "address": 140737353973975, "bytes": 8192}],
     "optimizer_state": [], "gradients": []}

Addresses are those of ``device_addr`` in ``memory_block.csv``; ``Tensor.data_ptr()`` may also point into a block.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError
from ms_tune.readers.reading import reading
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from pathlib import Path


VERSION = 1
_MAX_FILE = 256 * 1024**2  # bytes: two million tensors
_MAX_NUMBER = 2**64 - 1


@dataclass(frozen=True, slots=True)
class ListedTensor:
    """A tensor that the training script holds: its name, device address and bytes."""

    name: str
    address: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TensorList:
    """The tensors that outlive a training step, by what they are."""

    weights: tuple[ListedTensor, ...]
    optimizer_state: tuple[ListedTensor, ...]
    gradients: tuple[ListedTensor, ...]


def read_tensor_list(path: Path) -> TensorList | None:
    """Read a tensor list; None if there is none. Raises TraceError: the file cannot be read or is malformed."""
    with reading(path):
        if not path.exists():
            return None
        with path.open("rb") as file:
            raw = file.read(_MAX_FILE + 1)
    if len(raw) > _MAX_FILE:
        raise TraceError(msg("trace.tensors.large", size=len(raw), limit=_MAX_FILE), path=path)
    try:
        content: object = json.loads(raw)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of too many digits, or not UTF-8
        raise TraceError(msg("trace.tensors.json", detail=error), path=path) from error
    if not isinstance(content, dict):
        raise TraceError(_malformed_error("$"), path=path)
    if content.get("version") is not VERSION:
        found = str(content.get("version"))[:20]
        raise TraceError(msg("trace.tensors.version", found=found, expected=VERSION), path=path)
    groups = (_parse_tensors(content, group, path) for group in ("weights", "optimizer_state", "gradients"))
    return TensorList(*groups)


def _parse_tensors(content: dict[object, object], group: str, path: Path) -> tuple[ListedTensor, ...]:
    entries = content.get(group)
    if not isinstance(entries, list):
        raise TraceError(_malformed_error(f"$.{group}"), path=path)
    tensors = []
    for position, entry in enumerate(entries):
        tensor = _parse_tensor(entry)
        if tensor is None:
            raise TraceError(_malformed_error(f"$.{group}[{position}]"), path=path)
        tensors.append(tensor)
    return tuple(tensors)


def _parse_tensor(entry: object) -> ListedTensor | None:
    if not isinstance(entry, dict):
        return None
    name, address, size = entry.get("name"), _parse_number(entry.get("address")), _parse_number(entry.get("bytes"))
    if not isinstance(name, str) or address is None or size is None:
        return None
    return ListedTensor(name, address, size)


def _parse_number(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _MAX_NUMBER else None


def _malformed_error(where: str) -> Message:
    return msg("trace.tensors.shape", where=where)
