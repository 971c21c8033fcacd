"""Estimate activations, communication and peak memory of transformer layers and stages.

The estimates can rank layouts and show that a job exceeds the limit; they cannot prove that it fits. Activations follow
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), with flash attention, grouped keys and
gated feed-forward blocks. Communication follows Narayanan et al. (2021), section 3: a ring of n ranks sends (n - 1) / n of an
array in a gather or a scatter, twice that in a reduction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum

from ms_tune.estimate.flops import Attention, Widths
from ms_tune.estimate.static import StaticMemory
from ms_tune.records import Record
from ms_tune.verdict.limit import Limit

_HALF = 2  # bytes of one activation value
_SOFTMAX = 64  # bytes that flash attention keeps per token and head: two arrays of eight float32
_LOGITS = 12  # bytes per token and vocabulary entry: logits, their float32 copy, their gradient
_LOGITS_IN_PLACE = 6  # the same if the copy becomes the gradient (Megatron-LM ``tensor_parallel/cross_entropy.py``)


class RankShare(Record):
    """A rank's share of a micro-batch."""

    tokens: int  # tokens of a micro-batch, divided by CP
    tensor: int  # TP ranks
    sequence: bool  # TP ranks also split the tokens between layers (sequence parallelism)
    context: int = 1  # CP ranks
    expert: int = 1  # EP ranks

    @property
    def between(self) -> int:
        """Return how many ranks split the activations between layers."""
        return self.tensor if self.sequence else 1


class Activations(Record):
    """Bytes that a layer keeps per micro-batch until its backward pass: without and with full recomputation."""

    none: int
    full: int


def layer_activations(widths: Widths, share: RankShare, *, experts: bool) -> Activations:
    """Return the activations of a layer without and with full recomputation."""
    between, one = _HALF * share.tokens * widths.hidden, widths.attention
    kept = 2 * between + 2 * between // share.between
    kept += _attention_bytes(share, one, one.heads * (one.head + 2 * one.value))
    kept += _feed_forward_bytes(widths, share, 4 if widths.gated else 2, experts=experts)
    return Activations(kept, between // share.between)


def megatron_activations(
    widths: Widths, share: RankShare, *, experts: bool, fused: bool, recomputed: Collection[str] = ()
) -> Activations:
    """Return the activations of a Megatron-LM layer, with flash attention and single-operator norms and rotary embeddings.

    Fitted block by block to the layers of Qwen2.5-7B (docs/megatron.md): two norms and two sums between layers, which sequence
    parallelism splits; queries, keys, values, their rotary casts, the output of attention; the products of the feed-forward
    block. A ``fused`` gate and product is one operator, which keeps nothing in between. ``recomputed`` are names of its modules.
    """
    between, one = _HALF * share.tokens * widths.hidden, widths.attention
    norms = sum(name.endswith("layernorm") for name in recomputed)
    kept = (4 - norms) * between // share.between
    if "self_attention" not in recomputed:
        kept += _attention_bytes(share, one, one.heads * (one.head + one.value))
    products = 2 if not widths.gated else 3 if fused else 4
    if any(name.endswith("activation_func") for name in recomputed):
        products = 2 if widths.gated else 1
    kept += 0 if "mlp" in recomputed else _feed_forward_bytes(widths, share, products, experts=experts)
    return Activations(kept, between // share.between)


def _attention_bytes(share: RankShare, one: Attention, of_queries: int) -> int:
    wide = of_queries + one.groups * (one.head + one.value)
    return (_HALF * share.tokens * wide + _SOFTMAX * share.tokens * one.heads) // share.tensor


def _feed_forward_bytes(widths: Widths, share: RankShare, times: int, *, experts: bool) -> int:
    # ``times`` is a multiple of the inner width; with experts, add the tokens sent to them and received from them.
    inner = widths.chosen * widths.expert + widths.shared if experts else widths.feed_forward
    sent = 2 * _HALF * share.tokens * widths.hidden * widths.chosen // share.between if experts else 0
    return _HALF * share.tokens * inner * times // share.tensor + sent


def logits_bytes(widths: Widths, share: RankShare, *, in_place: bool = False) -> int:
    """Return the bytes that the loss needs at the end of the last forward pass."""
    return (_LOGITS_IN_PLACE if in_place else _LOGITS) * share.tokens * widths.vocabulary // share.tensor


def layer_sent_bytes(widths: Widths, share: RankShare, *, experts: bool, again: bool) -> int:
    """Return the bytes that a rank sends per layer and micro-batch, forward, backward, and ``again`` if it is recomputed."""
    between = _HALF * share.tokens * widths.hidden
    passes = 3 if again else 2
    sent = passes * 2 * _ring_share(2 * between, share.tensor)  # attention and feed-forward block, one reduction each
    keys = _HALF * share.tokens * widths.attention.groups * (widths.attention.head + widths.attention.value)
    sent += passes * keys // share.tensor * (share.context - 1)  # a ring of keys and values
    if experts:
        sent += passes * 2 * _ring_share(between * widths.chosen // share.between, share.expert)
    return sent


def weight_sent_bytes(weights: int, ranks: int) -> int:
    """Return the bytes per step that each rank with the same weights sends: gradients are scattered, weights are gathered."""
    return 2 * _ring_share(weights, ranks)


def p2p_bytes(widths: Widths, share: RankShare) -> int:
    """Return the bytes per micro-batch that a cell sends to the next one and gets back."""
    return 2 * _HALF * share.tokens * widths.hidden // share.between


def _ring_share(size: int, ranks: int) -> int:
    return size * (ranks - 1) // ranks


# Ratio of simulated peaks to these estimates for the same jobs (docs/check.md), with a small margin at both ends.
_LOWEST, _LOWEST_STATIC, _HIGHEST, _HIGHEST_WITH_EXPERTS = 0.95, 0.9, 1.5, 2.5
# The same for peaks on NPUs that MindSpeed-LLM publishes with its tests (``tests/**/baseline*``).
_LOWEST_PROGRAM = 0.75


class Outlook(str, Enum):
    """Conclusion that an estimate allows; it never proves that a job fits."""

    OVER = "over"  # over the limit, even if the estimate is as much too high as the worst one seen
    UNSURE = "unsure"
    BELOW = "below"  # below the limit, even if the estimate is as much too low as the worst one seen


class StageEstimate(Record):
    """Estimated peak memory of a stage."""

    stage: int
    layers: int
    recomputed: int  # fully recomputed layers
    lasting_bytes: int  # weights, gradients and optimizer state
    activation_bytes: int  # activations of the micro-batches in flight
    # The layer being recomputed, or the logits; whole weights gathered from the ranks that shard them.
    transient_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Return the total."""
        return self.lasting_bytes + self.activation_bytes + self.transient_bytes


class Estimate(Record):
    """Estimated memory of a job's stages."""

    stages: tuple[StageEstimate, ...]  # the stages, in order
    limit: Limit  # usable device memory of a stage
    reserve_bytes: int  # the reserved part of it
    experts: bool = False  # layers have experts, whose buffers are not modelled
    static: bool = False  # MindFormers' static graph, whose gathered weights are not all alive at once
    program: bool = False  # a program of MindSpeed-LLM
    shorter: bool = False  # samples may be shorter than the sequence length of the estimate

    @property
    def fullest(self) -> StageEstimate:
        """Return the stage with the highest peak."""
        return max(self.stages, key=lambda one: one.peak_bytes)

    @property
    def room_bytes(self) -> int:
        """Return the memory available for a stage's peak."""
        return self.limit.bytes - self.reserve_bytes

    @property
    def ratio_range(self) -> tuple[float, float]:
        """Return the lowest and highest ratio of simulated peaks to estimates of such jobs."""
        lowest = _LOWEST_STATIC if self.static else _LOWEST_PROGRAM if self.program else _LOWEST
        if self.shorter:
            lowest = min(lowest, self.fullest.lasting_bytes / self.fullest.peak_bytes)
        return lowest, _HIGHEST_WITH_EXPERTS if self.experts else _HIGHEST

    @property
    def outlook(self) -> Outlook:
        """Return the conclusion for the job."""
        (low, high), peak = self.ratio_range, self.fullest.peak_bytes
        if peak * low > self.limit.bytes or self.fullest.lasting_bytes > self.limit.bytes:
            return Outlook.OVER
        return Outlook.BELOW if peak * high < self.room_bytes else Outlook.UNSURE


class LiveLayers(Record):
    """Equal layers of a stage."""

    activations: Activations  # per layer and micro-batch
    in_flight: int  # micro-batches in flight at the stage's peak
    full: bool  # each is fully recomputed
    layers: int = 1  # number of layers


def estimate_stage(number: int, layers: int, lasting: int, groups: Iterable[LiveLayers], logits: int) -> StageEstimate:
    """Estimate a stage: persistent memory, activations in flight, and the transient of a recomputed layer or the loss."""
    kept = again = recomputed = 0
    for one in groups:
        kept += one.layers * one.in_flight * (one.activations.full if one.full else one.activations.none)
        again = max(again, one.activations.none if one.full else 0)
        recomputed += one.layers if one.full else 0
    return StageEstimate(number, layers, recomputed, lasting, kept, max(again, logits))


def with_static_weights(stage: StageEstimate, memory: StaticMemory) -> StageEstimate:
    """Return a stage of a static graph: with whole weights in the forward pass, or with all gradients after the backward pass.

    Compared with traces of MindSpore 2.9 (docs/accuracy.md): whole weights stay until the backward pass; without
    accumulation, gradients come when activations go.
    """
    transient = max(stage.transient_bytes + memory.gathered, memory.gradients - stage.activation_bytes)
    return stage._replace(lasting_bytes=stage.lasting_bytes + memory.accumulated, transient_bytes=transient)
