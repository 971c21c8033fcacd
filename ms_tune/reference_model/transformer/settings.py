"""What every part of the network is built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import mindspore

from ms_tune.config.model import DType

if TYPE_CHECKING:
    from ms_tune.config.model import Experts, LatentAttention, ModelShape, TrainingConfig

    from .parallel import Groups

_TYPES = {"float16": mindspore.float16, "bfloat16": mindspore.bfloat16, "float32": mindspore.float32}


def number_format(dtype: DType) -> mindspore.Type:
    """MindSpore's name of a number format."""
    return _TYPES[dtype.value]


@dataclass(frozen=True, slots=True)
class Settings:
    """The config, this rank's groups, and what one layer does otherwise than others."""

    config: TrainingConfig
    groups: Groups  # this rank's groups
    regather: bool = False  # projections gather their input again for the backward pass instead of keeping it

    @property
    def shape(self) -> ModelShape:
        """The sizes of the model."""
        return self.config.shape

    @property
    def latent(self) -> LatentAttention:
        """Latent attention; asked for only where the model has it."""
        return cast("LatentAttention", self.shape.latent)

    @property
    def experts(self) -> Experts:
        """The mixture of experts; asked for only where the model has it."""
        return cast("Experts", self.shape.experts)

    @property
    def sequence(self) -> bool:
        """Activations between the layers are split over the tensor-parallel ranks."""
        return self.config.parallelism.sequence and self.groups.tensor.size > 1

    @property
    def tokens(self) -> int:
        """Tokens of a sequence that this rank sees in attention."""
        return self.shape.seq_length // self.config.parallelism.context

    @property
    def tokens_between(self) -> int:
        """Tokens of a sequence that this rank holds between the layers."""
        return self.tokens // self.groups.tensor.size if self.sequence else self.tokens

    @property
    def dtype(self) -> mindspore.Type:
        """Number format of weights and activations."""
        return number_format(self.config.precision.parameters)

    @property
    def attention_dtype(self) -> mindspore.Type:
        """Number format of the weights of attention's projections."""
        return number_format(self.config.precision.attention or self.config.precision.parameters)

    @property
    def compute_dtype(self) -> mindspore.Type:
        """Number format in which projections compute."""
        return number_format(self.config.precision.compute or self.config.precision.parameters)

    @property
    def softmax_dtype(self) -> mindspore.Type:
        """Number format of the softmax in attention by matrix products."""
        return number_format(self.config.precision.softmax or DType.FLOAT32)

    @property
    def norm_dtype(self) -> mindspore.Type:
        """Number format of normalisations."""
        return number_format(self.config.precision.norm or self.config.precision.parameters)

    @property
    def rotary_dtype(self) -> mindspore.Type:
        """Number format in which rotary positions are applied."""
        return number_format(self.config.precision.rotary or self.config.precision.parameters)

    @property
    def embedding_dtype(self) -> mindspore.Type:
        """Number format of the word embedding."""
        return number_format(self.config.precision.embedding or self.config.precision.parameters)
