"""Implement feed-forward blocks: dense, and mixtures of experts.

A mixture routes each token to some experts (softmax, top-k), sends the tokens to the ranks of these experts, applies the
experts and returns the results. Routing is assumed to be even: in simulation nothing is computed, so every expert gets the same
number of tokens; a real run's busiest rank needs more.

Shapes: ``T`` tokens of this rank, ``k`` experts per token, ``E`` experts, ``e`` of them on this rank, ``h`` hidden size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.common.initializer import initializer
from mindspore.ops.auto_generate import grouped_matmul_v4

from ms_tune.reference.transformer.linear import ColumnLinear, Linear, RowLinear, cast_to
from ms_tune.reference.transformer.parallel import exchange, gather, scatter
from ms_tune.reference.transformer.settings import NetworkSettings, number_format

if TYPE_CHECKING:
    from ms_tune.dialects.job_parts import Experts

_FUNCTIONS = {
    "gelu": mint.nn.functional.gelu,
    "fast_gelu": ops.fast_gelu,
    "silu": mint.nn.functional.silu,
    "swiglu": mint.nn.functional.silu,
    "relu": mint.nn.functional.relu,
}


class Activation(nn.Cell):
    """The activation function; a fused gated one expects twice the width and multiplies its halves."""

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        self.name = settings.shape.activation
        # ``legacy/model/activation.py``: GELU is computed step by step, with the error function.
        self.written_out = settings.shape.legacy and self.name == "gelu"

    def construct(self, x: Tensor) -> Tensor:
        """Apply the function along the last axis."""
        if self.name == "fusedswiglu":
            return ops.swiglu(x)
        if self.written_out:
            return x * 0.5 * (mint.erf(x / math.sqrt(2.0)) + 1.0)
        return _FUNCTIONS[self.name](x)


def _apply_activation(function: Activation, x: Tensor) -> Tensor:
    # Apply the function; an unfused gated function is applied to one half only. So the product of both halves is
    # outside the recomputation of ``activation_func`` (``pynative/transformers/mlp.py``, 2.1).
    if function.name != "swiglu":
        return function(x)
    gate, value = mint.chunk(x, 2, dim=-1)
    return function(gate) * value


class FeedForward(nn.Cell):
    """The dense block: one up-projection, twice as wide if gated, the activation, one down-projection.

    If ``gathered``, the input is the whole sequence, regardless of the layout between the layers.
    """

    def __init__(self, width: int, settings: NetworkSettings, *, split: bool = True, gathered: bool = False) -> None:
        super().__init__()
        shape, bias = settings.shape, settings.shape.mlp_bias
        wide = 2 * width if shape.gated else width
        self.activation_func = Activation(settings)
        if split:
            first = settings.inside if gathered else settings
            self.linear_fc1 = ColumnLinear(shape.hidden_size, wide, bias=bias, settings=first)
            self.linear_fc2 = RowLinear(width, shape.hidden_size, bias=bias, settings=settings)
        else:
            formats = {"dtype": settings.dtype, "compute": settings.format_of("compute")}
            self.linear_fc1 = Linear(shape.hidden_size, wide, bias=bias, **formats)
            self.linear_fc2 = Linear(width, shape.hidden_size, bias=bias, **formats)

    def construct(self, x: Tensor) -> Tensor:
        """Apply the block: ``(s, b, h)`` to the same shape."""
        return self.linear_fc2(_apply_activation(self.activation_func, self.linear_fc1(x)))


class SharedExperts(FeedForward):
    """The expert that receives every token, weighted by a gate if the model has one.

    In MindFormers' dynamic graph every tensor-parallel rank has all of it and receives its own part of the sequence
    (``_apply_layers_tp``, ``pynative/base_models/gpt/parallelize.py``, 2.1). In 2.0 a rank has a part of it, and receives all
    tokens.
    """

    def __init__(self, experts: Experts, settings: NetworkSettings) -> None:
        super().__init__(
            experts.shared_ffn_hidden_size, settings, split=experts.shared_split, gathered=settings.gathers_sequence
        )
        self.dtype = number_format(experts.router)
        gate = Linear(settings.shape.hidden_size, 1, bias=False, dtype=self.dtype)
        self.shared_experts_gate = gate if experts.shared_gate else None

    def construct(self, x: Tensor) -> Tensor:
        """Apply the block: ``(s, b, h)`` to the same shape."""
        y = super().construct(x)
        if self.shared_experts_gate is None:
            return y
        return y * mint.sigmoid(self.shared_experts_gate(x.astype(self.dtype))).astype(y.dtype)


class Router(nn.Cell):
    """The router, which selects the experts of each token and their weights."""

    def __init__(self, experts: Experts, hidden_size: int) -> None:
        super().__init__()
        self.dtype, self.per_token = number_format(experts.router), experts.per_token
        self.weight = Parameter(initializer("normal", (experts.routed, hidden_size), self.dtype))

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the experts of each token ``(T, h)`` and their weights, both ``(T, k)``."""
        logits = mint.nn.functional.linear(x.astype(self.dtype), self.weight).astype(mindspore.float32)
        scores = mint.nn.functional.softmax(logits, dim=-1)
        weights, chosen = mint.topk(scores, self.per_token, dim=-1)
        return chosen.astype(mindspore.int32), weights / mint.sum(weights, dim=-1, keepdim=True)


class GroupedExperts(nn.Cell):
    """The experts of this rank as one grouped matrix product; weights are ``(e, inputs, outputs)``."""

    def __init__(self, local: int, width: int, settings: NetworkSettings) -> None:
        super().__init__()
        shape = settings.shape
        self.local, wide = local, 2 * width if shape.gated else width
        self.compute = settings.format_of("compute")
        self.weight1 = Parameter(initializer("normal", (local, shape.hidden_size, wide), settings.dtype))
        self.activation_func = Activation(settings)
        self.weight2 = Parameter(initializer("normal", (local, width, shape.hidden_size), settings.dtype))

    def construct(self, x: Tensor) -> Tensor:
        """Apply the experts to tokens in the order of experts: ``(rows, h)`` to the same shape."""
        ends = Tensor(np.linspace(0, x.shape[0], self.local + 1).astype(np.int64)[1:])
        return self.product(
            _apply_activation(self.activation_func, self.product(x, self.weight1, ends)), self.weight2, ends
        )

    def product(self, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
        """Multiply the rows up to each end by the matrix of each expert."""
        weight = cast_to(weight, self.compute)
        return grouped_matmul_v4([x], [weight], group_list=ends, split_item=3, group_type=0, group_list_type=0)[0]


class SequentialExperts(nn.Cell):
    """The experts of this rank, one after the other."""

    def __init__(self, local: int, width: int, settings: NetworkSettings) -> None:
        super().__init__()
        self.local_experts = nn.CellList([FeedForward(width, settings, split=False) for _ in range(local)])

    def construct(self, x: Tensor) -> Tensor:
        """Apply the experts to tokens in the order of experts: ``(rows, h)`` to the same shape."""
        ends = np.linspace(0, x.shape[0], len(self.local_experts) + 1).astype(int)
        parts = mint.split(x, tuple(int(size) for size in np.diff(ends)), dim=0)
        return mint.cat([expert(part) for expert, part in zip(self.local_experts, parts, strict=True)], dim=0)


class MixtureOfExperts(nn.Cell):
    """A mixture of experts: router, routed experts, shared expert."""

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        experts, groups = settings.experts, settings.groups
        self.settings, self.group, self.legacy = experts, groups.expert, settings.shape.legacy
        self.local = experts.routed // groups.expert.size
        # Experts that are split over the tensor-parallel ranks need the tokens of all these ranks.
        self.split_over = groups.tensor if experts.tensor_parallel and groups.tensor.size > 1 else None
        width = experts.ffn_hidden_size // (self.split_over.size if self.split_over else 1)
        kind = GroupedExperts if experts.grouped else SequentialExperts
        self.router = Router(experts, settings.shape.hidden_size)
        self.experts = kind(self.local, width, settings)
        shared = SharedExperts(experts, settings) if experts.shared_ffn_hidden_size else None
        self.shared_experts = shared
        self.held: list[Tensor] = []
        self.gather_group = groups.tensor if settings.gathers_sequence else None

    def construct(self, x: Tensor) -> Tensor:
        """Apply the block: ``(s, b, h)`` to the same shape."""
        tokens = x.reshape(-1, x.shape[-1])
        chosen, weights = self.router(tokens)
        y = self.route(tokens, chosen, weights.astype(x.dtype)).reshape(x.shape)
        if self.shared_experts is None:
            return y
        shared = self.shared_experts(x)
        return y + (shared if self.gather_group is None else gather(shared, self.gather_group))

    def rows(self, tokens: int) -> int:
        """Return the number of rows for this rank's tokens: one per expert of each token, up to the experts' capacity."""
        experts, rows = self.settings, tokens * self.settings.per_token
        if experts.capacity_factor is None:
            return rows
        capacity = math.ceil(experts.capacity_factor * rows / experts.routed)
        return min(rows, capacity * experts.routed)

    def route(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Route tokens: sort by expert, exchange by all-to-all, sort by expert there, apply the experts, and reverse it all."""
        if self.group.size == 1 and not self.settings.fused_order:
            return self.route_on_one_rank(tokens, chosen, weights)
        if self.group.size > 1 and not self.legacy:
            return self.spread(tokens, chosen, weights)
        counts = mint.histc(chosen.reshape(-1), self.settings.routed, 0, self.settings.routed)
        if self.group.size > 1:
            exchange(counts, self.group)
        rows, order = ops.moe_token_permute(tokens, chosen, self.rows(tokens.shape[0]))
        rows = exchange(rows, self.group)
        sort = self.group.size > 1 and self.local > 1
        if sort:
            local = mint.zeros((rows.shape[0],), dtype=mindspore.int32)
            rows, local_order = ops.moe_token_permute(rows, local)
        rows = self.apply_experts(rows)
        if sort:
            rows = ops.moe_token_unpermute(rows, local_order)
        rows = exchange(rows, self.group)
        return ops.moe_token_unpermute(rows, order, weights)

    def route_on_one_rank(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Route tokens on a single rank, operator by operator (``pynative/transformers/moe/experts.py``, 2.1)."""
        per_token = self.settings.per_token
        order = mint.argsort(chosen.reshape(-1).astype(mindspore.float32), stable=True)
        rows = self.apply_experts(tokens[mint.floor_divide(order, per_token)])
        rows = rows * weights.reshape(-1)[order].reshape(-1, 1)
        back = mint.zeros(rows.shape, dtype=rows.dtype)
        back[order] = rows
        return mint.sum(back.reshape(-1, per_token, tokens.shape[-1]), dim=1)

    def spread(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Route tokens as MindFormers' dynamic graph does (``pynative/distributed/expert_parallel.py``, 2.1).

        A row of zeros per expert is placed before the tokens, so that every expert gets at least one
        (``expert_parallel_use_safe_tokens``, on by default).
        """
        count, per_token = self.settings.routed, self.settings.per_token
        safe = mint.arange(count * per_token, dtype=chosen.dtype) % count
        tokens = mint.cat((mint.zeros((count, tokens.shape[1]), dtype=tokens.dtype), tokens))
        weights = mint.cat((mint.zeros((count, per_token), dtype=weights.dtype), weights))
        # `ExpertParallel.ctx` keeps them until the layer's next call, and with them their graph: for a recomputed layer all of
        # attention, which has no second backward pass.
        self.held = [weights]
        chosen = mint.cat((safe.reshape(count, per_token), chosen))
        exchange(mint.histc(chosen.reshape(-1), count, 0, count), self.group)
        if self.settings.fused_order:
            rows, order = ops.moe_token_permute(tokens, chosen)
            rows = self.spread_rows(rows, [])
            return ops.moe_token_unpermute(rows, order, weights)[count:]
        order = mint.argsort(mint.transpose(chosen, 0, 1).reshape(-1).astype(mindspore.float32))
        back = mint.argsort(order.astype(mindspore.float32)).reshape(per_token, -1)
        rows, width = mint.index_select(tokens, 0, mint.fmod(order, tokens.shape[0])), tokens.shape[1]
        if self.gather_group is not None:
            del tokens  # freed here, as at the end of `_token_dispatch`
        alive: list[Tensor] = []
        rows = mint.index_select(self.spread_rows(rows, alive), 0, mint.transpose(back, 0, 1).reshape(-1))
        rows = rows.reshape(-1, per_token, width) * weights.unsqueeze(-1)
        return mint.sum(rows, dim=1)[count:]

    def spread_rows(self, rows: Tensor, alive: list[Tensor]) -> Tensor:
        """Exchange rows with the experts' ranks, sorted there, and back; ``alive`` collects tensors for the caller to keep."""
        rows = exchange(rows, self.group)
        if self.settings.fused_order:
            local = mint.zeros((rows.shape[0], 1), dtype=mindspore.int32)
            rows, order = ops.moe_token_permute(rows, local)
            rows = mint.index_select(self.experts(rows), 0, order)
        else:
            rows = self.by_chunk(rows)
            rows = self.experts(rows)
            there = self.by_chunk(rows)
            if self.gather_group is not None:
                # ``_token_combine`` of pynative/distributed/expert_parallel.py, 2.0, keeps them until tokens are added up.
                alive += (rows, there)
            rows = there
        back = exchange(rows, self.group)
        if self.gather_group is not None:
            alive.append(back)
        return back

    def by_chunk(self, rows: Tensor) -> Tensor:
        """Reorder the rows of each rank and expert; the particular order does not affect memory."""
        ends = np.linspace(0, rows.shape[0], self.settings.routed + 1).astype(int)
        return mint.cat(mint.split(rows, tuple(int(size) for size in np.diff(ends)), dim=0)[::-1], dim=0)

    def apply_experts(self, rows: Tensor) -> Tensor:
        """Apply the experts of this rank; if they are tensor-parallel, to the tokens of all tensor-parallel ranks."""
        if self.split_over is None:
            return self.experts(rows)
        return scatter(self.experts(gather(rows, self.split_over)), self.split_over)
