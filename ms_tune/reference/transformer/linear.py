"""Implement projections, whole and split over the tensor-parallel ranks, and normalisation.

As in Megatron-LM (``core/tensor_parallel/layers.py``): a column-parallel projection splits its outputs and gathers the sequence
before it, a row-parallel one splits its inputs and sums after it, or scatters with sequence parallelism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.common._grad_function import _Function
from mindspore.common.initializer import initializer

from ms_tune.reference.transformer.parallel import (
    RankGroup,
    Saved,
    gather,
    gather_parts,
    reduce,
    scatter,
    scatter_sum,
    share_gradient,
)

if TYPE_CHECKING:
    from ms_tune.reference.transformer.settings import NetworkSettings


_EPSILON = 1e-5  # its value does not matter in simulation


def cast_to(x: Tensor, dtype: mindspore.Type) -> Tensor:
    """Convert a tensor to a number format; return the tensor itself if it already has it."""
    return x if x.dtype == dtype else x.astype(dtype)


def copy_if_view(x: Tensor, *, wanted: bool) -> Tensor:
    """Copy a tensor that is a view of another one, if ``wanted``.

    Layers of MindFormers 2.0 under tensor parallelism use HyperParallel's tensors, which are contiguous: each begins with
    ``to(device)``, which copies a view (``DTensorBase`` of platform/mindspore/dtensor.py at fdd0a80 and later).
    """
    return x.contiguous() if wanted else x


class Linear(nn.Cell):
    """A projection of ``(…, inputs)`` to ``(…, outputs)``; the weight is ``(outputs, inputs)``.

    With ``copies`` the weight is transposed in a copy, which stays until the backward pass (:func:`copy_if_view`).
    """

    def __init__(  # noqa: PLR0913 - independent settings
        self,
        inputs: int,
        outputs: int,
        *,
        bias: bool,
        dtype: mindspore.Type,
        copies: bool = False,
        compute: mindspore.Type | None = None,
    ) -> None:
        super().__init__()
        self.copies, self.compute = copies, dtype if compute is None else compute
        self.weight = Parameter(initializer("normal", (outputs, inputs), dtype))
        self.bias = Parameter(initializer("zeros", (outputs,), dtype)) if bias else None

    def construct(self, x: Tensor) -> Tensor:
        """Project the last axis in the number format of the product; the output has that of the input."""
        bias = None if self.bias is None else cast_to(self.bias, self.compute)
        return cast_to(self.product(cast_to(x, self.compute), cast_to(self.weight, self.compute), bias), x.dtype)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute the product along the last axis."""
        if not self.copies:
            return mint.nn.functional.linear(x, weight, bias)
        y = mint.matmul(x, mint.transpose(weight, 0, 1).contiguous())
        return y if bias is None else y + bias


class ColumnLinear(Linear):
    """A column-parallel projection: this rank has ``outputs / tensor`` outputs.

    With sequence parallelism its input is this rank's part of the sequence, and its output the whole sequence.
    """

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool, settings: NetworkSettings, dtype: mindspore.Type | None = None
    ) -> None:
        local = outputs // settings.groups.tensor.size
        dtype = settings.dtype if dtype is None else dtype
        super().__init__(inputs, local, bias=bias, dtype=dtype, copies=settings.gathers_sequence)
        self.group, self.sequence, self.regather = settings.groups.tensor, settings.sequence, settings.regather
        self.compute, self.keeps = settings.format_of("compute"), settings.shape.legacy

    def construct(self, x: Tensor) -> Tensor:
        """Project the last axis in the number format of projections; the output has that of the input."""
        given, weight = x.dtype, cast_to(self.weight, self.compute)
        x = cast_to(x if self.sequence else share_gradient(x, self.group, keeps=self.keeps), self.compute)
        bias = None if self.bias is None else cast_to(self.bias, self.compute)
        if self.sequence and self.regather:
            y = _RegatheredLinear.apply(x, weight, self.group)
            y = y if bias is None else y + bias
        else:
            x = gather(x, self.group, keeps=self.keeps) if self.sequence else x
            y = self.product(x, weight, bias)
        return cast_to(y, given)


class RowLinear(Linear):
    """A row-parallel projection: this rank has ``inputs / tensor`` inputs; its output is the sum over the ranks."""

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool, settings: NetworkSettings, dtype: mindspore.Type | None = None
    ) -> None:
        local = inputs // settings.groups.tensor.size
        dtype = settings.dtype if dtype is None else dtype
        super().__init__(local, outputs, bias=bias, dtype=dtype, copies=settings.gathers_sequence)
        self.group, self.sequence = settings.groups.tensor, settings.sequence
        self.compute, self.keeps = settings.format_of("compute"), settings.shape.legacy

    def construct(self, x: Tensor) -> Tensor:
        """Project the last axis in the number format of projections; the output has that of the input."""
        given, x, weight = x.dtype, cast_to(x, self.compute), cast_to(self.weight, self.compute)
        if self.group.size == 1 and not self.keeps:
            bias = None if self.bias is None else cast_to(self.bias, self.compute)
            return cast_to(mint.nn.functional.linear(x, weight, bias), given)
        y = self.product(x, weight, None)
        y = scatter(y, self.group, keeps=not self.keeps) if self.sequence else reduce(y, self.group, keeps=self.keeps)
        y = cast_to(y, given)
        if self.bias is None:
            return y
        return y + (self.bias if self.keeps else cast_to(self.bias, given))


class _RegatheredLinear(_Function):
    """A column-parallel projection that keeps only its part of the sequence (communication recomputation)."""

    @staticmethod
    def forward(ctx: Saved, x: Tensor, weight: Tensor, group: RankGroup) -> Tensor:
        ctx.group = group
        ctx.save_for_backward(x, weight)
        return mint.nn.functional.linear(gather_parts(x, group), weight)

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        whole = gather_parts(x, ctx.group)
        by_input = scatter_sum(mint.matmul(gradient, weight), ctx.group)
        rows, columns = gradient.reshape(-1, gradient.shape[-1]), whole.reshape(-1, whole.shape[-1])
        return by_input, mint.matmul(mint.transpose(rows, 0, 1), columns), None


class Norm(nn.Cell):
    """Normalisation of the last axis: one operator, or several on float32 (``legacy/model/norm.py``, RMSNorm)."""

    def __init__(self, size: int, settings: NetworkSettings) -> None:
        super().__init__()
        dtype, shape = settings.format_of("norm"), settings.shape
        self.centred = shape.normalization.endswith("LayerNorm")
        self.size, self.fused = size, shape.fused_norm
        # RMSNorm's operator accepts different number formats of weight and input.
        self.casts = self.centred and not shape.legacy
        self.weight = Parameter(initializer("ones", (size,), dtype))
        self.bias = Parameter(initializer("zeros", (size,), dtype)) if self.centred else None

    def construct(self, x: Tensor) -> Tensor:
        """Normalise the last axis, in the number format of the weight for LayerNorm."""
        if not self.casts:
            return self.normalised(x)
        return cast_to(self.normalised(cast_to(x, self.weight.dtype)), x.dtype)

    def normalised(self, x: Tensor) -> Tensor:
        """Normalise the last axis in the given number format."""
        if self.centred:
            return mint.nn.functional.layer_norm(x, (self.size,), self.weight, self.bias)
        if self.fused:
            return ops.rms_norm(x, self.weight)[0]
        wide = x.astype(mindspore.float32)
        factor = mint.rsqrt(mint.mean(mint.square(wide), dim=-1, keepdim=True) + _EPSILON)
        return cast_to(wide * factor, x.dtype) * self.weight
