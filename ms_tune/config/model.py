"""The neutral, typed view of a training config: what other rooms compute with, whatever dialect it was written in."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DType(str, Enum):
    """A floating-point type of parameters or activations."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"

    @property
    def bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is DType.FLOAT32 else 2


class ContextMethod(str, Enum):
    """How attention sees a sequence that is spread over ranks."""

    ULYSSES = "ulysses"  # all-to-all: every rank attends over the whole sequence with some of the heads
    RING = "ring"  # keys and values go round: every rank attends with its part of the queries
    HYBRID = "hybrid"  # Ulysses inside groups, a ring across them


class Sharding(str, Enum):
    """What the data-parallel ranks share out among themselves."""

    NONE = "none"
    OPTIMIZER = "optimizer"  # ZeRO 1: the distributed optimizer of Megatron
    PARAMETERS = "parameters"  # ZeRO 3: fully sharded; a layer's weights are gathered when it runs


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: queries, and keys with values, go through a narrow projection (DeepSeek).

    Attributes:
        query_rank: Width of the narrow projection of queries; None for one wide projection.
        key_value_rank: Width of the narrow projection of keys and values.
        plain_size: Part of a query or key head without rotary positions.
        rotary_size: Part of it with them.
        value_size: Size of a value head.
    """

    query_rank: int | None
    key_value_rank: int
    plain_size: int
    rotary_size: int
    value_size: int

    @property
    def head_size(self) -> int:
        """Size of a query or key head."""
        return self.plain_size + self.rotary_size


@dataclass(frozen=True, slots=True)
class Experts:
    """The feed-forward block of a mixture-of-experts layer.

    Attributes:
        count: Routed experts of a layer, on all ranks together.
        per_token: Experts that each token is sent to.
        ffn_hidden_size: Width inside one routed expert.
        shared_ffn_hidden_size: Width inside the shared expert that sees every token; 0 without one.
        shared_gate: The shared expert's output is weighted by a gate.
        grouped: The experts of a rank are one grouped matrix product; otherwise one after the other.
        capacity_factor: Tokens that an expert takes, as a multiple of an even share; None for no limit.
        router: Number format in which the router works.
        tensor_parallel: Experts are split over the tensor-parallel ranks as other layers are; otherwise these ranks
            take part in expert parallelism.
        fused_order: Tokens are put in the order of their experts, and back, by one operator each; otherwise by several.
    """

    count: int
    per_token: int
    ffn_hidden_size: int
    shared_ffn_hidden_size: int = 0
    shared_gate: bool = False
    grouped: bool = True
    capacity_factor: float | None = None
    router: DType = DType.FLOAT32
    tensor_parallel: bool = True
    fused_order: bool = True


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a decoder-only transformer.

    Attributes:
        ffn_hidden_size: Width inside the feed-forward block.
        num_query_groups: Key and value heads; equal to ``num_attention_heads`` without grouped-query attention.
        activation: ``swiglu`` (gated: two projections up) or another activation's name (one projection up).
        rotary: Rotary position embedding, computed; otherwise a learned table of positions.
        tied_embeddings: The output projection uses the word embedding's weight.
        rotary_fraction: Part of each head that rotary positions turn.
        qk_norm: Queries and keys are normalised head by head.
        sandwich_norm: Attention and feed-forward block are normalised behind as well as before.
        latent: Multi-head latent attention instead of the usual one.
        experts: The feed-forward block of the layers that have experts.
        legacy: Layers are written as in ``legacy/model`` of MindSpeed-Core-MS: what tensor-parallel ranks exchange stays
            until the backward pass, each group's queries lie beside their key and value, keys and values are repeated
            for every query head.
        fused_norm: RMSNorm is one operator; otherwise several, on float32.
        fused_rotary: Rotary positions are one operator; otherwise several.
        adds_mask: Attention by matrix products adds its mask to the scores; otherwise it fills them.
        whole_mask: FlashAttention gets the mask of all positions; otherwise a compressed one.
        heads_first: FlashAttention works on ``(batch, heads, sequence, size)``; otherwise on heads that lie side by side.
    """

    vocab_size: int
    hidden_size: int
    ffn_hidden_size: int
    num_layers: int
    num_attention_heads: int
    num_query_groups: int
    head_size: int
    seq_length: int
    activation: str
    normalization: str
    rotary: bool
    tied_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    flash_attention: bool
    rotary_fraction: float = 1.0
    qk_norm: bool = False
    sandwich_norm: bool = False
    latent: LatentAttention | None = None
    experts: Experts | None = None
    legacy: bool = False
    fused_norm: bool = True
    fused_rotary: bool = True
    adds_mask: bool = False
    heads_first: bool = False
    whole_mask: bool = False

    @property
    def gated(self) -> bool:
        """Whether the feed-forward block multiplies two projections."""
        return self.activation in ("swiglu", "fusedswiglu")


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How many ways the job is split in each direction; the data-parallel size follows from the number of devices.

    Attributes:
        sequence: Between the layers, activations are split over the tensor-parallel ranks too.
        context_method: How attention sees the whole sequence where it is spread over ranks.
        ulysses: Ranks of one Ulysses group in the hybrid method.
        split_loss: The loss is computed from the tensor-parallel parts of the logits; otherwise they are gathered.
    """

    tensor: int
    pipeline: int
    context: int
    expert: int
    virtual_pipeline: int | None
    sequence: bool
    context_method: ContextMethod = ContextMethod.ULYSSES
    ulysses: int = 1
    split_loss: bool = True

    @property
    def model_size(self) -> int:
        """Devices that hold one copy of the model."""
        return self.tensor * self.pipeline * self.context


@dataclass(frozen=True, slots=True)
class Batch:
    """One data-parallel rank's part of a step.

    Attributes:
        micro_batch_size: Samples in one forward and backward pass.
        micro_batch_num: Passes in a step.
    """

    micro_batch_size: int
    micro_batch_num: int


@dataclass(frozen=True, slots=True)
class Precision:
    """Number formats.

    Attributes:
        parameters: Format of the weights that the network computes with.
        mixed: The optimizer keeps its own float32 copy of every weight.
        gradients: Format in which gradients are accumulated over micro-batches.
        embedding: Format of the word embedding; None for that of the other weights.
        norm: Format of the weights of normalisations, in which these compute; None for that of the other weights.
        rotary: Format in which rotary positions are applied; None for that of the other weights.
        compute: Format in which projections compute; None for that of the weights.
        softmax: Format of the softmax in attention by matrix products; None for float32.
        attention: Format of the weights of attention's projections, latent attention excepted; None for that of the others.
    """

    parameters: DType
    mixed: bool
    gradients: DType
    embedding: DType | None = None
    norm: DType | None = None
    rotary: DType | None = None
    compute: DType | None = None
    softmax: DType | None = None
    attention: DType | None = None


@dataclass(frozen=True, slots=True)
class Optimizer:
    """The optimizer, as named by the config.

    Attributes:
        gradient_buffers: Gradients are added, as each one is ready, to buffers that live for the whole run.
        sharding: What the data-parallel ranks share out.
        gathers_again: With sharded parameters: a layer's weights are let go after the forward pass and gathered again
            for the backward pass.
        shards: Data-parallel ranks that share out what is sharded; the rest holds copies. None for all of them.
        overlaps: Gradient buffers are reduced in buckets while the backward pass still runs.
        delays: All pipeline stages but the first wait with that until their last backward pass is over.
        bucket_size: Elements of a bucket; None for the framework's own choice.
    """

    name: str
    gradient_buffers: bool
    sharding: Sharding
    gathers_again: bool = False
    shards: int | None = None
    overlaps: bool = False
    delays: bool = False
    bucket_size: int | None = None

    @property
    def distributed(self) -> bool:
        """Whether its state is sharded."""
        return self.sharding is not Sharding.NONE


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Everything but its layers that a reference run of a config needs to know (:mod:`ms_tune.layers.stage` has those)."""

    shape: ModelShape
    parallelism: Parallelism
    batch: Batch
    precision: Precision
    optimizer: Optimizer


@dataclass(frozen=True, slots=True)
class Change:
    """Something that is not run as the config says it.

    Attributes:
        key: Dotted path in the config.
        before: What the config says.
        after: What is run.
    """

    key: str
    before: object
    after: object
