"""Self-attention as MindSpeed-Core-MS r0.1.0 writes it, with the copies that it makes (``legacy/model/transformer.py``).

The same code as in MindFormers 1.6 (``experimental/parallel_core/pynative/transformer``), with which it was compared.
Shapes as in :mod:`ms_tune.reference.transformer.attention`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore
from mindspore import Tensor, mint, nn, ops

from ms_tune.dialects.job_parts import DType

from .attention import LEFT_UP_CAUSAL, Tables, core_attention
from .linear import ColumnLinear, RowLinear, cast
from .settings import number_format

if TYPE_CHECKING:
    from .settings import NetworkSettings

_MASKED = -10000.0


class LegacySelfAttention(nn.Cell):
    """Causal self-attention; each group's queries lie beside their key and value, so that all three are copied apart."""

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        shape, tensor = settings.shape, settings.groups.tensor.size
        self.groups, self.size = max(1, shape.num_query_groups // tensor), shape.head_size
        self.repeats = shape.num_attention_heads // tensor // self.groups
        width = shape.num_attention_heads * self.size
        self.linear_qkv = ColumnLinear(
            shape.hidden_size,
            width + 2 * self.groups * tensor * self.size,
            bias=shape.qkv_bias,
            settings=settings,
        )
        self.rotary = LegacyRotary(settings) if shape.rotary else None
        self.core_attention = _core_attention(settings, self.repeats * self.groups, self.size)
        self.linear_proj = RowLinear(width, shape.hidden_size, bias=shape.output_bias, settings=settings)

    def construct(self, x: Tensor, tables: Tables) -> Tensor:
        """Attend: ``(s, b, h)`` to the same."""
        mixed = self.linear_qkv(x)
        mixed = mixed.view(*mixed.shape[:2], self.groups, (self.repeats + 2) * self.size)
        query, key, value = mint.split(mixed, [self.repeats * self.size, self.size, self.size], dim=3)
        query = query.reshape(*query.shape[:2], -1, self.size)
        if self.repeats > 1:
            key = mint.repeat_interleave(key, self.repeats, dim=2)
            value = mint.repeat_interleave(value, self.repeats, dim=2)
        if self.rotary is not None:
            query, key = self.rotary(query, tables), self.rotary(key, tables)
        return cast(self.linear_proj(self.core_attention(query, key, value, tables.mask)), x.dtype)


class LegacyRotary(nn.Cell):
    """Rotary positions; every use of them computes cosines and sines anew (``legacy/model/rotary_pos_embedding.py``)."""

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        self.fused = settings.shape.fused_rotary

    def construct(self, x: Tensor, tables: Tables) -> Tensor:
        """Turn all of each head: ``(s, b, heads, d)`` to the same."""
        angles = tables.angles
        cos, sin = cast(mint.cos(angles), x.dtype), cast(mint.sin(angles), x.dtype)
        if self.fused:
            return ops.rotary_position_embedding(x, cos, sin, 0)
        first, second = mint.split(x, x.shape[-1] // 2, dim=-1)
        return x * cos + mint.cat((-second, first), dim=-1) * sin


def _core_attention(settings: NetworkSettings, heads: int, size: int) -> nn.Cell:
    groups = settings.groups
    if groups.ring.size > 1 or groups.ulysses.size > 1:
        return core_attention(settings, heads, size)
    if settings.shape.flash_attention:
        return LegacyFlashAttention(settings, heads, size)
    return LegacyPlainAttention(settings, size)


class LegacyFlashAttention(nn.Cell):
    """FlashAttention; it takes no float32, which becomes float16."""

    def __init__(self, settings: NetworkSettings, heads: int, size: int) -> None:
        super().__init__()
        self.heads, self.scale, self.heads_first = heads, size**-0.5, settings.shape.heads_first

    def construct(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attend: heads ``(s, b, n, d)`` to ``(s, b, n d)``."""
        query, key, value = (
            cast(x, mindspore.float16) if x.dtype == mindspore.float32 else x for x in (query, key, value)
        )
        if self.heads_first:
            query, key, value = (mint.permute(x, (1, 2, 0, 3)) for x in (query, key, value))
        else:
            query, key, value = (x.reshape(*x.shape[:2], -1) for x in (query, key, value))
        context = ops.flash_attention_score(
            query,
            key,
            value,
            self.heads,
            attn_mask=mask,
            scalar_value=self.scale,
            input_layout="BNSD" if self.heads_first else "SBH",
            sparse_mode=LEFT_UP_CAUSAL,
        )
        if not self.heads_first:
            return context
        context = mint.permute(context, (0, 2, 1, 3))
        return mint.transpose(context.reshape(*context.shape[:2], -1), 0, 1)


class LegacyPlainAttention(nn.Cell):
    """Attention by matrix products into a buffer of zeros, with all scores in memory."""

    def __init__(self, settings: NetworkSettings, size: int) -> None:
        super().__init__()
        self.scale, self.adds = size**-0.5, settings.shape.adds_mask
        self.softmax = number_format(settings.config.precision.softmax or DType.FLOAT32)

    def construct(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attend: heads ``(s, b, n, d)`` to ``(s, b, n d)``."""
        length, batch, heads, size = query.shape
        query, key = query.reshape(length, batch * heads, -1), key.reshape(length, batch * heads, -1)
        scores = mint.baddbmm(
            mint.zeros((batch * heads, length, length), dtype=query.dtype),
            mint.transpose(query, 0, 1),
            mint.transpose(mint.transpose(key, 0, 1), 1, 2),
            beta=0.0,
            alpha=self.scale,
        ).view(batch, heads, length, length)
        masked = self.masked(cast(scores, self.softmax), mask)
        shares = cast(mint.nn.functional.softmax(masked, dim=-1), scores.dtype).view(batch * heads, length, -1)
        value = mint.transpose(value.reshape(length, batch * heads, -1), 0, 1)
        context = mint.bmm(cast(shares, value.dtype), value).view(batch, heads, length, size)
        return mint.permute(context, (2, 0, 1, 3)).reshape(length, batch, heads * size)

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """The scores without those of later tokens (``legacy/model/utils.py``)."""
        if self.adds:
            return scores + cast(mask, scores.dtype)
        return scores.masked_fill(cast(mask, mindspore.bool_), _MASKED)
