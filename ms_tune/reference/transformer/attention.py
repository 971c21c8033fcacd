"""Self-attention with rotary positions and grouped key/value heads, and the attention itself.

Shapes: ``s`` tokens, ``b`` samples, ``n`` query heads of this rank, ``g`` its key/value heads, ``d`` head size.
Activations are ``(s, b, …)``. Modules have the names of Megatron-LM's and MindFormers' (``linear_qkv``,
``core_attention``, ``linear_proj``), so that a config's patterns find them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mindspore
from mindspore import Tensor, mint, nn, ops

from .context import RingAttention, apart, heads_to_sequence, joined, sequence_to_heads
from .linear import ColumnLinear, Norm, RowLinear, cast
from .parallel import gather

if TYPE_CHECKING:
    from .parallel import RankGroup
    from .settings import NetworkSettings

_MASK_SIZE = 2048  # FlashAttentionScore, sparse_mode 2: a compressed lower-triangular mask of this size
LEFT_UP_CAUSAL, ALL = 2, 0


class SelfAttention(nn.Cell):
    """Causal self-attention; queries, keys and values come from one projection."""

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        shape, tensor = settings.shape, settings.groups.tensor.size
        # With fewer key/value heads than ranks, every rank has a copy of one.
        self.heads, self.groups = shape.num_attention_heads // tensor, max(1, shape.num_query_groups // tensor)
        self.size, self.by_group = shape.head_size, shape.heads_first
        self.split = (self.heads * self.size, self.groups * self.size, self.groups * self.size)
        dtype = settings.format_of("attention")
        self.linear_qkv = ColumnLinear(
            shape.hidden_size, sum(self.split) * tensor, bias=shape.qkv_bias, settings=settings, dtype=dtype
        )
        self.q_layernorm = Norm(self.size, settings) if shape.qk_norm else None
        self.k_layernorm = Norm(self.size, settings) if shape.qk_norm else None
        self.rotary = Rotary(settings) if shape.rotary else None
        self.core_attention = core_attention(settings, self.heads, self.size)
        inputs = shape.num_attention_heads * self.size
        self.linear_proj = RowLinear(inputs, shape.hidden_size, bias=shape.output_bias, settings=settings, dtype=dtype)

    def construct(self, x: Tensor, tables: Tables) -> Tensor:
        """Attend: ``(s, b, h)`` to the same."""
        query, key, value = self.parted(self.linear_qkv(x))
        query = self.positioned(query, self.heads, self.q_layernorm, tables)
        key = self.positioned(key, self.groups, self.k_layernorm, tables)
        return self.linear_proj(self.core_attention(query, key, value, tables.mask))

    def parted(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values; with heads first they lie group by group (``pynative/transformers/attention.py``)."""
        parts = self.split
        if self.by_group:
            parts = (self.heads // self.groups * self.size, self.size, self.size)
            mixed = mixed.reshape(*mixed.shape[:2], self.groups, sum(parts))
        query, key, value = mint.split(mixed, parts, dim=-1)
        return query, key, value

    def positioned(self, x: Tensor, heads: int, norm: nn.Cell | None, tables: Tables) -> Tensor:
        """Heads, normalised where the model does that, with their positions: ``(s, b, heads, d)``."""
        x = x.reshape(*x.shape[:2], heads, self.size)
        if norm is not None:
            x = norm(x)
        return x if self.rotary is None else self.rotary(x, tables)


@dataclass(frozen=True, slots=True, repr=False)
class Tables:
    """What all layers share."""

    angles: Tensor  # of the rotary positions: layers that make the rest have them, others only keep them where they recompute
    cos: Tensor  # cosines of the rotary positions
    sin: Tensor  # their sines
    mask: Tensor  # the causal mask

    def __repr__(self) -> str:
        """MindSpore asks for it at every call of a layer; that of a tensor would wait for the device and read it."""
        return f"Tables{self.angles.shape, self.cos.shape, self.sin.shape, self.mask.shape}"


class TableMaker:
    """Makes the tables of a forward pass.

    MindFormers' dynamic graph makes angles, cosines, sines and a whole mask anew in every one (``GPTModel`` of
    ``pynative/base_models/gpt/gpt_model.py``, 2.1); but for the angles they live until its backward pass is over.
    """

    def __init__(self, settings: NetworkSettings, rotary_size: int) -> None:
        self.legacy, self.dtype = settings.shape.legacy, settings.format_of("rotary")
        self.shape = (settings.tokens, 1, 1, rotary_size if settings.shape.rotary else 0)
        self.shared = not settings.shape.own_tables
        self.angles = self.made() if self.legacy else None
        self.words: Tensor | None = None
        if settings.shape.whole_mask:
            # pynative/layers/mask_generate.py: the triangle stays in the number format of the computation, and each sample
            # has a mask of its own, for its words are not all the same.
            samples, positions = settings.config.batch.micro_batch_size, settings.shape.seq_length
            dtype = settings.format_of("compute")
            self.mask = mint.tril(mint.ones((positions, positions), dtype=dtype))
            self.words = mint.ones((samples, 1, 1, positions), dtype=dtype)
        else:
            size = _MASK_SIZE if settings.shape.flash_attention else settings.tokens
            self.mask = mint.triu(mint.ones((size, size), dtype=mindspore.uint8), 1)

    def tables(self) -> Tables:
        """Those of a forward pass."""
        mask = self.mask if self.words is None else (1 - self.words * self.mask).astype(mindspore.uint8)
        if self.angles is not None:
            return Tables(self.angles, self.angles, self.angles, mask)  # each use of them makes cosines and sines
        angles = self.made()
        if not self.shared:
            return Tables(angles, angles, angles, mask)
        return Tables(angles, cast(mint.cos(angles), self.dtype), cast(mint.sin(angles), self.dtype), mask)

    def made(self) -> Tensor:
        """The angles ``(s, 1, 1, size)``, float32, on the device; their values change nothing in simulation."""
        return mint.zeros(self.shape, dtype=mindspore.float32)


class Rotary(nn.Cell):
    """Rotary position embedding of ``(s, b, heads, d)``, as one fused operator, of part of the head or all of it."""

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        self.dtype, self.own = settings.format_of("rotary"), settings.shape.own_tables

    def construct(self, x: Tensor, tables: Tables) -> Tensor:
        """Turn the first part of each head."""
        turned = tables.cos.shape[-1]
        if turned == x.shape[-1]:
            return self.turn(x, tables)
        first, rest = mint.split(x, (turned, x.shape[-1] - turned), dim=-1)
        return mint.cat((self.turn(first, tables), rest), dim=-1)

    def turn(self, x: Tensor, tables: Tables) -> Tensor:
        """Turn all of each head, in the number format for positions."""
        given, cos, sin = x.dtype, tables.cos, tables.sin
        if self.own:  # `ApplyRotaryPosEmb` of pynative/base_models/common/embeddings/rope_utils.py, 2.0
            cos, sin = cast(mint.cos(cos), self.dtype), cast(mint.sin(sin), self.dtype)
        if given == self.dtype:
            return ops.rotary_position_embedding(x, cos, sin, 0)
        return ops.rotary_position_embedding(x.astype(self.dtype), cos, sin, 0).astype(given)


def core_attention(settings: NetworkSettings, heads: int, size: int) -> nn.Cell:
    """The attention itself, over sequences that are spread over ranks or not.

    Args:
        settings: The config and the groups.
        heads: Query heads of this rank.
        size: Size of a query or key head.
    """
    groups, heads = settings.groups, heads // settings.groups.ulysses.size
    inner: nn.Cell
    if groups.ring.size > 1 and settings.shape.legacy:
        inner = RingAttention(groups, heads, size**-0.5)
    elif settings.shape.heads_first and not settings.shape.legacy:
        inner = HeadsFirstAttention(heads, size, groups.ring)
    else:
        inner = FlashAttention(heads, size, groups.ring)
    return UlyssesAttention(settings, inner) if groups.ulysses.size > 1 else inner


class FlashAttention(nn.Cell):
    """FlashAttention on heads that lie side by side, of this rank's queries with the keys and values of all ranks.

    MindFormers' dynamic graph has no ring: its methods ``colossal`` and ``hybrid`` gather all keys and values (HyperParallel,
    ``core/context_parallel/context_parallel.py`` at 020bbee6), and these stay until the backward pass.
    """

    def __init__(self, heads: int, size: int, group: RankGroup) -> None:
        super().__init__()
        self.heads, self.scale, self.group = heads, size**-0.5, group

    def construct(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attend: heads ``(s, b, n, d)`` to ``(s, b, n d)``."""
        return ops.flash_attention_score(
            joined(query),
            gather(joined(key), self.group),
            gather(joined(value), self.group),
            self.heads,
            attn_mask=mask,
            scalar_value=self.scale,
            input_layout="SBH",
            sparse_mode=LEFT_UP_CAUSAL,
        )


class HeadsFirstAttention(FlashAttention):
    """FlashAttention on ``(b, n, s, d)`` (``pynative/layers/flash_attention.py``, 2.1): copies before it and behind it."""

    def construct(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attend: heads ``(s, b, n, d)``, or side by side, to ``(s, b, n d)``."""
        size = query.shape[-1] if query.ndim > 3 else query.shape[-1] // self.heads  # noqa: PLR2004 - axes
        heads = [mint.permute(x.reshape(*x.shape[:2], -1, size), (1, 2, 0, 3)).contiguous() for x in (query, key)]
        wide = value if value.ndim > 3 else value.reshape(*value.shape[:2], heads[1].shape[1], -1)  # noqa: PLR2004
        y = ops.flash_attention_score(
            *heads,
            mint.permute(wide, (1, 2, 0, 3)).contiguous(),
            self.heads,
            attn_mask=mask,
            scalar_value=self.scale,
            input_layout="BNSD",
            sparse_mode=LEFT_UP_CAUSAL if mask.ndim == 2 else ALL,  # noqa: PLR2004 - axes
        )
        return mint.permute(mint.permute(y, (0, 2, 1, 3)).reshape(y.shape[0], y.shape[2], -1), (1, 0, 2))


class UlyssesAttention(nn.Cell):
    """Attention over the whole sequence with some of the heads; all-to-all before and behind."""

    def __init__(self, settings: NetworkSettings, inner: nn.Cell) -> None:
        super().__init__()
        self.group, self.inner = settings.groups.ulysses, inner

    def construct(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attend: heads ``(s, b, n, d)`` to ``(s, b, n d)``."""
        heads = query.shape[2]
        value = apart(value, key)
        query, key, value = (heads_to_sequence(x, self.group) for x in (query, key, value))
        context = self.inner(query, key, value, mask)
        context = context.reshape(*context.shape[:2], heads // self.group.size, -1)
        return joined(sequence_to_heads(context, self.group))
