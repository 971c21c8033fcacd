"""What the child process is asked to do, as data that goes through a JSON file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ms_tune.config.model import (
    Batch,
    DType,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    Recompute,
    TrainingConfig,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ReferenceJob:
    """Train ms-tune's reference transformer.

    Attributes:
        config: The config, already shrunk to the wanted number of layers.
        data_parallel: Data-parallel ranks of the simulated job.
        steps: Training steps.
    """

    config: TrainingConfig
    data_parallel: int
    steps: int

    def to_json(self) -> dict[str, object]:
        """Plain data for the job file."""
        return {"kind": "reference", **asdict(self)}


@dataclass(frozen=True, slots=True)
class MindFormersJob:
    """Train a MindFormers model (static graph) from a rewritten copy of the user's config.

    Attributes:
        config_file: File name of that copy, in the process's working folder.
        columns: Names of the data set's columns, in order.
        batches: Batches that the synthetic data set holds: training steps.
        batch_size: Samples in a batch as the data set gives it: all micro-batches of one step.
        seq_length: Tokens of a sample.
        threads: Threads for dispatching operators; with few, MindSpore cannot build graphs with conditions.
    """

    config_file: str
    columns: tuple[str, ...]
    batches: int
    batch_size: int
    seq_length: int
    threads: int

    def to_json(self) -> dict[str, object]:
        """Plain data for the job file."""
        return {"kind": "mindformers", **asdict(self)}


def reference_job_from_json(data: Mapping[str, Any]) -> ReferenceJob:
    """The job that :meth:`ReferenceJob.to_json` wrote."""
    config = data["config"]
    precision = config["precision"]
    return ReferenceJob(
        TrainingConfig(
            shape=ModelShape(**config["shape"]),
            parallelism=Parallelism(**config["parallelism"]),
            batch=Batch(**config["batch"]),
            precision=Precision(DType(precision["parameters"]), precision["mixed"], DType(precision["gradients"])),
            optimizer=Optimizer(**config["optimizer"]),
            recompute=Recompute(**config["recompute"]) if config["recompute"] else None,
        ),
        data_parallel=data["data_parallel"],
        steps=data["steps"],
    )


def mindformers_job_from_json(data: Mapping[str, Any]) -> MindFormersJob:
    """The job that :meth:`MindFormersJob.to_json` wrote."""
    fields = {name: data[name] for name in ("config_file", "batches", "batch_size", "seq_length", "threads")}
    return MindFormersJob(columns=tuple(data["columns"]), **fields)
