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


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a decoder-only transformer.

    Attributes:
        ffn_hidden_size: Width inside the feed-forward block.
        num_query_groups: Key and value heads; equal to ``num_attention_heads`` without grouped-query attention.
        activation: ``swiglu`` (gated: two projections up) or another activation's name (one projection up).
        rotary: Rotary position embedding, computed; otherwise a learned table of positions.
        tied_embeddings: The output projection uses the word embedding's weight.
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

    @property
    def gated(self) -> bool:
        """Whether the feed-forward block multiplies two projections."""
        return self.activation == "swiglu"


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How many ways the job is split in each direction; the data-parallel size follows from the number of devices."""

    tensor: int
    pipeline: int
    context: int
    expert: int
    virtual_pipeline: int | None
    sequence: bool

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
    """

    parameters: DType
    mixed: bool
    gradients: DType


@dataclass(frozen=True, slots=True)
class Optimizer:
    """The optimizer, as named by the config.

    Attributes:
        gradient_buffers: Gradients are added, as each one is ready, to buffers that live for the whole run.
        distributed: Its state is sharded over the data-parallel ranks (ZeRO 1).
    """

    name: str
    gradient_buffers: bool
    distributed: bool


@dataclass(frozen=True, slots=True)
class Recompute:
    """How many layers recompute what, on a pipeline of one stage.

    Attributes:
        full: The first so many layers recompute everything.
        select: So many of the next layers recompute selected operators.
        communication: So many of the next layers repeat their communication.
    """

    full: int
    select: int
    communication: int


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Everything that a reference run of a config needs to know.

    Attributes:
        recompute: None where it differs from stage to stage (more than one pipeline stage).
    """

    shape: ModelShape
    parallelism: Parallelism
    batch: Batch
    precision: Precision
    optimizer: Optimizer
    recompute: Recompute | None
