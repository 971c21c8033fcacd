"""Reduce the gradients of sharded weights to the ranks that keep their parts.

As in HyperParallel on MindSpore (``platform/mindspore/fully_shard/state.py``, ``param.py`` and ``param_group.py`` at 019ed966,
as called by MindFormers 2.1: no fused communication, ``reduce_dtype`` float32, ``apply_grad_on_fp32_main_grad``):

- the gradients of a unit stay whole, in the number format of its weights, until the end of its backward pass;
- then each one is cast to float32 and reduced to its ranks; the next unit waits for that, adds the parts to the sums of the
  step, and only then the whole gradients are freed;
- the first part of a step becomes the sum itself: it uses no memory before or after the step;
- if several ranks have copies of the parts, the last micro-batch of a step reduces into one buffer per unit, the previous sum
  is added to it, and the buffer becomes the sum after an all-reduce;
- in a pipeline nothing is reduced before the last micro-batch (``_post_backward_without_reduce``): the whole gradients are
  accumulated in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import mindspore
from mindspore import Parameter, Tensor, mint
from mindspore.mint import distributed

from ms_tune.reference.transformer.linear import cast_to
from ms_tune.reference.transformer.parallel import RankGroup


@dataclass(slots=True, eq=False)
class ShardedWeight:
    """A sharded weight with its gradients."""

    full: Parameter  # the weight for the computation; without memory unless gathered
    part: Parameter  # this rank's part of it, flat
    group: RankGroup  # the ranks with the other parts
    copies: RankGroup  # the ranks with the same part
    pending: Tensor | None = None  # the whole gradient from the last backward pass
    total: Tensor | None = None  # the sum of such gradients, whole, float32 (pipelines)
    gradient: Tensor | None = None  # this rank's part of the step's gradient so far, flat; None before the first one
    arriving: Any = None

    def begin(self) -> None:
        """Reduce the memory use to the part. A new parameter is on the host until an operator moves it to the device."""
        if self.group.size == 1:
            # A weight that is not split is used directly (``_get_unsharded_param_data`` at 6ee2a24b).
            self.part.zero_()
            self.full.data = self.part.view(self.full.shape)
            return
        self.full.zero_()
        self.let_go()

    def gather(self, *, ahead: bool = False) -> None:
        """Gather the parts of all ranks (``_get_unsharded_param_data``); with ``ahead``, without waiting for them."""
        if self.group.size == 1:
            return
        self.full.untyped_storage().resize_(self.full.size * self.full.itemsize)
        whole = self.full.view(-1)
        self.arriving = distributed.all_gather_into_tensor(whole, self.part, group=self.group.name, async_op=ahead)

    def arrive(self) -> None:
        """Wait for an asynchronous gather (``wait_for_unshard``)."""
        if self.arriving is not None:
            self.arriving.wait()
            self.arriving = None

    def let_go(self) -> None:
        """Free the memory of the whole weight (``free_unsharded_param``)."""
        if self.group.size == 1:
            return
        self.full.untyped_storage().resize_(0)

    @property
    def waits(self) -> bool:
        """Return whether the weight has a gradient that is not reduced yet."""
        return self.total is not None or self.pending is not None

    def source(self) -> Tensor:
        """Return the gradient to reduce, flat."""
        gradient = self.pending if self.total is None else self.total
        assert gradient is not None  # noqa: S101 - only called if there is one
        return gradient.reshape(-1)

    def add_up(self) -> None:
        """Add the gradient of a micro-batch to the sum of whole gradients."""
        if self.pending is None:
            return
        if self.total is None:
            self.total = cast_to(self.pending, mindspore.float32)
        else:
            self.total.add_(self.pending)
        self.pending = None

    def take(self, reduced: Tensor) -> None:
        """Add this rank's part of a reduced gradient to the sum of the step, and free the whole gradient."""
        if self.gradient is None:
            self.gradient = reduced
        else:
            self.gradient.add_(reduced)
        if self.total is None:
            self.pending = None
        self.total = None


@dataclass(slots=True)
class _GradientCopies:
    """The parts of a unit's gradients in one buffer, which is summed over all ranks with copies of them."""

    weights: list[ShardedWeight]
    buffer: Tensor
    handles: list[Any] = field(default_factory=list)

    def parts(self) -> list[Tensor]:
        ends = [0]
        for weight in self.weights:
            ends.append(ends[-1] + int(weight.part.size))
        return [self.buffer[start:end] for start, end in pairwise(ends)]


class Reducer:
    """The pending reductions of gradients, for all units of a stage."""

    def __init__(self) -> None:
        # Whether ranks with copies of the parts sum theirs: in the last micro-batch of the step.
        self.sums_copies = True
        self._parts: list[tuple[ShardedWeight, Tensor, Any]] = []
        self._unsharded: list[tuple[ShardedWeight, Tensor, Any]] = []
        self._filling: list[_GradientCopies] = []
        self._summing: list[_GradientCopies] = []

    def reduce(self, weights: Sequence[ShardedWeight]) -> None:
        """Send the gradients of a unit to their ranks, and receive those of the previous unit (``post_backward``)."""
        waiting = [weight for weight in weights if weight.waits]
        self._take(self._unsharded)
        for weight in waiting:
            if weight.group.size == 1:
                self._reduce_unsharded(weight)
        filled = self._filled()
        self._take(self._parts)
        parts = [weight for weight in waiting if weight.group.size > 1]
        copied = [weight for weight in parts if self.sums_copies and weight.copies.size > 1]
        for weight in parts:
            if weight not in copied:
                self._parts.append((weight, *_reduce_scatter(weight, None)))
        if copied:
            self._fill(copied)
        self._sum(filled)

    def finish(self) -> None:
        """Wait for all pending reductions (``_root_backward_hook``)."""
        self._sum(self._filled())
        self._take(self._parts)
        for copies in self._summing:
            _wait_for(copies.handles)
            for weight, part in zip(copies.weights, copies.parts(), strict=True):
                weight.take(part)
        self._summing.clear()
        self._take(self._unsharded)

    def _reduce_unsharded(self, weight: ShardedWeight) -> None:
        # Reduce a weight that is not split: all ranks sum the whole gradient, or this rank is the only one.
        total = cast_to(weight.source(), mindspore.float32).contiguous()
        if not (self.sums_copies and weight.copies.size > 1):
            weight.take(total)
            return
        handle = distributed.all_reduce(total, group=weight.copies.name, async_op=True)
        self._unsharded.append((weight, total, handle))

    def _fill(self, weights: list[ShardedWeight]) -> None:
        size = sum(int(weight.part.size) for weight in weights)
        copies = _GradientCopies(weights, mint.zeros((size,), dtype=mindspore.float32))
        for weight, part in zip(weights, copies.parts(), strict=True):
            copies.handles.append(_reduce_scatter(weight, part)[1])
        self._filling.append(copies)

    def _filled(self) -> list[_GradientCopies]:
        # Return the buffers that are filled by now, and free the whole gradients in them.
        filled, self._filling = self._filling, []
        for copies in filled:
            _wait_for(copies.handles)
            for weight in copies.weights:
                weight.pending = weight.total = None
        return filled

    def _sum(self, filled: Sequence[_GradientCopies]) -> None:
        for copies in filled:
            for weight, part in zip(copies.weights, copies.parts(), strict=True):
                if weight.gradient is not None:
                    part.copy_(part + weight.gradient)
                    weight.gradient = None
            name = copies.weights[0].copies.name
            copies.handles.append(distributed.all_reduce(copies.buffer, group=name, async_op=True))
            self._summing.append(copies)

    @staticmethod
    def _take(queue: list[tuple[ShardedWeight, Tensor, Any]]) -> None:
        while queue:
            weight, reduced, handle = queue.pop(0)
            _wait_for([handle])
            weight.take(reduced)


def _reduce_scatter(weight: ShardedWeight, part: Tensor | None) -> tuple[Tensor, Any]:
    # Start to reduce this rank's part of the sum over all ranks (``reduce_scatter_grad``).
    flat = cast_to(weight.source(), mindspore.float32).contiguous()
    if part is None:
        part = mint.empty((flat.size // weight.group.size,), dtype=mindspore.float32)
    handle = distributed.reduce_scatter_tensor(part, flat, group=weight.group.name, async_op=True)
    return part, handle


def _wait_for(handles: list[Any]) -> None:
    while handles:
        handle = handles.pop()
        if handle is not None:
            handle.wait()
