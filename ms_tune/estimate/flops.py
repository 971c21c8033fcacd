"""Floating-point operations of a transformer's forward pass, a token at a time: what layers cost beside each other.

A product of a row with an ``m x n`` matrix is ``2 m n`` operations. Attention scores count in full (``6 N`` and causal
halves are other conventions; between layers of one model it makes no difference which is taken). What is not a product of
matrices (norms, rotary embeddings, activations) costs next to nothing of the operations, though not of the time.
Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (2021), appendix.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of a layer."""

    heads: int  # query heads
    groups: int  # key and value heads
    head: int  # width of a query head, and of a key head
    value: int  # width of a value head
    query_rank: int = 0  # width that queries are squeezed through (multi-head latent attention); 0 for none
    key_rank: int = 0  # the same for keys and values; 0 for ordinary attention
    rotary: int = 0  # of a key, the part that all heads share (latent attention only)


@dataclass(frozen=True, slots=True)
class Widths:
    """The sizes of a model."""

    hidden: int  # width of a token
    tokens: int  # tokens of a sequence
    vocabulary: int  # words
    attention: Attention
    feed_forward: int  # inner width of a dense layer
    gated: bool  # whether the feed-forward block has a gate beside its first product
    experts: int = 0  # experts of a layer that has them
    chosen: int = 0  # of these, how many a token goes to
    expert: int = 0  # inner width of one
    shared: int = 0  # inner width of what every token goes through beside them


def layer_flops(widths: Widths, *, experts: bool) -> int:
    """Operations of one layer for one token.

    Args:
        widths: The model.
        experts: Whether the layer's feed-forward block is a mixture of experts.
    """
    hidden, products = widths.hidden, 2 + widths.gated
    if not experts:
        return _attention_flops(widths) + 2 * products * hidden * widths.feed_forward
    inner = widths.chosen * widths.expert + widths.shared
    return _attention_flops(widths) + 2 * products * hidden * inner + 2 * hidden * widths.experts


def head_flops(widths: Widths) -> int:
    """Operations of the logits of one token."""
    return 2 * widths.hidden * widths.vocabulary


def _attention_flops(widths: Widths) -> int:
    one, hidden = widths.attention, widths.hidden
    wide = one.heads * one.head
    weights = one.heads * one.value * hidden  # of the output projection
    weights += one.query_rank * (hidden + wide) if one.query_rank else hidden * wide
    if one.key_rank:
        weights += hidden * (one.key_rank + one.rotary)
        weights += one.key_rank * one.heads * (one.head - one.rotary + one.value)
    else:
        weights += hidden * one.groups * (one.head + one.value)
    scores = widths.tokens * one.heads * (one.head + one.value)
    return 2 * (weights + scores)


def score_flops(widths: Widths) -> int:
    """Operations of one layer's attention scores and of their product with the values, for one token."""
    one = widths.attention
    return 2 * widths.tokens * one.heads * (one.head + one.value)


def prediction_flops(widths: Widths) -> int:
    """Operations of one token in what a prediction layer has beside an ordinary layer: its projection and its logits.

    Source: DeepSeek-V3's report, section 2.2; Megatron-LM core_v0.12.1 ``transformer/multi_token_prediction.py`` (``eh_proj``).
    """
    return 2 * 2 * widths.hidden * widths.hidden + head_flops(widths)
