"""Implement attention over a sequence that is split over ranks: all-to-all of heads (Ulysses) and a ring.

The ring is that of MindSpeed's and Megatron-LM's context parallelism: causal, with an early and a late part of the sequence on
each rank, so that every rank has the same work; half of the pairs are skipped. Keys and values go around once in the forward
pass, and once more with their gradients in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import mindspore
from mindspore import Tensor, mint, nn
from mindspore.common._grad_function import _Function
from mindspore.mint import distributed
from mindspore.ops.auto_generate.gen_ops_prim import FlashAttentionScore, FlashAttentionScoreGrad

from ms_tune.reference.transformer.parallel import Groups, RankGroup, Saved, exchange

_LAYOUT = "SBH"
_JOINED = 3  # axes if heads are concatenated
_EVERYTHING = 2147483647


def join_heads(x: Tensor) -> Tensor:
    """Concatenate heads: ``(s, b, n, d)`` to ``(s, b, n d)``; values may already have that shape."""
    return x if x.ndim == _JOINED else x.reshape(*x.shape[:2], -1)


def split_heads(value: Tensor, key: Tensor) -> Tensor:
    """Split the heads of the values: ``(s, b, g d)`` to ``(s, b, g, d)``, as many as the keys have."""
    return value.reshape(*key.shape[:3], -1) if value.ndim == _JOINED else value


def heads_to_sequence(x: Tensor, group: RankGroup) -> Tensor:
    """Exchange ``(s / u, b, n, d)`` for ``(s, b, n / u, d)``: more of the sequence, fewer heads."""
    length, batch, heads, size = x.shape
    x = mint.permute(x.reshape(length, batch, group.size, heads // group.size, size), (2, 0, 1, 3, 4))
    return exchange(x.contiguous(), group).reshape(group.size * length, batch, heads // group.size, size)


def sequence_to_heads(x: Tensor, group: RankGroup) -> Tensor:
    """Exchange ``(s, b, n / u, d)`` for ``(s / u, b, n, d)``: the reverse."""
    length, batch, heads, size = x.shape
    x = exchange(x.reshape(group.size, length // group.size, batch, heads, size), group)
    return mint.permute(x, (1, 2, 0, 3, 4)).reshape(length // group.size, batch, group.size * heads, size)


class RingAttention(nn.Cell):
    """FlashAttention of this rank's queries with the keys and values of all ranks of the ring."""

    def __init__(self, groups: Groups, heads: int, scale: float) -> None:
        super().__init__()
        self.ring, self.ranks, self.heads, self.scale = groups.ring, groups.ranks.ring, heads, scale

    def construct(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attend: heads ``(s, b, n, d)`` to ``(s, b, n d)``."""
        return _Ring.apply(join_heads(query), join_heads(key), join_heads(value), mask, self)


class _Ring(_Function):
    @staticmethod
    def forward(  # noqa: PLR0913, PLR0917 - the inputs of the operation
        ctx: Saved, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, cell: RingAttention
    ) -> Tensor:
        attend = FlashAttentionScore(cell.heads, 1.0, cell.scale, _EVERYTHING, _EVERYTHING, 0, _LAYOUT, 0)
        causal = FlashAttentionScore(cell.heads, 1.0, cell.scale, _EVERYTHING, 0, 0, _LAYOUT, 2)
        maximum, total, _, out = causal(query, key, value, None, None, None, mask)
        pair = (key, value)
        half = query.shape[0] // 2
        for step in range(1, cell.ring.size):
            pair = _passed_on(pair, cell)
            if step <= cell.ring.place:  # those keys are earlier than all queries: only their first half is needed
                more = attend(query, pair[0][:half], pair[1][:half])
                maximum, total, out = _merge_attention((maximum, total, out), (more[0], more[1], more[3]))
            else:  # only the late queries can attend to them
                more = attend(query[half:], pair[0], pair[1])
                late = _merge_attention(
                    (maximum[:, :, half:], total[:, :, half:], out[half:]), (more[0], more[1], more[3])
                )
                maximum = mint.cat((maximum[:, :, :half], late[0]), dim=2)
                total = mint.cat((total[:, :, :half], late[1]), dim=2)
                out = mint.cat((out[:half], late[2]), dim=0)
        ctx.cell = cell
        ctx.save_for_backward(query, key, value, mask, maximum, total, out)
        return out

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask, maximum, total, out = ctx.saved_tensors
        cell = ctx.cell
        attend = FlashAttentionScoreGrad(cell.heads, 1.0, cell.scale, _EVERYTHING, _EVERYTHING, 0, _LAYOUT, 0)
        causal = FlashAttentionScoreGrad(cell.heads, 1.0, cell.scale, _EVERYTHING, 0, 0, _LAYOUT, 2)
        by_query, by_key, by_value, _ = causal(
            query, key, value, gradient, None, None, None, mask, maximum, total, None, out
        )
        pair, by_pair = (key, value), (by_key, by_value)
        half = query.shape[0] // 2
        for step in range(1, cell.ring.size):
            pair, by_pair = _passed_on(pair, cell), _passed_on(by_pair, cell)
            early = step <= cell.ring.place
            rows = slice(None) if early else slice(half, None)
            columns = slice(None, half) if early else slice(None)
            more = attend(
                query[rows], pair[0][columns], pair[1][columns], gradient[rows],
                None, None, None, None, maximum[:, :, rows], total[:, :, rows], None, out[rows],
            )  # fmt: skip
            by_query[rows].add_(more[0])
            by_pair[0][columns].add_(more[1])
            by_pair[1][columns].add_(more[2])
        by_key, by_value = _passed_on(by_pair, cell)
        return by_query, by_key, by_value, None, None


def _passed_on(tensors: Sequence[Tensor], cell: RingAttention) -> tuple[Tensor, ...]:
    # Send this rank's tensors to the next rank of the ring, and receive those of the previous one.
    sent = mint.stack(tuple(x.contiguous() for x in tensors))
    received = mint.empty(sent.shape, dtype=sent.dtype)
    following = cell.ranks[(cell.ring.place + 1) % cell.ring.size]
    previous = cell.ranks[cell.ring.place - 1]
    handles = [distributed.isend(sent, following), distributed.irecv(received, previous)]
    for handle in handles:
        handle.wait()
    return tuple(received[index] for index in range(len(tensors)))


def _merge_attention(
    one: tuple[Tensor, Tensor, Tensor], other: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    # Merge the attention over two sets of keys: weighted by their softmax sums, in float32.
    maximum = mint.maximum(one[0], other[0])
    first, second = mint.exp(one[0] - maximum) * one[1], mint.exp(other[0] - maximum) * other[1]
    total = first + second
    out = one[2].astype(mindspore.float32) * _by_row(first / total, one[2])
    out = out + other[2].astype(mindspore.float32) * _by_row(second / total, other[2])
    return maximum, total, out.astype(one[2].dtype)


def _by_row(weights: Tensor, out: Tensor) -> Tensor:
    # Expand ``(b, n, s, 8)``, eight equal values, to the heads of ``(s, b, n d)``.
    width = out.shape[2] // weights.shape[1]
    return mint.repeat_interleave(mint.permute(weights[..., 0], (2, 0, 1)), width, dim=2)
