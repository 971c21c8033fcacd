"""Multi-head latent attention (DeepSeek): narrow projections for queries, and for keys with values.

As ``MLASelfAttention`` of MindFormers (``pynative/transformers/multi_latent_attention.py``, 2.1): one projection down for
both, held whole by every tensor-parallel rank and applied to its part of the sequence; projections up are split by heads.
In 2.0 (``_apply_layers_tp`` of ``pynative/base_models/gpt/parallelize.py``) what comes in is the whole sequence, and keys and values are
those of all heads until attention takes this rank's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mindspore import Tensor, mint, nn

from .attention import Rotary, Tables, core_attention
from .linear import ColumnLinear, Linear, Norm, RowLinear, in_one_piece
from .parallel import gather, gather_last, own_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .settings import NetworkSettings


class LatentSelfAttention(nn.Cell):
    """Causal self-attention through narrow projections."""

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        shape, latent = settings.shape, settings.latent
        self.latent, self.heads = latent, shape.num_attention_heads // settings.groups.tensor.size
        queries = shape.num_attention_heads * latent.head_size
        self.split = (latent.query_rank or queries, latent.key_value_rank, latent.rotary_size)
        self.group, self.cut, self.all_heads = settings.groups.tensor, settings.sequence, settings.whole_inside
        inside = settings.inside if self.all_heads else settings
        bias = shape.qkv_bias
        self.linear_qkv = Linear(
            shape.hidden_size,
            sum(self.split),
            bias=bias,
            dtype=settings.dtype,
            copies=self.all_heads,
            compute=settings.format_of("compute"),
        )
        norm = (lambda size: Norm(size, settings)) if shape.qk_norm else lambda _: nn.Identity()
        if latent.query_rank:
            self.q_layernorm = norm(latent.query_rank)
            self.linear_qb = ColumnLinear(latent.query_rank, queries, bias=bias, settings=inside)
        self.k_layernorm = norm(latent.key_value_rank)
        outputs = shape.num_attention_heads * (latent.plain_size + latent.value_size)
        self.linear_kvb = ColumnLinear(latent.key_value_rank, outputs, bias=bias, settings=inside)
        self.rotary = Rotary(settings)
        self.core_attention = core_attention(settings, self.heads, latent.head_size)
        self.linear_proj = RowLinear(
            shape.num_attention_heads * latent.value_size, shape.hidden_size, bias=shape.output_bias, settings=settings
        )

    def construct(self, x: Tensor, tables: Tables) -> Tensor:
        """Attend: ``(s, b, h)`` to the same."""
        query, key, value = self.heads_of(x, tables)
        if self.all_heads:
            key, value = (own_part(one, self.group, 2).contiguous() for one in (key, value))
        return self.linear_proj(self.core_attention(query, key, value, tables.mask))

    def heads_of(self, x: Tensor, tables: Tables) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values.

        What each step came to is alive until the last one is done, as in ``get_query_key_value_tensors``: every step has a
        name of its own here.
        """
        latent = self.latent
        mixed = self.linear_qkv(x)
        query, keys, position = self.pieces(mixed, self.split)
        if latent.query_rank:
            query = self.q_layernorm(query)
            lifted = self.linear_qb(query)
        else:
            lifted = query
        lifted = lifted.reshape(*lifted.shape[:2], self.heads, latent.head_size)
        plain, turned = self.pieces(lifted, (latent.plain_size, latent.rotary_size))
        turned = self.rotary.turn(turned, tables)
        queries = mint.cat((plain, turned), dim=-1)

        pair = self.linear_kvb(self.k_layernorm(keys))
        if self.all_heads:
            pair = gather_last(pair, self.group)
        pair = pair.reshape(*pair.shape[:2], -1, latent.plain_size + latent.value_size)
        plain_key, value = self.pieces(pair, (latent.plain_size, latent.value_size))
        if self.cut and not self.all_heads:
            position = gather(position, self.group)
        position = self.rotary.turn(position.reshape(*position.shape[:2], 1, latent.rotary_size), tables)
        position = mint.tile(position, (1, 1, plain_key.shape[2], 1))
        return queries, mint.cat((plain_key, position), dim=-1), value

    def pieces(self, x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
        """Parts of the last axis: views, or copies."""
        return tuple(in_one_piece(part, wanted=self.all_heads) for part in mint.split(x, sizes, dim=-1))
