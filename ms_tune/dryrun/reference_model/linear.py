"""Projections, whole and split over the tensor-parallel ranks, and normalisation.

As in Megatron-LM (``core/tensor_parallel/layers.py``): a column-parallel projection splits its outputs and gathers the
sequence before it, a row-parallel one splits its inputs and sums, or with sequence parallelism scatters, behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.common._grad_function import _Function
from mindspore.common.initializer import initializer

from .parallel import Group, Saved, gather, gathered, reduce, scatter, scattered, share

if TYPE_CHECKING:
    from .settings import Settings


class Linear(nn.Cell):
    """``(…, inputs)`` to ``(…, outputs)``; the weight is ``(outputs, inputs)``."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, dtype: mindspore.Type) -> None:
        super().__init__()
        self.weight = Parameter(initializer("normal", (outputs, inputs), dtype))
        self.bias = Parameter(initializer("zeros", (outputs,), dtype)) if bias else None

    def construct(self, x: Tensor) -> Tensor:
        """Project the last axis."""
        return mint.nn.functional.linear(x, self.weight, self.bias)


class ColumnLinear(Linear):
    """A projection of which this rank has ``outputs / tensor`` outputs.

    With sequence parallelism it takes this rank's part of the sequence and returns the whole sequence.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool, settings: Settings) -> None:
        super().__init__(inputs, outputs // settings.groups.tensor.size, bias=bias, dtype=settings.dtype)
        self.group = settings.groups.tensor
        self.sequence, self.regather = settings.sequence, settings.regather

    def construct(self, x: Tensor) -> Tensor:
        """Project the last axis."""
        if self.sequence and self.regather:
            y = _RegatheredLinear.apply(x, self.weight, self.group)
            return y if self.bias is None else y + self.bias
        x = gather(x, self.group) if self.sequence else share(x, self.group)
        return super().construct(x)


class RowLinear(Linear):
    """A projection of which this rank has ``inputs / tensor`` inputs; the sum over the ranks is its output."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, settings: Settings) -> None:
        super().__init__(inputs // settings.groups.tensor.size, outputs, bias=bias, dtype=settings.dtype)
        self.group, self.sequence = settings.groups.tensor, settings.sequence

    def construct(self, x: Tensor) -> Tensor:
        """Project the last axis."""
        if self.group.size == 1:
            return super().construct(x)
        y = mint.nn.functional.linear(x, self.weight)
        y = scatter(y, self.group) if self.sequence else reduce(y, self.group)
        return y if self.bias is None else y + self.bias


class _RegatheredLinear(_Function):
    """A column-parallel projection that keeps its part of the sequence only (communication recompute)."""

    @staticmethod
    def forward(ctx: Saved, x: Tensor, weight: Tensor, group: Group) -> Tensor:
        ctx.group = group
        ctx.save_for_backward(x, weight)
        return mint.nn.functional.linear(gathered(x, group), weight)

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        whole = gathered(x, ctx.group)
        by_input = scattered(mint.matmul(gradient, weight), ctx.group)
        rows, columns = gradient.reshape(-1, gradient.shape[-1]), whole.reshape(-1, whole.shape[-1])
        return by_input, mint.matmul(mint.transpose(rows, 0, 1), columns), None


class Norm(nn.Cell):
    """Normalisation of the last axis, as one fused operator, in the number format of its weight."""

    def __init__(self, size: int, settings: Settings) -> None:
        super().__init__()
        dtype = settings.norm_dtype
        self.centred = settings.shape.normalization.endswith("LayerNorm")
        self.size, self.dtype = size, dtype
        self.weight = Parameter(initializer("ones", (size,), dtype))
        self.bias = Parameter(initializer("zeros", (size,), dtype)) if self.centred else None

    def construct(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        given = x.dtype
        if given != self.dtype:
            x = x.astype(self.dtype)
        if self.centred:
            x = mint.nn.functional.layer_norm(x, (self.size,), self.weight, self.bias)
        else:
            x = ops.rms_norm(x, self.weight)[0]
        return x if given == self.dtype else x.astype(given)
