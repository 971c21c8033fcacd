"""Operators whose result has as many elements as the values say: in simulation the most that it can have.

Without values MindSpore refuses them ("the output shape depends on the actual execution", MindSpore 2.7 to 2.10). Here they
give the largest result, made of operators that have gradients, and the line that asked for it is told.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import sys
from typing import TYPE_CHECKING, Any

from . import reads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .process import HookedProcess

_MOST = 50  # places that are told
_UNIQUE = ("sorted", "return_inverse", "return_counts", "dim")  # arguments behind the tensor


class _BoundsState:
    most: int | None = None


@contextlib.contextmanager
def at_most(elements: int) -> Iterator[None]:
    """Within, ``masked_select`` gives so many elements and no more."""
    before, _BoundsState.most = _BoundsState.most, elements
    try:
        yield
    finally:
        _BoundsState.most = before


def limit() -> int | None:
    """How many elements a result has, where something else than its values tells."""
    return _BoundsState.most


class _Bounds:
    """The largest results; ``framework`` is MindSpore, which has no types."""

    def __init__(self, framework: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - as above
        self.mindspore = framework
        self.mint: Any = importlib.import_module("mindspore.mint")
        self.process = process
        self.told: list[dict[str, object]] = []

    def tell(self, operator: str) -> None:
        """Note where the program asked for an operator."""
        frame, _ = reads.asking(self.mindspore, sys._getframe(1))  # noqa: SLF001 - its public name
        if frame is None or self.process is None or len(self.told) >= _MOST:
            return
        place = {"file": frame.f_code.co_filename, "line": frame.f_lineno, "how": operator}
        if place not in self.told:
            self.told.append(place)
            self.process.facts["bounds"] = self.told
            self.process.write()

    def numbers(self, shape: Sequence[int]) -> Any:  # noqa: ANN401 - a tensor
        """Indices or counts."""
        return self.mint.zeros(tuple(shape), dtype=self.mindspore.int64)

    def flat(self, tensor: Any) -> Any:  # noqa: ANN401 - a tensor
        """All elements, in memory of their own."""
        return self.mint.reshape(tensor, (-1,)).clone()

    def nonzero(self, tensor: Any, as_tuple: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002 - as MindSpore's
        """No element is zero."""
        self.tell("nonzero")
        if as_tuple:
            return tuple(self.numbers((_elements(tensor),)) for _ in range(max(tensor.ndim, 1)))
        return self.numbers((_elements(tensor), tensor.ndim))

    def nonzero_tuple(self, tensor: Any) -> Any:  # noqa: ANN401 - as above
        """No element is zero; an array for each dimension."""
        return self.nonzero(tensor, as_tuple=True)

    def masked_select(self, tensor: Any, mask: Any) -> Any:  # noqa: ANN401 - tensors
        """The mask leaves nothing out."""
        self.tell("masked_select")
        shape = tuple(map(max, zip(*self._same_rank(tensor.shape, mask.shape), strict=True)))
        found = self.flat(self.mint.broadcast_to(tensor, shape))
        most = limit()
        return found if most is None else found[:most].clone()

    def _same_rank(self, *shapes: Sequence[int]) -> list[tuple[int, ...]]:
        rank = max(map(len, shapes))
        return [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]

    def by_mask(self, tensor: Any, mask: Any) -> Any:  # noqa: ANN401 - tensors
        """``tensor[mask]``, where the mask leaves nothing out."""
        self.tell("[mask]")
        return self.mint.reshape(tensor, (math.prod(mask.shape), *tensor.shape[mask.ndim :])).clone()

    def unique(self, tensor: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as MindSpore's
        """No element is there twice."""
        self.tell("unique")
        asked = dict(zip(_UNIQUE, arguments, strict=False)) | named
        dim = asked.get("dim")
        found = [self.flat(tensor) if dim is None else tensor.clone()]
        length = _elements(tensor) if dim is None else tensor.shape[dim]
        if asked.get("return_inverse"):
            found.append(self.numbers(tensor.shape if dim is None else (length,)))
        if asked.get("return_counts"):
            found.append(self.numbers((length,)))
        return found[0] if len(found) == 1 else tuple(found)

    def unique_consecutive(self, tensor: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as MindSpore's
        """No element is there twice; the same arguments but for the first."""
        return self.unique(tensor, True, *arguments, **named)  # noqa: FBT003 - whether they are sorted

    def unique_old(self, tensor: Any) -> Any:  # noqa: ANN401 - as above
        """``ops.unique``: the elements, and where each is."""
        values, places = self.unique(tensor, return_inverse=True)
        return values, places.astype(self.mindspore.int32)

    def unique_all(self, tensor: Any, *_: object) -> Any:  # noqa: ANN401 - as above
        """What the operator behind ``mint.unique`` gives: elements, places, counts."""
        return self.unique(tensor, return_inverse=True, return_counts=True)


def _elements(tensor: Any) -> int:  # noqa: ANN401 - a tensor, whose `size` MSAdapter makes a method
    return math.prod(tensor.shape)


def install(mindspore: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module of a framework without types
    """Put the largest results in the place of MindSpore's refusals, in dynamic graph."""
    bounds = _Bounds(mindspore, process)
    tensor, mint = mindspore.Tensor, bounds.mint
    for name in ("nonzero", "masked_select", "unique", "unique_consecutive"):
        method: Callable[..., Any] = getattr(bounds, name)
        if hasattr(tensor, name):
            setattr(tensor, name, _as_method(getattr(tensor, name), method))
        for home in (mint, mindspore.ops):
            if hasattr(home, name) and not (home is mindspore.ops and name == "unique"):
                setattr(home, name, functools.wraps(getattr(home, name))(_function(method)))
    mindspore.ops.unique = functools.wraps(mindspore.ops.unique)(_function(bounds.unique_old))
    mindspore.ops.argwhere = functools.wraps(mindspore.ops.argwhere)(_function(bounds.nonzero))
    getitem, where = tensor.__getitem__, mint.where

    @functools.wraps(where)
    def by_condition(condition: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        return where(condition, *arguments, **named) if arguments or named else bounds.nonzero_tuple(condition)

    mint.where = by_condition

    @functools.wraps(getitem)
    def by_index(self: Any, index: Any) -> Any:  # noqa: ANN401 - as the method
        if isinstance(index, mindspore.Tensor) and index.dtype == mindspore.bool_ and index.ndim:
            return bounds.by_mask(self, index)
        return getitem(self, index)

    tensor.__getitem__ = by_index
    auto = importlib.import_module("mindspore.ops.auto_generate")
    operations = mindspore.ops.operations
    for home, name, give in (
        (auto, "NonZero", bounds.nonzero),
        (auto, "NonZeroExt", bounds.nonzero_tuple),
        (auto, "MaskedSelect", bounds.masked_select),
        (auto, "Unique2", bounds.unique_all),
        (operations, "Unique", bounds.unique_old),
    ):
        if hasattr(home, name):
            primitive = getattr(home, name)
            primitive.__call__ = _as_call(primitive.__call__, give)


def _function(give: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function, which can carry the name of the one that it stands for."""

    def function(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the operator takes them
        return give(*arguments, **named)

    return function


def _as_method(method: Any, give: Callable[..., Any]) -> Any:  # noqa: ANN401 - a method of a class without types
    return functools.wraps(method)(_function(give))


def _as_call(call: Any, give: Callable[..., Any]) -> Any:  # noqa: ANN401 - as above
    @functools.wraps(call)
    def calling(_primitive: Any, *arguments: Any) -> Any:  # noqa: ANN401 - as above
        return give(*arguments)

    return calling
