"""Make HyperParallel's changes in MindSpore on import."""

from __future__ import annotations

import functools

import mindspore
from mindspore import nn

_to_empty = nn.Cell.to_empty


@functools.wraps(_to_empty)
def _to_empty_on_the_device(cell: nn.Cell, *, device: str | None = None, recurse: bool = True) -> nn.Cell:
    """Give weights that were made without memory theirs, on the device where no other place is named.

    MindSpore 2.10 documents that, and leaves them without memory.
    """
    return _to_empty(cell, device=device or mindspore.get_context("device_target"), recurse=recurse)


nn.Cell.to_empty = _to_empty_on_the_device
