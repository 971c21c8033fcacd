"""The network: embedding, transformer layers, output projection, loss.

Shapes: ``b`` samples, ``s`` tokens, ``h`` hidden size, ``n`` attention heads, ``g`` key/value heads, ``d`` head size,
``f`` feed-forward width, ``v`` vocabulary. Activations are ``(b, s, h)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops
from mindspore.common.initializer import initializer

if TYPE_CHECKING:
    from ms_tune.config.model import ModelShape

_CAUSAL_MASK_SIZE = 2048  # FlashAttentionScore, sparse_mode 2: a compressed lower-triangular mask of this size
_LEFT_UP_CAUSAL = 2
_ROTARY_BASE = 10000.0


class Linear(nn.Cell):
    """``(…, inputs)`` to ``(…, outputs)``; the weight is ``(outputs, inputs)``."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, dtype: mindspore.Type) -> None:
        super().__init__()
        self.weight = Parameter(initializer("normal", (outputs, inputs), dtype))
        self.bias = Parameter(initializer("zeros", (outputs,), dtype)) if bias else None

    def construct(self, x: Tensor) -> Tensor:
        """Project the last axis."""
        return mint.nn.functional.linear(x, self.weight, self.bias)


class RMSNorm(nn.Cell):
    """Root-mean-square normalisation of the last axis, as one fused operator."""

    def __init__(self, size: int, dtype: mindspore.Type) -> None:
        super().__init__()
        self.weight = Parameter(initializer("ones", (size,), dtype))

    def construct(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        return ops.rms_norm(x, self.weight)[0]


class Attention(nn.Cell):
    """Causal self-attention with rotary positions, grouped key/value heads and FlashAttention."""

    def __init__(self, shape: ModelShape, dtype: mindspore.Type) -> None:
        super().__init__()
        self.heads, self.groups, self.size = shape.num_attention_heads, shape.num_query_groups, shape.head_size
        query, key = self.heads * self.size, self.groups * self.size
        self.qkv = Linear(shape.hidden_size, query + 2 * key, bias=shape.qkv_bias, dtype=dtype)
        self.out = Linear(query, shape.hidden_size, bias=shape.output_bias, dtype=dtype)
        self.split = (query, key, key)
        self.scale = self.size**-0.5

    def construct(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        """Attend; ``cos`` and ``sin`` are ``(1, s, 1, d)``, ``mask`` is FlashAttention's compressed mask."""
        batch, length, _ = x.shape
        query, key, value = mint.split(self.qkv(x), self.split, dim=-1)
        query = self.rotate(query.reshape(batch, length, self.heads, self.size), cos, sin)
        key = self.rotate(key.reshape(batch, length, self.groups, self.size), cos, sin)
        context = ops.flash_attention_score(
            query.reshape(batch, length, self.split[0]),
            key.reshape(batch, length, self.split[1]),
            value,
            self.heads,
            attn_mask=mask,
            scalar_value=self.scale,
            input_layout="BSH",
            sparse_mode=_LEFT_UP_CAUSAL,
        )
        return self.out(context)

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotary position embedding of ``(b, s, heads, d)``, as one fused operator."""
        return ops.rotary_position_embedding(x, cos, sin, 0)


class FeedForward(nn.Cell):
    """SwiGLU feed-forward block: one projection up to ``2f``, gate, projection down."""

    def __init__(self, shape: ModelShape, dtype: mindspore.Type) -> None:
        super().__init__()
        self.up = Linear(shape.hidden_size, 2 * shape.ffn_hidden_size, bias=shape.mlp_bias, dtype=dtype)
        self.down = Linear(shape.ffn_hidden_size, shape.hidden_size, bias=shape.mlp_bias, dtype=dtype)

    def construct(self, x: Tensor) -> Tensor:
        """Apply the block."""
        gate, value = mint.chunk(self.up(x), 2, dim=-1)
        return self.down(mint.nn.functional.silu(gate) * value)


class TransformerLayer(nn.Cell):
    """Pre-norm attention and feed-forward block with residual connections."""

    def __init__(self, shape: ModelShape, dtype: mindspore.Type) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(shape.hidden_size, dtype)
        self.attention = Attention(shape, dtype)
        self.feed_forward_norm = RMSNorm(shape.hidden_size, dtype)
        self.feed_forward = FeedForward(shape, dtype)

    def construct(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        """Apply the layer."""
        x = x + self.attention(self.attention_norm(x), cos, sin, mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(nn.Cell):
    """The whole network with its loss: token ids and labels, both ``(b, s)`` of int32, to a scalar.

    Args:
        shape: Sizes of the network.
        dtype: Format of weights and activations.
        recomputed_layers: The first so many layers recompute everything in the backward pass.
    """

    def __init__(self, shape: ModelShape, dtype: mindspore.Type, recomputed_layers: int) -> None:
        super().__init__()
        self.embedding = Parameter(initializer("normal", (shape.vocab_size, shape.hidden_size), dtype))
        self.layers = nn.CellList([TransformerLayer(shape, dtype) for _ in range(shape.num_layers)])
        for layer in self.layers[:recomputed_layers]:
            layer.recompute()
        self.final_norm = RMSNorm(shape.hidden_size, dtype)
        self.tied = shape.tied_embeddings
        if not self.tied:
            self.output = Linear(shape.hidden_size, shape.vocab_size, bias=False, dtype=dtype)
        self.cos, self.sin = _rotary_tables(shape.seq_length, shape.head_size, dtype)
        self.mask = Tensor(np.triu(np.ones((_CAUSAL_MASK_SIZE, _CAUSAL_MASK_SIZE), np.uint8), 1))

    def construct(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy loss, computed in float32."""
        x = mint.nn.functional.embedding(tokens, self.embedding)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, self.mask)
        x = self.final_norm(x)
        logits = mint.nn.functional.linear(x, self.embedding) if self.tied else self.output(x)
        logits = logits.reshape(-1, logits.shape[-1]).astype(mindspore.float32)
        return mint.nn.functional.cross_entropy(logits, labels.reshape(-1))


def _rotary_tables(length: int, size: int, dtype: mindspore.Type) -> tuple[Tensor, Tensor]:
    frequencies = _ROTARY_BASE ** (-np.arange(0, size, 2, dtype=np.float32) / size)
    angles = np.outer(np.arange(length, dtype=np.float32), frequencies)
    angles = np.concatenate([angles, angles], axis=-1)[None, :, None, :]
    return Tensor(np.cos(angles)).astype(dtype), Tensor(np.sin(angles)).astype(dtype)
