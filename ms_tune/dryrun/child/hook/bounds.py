"""Replace operators whose result size depends on values: in simulation they return the largest possible result.

Without values MindSpore rejects them ("the output shape depends on the actual execution", MindSpore 2.7 to 2.10). The
replacements are made of operators that have gradients, and the calling line is recorded.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import reads
from .support import HookedProcess, note, put_around

_MOST = 50  # places that are recorded
_UNIQUE = ("sorted", "return_inverse", "return_counts", "dim")  # arguments after the tensor


class _BoundsState:
    most: int | None = None  # maximum number of elements of a result, if known from elsewhere


@contextlib.contextmanager
def at_most(elements: int) -> Iterator[None]:
    """Limit the results of ``masked_select`` to ``elements`` in this context."""
    before, _BoundsState.most = _BoundsState.most, elements
    try:
        yield
    finally:
        _BoundsState.most = before


class _Bounds:
    """The replacements that return the largest results; ``framework`` is MindSpore, which has no types."""

    def __init__(self, framework: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - as above
        self.mindspore = framework
        self.mint: Any = importlib.import_module("mindspore.mint")
        self.process = process

    def record_operator(self, operator: str) -> None:
        frame, _ = reads.find_asker(self.mindspore, sys._getframe(1))  # noqa: SLF001 - its public name
        if frame is not None:
            place = {"file": frame.f_code.co_filename, "line": frame.f_lineno, "how": operator}
            note(self.process, "bounds", place, _MOST)

    def numbers(self, shape: Sequence[int]) -> Any:  # noqa: ANN401 - a tensor
        return self.mint.zeros(tuple(shape), dtype=self.mindspore.int64)

    def flat(self, tensor: Any) -> Any:  # noqa: ANN401 - a tensor
        return self.mint.reshape(tensor, (-1,)).clone()

    def nonzero(self, tensor: Any, as_tuple: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - as MindSpore's
        """Return indices as if no element were zero."""
        self.record_operator("nonzero")
        if as_tuple:
            return tuple(self.numbers((_count_elements(tensor),)) for _ in range(max(tensor.ndim, 1)))
        return self.numbers((_count_elements(tensor), tensor.ndim))

    def nonzero_tuple(self, tensor: Any) -> Any:  # noqa: ANN401 - as above
        return self.nonzero(tensor, as_tuple=True)

    def masked_select(self, tensor: Any, mask: Any) -> Any:  # noqa: ANN401 - tensors
        """Return all elements, as if the mask were all true."""
        self.record_operator("masked_select")
        shapes = (tuple(tensor.shape), tuple(mask.shape))
        rank = max(map(len, shapes))
        shape = tuple(map(max, zip(*((1,) * (rank - len(one)) + one for one in shapes), strict=True)))
        found = self.flat(self.mint.broadcast_to(tensor, shape))
        most = _BoundsState.most
        return found if most is None else found[:most].clone()

    def by_mask(self, tensor: Any, mask: Any) -> Any:  # noqa: ANN401 - tensors
        """Return ``tensor[mask]`` as if the mask were all true."""
        self.record_operator("[mask]")
        return self.mint.reshape(tensor, (math.prod(mask.shape), *tensor.shape[mask.ndim :])).clone()

    def unique(self, tensor: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as MindSpore's
        """Return all elements, as if each were unique."""
        self.record_operator("unique")
        asked = dict(zip(_UNIQUE, arguments, strict=False)) | named
        dim = asked.get("dim")
        found = [self.flat(tensor) if dim is None else tensor.clone()]
        length = _count_elements(tensor) if dim is None else tensor.shape[dim]
        if asked.get("return_inverse"):
            found.append(self.numbers(tensor.shape if dim is None else (length,)))
        if asked.get("return_counts"):
            found.append(self.numbers((length,)))
        return found[0] if len(found) == 1 else tuple(found)

    def unique_consecutive(self, tensor: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as MindSpore's
        return self.unique(tensor, True, *arguments, **named)  # noqa: FBT003 - the argument `sorted`

    def unique_old(self, tensor: Any) -> Any:  # noqa: ANN401 - as above
        """Return the elements, and the index of each, like ``ops.unique``."""
        values, places = self.unique(tensor, return_inverse=True)
        return values, places.astype(self.mindspore.int32)

    def unique_all(self, tensor: Any, *_: object) -> Any:  # noqa: ANN401 - as above
        """Return elements, indices and counts, like the operator of ``mint.unique``."""
        return self.unique(tensor, return_inverse=True, return_counts=True)


def _count_elements(tensor: Any) -> int:  # noqa: ANN401 - a tensor, whose `size` MSAdapter makes a method
    return math.prod(tensor.shape)


def install(mindspore: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module of a framework without types
    """Replace the operators that MindSpore rejects with those of :class:`_Bounds`, in dynamic graph."""
    bounds = _Bounds(mindspore, process)
    tensor, mint, ops = mindspore.Tensor, bounds.mint, mindspore.ops
    for name in ("nonzero", "masked_select", "unique", "unique_consecutive"):
        for home in (tensor, mint) if name == "unique" else (tensor, mint, ops):
            if hasattr(home, name):
                _give_instead(home, name, getattr(bounds, name))
    _give_instead(ops, "unique", bounds.unique_old)
    _give_instead(ops, "argwhere", bounds.nonzero)

    def where(before: Any, condition: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        return before(condition, *arguments, **named) if arguments or named else bounds.nonzero_tuple(condition)

    put_around(mint, "where", where)

    def take(getitem: Any, self: Any, index: Any) -> Any:  # noqa: ANN401 - as the method
        if isinstance(index, mindspore.Tensor) and index.dtype == mindspore.bool_ and index.ndim:
            return bounds.by_mask(self, index)
        return getitem(self, index)

    put_around(tensor, "__getitem__", take)
    auto = importlib.import_module("mindspore.ops.auto_generate")
    for home, name, give in (
        (auto, "NonZero", bounds.nonzero),
        (auto, "NonZeroExt", bounds.nonzero_tuple),
        (auto, "MaskedSelect", bounds.masked_select),
        (auto, "Unique2", bounds.unique_all),
        (ops.operations, "Unique", bounds.unique_old),
    ):
        if hasattr(home, name):
            _give_instead(getattr(home, name), "__call__", lambda _primitive, *arguments, give=give: give(*arguments))


def _give_instead(owner: Any, name: str, give: Callable[..., Any]) -> None:  # noqa: ANN401 - a module or a class without types
    put_around(owner, name, lambda _refuses, *arguments, **named: give(*arguments, **named))
