"""Predict the seconds of a transformer layer's passes, of its communication, and of the optimizer's step.

Every time is a sum of operators. A matrix product takes its operations at the device's peak times an efficiency, its operands at the
bandwidth of the memory, and a launch; this makes small products slow. Other operators take the bytes that they read and write. A
backward pass has twice the operations and bytes of the forward pass, and flash attention 2.5 times (Dao, 2023, section 3.1.2).
Operators of a layer: Korthikanti et al. (2022), figure 2; docs/seconds.md compares the sums with published runs.

Ranks are numbered as Megatron-LM and MindFormers do: TP innermost, then CP, DP, PP. A group is given by its size and by the distance
between its ranks, which show how many of them share a node. Sources: Narayanan et al. (2021), section 3 (bytes of a ring); NCCL's
``PERFORMANCE.md`` (a ring crosses nodes over as many adapters as it has ranks in a node).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log2

from ms_tune.enums import RecomputeMode
from ms_tune.estimate.flops import Widths, layer_parameters
from ms_tune.estimate.memory import RankShare
from ms_tune.facts.devices import Speed
from ms_tune.records import Record

_TERA, _GIGA, _MICRO, _HALF = 1e12, 1e9, 1e-6, 2
# Bytes read and written per value, forward. Two norms (4 arrays) and two sums with a residual (6); rotary embeddings (4); an
# activation function reads its inputs and writes one; scores without flash attention: written, masked and scaled, softmax, dropout.
_BETWEEN, _ROTARY, _SCORES = 10 * _HALF, 4 * _HALF, 6.5 * _HALF
_NORMS = 60  # in addition, of two norms made of single float32 operators
_LOSS = 16  # per logit: float32 copy, maximum, exponentials, gradient
_FLASH_BACK = 2.5
# Bytes per parameter of AdamW with mixed precision: gradient, master weight and both moments, read and written; the new weight.
_UPDATE = 4 + 3 * 8 + 2
SHARDED_WEIGHTS = 3  # value of `Software.shards`
_KERNELS = 8  # other than matrix products, per pass of a layer


class PassTimes(Record):
    """Seconds of a micro-batch."""

    forward: float
    backward: float
    again: Mapping[RecomputeMode, float] = {}  # added to the backward pass by recomputation
    sent: float = 0.0  # of both passes, communication that nothing hides


class Software(Record):
    """The framework's behaviour."""

    flash: bool = True  # flash attention; causal: half of the scores
    gradient_bytes: int = 4  # per parameter, when gradients are added up over data-parallel ranks
    shards: int = 1  # 0: each rank has all states; 1: the optimizer's states are sharded; 3: weights, too
    overlaps: bool = False  # data-parallel communication runs next to the passes
    scatters: bool = False  # TP ranks send a part each between stages, also without sequence parallelism
    old_flash: bool = False  # flash attention at half of the efficiency of its second release
    single_norms: bool = False  # norms are made of single operators
    fused: bool = False  # TP communication runs next to the matrix products (MC2; `--tp-comm-overlap`)


class _Clock:
    """Times of operators on a device."""

    def __init__(self, speed: Speed) -> None:
        self._flop = 1 / (speed.tflops * _TERA * speed.matmul)
        self._attention = 1 / (speed.tflops * _TERA * speed.attention)
        self._byte = 1 / (speed.memory_gbs * _GIGA * speed.memory)
        self._launch = speed.launch_us * _MICRO

    def product(self, rows: float, inner: float, columns: float, copies: float = 1) -> float:
        """Return the seconds of ``copies`` matrix products."""
        moved = _HALF * (rows * inner + inner * columns + rows * columns)
        return copies * max(2 * rows * inner * columns * self._flop, moved * self._byte) + self._launch

    def moved(self, size: float, kernels: int = 1) -> float:
        """Return the seconds of operators that read and write ``size`` bytes."""
        return size * self._byte + kernels * self._launch

    def flash(self, flops: float) -> float:
        """Return the seconds of flash attention."""
        return flops * self._attention + self._launch


def layer_times(widths: Widths, share: RankShare, speed: Speed, software: Software, *, experts: bool) -> PassTimes:
    """Return the seconds of a layer on a rank."""
    clock, one, tokens, tensor = _Clock(speed), widths.attention, share.tokens, share.tensor
    hidden, between = widths.hidden, share.tokens * widths.hidden / share.between
    keys = one.groups * (one.head + one.value)
    products = clock.product(tokens, hidden, (one.heads * one.head + keys) / tensor)
    products += clock.product(tokens, one.heads * one.value / tensor, hidden)
    if one.key_rank:
        products += clock.product(tokens, hidden, one.query_rank + one.key_rank + one.rotary)
    shared = widths.shared if experts else widths.feed_forward
    products += _feed_forward(clock, widths, tokens, shared / tensor)
    inner = shared / tensor
    if experts:
        rows, own = tokens * widths.chosen / share.between, widths.experts / share.expert
        products += own * _feed_forward(clock, widths, rows * share.expert / widths.experts, widths.expert)
        inner += widths.chosen * widths.expert / share.between
    moved = between * (_BETWEEN + _NORMS * software.single_norms) + tokens * inner * (3 if widths.gated else 2) * _HALF
    moved += tokens * (one.heads * one.head + one.groups * one.head) / tensor * _ROTARY
    other = clock.moved(moved, _KERNELS)
    scores, scores_back = _attention(clock, widths, share, software)
    sent = _sent_seconds(widths, share, speed, scores, software, experts=experts)
    forward, backward = products + other + scores, 2 * (products + other) + scores_back
    core = scores if not software.flash else clock.moved(tokens * inner * 3 * _HALF)
    again = {
        RecomputeMode.NONE: 0.0,
        RecomputeMode.SELECT: core,
        RecomputeMode.COMM: sent / 2,
        RecomputeMode.BOTH: core + sent / 2,
        RecomputeMode.FULL: forward + sent,
        RecomputeMode.SWAP: 0.0,
    }
    return PassTimes(forward + sent, backward + sent, again, 2 * sent)


def _feed_forward(clock: _Clock, widths: Widths, rows: float, inner: float) -> float:
    if not rows or not inner:
        return 0.0
    return clock.product(rows, widths.hidden, (1 + widths.gated) * inner) + clock.product(rows, inner, widths.hidden)


def _attention(clock: _Clock, widths: Widths, share: RankShare, software: Software) -> tuple[float, float]:
    # Return the seconds of scores, softmax and their product with the values: forward, backward.
    one, length, heads = widths.attention, widths.tokens, widths.attention.heads / share.tensor
    flops = 2 * share.tokens * length * heads * (one.head + one.value)
    if software.flash:
        flops = flops if software.old_flash else flops / 2
        return clock.flash(flops), clock.flash(_FLASH_BACK * flops)
    copies = heads * share.tokens * share.context / length
    rows = length / share.context
    forward = clock.product(rows, one.head, length, copies) + clock.product(rows, length, one.value, copies)
    forward += clock.moved(share.tokens * length * heads * _SCORES, 3)
    return forward, 2 * forward


def _sent_seconds(  # noqa: PLR0913 - as `layer_times`, and the seconds that hide keys
    widths: Widths, share: RankShare, speed: Speed, scores: float, software: Software, *, experts: bool
) -> float:
    # Return the seconds of a layer's communication in one pass: two sums over TP ranks, tokens of experts, keys of CP ranks.
    size = _HALF * share.tokens * widths.hidden
    sent = 2 * reduce_seconds(speed, size, share.tensor, 1) * (1 - speed.fused * software.fused)
    if experts and share.expert > 1:
        sent += 2 * gather_seconds(speed, size * widths.chosen / share.between, share.expert, share.tensor)
    if share.context > 1:
        one = widths.attention
        keys = _HALF * share.tokens * one.groups * (one.head + one.value) / share.tensor
        ring = (share.context - 1) * send_seconds(speed, keys, share.tensor)
        sent += max(ring - scores, 0.0)
    return sent


def head_times(widths: Widths, share: RankShare, speed: Speed) -> PassTimes:
    """Return the seconds of the logits and the loss."""
    clock, columns = _Clock(speed), widths.vocabulary / share.tensor
    logits = clock.product(share.tokens, widths.hidden, columns)
    loss = clock.moved(share.tokens * columns * _LOSS / 2, 4)
    return PassTimes(logits + loss, 2 * logits + loss)


def hand_over_seconds(widths: Widths, share: RankShare, speed: Speed, software: Software) -> float:
    """Return the seconds in which a stage receives a micro-batch from the previous one."""
    size = _HALF * share.tokens * widths.hidden / (share.tensor if software.scatters else share.between)
    return send_seconds(speed, size, share.tensor * share.context * share.data)


class StepEnd(Record):
    """Seconds after the passes of a stage."""

    gradients: float  # sum over the data-parallel ranks
    weights: float  # gathering updated weights
    update: float  # the optimizer

    def after(self, passes: PassTimes, software: Software) -> float:
        """Return the seconds of a step's end that the last micro-batch's passes do not hide."""
        hidden = (passes.backward, passes.forward) if software.overlaps else (0.0, 0.0)
        return max(self.gradients - hidden[0], 0.0) + max(self.weights - hidden[1], 0.0) + self.update


def end_times(parameters: float, share: RankShare, speed: Speed, software: Software) -> StepEnd:
    """Return the seconds of a stage with this many parameters on each rank."""
    ranks = share.data * share.context
    gradients, weights = software.gradient_bytes * parameters, _HALF * parameters
    scatter = gather_seconds(speed, gradients, ranks, share.tensor)
    gather = gather_seconds(speed, weights if software.shards else gradients, ranks, share.tensor)
    update = _Clock(speed).moved(_UPDATE * parameters / (ranks if software.shards else 1))
    if software.shards == SHARDED_WEIGHTS:
        return StepEnd(0.0, 0.0, update)
    return StepEnd(scatter + (0.0 if software.shards else gather), gather if software.shards else 0.0, update)


def sharded_pass(times: PassTimes, parameters: float, share: RankShare, speed: Speed) -> PassTimes:
    """Return the seconds of a pass whose weights are gathered meanwhile: the longer of computing and gathering."""
    gather = gather_seconds(speed, _HALF * parameters, share.data * share.context, share.tensor)
    return times._replace(forward=max(times.forward, gather), backward=max(times.backward, 2 * gather))


def stage_parameters(widths: Widths, share: RankShare, dense: int, experts: int) -> int:
    """Return the parameters of a stage's layers on a rank."""
    return dense * layer_parameters(widths, share.tensor, share.expert, experts=False) + (
        experts * layer_parameters(widths, share.tensor, share.expert, experts=True) if experts else 0
    )


def group_bandwidth(speed: Speed, ranks: int, distance: int) -> float:
    """Return the bytes per second that each rank of a group sends and receives at once in a collective."""
    near = max(min(ranks, speed.node // distance), 1)
    # In a full mesh each pair has a link of its own: a group uses only those between its ranks.
    inside = speed.link_gbs * ((near - 1) / (speed.node - 1) if speed.mesh else 1) * speed.link * _GIGA
    if near == ranks:
        return inside
    between = speed.between_gbs * near * speed.between * _GIGA
    return min(inside, between) if near > 1 else between


def gather_seconds(speed: Speed, size: float, ranks: int, distance: int) -> float:
    """Return the seconds to gather an array of ``size`` bytes, of which each rank has a part; to scatter its sum takes as long."""
    if ranks == 1:
        return 0.0
    latency = speed.hop_us * _MICRO * log2(ranks)
    return size * (ranks - 1) / ranks / group_bandwidth(speed, ranks, distance) + latency


def reduce_seconds(speed: Speed, size: float, ranks: int, distance: int) -> float:
    """Return the seconds to add up an array of all ranks: a scatter of the sum, and a gather."""
    return 2 * gather_seconds(speed, size, ranks, distance)


def send_seconds(speed: Speed, size: float, distance: int) -> float:
    """Return the seconds to send an array to the rank at this distance."""
    near = distance < speed.node
    rate = (
        speed.link_gbs * speed.link / (speed.node - 1 if speed.mesh else 1)
        if near
        else speed.between_gbs * speed.between
    )
    return size / (rate * _GIGA) + speed.hop_us * _MICRO
