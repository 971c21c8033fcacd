"""Define the settings from which every part of the network is built."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

import mindspore

if TYPE_CHECKING:
    from ms_tune.dialects.job_parts import DType, Experts, LatentAttention, ModelShape, TrainingConfig
    from ms_tune.reference.transformer.parallel import Groups

_TYPES = {"float16": mindspore.float16, "bfloat16": mindspore.bfloat16, "float32": mindspore.float32}


def number_format(dtype: DType) -> mindspore.Type:
    """Return MindSpore's name of a number format."""
    return _TYPES[dtype.value]


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The settings of a network: the config, this rank's groups, and the differences of single layers."""

    config: TrainingConfig
    groups: Groups  # this rank's groups
    regather: bool = False  # whether projections gather their input again for the backward pass instead of keeping it

    @property
    def shape(self) -> ModelShape:
        """Return the sizes of the model."""
        return self.config.shape

    @property
    def latent(self) -> LatentAttention:
        """Return the settings of latent attention; the model must have it."""
        return cast("LatentAttention", self.shape.latent)

    @property
    def experts(self) -> Experts:
        """Return the settings of the mixture of experts; the model must have it."""
        return cast("Experts", self.shape.experts)

    @property
    def sequence(self) -> bool:
        """Return whether activations between the layers are split over the tensor-parallel ranks."""
        return self.config.parallelism.sequence and self.groups.tensor.size > 1

    @property
    def inside(self) -> NetworkSettings:
        """Return the settings inside a block that gathers the sequence once for all of its projections."""
        config = self.config
        return replace(self, config=config._replace(parallelism=config.parallelism._replace(sequence=False)))

    @property
    def gathers_sequence(self) -> bool:
        """Return whether latent attention and experts gather the sequence at their input, and copy views of tensors."""
        return self.config.parallelism.gathers_sequence

    @property
    def tokens(self) -> int:
        """Return the tokens per sequence that this rank processes in attention."""
        return self.shape.seq_length // self.config.parallelism.context

    @property
    def dtype(self) -> mindspore.Type:
        """Return the number format of weights and activations."""
        return number_format(self.config.precision.parameters)

    def format_of(self, part: Literal["attention", "compute", "norm", "rotary", "embedding"]) -> mindspore.Type:
        """Return a part's number format (:class:`ms_tune.dialects.job_parts.Precision`), by default that of weights."""
        return number_format(getattr(self.config.precision, part) or self.config.precision.parameters)
