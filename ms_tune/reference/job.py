"""What the reference transformer is asked to train, as data that goes through a JSON file, and what theory says of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, is_dataclass
from enum import Enum
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_origin, get_type_hints

from ms_tune.dialects.job_parts import DType, Sharding, TrainingConfig
from ms_tune.dialects.stage import Stage
from ms_tune.estimate.persistent import Ways, persistent_bytes, stage_weights
from ms_tune.reference.ranks import rank_groups

if TYPE_CHECKING:
    from collections.abc import Mapping


_MOMENTS = 2


@dataclass(frozen=True, slots=True)
class ReferenceJob:
    """Train one stage of ms-tune's reference transformer."""

    module: ClassVar[str] = "ms_tune.reference.child"
    config: TrainingConfig
    stage: Stage  # the layers of the stage, already shrunk to the wanted number
    data_parallel: int  # Data-parallel ranks of the simulated job, context-parallel ones not counted
    steps: int  # training steps

    def to_json(self) -> dict[str, object]:
        """Plain data for the job file."""
        return {"kind": "reference", **asdict(self)}


def reference_job_from_json(data: Mapping[str, Any]) -> ReferenceJob:
    """The job that :meth:`ReferenceJob.to_json` wrote."""
    return ReferenceJob(
        config=_made(TrainingConfig, data["config"]),
        stage=_made(Stage, data["stage"]),
        data_parallel=data["data_parallel"],
        steps=data["steps"],
    )


def _made(kind: Any, value: Any) -> Any:  # noqa: ANN401 - types, and what they are of
    """A value of a type, from the plain data that JSON has of it."""
    if is_dataclass(kind) and isinstance(kind, type):
        types = get_type_hints(kind)
        return kind(**{name: _made(types[name], part) for name, part in value.items()})
    if get_origin(kind) is UnionType:
        return None if value is None else _made(get_args(kind)[0], value)
    if get_origin(kind) is tuple:
        return tuple(_made(get_args(kind)[0], part) for part in value)
    return kind(value) if issubclass(kind, Enum) else value


def theory_of(job: ReferenceJob, rank: int) -> dict[str, int]:
    """Bytes by content (the names of :class:`ms_tune.enums.MemoryCategory`) that theory can tell for a rank."""
    groups, optimizer = rank_groups(job.config, job.data_parallel, rank), job.config.optimizer
    parts = optimizer.sharding is Sharding.PARAMETERS
    dense, experts = (groups.shards, groups.expert_shards) if parts else (groups.data, groups.expert_data)
    ways = Ways(len(dense), len(experts))
    found = persistent_bytes(job.config, job.stage, ways)
    state = found.optimizer + (_legacy_state(job, ways) if job.config.shape.legacy else 0)
    told = {"weights": found.weights, "optimizer_state": state}
    return {**told, "gradients": found.gradients} if optimizer.gradient_buffers else told


def _legacy_state(job: ReferenceJob, ways: Ways) -> int:
    """How many bytes more MindSpeed-Core-MS r0.1.0's optimizers hold (core/optimizer/optimizer.py, distrib_optimizer.py).

    Weights that are float32 already have no copy. Without the distributed optimizer, the moments that AdamW made in the
    number format of a narrow weight stay beside the float32 ones.
    """
    config, more = job.config, 0
    for weight in stage_weights(config, job.stage):
        parts = ways.expert_shards if weight.experts else ways.shards
        if weight.dtype is DType.FLOAT32 and config.optimizer.distributed:
            more -= -(-weight.size // parts) * DType.FLOAT32.bytes
        elif weight.dtype is DType.FLOAT32 and config.precision.mixed:
            more -= weight.size * DType.FLOAT32.bytes
        elif config.precision.mixed and not config.optimizer.distributed:
            more += _MOMENTS * weight.size * weight.dtype.bytes
    return more
