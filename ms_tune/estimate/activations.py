"""Closed forms of what a transformer's layers keep and send: good enough to rank layouts by, never to say that one fits.

Activations of a layer follow Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), with flash
attention, grouped keys and gated feed-forward blocks. What is sent follows Narayanan et al. (2021), section 3: a ring
of n ranks sends (n - 1) / n of an array in a gather or a scatter, twice that in a reduction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ms_tune.estimate.flops import Widths

_HALF = 2  # bytes of an activation
_SOFTMAX = 64  # bytes that flash attention keeps of a token and a head: two arrays of eight float32
_LOGITS = 12  # bytes of a token and a word: logits, their float32 copy, their gradient
_LOGITS_IN_PLACE = 6  # the same where the copy becomes the gradient (Megatron-LM ``tensor_parallel/cross_entropy.py``)


@dataclass(frozen=True, slots=True)
class RankShare:
    """A rank's part of a micro-batch."""

    tokens: int  # of the samples of a micro-batch, as far as context parallelism leaves them
    tensor: int  # ranks that share each layer
    sequence: bool  # between the layers these share the tokens, too
    context: int = 1  # ranks that share a sequence
    expert: int = 1  # ranks that share the experts

    @property
    def between(self) -> int:
        """Over how many ranks what lies between layers is split."""
        return self.tensor if self.sequence else 1


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes that a layer keeps of a micro-batch between its forward and its backward pass."""

    none: int
    full: int


def layer_activations(widths: Widths, share: RankShare, *, experts: bool) -> Activations:
    """What a layer keeps if it recomputes nothing, and if it recomputes everything.

    Args:
        widths: The model.
        share: A rank's part of a micro-batch.
        experts: Whether the layer has experts.
    """
    one, tokens = widths.attention, share.tokens
    between = _HALF * tokens * widths.hidden
    wide = one.heads * (one.head + 2 * one.value) + one.groups * (one.head + one.value)
    kept = 2 * between + 2 * between // share.between
    kept += (_HALF * tokens * wide + _SOFTMAX * tokens * one.heads) // share.tensor
    inner = widths.chosen * widths.expert + widths.shared if experts else widths.feed_forward
    kept += _HALF * tokens * inner * (4 if widths.gated else 2) // share.tensor
    if experts:  # sent to the experts, and received from them
        kept += 2 * between * widths.chosen // share.between
    return Activations(kept, between // share.between)


def megatron_activations(widths: Widths, share: RankShare, *, experts: bool, fused: bool) -> Activations:
    """What a layer of Megatron-LM on MSAdapter keeps, with flash attention and one operator for each norm and each rotary embedding.

    Block by block as the layers of Qwen2.5-7B kept it (docs/megatron.md): two norms and two sums between layers, which sequence
    parallelism splits; queries, keys, values, their rotary casts, what attention returns; the products of the feed-forward block.

    Args:
        widths: The model.
        share: A rank's part of a micro-batch.
        experts: Whether the layer has experts.
        fused: Whether a gate and its product are one operator, which keeps nothing between the two.
    """
    one, tokens = widths.attention, share.tokens
    between = _HALF * tokens * widths.hidden
    kept = 4 * between // share.between
    wide = one.heads * (one.head + one.value) + one.groups * (one.head + one.value)
    kept += (_HALF * tokens * wide + _SOFTMAX * tokens * one.heads) // share.tensor
    inner = widths.chosen * widths.expert + widths.shared if experts else widths.feed_forward
    kept += _HALF * tokens * inner * (2 if not widths.gated else 3 if fused else 4) // share.tensor
    if experts:  # sent to the experts, and received from them
        kept += 2 * between * widths.chosen // share.between
    return Activations(kept, between // share.between)


def logits_bytes(widths: Widths, share: RankShare, *, in_place: bool = False) -> int:
    """What the loss holds while the last forward pass ends."""
    return (_LOGITS_IN_PLACE if in_place else _LOGITS) * share.tokens * widths.vocabulary // share.tensor


def sent_by_layer(widths: Widths, share: RankShare, *, experts: bool, again: bool) -> int:
    """Bytes that a rank sends for one layer and one micro-batch, forward and backward.

    Args:
        widths: The model.
        share: A rank's part of a micro-batch.
        experts: Whether the layer has experts.
        again: Whether its forward pass is done twice.
    """
    between = _HALF * share.tokens * widths.hidden
    passes = 3 if again else 2
    sent = passes * 2 * _around(2 * between, share.tensor)  # attention and feed-forward block, each a reduction
    keys = _HALF * share.tokens * widths.attention.groups * (widths.attention.head + widths.attention.value)
    sent += passes * keys // share.tensor * (share.context - 1)  # a ring of keys and values
    if experts:
        sent += passes * 2 * _around(between * widths.chosen // share.between, share.expert)
    return sent


def sent_by_weights(weights: int, ranks: int) -> int:
    """Bytes that a rank sends once a step: gradients scattered, weights gathered.

    Args:
        weights: Bytes of a rank's weights.
        ranks: Ranks that hold the same.
    """
    return 2 * _around(weights, ranks)


def handed_on(widths: Widths, share: RankShare) -> int:
    """Bytes that a cell hands to the next one, and gets back, of one micro-batch."""
    return 2 * _HALF * share.tokens * widths.hidden // share.between


def _around(size: int, ranks: int) -> int:
    return size * (ranks - 1) // ranks
