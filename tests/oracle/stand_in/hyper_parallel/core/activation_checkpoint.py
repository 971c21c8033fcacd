"""Recompute a cell, which MindSpore does itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hyper_parallel import _refused
from mindspore import nn


def checkpoint_wrapper(
    cell: nn.Cell, *, context_fn: Callable[[], object] | None = None, early_stop: bool = True, **options: object
) -> nn.Cell:
    """Recompute a cell in its backward pass like ``mindspore.recompute``, without a cell around it."""
    if options or not isinstance(cell, nn.Cell):
        message = "this stand-in for HyperParallel recomputes cells only"
        raise NotImplementedError(message)
    # It keeps its place; otherwise MindSpore would name its weights without the prefix of the layer.
    object.__setattr__(cell, "update_parameters_name", lambda *_, **__: None)
    cell.recompute(use_reentrant=False, context_fn=context_fn, early_stop=early_stop)
    return cell


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class that was made just now
    return _refused.thing(__name__, name)
