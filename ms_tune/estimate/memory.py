"""Closed forms of what a transformer's layers keep and send, and of what stages hold.

They are good enough to rank layouts by and to see that a job cannot fit, never to say that it does. Activations of a layer follow Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), with flash
attention, grouped keys and gated feed-forward blocks. What is sent follows Narayanan et al. (2021), section 3: a ring
of n ranks sends (n - 1) / n of an array in a gather or a scatter, twice that in a reduction.
"""

from __future__ import annotations

from enum import Enum

from ms_tune.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.estimate.flops import Attention, Widths
    from ms_tune.verdict.limit import Limit

_HALF = 2  # bytes of an activation
_SOFTMAX = 64  # bytes that flash attention keeps of a token and a head: two arrays of eight float32
_LOGITS = 12  # bytes of a token and a word: logits, their float32 copy, their gradient
_LOGITS_IN_PLACE = 6  # the same where the copy becomes the gradient (Megatron-LM ``tensor_parallel/cross_entropy.py``)


class RankShare(Record):
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


class Activations(Record):
    """Bytes that a layer keeps of a micro-batch between its forward and its backward pass."""

    none: int
    full: int


def layer_activations(widths: Widths, share: RankShare, *, experts: bool) -> Activations:
    """What a layer keeps if it recomputes nothing, and if it recomputes everything."""
    between, one = _HALF * share.tokens * widths.hidden, widths.attention
    kept = 2 * between + 2 * between // share.between
    kept += _attention_bytes(share, one, one.heads * (one.head + 2 * one.value))
    kept += _feed_forward_bytes(widths, share, 4 if widths.gated else 2, experts=experts)
    return Activations(kept, between // share.between)


def megatron_activations(widths: Widths, share: RankShare, *, experts: bool, fused: bool) -> Activations:
    """What a layer of Megatron-LM on MSAdapter keeps, with flash attention and one operator for each norm and each rotary embedding.

    Block by block as the layers of Qwen2.5-7B kept it (docs/megatron.md): two norms and two sums between layers, which sequence
    parallelism splits; queries, keys, values, their rotary casts, what attention returns; the products of the feed-forward block.
    A ``fused`` gate and product are one operator, which keeps nothing between the two.
    """
    between, one = _HALF * share.tokens * widths.hidden, widths.attention
    kept = 4 * between // share.between + _attention_bytes(share, one, one.heads * (one.head + one.value))
    kept += _feed_forward_bytes(widths, share, 2 if not widths.gated else 3 if fused else 4, experts=experts)
    return Activations(kept, between // share.between)


def _attention_bytes(share: RankShare, one: Attention, of_queries: int) -> int:
    wide = of_queries + one.groups * (one.head + one.value)
    return (_HALF * share.tokens * wide + _SOFTMAX * share.tokens * one.heads) // share.tensor


def _feed_forward_bytes(widths: Widths, share: RankShare, times: int, *, experts: bool) -> int:
    # So many times the inner width, and with experts what is sent to them and received from them.
    inner = widths.chosen * widths.expert + widths.shared if experts else widths.feed_forward
    sent = 2 * _HALF * share.tokens * widths.hidden * widths.chosen // share.between if experts else 0
    return _HALF * share.tokens * inner * times // share.tensor + sent


def logits_bytes(widths: Widths, share: RankShare, *, in_place: bool = False) -> int:
    """What the loss holds while the last forward pass ends."""
    return (_LOGITS_IN_PLACE if in_place else _LOGITS) * share.tokens * widths.vocabulary // share.tensor


def layer_sent_bytes(widths: Widths, share: RankShare, *, experts: bool, again: bool) -> int:
    """Bytes that a rank sends for one layer and one micro-batch, forward, backward, and ``again`` where it is recomputed."""
    between = _HALF * share.tokens * widths.hidden
    passes = 3 if again else 2
    sent = passes * 2 * _ring_share(2 * between, share.tensor)  # attention and feed-forward block, each a reduction
    keys = _HALF * share.tokens * widths.attention.groups * (widths.attention.head + widths.attention.value)
    sent += passes * keys // share.tensor * (share.context - 1)  # a ring of keys and values
    if experts:
        sent += passes * 2 * _ring_share(between * widths.chosen // share.between, share.expert)
    return sent


def weight_sent_bytes(weights: int, ranks: int) -> int:
    """Bytes that each of the ranks with the same weights sends once a step: gradients scattered, weights gathered."""
    return 2 * _ring_share(weights, ranks)


def p2p_bytes(widths: Widths, share: RankShare) -> int:
    """Bytes that a cell hands to the next one, and gets back, of one micro-batch."""
    return 2 * _HALF * share.tokens * widths.hidden // share.between


def _ring_share(size: int, ranks: int) -> int:
    return size * (ranks - 1) // ranks


# Highest peaks of dryruns beside such estimates of the same jobs, as docs/check.md has them; a little is added to both ends.
_LOWEST, _HIGHEST, _HIGHEST_WITH_EXPERTS = 0.95, 1.5, 2.5


class Outlook(str, Enum):
    """What an estimate allows to say; it never says that a job fits."""

    OVER = "over"  # more than the limit by the estimate, which was never seen to be far too high
    UNSURE = "unsure"
    BELOW = "below"  # below the limit by more than estimates were seen to be too low


class StageEstimate(Record):
    """What a stage holds at its peak."""

    stage: int
    layers: int
    recomputed: int  # those of them that are recomputed in full
    lasting_bytes: int  # weights, gradients and optimizer state
    activation_bytes: int  # what layers keep of the micro-batches in flight
    transient_bytes: int  # the layer that is recomputed, or the logits

    @property
    def peak_bytes(self) -> int:
        """All of it."""
        return self.lasting_bytes + self.activation_bytes + self.transient_bytes


class Estimate(Record):
    """What the stages of a job hold."""

    stages: tuple[StageEstimate, ...]  # the stages, in order
    limit: Limit  # what a stage may take
    reserve_bytes: int  # what is set aside of it
    experts: bool = False  # whether its layers have experts, of whose buffers nothing is known

    @property
    def fullest(self) -> StageEstimate:
        """The stage that holds most."""
        return max(self.stages, key=lambda one: one.peak_bytes)

    @property
    def room_bytes(self) -> int:
        """What a stage's peak may be."""
        return self.limit.bytes - self.reserve_bytes

    @property
    def seen_range(self) -> tuple[float, float]:
        """How many times as much simulated peaks of such jobs were, the least and the most."""
        return _LOWEST, _HIGHEST_WITH_EXPERTS if self.experts else _HIGHEST

    @property
    def outlook(self) -> Outlook:
        """What can be said of the job."""
        (low, high), peak = self.seen_range, self.fullest.peak_bytes
        if peak * low > self.limit.bytes or self.fullest.lasting_bytes > self.limit.bytes:
            return Outlook.OVER
        return Outlook.BELOW if peak * high < self.room_bytes else Outlook.UNSURE


class HeldLayers(Record):
    """Layers of a stage that are alike."""

    activations: Activations  # what one of them keeps of a micro-batch
    in_flight: int  # Micro-batches that it holds when the stage holds most
    full: bool  # each is recomputed in full
    layers: int = 1  # how many there are


def estimate_stage(number: int, layers: int, lasting: int, held: Iterable[HeldLayers], logits: int) -> StageEstimate:
    """What a stage holds: for the whole run, of the micro-batches in flight, and while a layer or the loss is worked out."""
    kept = again = recomputed = 0
    for one in held:
        kept += one.layers * one.in_flight * (one.activations.full if one.full else one.activations.none)
        again = max(again, one.activations.none if one.full else 0)
        recomputed += one.layers if one.full else 0
    return StageEstimate(number, layers, recomputed, lasting, kept, max(again, logits))
