"""What every part of the network is built from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

import mindspore

if TYPE_CHECKING:
    from ms_tune.dialects.job_parts import DType, Experts, LatentAttention, ModelShape, TrainingConfig
    from ms_tune.reference.transformer.parallel import Groups

_TYPES = {"float16": mindspore.float16, "bfloat16": mindspore.bfloat16, "float32": mindspore.float32}


def number_format(dtype: DType) -> mindspore.Type:
    """MindSpore's name of a number format."""
    return _TYPES[dtype.value]


@dataclass(frozen=True, slots=True)
class NetworkSettings:
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
    def inside(self) -> NetworkSettings:
        """The same for what is inside a block that has gathered the sequence for all of its projections."""
        config = self.config
        return replace(self, config=config._replace(parallelism=config.parallelism._replace(sequence=False)))

    @property
    def whole_inside(self) -> bool:
        """Latent attention and experts gather the sequence at their door, and no tensor is a view of another one."""
        return self.config.parallelism.whole_inside

    @property
    def tokens(self) -> int:
        """Tokens of a sequence that this rank sees in attention."""
        return self.shape.seq_length // self.config.parallelism.context

    @property
    def dtype(self) -> mindspore.Type:
        """Number format of weights and activations."""
        return number_format(self.config.precision.parameters)

    def format_of(self, part: Literal["attention", "compute", "norm", "rotary", "embedding"]) -> mindspore.Type:
        """The number format of a part of the model (:class:`ms_tune.dialects.job_parts.Precision`), that of weights unless it has one."""
        return number_format(getattr(self.config.precision, part) or self.config.precision.parameters)
