"""What the child process is asked to do, as data that goes through a JSON file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ms_tune.config.model import (
    Batch,
    ContextMethod,
    DType,
    Experts,
    LatentAttention,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    Sharding,
    TrainingConfig,
)
from ms_tune.layers.stage import Chunk, Stage, StageLayer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


JOB_FILE = "job.json"  # in the process's working folder
# The data loader that a PynativeJob's config names; the child process puts synthetic samples in its place.
PYNATIVE_LOADER = "BlendedMegatronDatasetDataLoader"


@dataclass(frozen=True, slots=True)
class ReferenceJob:
    """Train one stage of ms-tune's reference transformer.

    Attributes:
        config: The config.
        stage: The layers of the stage, already shrunk to the wanted number.
        data_parallel: Data-parallel ranks of the simulated job, context-parallel ones not counted.
        steps: Training steps.
    """

    config: TrainingConfig
    stage: Stage
    data_parallel: int
    steps: int

    def to_json(self) -> dict[str, object]:
        """Plain data for the job file."""
        return {"kind": "reference", **asdict(self)}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a synthetic data set.

    Attributes:
        name: Its name.
        shape: The shape of one sample.
        dtype: Its number format, by NumPy's name.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class MindFormersJob:
    """Train a MindFormers model (static graph) from a rewritten copy of the user's config.

    Attributes:
        config_file: File name of that copy, in the process's working folder.
        columns: The data set's columns, in order.
        batches: Batches that the synthetic data set holds: training steps.
        batch_size: Samples in a batch as the data set gives it: all micro-batches of one step.
        threads: Threads for dispatching operators; with few, MindSpore cannot build graphs with conditions.
    """

    config_file: str
    columns: tuple[Column, ...]
    batches: int
    batch_size: int
    threads: int

    def to_json(self) -> dict[str, object]:
        """Plain data for the job file."""
        return {"kind": "mindformers", **asdict(self)}


@dataclass(frozen=True, slots=True)
class MindSpeedJob:
    """Train a MindSpeed-Core-MS model (dynamic graph) from a rewritten copy of the user's config.

    Attributes:
        package: Where the framework's modules lie.
        config_file: File name of that copy, in the process's working folder.
        steps: Training steps.
    """

    package: str
    config_file: str
    steps: int

    def to_json(self) -> dict[str, object]:
        """Plain data for the job file."""
        return {"kind": "mindspeed", **asdict(self)}


@dataclass(frozen=True, slots=True)
class PynativeJob:
    """Train a MindFormers model (dynamic graph) from a rewritten copy of the user's config.

    Attributes:
        config_file: File name of that copy, in the process's working folder.
        columns: The data set's columns, in order.
        length: Tokens of a sample.
        samples: Samples in the synthetic data set.
        steps: Training steps.
    """

    config_file: str
    columns: tuple[Column, ...]
    length: int
    samples: int
    steps: int

    def to_json(self) -> dict[str, object]:
        """Plain data for the job file."""
        return {"kind": "pynative", **asdict(self)}


def reference_job_from_json(data: Mapping[str, Any]) -> ReferenceJob:
    """The job that :meth:`ReferenceJob.to_json` wrote."""
    return ReferenceJob(
        config=_config_from_json(data["config"]),
        stage=_stage_from_json(data["stage"]),
        data_parallel=data["data_parallel"],
        steps=data["steps"],
    )


def _config_from_json(config: Mapping[str, Any]) -> TrainingConfig:
    shape, parallelism, optimizer = config["shape"], config["parallelism"], config["optimizer"]
    latent, experts = shape["latent"], shape["experts"]
    if experts:
        experts = {**experts, "router": DType(experts["router"])}
    precision: dict[str, Any] = {
        name: value if value is None or name == "mixed" else DType(value) for name, value in config["precision"].items()
    }
    return TrainingConfig(
        shape=ModelShape(
            **{
                **shape,
                "latent": LatentAttention(**latent) if latent else None,
                "experts": Experts(**experts) if experts else None,
            }
        ),
        parallelism=Parallelism(**{**parallelism, "context_method": ContextMethod(parallelism["context_method"])}),
        batch=Batch(**config["batch"]),
        precision=Precision(**precision),
        optimizer=Optimizer(**{**optimizer, "sharding": Sharding(optimizer["sharding"])}),
    )


def _stage_from_json(stage: Mapping[str, Any]) -> Stage:
    chunks = tuple(
        Chunk(
            tuple(StageLayer(**{**layer, "select": tuple(layer["select"])}) for layer in chunk["layers"]),
            chunk["embedding"],
            chunk["head"],
        )
        for chunk in stage["chunks"]
    )
    return Stage(stage["index"], stage["stages"], chunks)


def mindformers_job_from_json(data: Mapping[str, Any]) -> MindFormersJob:
    """The job that :meth:`MindFormersJob.to_json` wrote."""
    fields = {name: data[name] for name in ("config_file", "batches", "batch_size", "threads")}
    return MindFormersJob(columns=_columns_from_json(data["columns"]), **fields)


def _columns_from_json(columns: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    return tuple(Column(item["name"], tuple(item["shape"]), item["dtype"]) for item in columns)


def mindspeed_job_from_json(data: Mapping[str, Any]) -> MindSpeedJob:
    """The job that :meth:`MindSpeedJob.to_json` wrote."""
    return MindSpeedJob(data["package"], data["config_file"], data["steps"])


def pynative_job_from_json(data: Mapping[str, Any]) -> PynativeJob:
    """The job that :meth:`PynativeJob.to_json` wrote."""
    fields = {name: data[name] for name in ("config_file", "length", "samples", "steps")}
    return PynativeJob(columns=_columns_from_json(data["columns"]), **fields)
