"""Implement self-attention with rotary positions and grouped key/value heads, and the core attention.

Shapes: ``s`` tokens, ``b`` samples, ``n`` query heads of this rank, ``g`` its key/value heads, ``d`` head size. Activations are
``(s, b, …)``. Modules have the names of Megatron-LM's and MindFormers' (``linear_qkv``, ``core_attention``, ``linear_proj``),
so that a config's patterns match them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mindspore
from mindspore import Tensor, mint, nn, ops

from ms_tune.dialects.job_parts import DType
from ms_tune.reference.transformer.context import (
    RingAttention,
    heads_to_sequence,
    join_heads,
    sequence_to_heads,
    split_heads,
)
from ms_tune.reference.transformer.linear import ColumnLinear, Linear, Norm, RowLinear, cast_to, copy_if_view
from ms_tune.reference.transformer.parallel import RankGroup, gather, gather_last, local_part
from ms_tune.reference.transformer.settings import NetworkSettings, number_format

_MASK_SIZE = 2048  # FlashAttentionScore, sparse_mode 2: a compressed lower-triangular mask of this size
LEFT_UP_CAUSAL, ALL = 2, 0


class SelfAttention(nn.Cell):
    """Causal self-attention with one projection for queries, keys and values."""

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
        """Attend: ``(s, b, h)`` to the same shape."""
        query, key, value = self.split_projection(self.linear_qkv(x))
        query = self.apply_positions(query, self.heads, self.q_layernorm, tables)
        key = self.apply_positions(key, self.groups, self.k_layernorm, tables)
        return self.linear_proj(self.core_attention(query, key, value, tables.mask))

    def split_projection(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split the projection's output into queries, keys and values; with ``heads_first`` they are stored by group."""
        parts = self.split
        if self.by_group:
            parts = (self.heads // self.groups * self.size, self.size, self.size)
            mixed = mixed.reshape(*mixed.shape[:2], self.groups, sum(parts))
        query, key, value = mint.split(mixed, parts, dim=-1)
        return query, key, value

    def apply_positions(self, x: Tensor, heads: int, norm: nn.Cell | None, tables: Tables) -> Tensor:
        """Apply normalisation, if the model has it, and rotary positions to heads: ``(s, b, heads, d)``."""
        x = x.reshape(*x.shape[:2], heads, self.size)
        if norm is not None:
            x = norm(x)
        return x if self.rotary is None else self.rotary(x, tables)


@dataclass(frozen=True, slots=True, repr=False)
class Tables:
    """The tensors that all layers share."""

    angles: Tensor  # of the rotary positions; some layers compute the rest from them, others only keep them for recomputation
    cos: Tensor  # cosines of the rotary positions
    sin: Tensor  # their sines
    mask: Tensor  # the causal mask

    def __repr__(self) -> str:
        """Return the shapes only: MindSpore calls this for every layer, and a tensor's text would wait for the device."""
        return f"Tables{self.angles.shape, self.cos.shape, self.sin.shape, self.mask.shape}"


class TableMaker:
    """The maker of the tables of each forward pass.

    MindFormers' dynamic graph creates angles, cosines, sines and a whole mask again in each forward pass (``GPTModel`` of
    ``pynative/base_models/gpt/gpt_model.py``, 2.1); except for the angles they live until its backward pass is over.
    """

    def __init__(self, settings: NetworkSettings, rotary_size: int) -> None:
        self.legacy, self.dtype = settings.shape.legacy, settings.format_of("rotary")
        self.shape = (settings.tokens, 1, 1, rotary_size if settings.shape.rotary else 0)
        self.shared = not settings.shape.separate_tables
        self.angles = self.make_angles() if self.legacy else None
        self.words: Tensor | None = None
        if settings.shape.full_mask:
            # pynative/layers/mask_generate.py: the triangle stays in the number format of the computation, and each sample has
            # its own mask, since its tokens are not all the same.
            samples, positions = settings.config.batch.micro_batch_size, settings.shape.seq_length
            dtype = settings.format_of("compute")
            self.mask = mint.tril(mint.ones((positions, positions), dtype=dtype))
            self.words = mint.ones((samples, 1, 1, positions), dtype=dtype)
        else:
            size = _MASK_SIZE if settings.shape.flash_attention else settings.tokens
            self.mask = mint.triu(mint.ones((size, size), dtype=mindspore.uint8), 1)

    def tables(self) -> Tables:
        """Return the tables of a forward pass."""
        mask = self.mask if self.words is None else (1 - self.words * self.mask).astype(mindspore.uint8)
        if self.angles is not None:
            return Tables(self.angles, self.angles, self.angles, mask)  # each use of them computes cosines and sines
        angles = self.make_angles()
        if not self.shared:
            return Tables(angles, angles, angles, mask)
        return Tables(angles, cast_to(mint.cos(angles), self.dtype), cast_to(mint.sin(angles), self.dtype), mask)

    def make_angles(self) -> Tensor:
        """Return the angles ``(s, 1, 1, size)``, float32, on the device; their values do not matter in simulation."""
        return mint.zeros(self.shape, dtype=mindspore.float32)


class Rotary(nn.Cell):
    """Rotary position embedding of ``(s, b, heads, d)``, as one fused operator, for part of the head or all of it."""

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        self.dtype, self.own = settings.format_of("rotary"), settings.shape.separate_tables

    def construct(self, x: Tensor, tables: Tables) -> Tensor:
        """Rotate the first part of each head."""
        turned = tables.cos.shape[-1]
        if turned == x.shape[-1]:
            return self.turn(x, tables)
        first, rest = mint.split(x, (turned, x.shape[-1] - turned), dim=-1)
        return mint.cat((self.turn(first, tables), rest), dim=-1)

    def turn(self, x: Tensor, tables: Tables) -> Tensor:
        """Apply rotary positions to the whole of each head, in the number format for positions."""
        given, cos, sin = x.dtype, tables.cos, tables.sin
        if self.own:  # `ApplyRotaryPosEmb` of pynative/base_models/common/embeddings/rope_utils.py, 2.0
            cos, sin = cast_to(mint.cos(cos), self.dtype), cast_to(mint.sin(sin), self.dtype)
        if given == self.dtype:
            return ops.rotary_position_embedding(x, cos, sin, 0)
        return ops.rotary_position_embedding(x.astype(self.dtype), cos, sin, 0).astype(given)


def core_attention(settings: NetworkSettings, heads: int, size: int) -> nn.Cell:
    """Return the core attention, for sequences that are split over ranks or not."""
    groups, shape, heads = settings.groups, settings.shape, heads // settings.groups.ulysses.size
    inner: nn.Cell
    if shape.legacy and groups.ring.size > 1:
        inner = RingAttention(groups, heads, size**-0.5)
    elif shape.legacy and groups.ulysses.size == 1:
        return (
            LegacyFlashAttention(settings, heads, size)
            if shape.flash_attention
            else LegacyPlainAttention(settings, size)
        )
    elif shape.heads_first and not shape.legacy:
        inner = HeadsFirstAttention(heads, size, groups.ring)
    else:
        inner = FlashAttention(heads, size, groups.ring)
    return UlyssesAttention(settings, inner) if groups.ulysses.size > 1 else inner


class FlashAttention(nn.Cell):
    """FlashAttention on concatenated heads, of this rank's queries with the keys and values of all ranks.

    MindFormers' dynamic graph has no ring: its methods ``colossal`` and ``hybrid`` gather all keys and values (HyperParallel,
    ``core/context_parallel/context_parallel.py`` at 020bbee6), which stay until the backward pass.
    """

    def __init__(self, heads: int, size: int, group: RankGroup) -> None:
        super().__init__()
        self.heads, self.scale, self.group = heads, size**-0.5, group

    def construct(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attend: heads ``(s, b, n, d)`` to ``(s, b, n d)``."""
        return ops.flash_attention_score(
            join_heads(query),
            gather(join_heads(key), self.group),
            gather(join_heads(value), self.group),
            self.heads,
            attn_mask=mask,
            scalar_value=self.scale,
            input_layout="SBH",
            sparse_mode=LEFT_UP_CAUSAL,
        )


class HeadsFirstAttention(FlashAttention):
    """FlashAttention on ``(b, n, s, d)`` (``pynative/layers/flash_attention.py``, 2.1), with copies before and after it."""

    def construct(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attend: heads ``(s, b, n, d)``, or concatenated, to ``(s, b, n d)``."""
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
    """Attention over the whole sequence with some of the heads, with an all-to-all before and after it."""

    def __init__(self, settings: NetworkSettings, inner: nn.Cell) -> None:
        super().__init__()
        self.group, self.inner = settings.groups.ulysses, inner

    def construct(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attend: heads ``(s, b, n, d)`` to ``(s, b, n d)``."""
        heads = query.shape[2]
        value = split_heads(value, key)
        query, key, value = (heads_to_sequence(x, self.group) for x in (query, key, value))
        context = self.inner(query, key, value, mask)
        context = context.reshape(*context.shape[:2], heads // self.group.size, -1)
        return join_heads(sequence_to_heads(context, self.group))


class LatentSelfAttention(nn.Cell):
    """Multi-head latent attention (DeepSeek): narrow projections for queries, and for keys with values.

    As ``MLASelfAttention`` of MindFormers (``pynative/transformers/multi_latent_attention.py``, 2.1): one down-projection for
    both, complete on every tensor-parallel rank and applied to its part of the sequence; up-projections are split by heads. In
    2.0 (``_apply_layers_tp`` of ``pynative/base_models/gpt/parallelize.py``) the input is the whole sequence, and keys and
    values are those of all heads until attention selects this rank's.
    """

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        shape, latent = settings.shape, settings.latent
        self.latent, self.heads = latent, shape.num_attention_heads // settings.groups.tensor.size
        queries = shape.num_attention_heads * latent.head_size
        self.split = (latent.query_rank or queries, latent.key_value_rank, latent.rotary_size)
        self.group, self.cut, self.all_heads = settings.groups.tensor, settings.sequence, settings.gathers_sequence
        inside = settings.inside if self.all_heads else settings
        bias = shape.qkv_bias
        formats = {"dtype": settings.dtype, "compute": settings.format_of("compute")}
        self.linear_qkv = Linear(shape.hidden_size, sum(self.split), bias=bias, copies=self.all_heads, **formats)
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
        """Attend: ``(s, b, h)`` to the same shape."""
        query, key, value = self.heads_of(x, tables)
        if self.all_heads:
            key, value = (local_part(one, self.group, 2).contiguous() for one in (key, value))
        return self.linear_proj(self.core_attention(query, key, value, tables.mask))

    def heads_of(self, x: Tensor, tables: Tables) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values.

        The result of each step stays alive until the last step, as in ``get_query_key_value_tensors``: therefore each
        result has a separate name here.
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
        """Split the last axis into views, or copies of them."""
        return tuple(copy_if_view(part, wanted=self.all_heads) for part in mint.split(x, sizes, dim=-1))


_MASKED = -10000.0


class LegacySelfAttention(nn.Cell):
    """Causal self-attention of MindSpeed-Core-MS r0.1.0, including its copies (``legacy/model/transformer.py``).

    Each group's queries are stored next to their key and value, so all three are copied when split. The same code is in
    MindFormers 1.6 (``experimental/parallel_core/pynative/transformer``), which it was compared with.
    """

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        shape, tensor = settings.shape, settings.groups.tensor.size
        self.groups, self.size = max(1, shape.num_query_groups // tensor), shape.head_size
        self.repeats = shape.num_attention_heads // tensor // self.groups
        width = shape.num_attention_heads * self.size
        outputs = width + 2 * self.groups * tensor * self.size
        self.linear_qkv = ColumnLinear(shape.hidden_size, outputs, bias=shape.qkv_bias, settings=settings)
        self.rotary = LegacyRotary(settings) if shape.rotary else None
        self.core_attention = core_attention(settings, self.repeats * self.groups, self.size)
        self.linear_proj = RowLinear(width, shape.hidden_size, bias=shape.output_bias, settings=settings)

    def construct(self, x: Tensor, tables: Tables) -> Tensor:
        """Attend: ``(s, b, h)`` to the same shape."""
        mixed = self.linear_qkv(x)
        mixed = mixed.view(*mixed.shape[:2], self.groups, (self.repeats + 2) * self.size)
        query, key, value = mint.split(mixed, [self.repeats * self.size, self.size, self.size], dim=3)
        query = query.reshape(*query.shape[:2], -1, self.size)
        if self.repeats > 1:
            key = mint.repeat_interleave(key, self.repeats, dim=2)
            value = mint.repeat_interleave(value, self.repeats, dim=2)
        if self.rotary is not None:
            query, key = self.rotary(query, tables), self.rotary(key, tables)
        return cast_to(self.linear_proj(self.core_attention(query, key, value, tables.mask)), x.dtype)


class LegacyRotary(nn.Cell):
    """Rotary positions; every use of them computes cosines and sines again (``legacy/model/rotary_pos_embedding.py``)."""

    def __init__(self, settings: NetworkSettings) -> None:
        super().__init__()
        self.fused = settings.shape.fused_rotary

    def construct(self, x: Tensor, tables: Tables) -> Tensor:
        """Rotate all of each head: ``(s, b, heads, d)`` to the same shape."""
        angles = tables.angles
        cos, sin = cast_to(mint.cos(angles), x.dtype), cast_to(mint.sin(angles), x.dtype)
        if self.fused:
            return ops.rotary_position_embedding(x, cos, sin, 0)
        first, second = mint.split(x, x.shape[-1] // 2, dim=-1)
        return x * cos + mint.cat((-second, first), dim=-1) * sin


class LegacyFlashAttention(nn.Cell):
    """FlashAttention; it does not accept float32, which is converted to float16."""

    def __init__(self, settings: NetworkSettings, heads: int, size: int) -> None:
        super().__init__()
        self.heads, self.scale, self.heads_first = heads, size**-0.5, settings.shape.heads_first

    def construct(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Attend: heads ``(s, b, n, d)`` to ``(s, b, n d)``."""
        query, key, value = (
            cast_to(x, mindspore.float16) if x.dtype == mindspore.float32 else x for x in (query, key, value)
        )
        if self.heads_first:
            query, key, value = (mint.permute(x, (1, 2, 0, 3)) for x in (query, key, value))
        else:
            query, key, value = (x.reshape(*x.shape[:2], -1) for x in (query, key, value))
        settings = {"attn_mask": mask, "scalar_value": self.scale, "sparse_mode": LEFT_UP_CAUSAL}
        layout = "BNSD" if self.heads_first else "SBH"
        context = ops.flash_attention_score(query, key, value, self.heads, input_layout=layout, **settings)
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
        masked = self.masked(cast_to(scores, self.softmax), mask)
        shares = cast_to(mint.nn.functional.softmax(masked, dim=-1), scores.dtype).view(batch * heads, length, -1)
        value = mint.transpose(value.reshape(length, batch * heads, -1), 0, 1)
        context = mint.bmm(cast_to(shares, value.dtype), value).view(batch, heads, length, size)
        return mint.permute(context, (2, 0, 1, 3)).reshape(length, batch, heads * size)

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Mask the scores of later tokens (``legacy/model/utils.py``)."""
        if self.adds:
            return scores + cast_to(mask, scores.dtype)
        return scores.masked_fill(cast_to(mask, mindspore.bool_), _MASKED)
