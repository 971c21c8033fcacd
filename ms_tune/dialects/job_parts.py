"""The neutral, typed view of a training config: what other rooms compute with, whatever dialect it was written in."""

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


class LatentAttention(Record):
    """Multi-head latent attention: queries, and keys with values, go through a narrow projection (DeepSeek)."""

    query_rank: int | None  # width of the narrow projection of queries; None for one wide projection
    key_value_rank: int  # width of the narrow projection of keys and values
    plain_size: int  # part of a query or key head without rotary positions
    rotary_size: int  # part of it with them
    value_size: int  # size of a value head
    # The narrow projections are one matrix; otherwise that of queries is apart, and where it is wide it is split by heads.
    joined: bool = True

    @property
    def head_size(self) -> int:
        """Size of a query or key head."""
        return self.plain_size + self.rotary_size


class Experts(Record):
    """The feed-forward block of a mixture-of-experts layer."""

    routed: int  # routed experts of a layer, on all ranks together
    per_token: int  # experts that each token is sent to
    ffn_hidden_size: int  # width inside one routed expert
    shared_ffn_hidden_size: int = 0  # width inside the shared expert that sees every token; 0 without one
    shared_gate: bool = False  # the shared expert's output is weighted by a gate
    shared_split: bool = False  # the shared expert is split over the tensor-parallel ranks as other layers are
    grouped: bool = True  # the experts of a rank are one grouped matrix product; otherwise one after the other
    # Tokens that an expert takes, as a multiple of an even share; None for no limit.
    capacity_factor: float | None = None
    router: DType = DType.FLOAT32  # number format in which the router works
    # Experts are split over the tensor-parallel ranks as other layers are; otherwise these ranks take part in expert
    # parallelism.
    tensor_parallel: bool = True
    # Tokens are put in the order of their experts, and back, by one operator each; otherwise by several.
    fused_order: bool = True
    flat: bool = False  # a rank's experts lie in one matrix, one below the other
    balanced: bool = (
        False  # the router balances experts with a bias, and counts for it what each was sent: nobody trains them
    )


class ModelShape(Record):
    """The sizes of a decoder-only transformer."""

    vocab_size: int
    hidden_size: int
    ffn_hidden_size: int  # width inside the feed-forward block
    layers: int  # but for those of multi-token prediction
    num_attention_heads: int
    num_query_groups: int  # key and value heads; equal to `num_attention_heads` without grouped-query attention
    head_size: int
    seq_length: int
    activation: str  # `swiglu` (gated: two projections up) or another activation's name (one projection up)
    normalization: str
    rotary: bool  # rotary position embedding, computed; otherwise a learned table of positions
    tied_embeddings: bool  # the output projection uses the word embedding's weight
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    flash_attention: bool
    rotary_fraction: float = 1.0  # part of each head that rotary positions turn
    qk_norm: bool = False  # queries and keys are normalised head by head, or what latent attention makes them of
    sandwich_norm: bool = False  # attention and feed-forward block are normalised behind as well as before
    latent: LatentAttention | None = None  # Multi-head latent attention instead of the usual one
    experts: Experts | None = None  # the feed-forward block of the layers that have experts
    # Layers are written as in `legacy/model` of MindSpeed-Core-MS: what tensor-parallel ranks exchange stays until the
    # backward pass, each group's queries lie beside their key and value, keys and values are repeated for every query
    # head.
    legacy: bool = False
    fused_norm: bool = True  # RMSNorm is one operator; otherwise several, on float32
    fused_rotary: bool = True  # rotary positions are one operator; otherwise several
    adds_mask: bool = False  # attention by matrix products adds its mask to the scores; otherwise it fills them
    # FlashAttention works on `(batch, heads, sequence, size)`; otherwise on heads that lie side by side.
    heads_first: bool = False
    whole_mask: bool = False  # FlashAttention gets the mask of all positions; otherwise a compressed one
    # The embedding gathers element by element: each word's number is repeated over the width.
    tiled_words: bool = False
    # Every use of rotary positions makes cosines and sines of its own from the angles; otherwise all share them.
    own_tables: bool = False

    @property
    def gated(self) -> bool:
        """Whether the feed-forward block multiplies two projections."""
        return self.activation in ("swiglu", "fusedswiglu")


class Parallelism(Record):
    """How many ways the job is split in each direction; the data-parallel size follows from the number of devices."""

    tensor: int
    pipeline: int
    context: int
    expert: int
    virtual_pipeline: int | None
    sequence: bool  # between the layers, activations are split over the tensor-parallel ranks too
    # How attention sees the whole sequence where it is spread over ranks.
    context_method: ContextMethod = ContextMethod.ULYSSES
    ulysses: int = 1  # ranks of one Ulysses group in the hybrid method
    # The loss is computed from the tensor-parallel parts of the logits; otherwise they are gathered.
    split_loss: bool = True
    # What is not split by heads in latent attention, and experts, see the whole sequence on every tensor-parallel rank, and no
    # tensor is a view of another one; only with more than one such rank and with `sequence`.
    whole_inside: bool = False

    @property
    def model_size(self) -> int:
        """Devices that hold one copy of the model."""
        return self.tensor * self.pipeline * self.context


class MicroBatches(Record):
    """One data-parallel rank's part of a step."""

    micro_batch_size: int  # samples in one forward and backward pass
    micro_batch_num: int  # passes in a step


class Precision(Record):
    """Number formats."""

    parameters: DType  # format of the weights that the network computes with
    mixed: bool  # the optimizer keeps its own float32 copy of every weight
    gradients: DType  # format in which gradients are accumulated over micro-batches
    embedding: DType | None = None  # format of the word embedding; None for that of the other weights
    # Format of the weights of normalisations, in which these compute; None for that of the other weights.
    norm: DType | None = None
    rotary: DType | None = None  # format in which rotary positions are applied; None for that of the other weights
    compute: DType | None = None  # format in which projections compute; None for that of the weights
    softmax: DType | None = None  # format of the softmax in attention by matrix products; None for float32
    # Format of the weights of attention's projections, latent attention excepted; None for that of the others.
    attention: DType | None = None


class Optimizer(Record):
    """The optimizer, as named by the config."""

    name: str
    gradient_buffers: bool  # gradients are added, as each one is ready, to buffers that live for the whole run
    sharding: Sharding  # what the data-parallel ranks share out
    # With sharded parameters: a layer's weights are let go after the forward pass and gathered again for the backward
    # pass.
    gathers_again: bool = False
    # Data-parallel ranks that share out what is sharded; the rest holds copies. None for all of them.
    shards: int | None = None
    overlaps: bool = False  # gradient buffers are reduced in buckets while the backward pass still runs
    delays: bool = False  # all pipeline stages but the first wait with that until their last backward pass is over
    bucket_size: int | None = None  # elements of a bucket; None for the framework's own choice
    # Of every weight narrower than float32 a copy stays that the optimizer made and nobody uses.
    keeps_clones: bool = False

    @property
    def distributed(self) -> bool:
        """Whether its state is sharded."""
        return self.sharding is not Sharding.NONE


class TrainingConfig(Record):
    """Everything but its layers that a reference run of a config needs to know (:mod:`ms_tune.dialects.stage` has those)."""

    shape: ModelShape
    parallelism: Parallelism
    batch: MicroBatches
    precision: Precision
    optimizer: Optimizer


class SettingChange(Record):
    """Something that is not run as the config says it."""

    key: str  # dotted path in the config
    before: object  # what the config says
    after: object  # what is run
