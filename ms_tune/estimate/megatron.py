"""Estimate the peak memory of a stage of a Megatron program.

Persistent memory is 18 bytes per parameter, 6 + 12 / ranks with the distributed optimizer. The number of parameters is reported
by a rank or follows from the sizes; activations come from :mod:`ms_tune.estimate.memory`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ms_tune.dialects.job_parts import DType, TrainingConfig
from ms_tune.errors import UnsupportedError
from ms_tune.estimate.flops import widths_of_shape
from ms_tune.estimate.memory import (
    LiveLayers,
    RankShare,
    StageEstimate,
    estimate_stage,
    logits_bytes,
    megatron_activations,
)
from ms_tune.estimate.persistent import stage_weights
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.dialects.stage import Stage

_FLOAT = 4
_MOMENTS = 2 * _FLOAT
_HALF = 2
_ADAM = "adam"
_MOST = 1 << 50  # maximum of elements and bytes


@dataclass(frozen=True, slots=True)
class MegatronModel:
    """A rank's model and optimizer, once they are created."""

    weights: int  # bytes of the parameters
    trained: int  # trainable parameters
    experts: int  # those of them in experts, which differ between DP ranks
    data: int  # ranks that can shard the optimizer state of the others
    expert_data: int  # ranks that can shard the optimizer state of the experts
    distributed: bool  # the optimizer state is sharded (`--use-distributed-optimizer`)
    float32_gradients: bool  # gradients are in float32
    mixed: bool  # weights are not in float32, and the optimizer keeps a float32 copy
    optimizer: str
    reused: bool  # the weights are part of that copy (`--reuse-fp32-param`)

    @classmethod
    def from_record(cls, facts: Mapping[str, object]) -> MegatronModel:
        """Read the data that a process wrote.

        Raises:
            ValueError: The data has another form, or its numbers are out of range.
            KeyError: A key is missing.
        """
        found: dict[str, Any] = {"optimizer": str(facts["optimizer"])}
        for name in ("weights", "trained", "experts", "data", "expert_data"):
            count = facts[name]
            if type(count) is not int or not int(name in ("data", "expert_data")) <= count < _MOST:
                raise ValueError(count)
            found[name] = count
        for name in ("distributed", "float32_gradients", "mixed", "reused"):
            found[name] = facts[name] is True
        return cls(**found)

    def theory(self) -> dict[str, int]:
        """Return the persistent bytes by content; unknown content is omitted.

        In mixed precision, 18 bytes per parameter: 2 for it, 4 for its gradient, and 12 for the float32 copy and Adam's two
        moments; with the distributed optimizer 6 + 12 / ranks (Megatron-LM core_v0.12.1,
        ``docs/source/api-guide/dist_optimizer.md``).
        """
        each = _FLOAT if self.float32_gradients or not self.mixed else _HALF
        found = {"gradients": each * self.trained}
        if not self.reused:
            found = {"weights": self.weights, **found}
        if self.optimizer == _ADAM and not self.reused:
            state = _MOMENTS + (_FLOAT if self.mixed else 0)
            shared = self.trained
            if self.distributed:
                shared = -(-(self.trained - self.experts) // self.data) - (-self.experts // self.expert_data)
            found["optimizer_state"] = state * shared
        return found


def megatron_stage(config: TrainingConfig, stage: Stage, in_flight: Sequence[int], *, fused: bool) -> StageEstimate:
    """Estimate the peak memory of a stage."""
    parallel = config.parallelism
    widths = widths_of_shape(config.shape)
    tokens = config.shape.seq_length * config.batch.micro_batch_size // parallel.context
    share = RankShare(tokens, parallel.tensor, parallel.sequence, parallel.context, parallel.expert)
    layers = [
        LiveLayers(megatron_activations(widths, share, experts=layer.experts, fused=fused), flying, full=layer.full)
        for chunk, flying in zip(stage.chunks, in_flight, strict=True)
        for layer in chunk.layers
    ]
    logits = logits_bytes(widths, share, in_place=True) if stage.number == stage.stages - 1 else 0
    return estimate_stage(stage.number, stage.layers, _persistent_bytes(config, stage), layers, logits)


def _persistent_bytes(config: TrainingConfig, stage: Stage) -> int:
    weights = list(stage_weights(config, stage))
    counted = sum(one.size for one in weights)
    ranks = config.optimizer.shards or 1
    model = MegatronModel(
        weights=counted * config.precision.parameters.bytes,
        trained=counted,
        experts=sum(one.size for one in weights if one.experts),
        data=ranks,
        expert_data=max(1, ranks * config.parallelism.tensor // config.parallelism.expert),
        distributed=config.optimizer.distributed,
        float32_gradients=config.precision.gradients is DType.FLOAT32,
        mixed=config.precision.mixed,
        optimizer=config.optimizer.name,
        reused=False,
    )
    found = model.theory()
    if "optimizer_state" not in found:
        raise UnsupportedError(msg("check.script.otherwise", argument="--optimizer"))
    return sum(found.values())
