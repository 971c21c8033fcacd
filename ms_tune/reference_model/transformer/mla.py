"""Multi-head latent attention (DeepSeek): narrow projections for queries, and for keys with values.

As ``MLASelfAttention`` of MindFormers (``pynative/transformers/multi_latent_attention.py``, 2.1): one projection down for
both, held whole by every tensor-parallel rank and applied to its part of the sequence; projections up are split by heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mindspore import Tensor, mint, nn

from .attention import Rotary, Tables, core_attention
from .linear import ColumnLinear, Linear, Norm, RowLinear
from .parallel import gather

if TYPE_CHECKING:
    from .settings import Settings


class LatentSelfAttention(nn.Cell):
    """Causal self-attention through narrow projections."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        shape, latent = settings.shape, settings.latent
        self.latent, self.heads = latent, shape.num_attention_heads // settings.groups.tensor.size
        queries = shape.num_attention_heads * latent.head_size
        self.split = (latent.query_rank or queries, latent.key_value_rank, latent.rotary_size)
        self.whole = settings.groups.tensor if settings.sequence else None
        bias = shape.qkv_bias
        self.linear_qkv = Linear(shape.hidden_size, sum(self.split), bias=bias, dtype=settings.dtype)
        norm = (lambda size: Norm(size, settings)) if shape.qk_norm else lambda _: nn.Identity()
        if latent.query_rank:
            self.q_layernorm = norm(latent.query_rank)
            self.linear_qb = ColumnLinear(latent.query_rank, queries, bias=bias, settings=settings)
        self.k_layernorm = norm(latent.key_value_rank)
        outputs = shape.num_attention_heads * (latent.plain_size + latent.value_size)
        self.linear_kvb = ColumnLinear(latent.key_value_rank, outputs, bias=bias, settings=settings)
        self.rotary = Rotary(settings)
        self.core_attention = core_attention(settings, self.heads, latent.head_size)
        self.linear_proj = RowLinear(
            shape.num_attention_heads * latent.value_size, shape.hidden_size, bias=shape.output_bias, settings=settings
        )

    def construct(self, x: Tensor, tables: Tables) -> Tensor:
        """Attend: ``(s, b, h)`` to the same."""
        latent = self.latent
        query, keys, turned_key = mint.split(self.linear_qkv(x), self.split, dim=-1)
        if latent.query_rank:
            query = self.linear_qb(self.q_layernorm(query))
        query = query.reshape(*query.shape[:2], self.heads, latent.head_size)
        plain, turned = mint.split(query, (latent.plain_size, latent.rotary_size), dim=-1)
        query = mint.cat((plain, self.rotary.turn(turned, tables)), dim=-1)

        pair = self.linear_kvb(self.k_layernorm(keys))
        pair = pair.reshape(*pair.shape[:2], self.heads, latent.plain_size + latent.value_size)
        plain, value = mint.split(pair, (latent.plain_size, latent.value_size), dim=-1)
        if self.whole is not None:
            turned_key = gather(turned_key, self.whole)
        turned_key = self.rotary.turn(turned_key.reshape(*turned_key.shape[:2], 1, latent.rotary_size), tables)
        key = mint.cat((plain, mint.tile(turned_key, (1, 1, self.heads, 1))), dim=-1)
        return self.linear_proj(self.core_attention(query, key, value, tables.mask))
