"""Estimate activations and peak memory of transformer layers and stages.

The estimates can rank layouts and show that a job exceeds the limit; they cannot prove that it fits. Activations follow
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), with flash attention, grouped keys and
gated feed-forward blocks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum

from ms_tune.dialects.job_parts import DType
from ms_tune.enums import Dialect
from ms_tune.estimate.flops import Widths, layer_parameters
from ms_tune.estimate.static import StaticMemory, has_query_norm, parameter_dtype
from ms_tune.facts.models import ModelConfig
from ms_tune.records import Record
from ms_tune.verdict.limit import Limit

_HALF = 2  # bytes of one activation value
_SOFTMAX = 64  # bytes that flash attention keeps per token and head: two arrays of eight float32
_LOGITS_IN_PLACE = (
    6  # logits and their copy, which becomes the gradient (Megatron-LM ``tensor_parallel/cross_entropy.py``)
)


class KeptBytes(Record):
    """Bytes per token that one kind of graph keeps for the backward pass, per unit of the width in each field's comment.

    Read block by block from traces of MindSpore 2.9.0 (docs/accuracy.md); the same operators in another order keep the same.
    """

    logits: int  # vocabulary entries, once per job
    more_logits: int  # the same for each further prediction (MTP)
    hidden: int  # norms, and sums between layers; sequence parallelism splits them
    queries: int  # heads x width: queries in their layouts, the output of attention
    inner: int  # inner width of a feed-forward block with a gate
    routed: int  # the same of routed experts
    keys: int = 0  # key-value heads x width of a key and a value
    normed: int = 0  # heads x width of queries, and of keys, if they have norms
    latent_queries: int = 4  # heads x width of a key, of latent attention
    latent_values: int = 6  # heads x width of a value, likewise
    ranks: int = 4  # ranks of its queries and keys
    sent: int = 4  # hidden size x chosen experts
    router: int = 0  # hidden size, of a layer with experts
    whole: int = 0  # hidden size: inputs of projections, which sequence parallelism gathers
    gathered: int = 0  # the same, if their parts are kept, too
    casts: int = 0  # parameters of a layer, if they are cast or gathered
    head: int = 0  # those of the head, likewise, for each prediction
    working: int = 0  # parameters of a layer during its backward pass: whole weights and gradients of sharded ones
    again_logits: int = 0  # less vocabulary entries of a further prediction if it is recomputed
    gathered_logits: int = 0  # vocabulary entries on all ranks of a sequence, with CP
    exchanged_logits: int = (
        0  # vocabulary entries, with CP and sequence parallelism, if data-parallel ranks share a batch
    )
    mask: int = 1  # sequence length, squared, once per job
    entry: int = 2  # hidden size: the input of a recomputed layer
    whole_input: bool = False  # a recomputed layer keeps its input whole on each TP rank
    regathered: int = 2  # parameters of a recomputed layer, if ranks shard them
    # Parameters of a stage of several: whole weights and gradients, until all micro-batches have passed.
    pipelined: int = 0
    # Lowest and highest ratio of simulated peaks to estimates (docs/accuracy.md), with a margin at both ends.
    ratios: tuple[float, float] = (0.92, 1.12)
    holds_attention: bool = False  # a recomputed layer with experts on several ranks keeps its attention once more

    def in_pipeline(self) -> KeptBytes:
        """Return the kept bytes in a pipeline of several stages: weights that stay whole are not gathered again for a layer."""
        return self._replace(head=0, working=0) if self.pipelined else self


MINDSPEED_GRAPH = KeptBytes(14, 6, 8, 8, 6, 6, whole=4, whole_input=True, ratios=(0.95, 1.1))
DYNAMIC_GRAPH = KeptBytes(
    18, 6, 8, 10, 8, 8, keys=4, router=4, gathered=4, head=2, mask=2, working=10, pipelined=6, holds_attention=True
)
STATIC_GRAPH = KeptBytes(
    *(16, 16, 8, 6, 8, 6),
    again_logits=4,
    keys=2,
    normed=4,
    ranks=6,
    sent=8,
    router=4,
    whole=4,
    casts=2,
    head=2,
    gathered_logits=6,
    exchanged_logits=8,
    mask=4,
    ratios=(0.9, 1.2),
)
LEGACY_GRAPH = KeptBytes(12, 8, 4, 6, 8, 8, whole=4, keys=2, casts=2, head=2, mask=3, regathered=4)


def graph_of(model: ModelConfig, dialect: Dialect, tensor: int, *, shards: bool) -> KeptBytes:
    """Return the bytes that the graph of a model's network keeps; ``shards``: ranks with the same weights shard them."""
    if dialect is Dialect.MINDSPEED_MS:
        return MINDSPEED_GRAPH
    compresses = model.value("use_attn_mask_compression") is True  # one small mask for all lengths
    if dialect is Dialect.MINDFORMERS_PYNATIVE:  # with TP, the loss keeps no logits in the parameters' format
        less = _HALF if tensor > 1 else 0
        graph = DYNAMIC_GRAPH._replace(logits=DYNAMIC_GRAPH.logits - less, more_logits=DYNAMIC_GRAPH.more_logits - less)
        graph = graph._replace(mask=0) if compresses else graph
        return graph if shards else graph._replace(head=0, working=0, pipelined=0)
    graph = STATIC_GRAPH
    if model.facts.legacy:  # a reduction over TP ranks separates the cast of a norm's input, which is kept then
        graph = LEGACY_GRAPH._replace(hidden=8 if tensor > 1 else LEGACY_GRAPH.hidden)
    graph = graph if has_query_norm(model) else graph._replace(normed=0)
    graph = graph._replace(mask=0) if compresses else graph
    if (
        not model.facts.legacy and model.value("fp32_residual_connection") is True
    ):  # sums and inner products are float32
        graph = graph._replace(inner=14, entry=4)
    other = shards or parameter_dtype(model) is DType.FLOAT32
    return graph if other else graph._replace(casts=0, head=0)


def lasting_bytes(theory: Mapping[str, int], model: ModelConfig, dialect: Dialect) -> int:
    """Return the persistent bytes that a framework's sizes add up to; whole gradients are added if the sizes have none.

    They are float32 in the dynamic graph, else in the format of the weights.
    """
    times = 1
    if dialect is Dialect.MINDFORMERS_PYNATIVE:
        times = DType.FLOAT32.bytes // parameter_dtype(model).bytes
    return sum(theory.values()) + (0 if "gradients" in theory else times * theory.get("weights", 0))


class RankShare(Record):
    """A rank's share of a micro-batch."""

    tokens: int  # tokens of a micro-batch, divided by CP
    tensor: int  # TP ranks
    sequence: bool  # TP ranks also split the tokens between layers (sequence parallelism)
    context: int = 1  # CP ranks
    expert: int = 1  # EP ranks
    data: int = 1  # DP ranks

    @property
    def between(self) -> int:
        """Return the number of ranks that share the activations between two layers."""
        return self.tensor if self.sequence else 1


class Activations(Record):
    """Bytes that a layer keeps per micro-batch until its backward pass: without and with full recomputation."""

    none: int
    full: int
    working: int = 0  # during its backward pass, in addition
    held: int = 0  # after it, until its next forward pass, if it is recomputed
    parameters: int = 0  # number of its weights on a rank
    once: int = 0  # whatever the number of micro-batches, if it is not recomputed


def layer_activations(widths: Widths, share: RankShare, graph: KeptBytes, *, experts: bool) -> Activations:
    """Return the activations of a layer without and with full recomputation."""
    row, one = share.tokens * widths.hidden, widths.attention
    kept = graph.hidden * row // share.between + (graph.whole + (graph.gathered if share.between > 1 else 0)) * row
    of_heads = (graph.queries + graph.normed) * one.head * one.heads + graph.normed * one.head * one.groups
    of_heads += graph.keys * one.groups * (one.head + one.value)
    if one.key_rank:
        of_heads = one.heads * (graph.latent_queries * one.head + graph.latent_values * one.value)
        kept += graph.ranks * share.tokens * (one.query_rank + one.key_rank) // share.between
    kept += share.tokens * (of_heads + _SOFTMAX * one.heads) // share.tensor
    kept += graph.router * row // share.between if experts else 0
    held = kept if experts and graph.holds_attention and share.expert > 1 else 0
    inner = graph.inner * (widths.shared if experts else widths.feed_forward)
    inner += graph.routed * widths.chosen * widths.expert if experts else 0
    kept += share.tokens * inner // (1 if widths.gated else 2) // share.tensor
    kept += graph.sent * row * widths.chosen // share.between if experts else 0
    parameters = layer_parameters(widths, share.tensor, share.expert, experts=experts)
    full = graph.entry * row // (1 if graph.whole_input else share.between)
    return Activations(kept, full, graph.working * parameters, held, parameters, graph.casts * parameters)


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
        wide = (one.heads + one.groups) * (one.head + one.value)
        kept += (_HALF * share.tokens * wide + _SOFTMAX * share.tokens * one.heads) // share.tensor
    products = 2 if not widths.gated else 3 if fused else 4
    if any(name.endswith("activation_func") for name in recomputed):
        products = 2 if widths.gated else 1
    kept += 0 if "mlp" in recomputed else _feed_forward_bytes(widths, share, products, experts=experts)
    return Activations(kept, between // share.between)


def _feed_forward_bytes(widths: Widths, share: RankShare, times: int, *, experts: bool) -> int:
    # ``times`` is a multiple of the inner width; with experts, add the tokens sent to them and received from them.
    inner = widths.chosen * widths.expert + widths.shared if experts else widths.feed_forward
    sent = 2 * _HALF * share.tokens * widths.hidden * widths.chosen // share.between if experts else 0
    return _HALF * share.tokens * inner * times // share.tensor + sent


def score_bytes(widths: Widths, share: RankShare, each: int) -> int:
    """Return the bytes of a layer's attention scores, which flash attention does not keep."""
    return each * share.tokens * widths.tokens * widths.attention.heads // share.tensor


def logits_bytes(widths: Widths, share: RankShare, each: int = _LOGITS_IN_PLACE) -> int:
    """Return the bytes that the loss needs at the end of the last forward pass, with ``each`` per token and vocabulary entry."""
    return each * share.tokens * widths.vocabulary // share.tensor


def head_bytes(widths: Widths, share: RankShare, graph: KeptBytes, predictions: int, *, again: bool = False) -> int:
    """Return the bytes at the beginning of the last backward pass: of the loss, and of the head's weight in another form.

    ``again``: the layers of further predictions are recomputed.
    """
    more = graph.more_logits - (graph.again_logits if again else 0)
    logits = logits_bytes(widths, share, graph.logits + predictions * more)
    weights = widths.hidden * widths.vocabulary // share.tensor
    if share.context > 1 and not share.sequence:  # the static graph gathers those of all ranks that share a sequence
        logits += graph.gathered_logits * share.tokens * share.context * widths.vocabulary
    return logits + exchanged_bytes(widths, share, graph) + graph.head * (1 + predictions) * weights


def exchanged_bytes(widths: Widths, share: RankShare, graph: KeptBytes) -> int:
    """Return the bytes of logits that the static graph exchanges between the ranks of a sequence (AllToAll) for the loss.

    Their gradients, twice as large, stay until the optimizer's step.
    """
    applies = share.context > 1 and share.sequence and share.data > 1
    return logits_bytes(widths, share, graph.exchanged_logits) if applies else 0


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
    ratios: tuple[float, float]  # lowest and highest ratio of peaks to estimates of such jobs
    less: bool = False  # activations may be smaller: samples may be shorter, or swap frees some of them

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
        """Return the lowest and highest ratio of the real peak to the estimate."""
        low, high = self.ratios
        return (min(low, self.fullest.lasting_bytes / self.fullest.peak_bytes), high) if self.less else (low, high)

    @property
    def range_bytes(self) -> tuple[int, int]:
        """Return the lowest and highest peak of the fullest stage that the estimate allows."""
        low, high = self.ratio_range
        return round(low * self.fullest.peak_bytes), round(high * self.fullest.peak_bytes)

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
    in_flight: float  # micro-batches in flight at the stage's peak
    full: bool  # each is fully recomputed
    layers: int = 1  # number of layers


def estimate_stage(number: int, layers: int, lasting: int, groups: Iterable[LiveLayers], logits: int) -> StageEstimate:
    """Estimate a stage: persistent memory, activations in flight, and the transient of a layer's backward pass or the loss."""
    kept = again = recomputed = held = 0
    for one in groups:
        each = one.activations
        kept += round(one.layers * (one.in_flight * each.full if one.full else one.in_flight * each.none + each.once))
        again = max(again, each.working + (each.none + each.once if one.full else 0))
        held += one.layers * each.held if one.full else 0
        recomputed += one.layers if one.full else 0
    return StageEstimate(number, layers, min(recomputed, layers), lasting, kept, max(again + held, logits))


def with_static_weights(stage: StageEstimate, memory: StaticMemory) -> StageEstimate:
    """Return the estimate of a static graph's stage, at its larger peak: whole weights in the forward pass, or all gradients.

    Compared with traces of MindSpore 2.9 (docs/accuracy.md): whole weights stay until the backward pass; gradients come
    when activations go, and the optimizer's step copies them.
    """
    transient = max(stage.transient_bytes + memory.gathered, memory.step - stage.activation_bytes)
    return stage._replace(lasting_bytes=stage.lasting_bytes + memory.accumulated, transient_bytes=transient)
