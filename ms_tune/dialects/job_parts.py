"""Dialect-independent, typed view of a training config, for the code that computes with it."""

from __future__ import annotations

from enum import Enum

from ms_tune.records import Record


class DType(str, Enum):
    """A floating-point type of parameters or activations."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"

    @property
    def bytes(self) -> int:
        """Return the bytes of one element."""
        return 4 if self is DType.FLOAT32 else 2


class ContextMethod(str, Enum):
    """The context-parallel method of attention."""

    ULYSSES = "ulysses"  # all-to-all: every rank attends over the whole sequence with a part of the heads
    RING = "ring"  # keys and values circulate: every rank attends with its part of the queries
    HYBRID = "hybrid"  # Ulysses inside groups, ring across them


class Sharding(str, Enum):
    """The state that data-parallel ranks shard."""

    NONE = "none"
    OPTIMIZER = "optimizer"  # ZeRO 1: the distributed optimizer of Megatron
    PARAMETERS = "parameters"  # ZeRO 3: fully sharded; a layer's weights are gathered before it runs


class LatentAttention(Record):
    """Multi-head latent attention: low-rank projections of queries and of keys and values (DeepSeek)."""

    query_rank: int | None  # rank of the query projection; None for one full projection
    key_value_rank: int  # rank of the key-value projection
    plain_size: int  # size of a query or key head's part without rotary positions
    rotary_size: int  # size of its part with rotary positions
    value_size: int  # size of a value head
    # The low-rank projections are one matrix; otherwise the query's is separate, and a full one is split by heads.
    joined: bool = True

    @property
    def head_size(self) -> int:
        """Return the size of a query or key head."""
        return self.plain_size + self.rotary_size


class Experts(Record):
    """The feed-forward block of a mixture-of-experts layer."""

    routed: int  # routed experts per layer, over all ranks
    per_token: int  # experts that each token is sent to
    ffn_hidden_size: int  # intermediate size of one routed expert
    shared_ffn_hidden_size: int = 0  # intermediate size of the shared expert; 0 without one
    shared_gate: bool = False  # the shared expert's output is weighted by a gate
    shared_split: bool = False  # the shared expert is tensor-parallel like other layers
    grouped: bool = True  # the experts of a rank are one grouped matmul; otherwise run one by one
    # Tokens per expert, as a multiple of an even share; None for no limit.
    capacity_factor: float | None = None
    router: DType = DType.FLOAT32  # number format in which the router works
    # Experts are split over the tensor-parallel ranks like other layers; otherwise these ranks belong to expert
    # parallelism.
    tensor_parallel: bool = True
    # Tokens are permuted to the order of experts and back by one fused operator each; otherwise by several.
    fused_order: bool = True
    flat: bool = False  # a rank's experts are stacked in one matrix
    balanced: bool = False  # experts are balanced by a bias, updated from token counts and not trained


class ModelShape(Record):
    """The sizes of a decoder-only transformer."""

    vocab_size: int
    hidden_size: int
    ffn_hidden_size: int  # intermediate size of the feed-forward block
    layers: int  # without those of multi-token prediction
    num_attention_heads: int
    num_query_groups: int  # key and value heads; equal to `num_attention_heads` without grouped-query attention
    head_size: int
    seq_length: int
    activation: str  # `swiglu` (gated: two up projections) or another activation (one up projection)
    normalization: str
    rotary: bool  # rotary position embedding; otherwise a learned table of positions
    tied_embeddings: bool  # the output projection uses the word embedding's weight
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    flash_attention: bool
    rotary_fraction: float = 1.0  # fraction of each head that uses rotary positions
    qk_norm: bool = False  # queries and keys (or their latent projections) are normalised per head
    sandwich_norm: bool = False  # attention and feed-forward block are normalised after as well as before
    latent: LatentAttention | None = None  # Multi-head latent attention instead of the usual one
    experts: Experts | None = None  # the feed-forward block of the layers that have experts
    # Layers follow `legacy/model` of MindSpeed-Core-MS: tensors exchanged between TP ranks stay until the backward
    # pass, each group's queries are stored next to their key and value, and keys and values are repeated for every
    # query head.
    legacy: bool = False
    fused_norm: bool = True  # RMSNorm is one operator; otherwise several, on float32
    fused_rotary: bool = True  # rotary positions are one operator; otherwise several
    adds_mask: bool = (
        False  # attention without FlashAttention adds its mask to the scores; otherwise it fills masked scores
    )
    # FlashAttention works on `(batch, heads, sequence, size)`; otherwise heads are stored side by side (as in `SBH`).
    heads_first: bool = False
    full_mask: bool = False  # FlashAttention gets the full mask; otherwise a compressed one
    # The embedding gathers element by element: each token ID is repeated over the width.
    tiled_words: bool = False
    # Each use of rotary positions computes its own cosines and sines; otherwise all share them.
    separate_tables: bool = False

    @property
    def gated(self) -> bool:
        """Return whether the feed-forward block is gated (multiplies two projections)."""
        return self.activation in ("swiglu", "fusedswiglu")


class Parallelism(Record):
    """The parallel degrees; the data-parallel size follows from the number of devices."""

    tensor: int
    pipeline: int
    context: int
    expert: int
    virtual_pipeline: int | None
    sequence: bool  # sequence parallelism: between the layers, activations are split over the TP ranks too
    # The context-parallel method.
    context_method: ContextMethod = ContextMethod.ULYSSES
    ulysses: int = 1  # size of a Ulysses group in the hybrid method
    # The loss is computed from the tensor-parallel parts of the logits; otherwise the logits are gathered.
    split_loss: bool = True
    # Experts, and latent attention except for its heads, see the whole sequence on every TP rank, and no tensor is a
    # view of another; requires several TP ranks and `sequence`.
    gathers_sequence: bool = False

    @property
    def model_size(self) -> int:
        """Return the number of devices per copy of the model."""
        return self.tensor * self.pipeline * self.context


class MicroBatches(Record):
    """One data-parallel rank's part of a training step."""

    micro_batch_size: int  # samples in one forward and backward pass
    micro_batch_num: int  # passes per step


class Precision(Record):
    """Number formats."""

    parameters: DType  # format of the weights that the network computes with
    mixed: bool  # the optimizer keeps its own float32 copy of every weight
    gradients: DType  # format in which gradients are accumulated over micro-batches
    embedding: DType | None = None  # word embedding; None for the format of the other weights
    # Weights and computation of normalisations; None for the format of the other weights.
    norm: DType | None = None
    rotary: DType | None = None  # rotary positions are applied in it; None for the format of the other weights
    compute: DType | None = None  # projections compute in it; None for the format of the weights
    softmax: DType | None = None  # softmax of attention without FlashAttention; None for float32
    # Weights of attention projections except latent attention; None for the format of the other weights.
    attention: DType | None = None


class Optimizer(Record):
    """The optimizer, with the config's name for it."""

    name: str
    gradient_buffers: bool  # gradients are accumulated in buffers that persist for the whole run
    sharding: Sharding  # the state that data-parallel ranks shard
    # With sharded parameters: weights are freed after the forward pass and gathered again for the backward pass.
    reshards: bool = False
    # Data-parallel ranks per shard group; the groups are replicas. None for all ranks.
    shards: int | None = None
    overlaps: bool = False  # gradient buffers are reduced in buckets during the backward pass
    delays: bool = False  # all pipeline stages except the first delay this until their last backward pass is done
    bucket_size: int | None = None  # elements per bucket; None for the framework's default
    # An unused copy, made by the optimizer, remains for each weight narrower than float32.
    keeps_clones: bool = False

    @property
    def distributed(self) -> bool:
        """Return whether optimizer state is sharded."""
        return self.sharding is not Sharding.NONE


class TrainingConfig(Record):
    """The settings of a reference run except its layers (those are in :mod:`ms_tune.dialects.stage`)."""

    shape: ModelShape
    parallelism: Parallelism
    batch: MicroBatches
    precision: Precision
    optimizer: Optimizer


class Encoder(Record):
    """A part of the model in addition to its main one."""

    stages: tuple[int, ...]  # its layers on each pipeline stage, if listed; else all are on the first
    layers: int
    layer_parameters: int
    width: int  # activations of a layer per token, in elements
    tokens: int
    trained: bool


class MultimodalModel(Record):
    """A model: its main part as arguments, and its encoders."""

    arguments: tuple[str, ...]
    encoders: tuple[Encoder, ...] = ()
    frozen_bytes: int = 0  # of encoders that may run in the same process
    name: str = ""  # the public model that its sizes are assumed from
    key: str = ""  # the key that names it
    devices: int | None = None  # the number of ranks, if the config states it
    least: float = 1.0  # least share of the estimated lasting bytes


class SettingChange(Record):
    """A setting that the run changes."""

    key: str  # dotted path in the config
    before: object  # value in the config
    after: object  # value in the run
