"""What the child process is asked to do, as data that goes through a JSON file."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


JOB_FILE = "job.json"  # in the process's working folder
# The data loader that a PynativeJob's config names; the child process puts synthetic samples in its place.
PYNATIVE_LOADER = "BlendedMegatronDatasetDataLoader"


class ChildJob(Protocol):
    """What a child process does.

    Attributes:
        module: The module whose ``run`` does it, given the plain data.
    """

    module: ClassVar[str]

    def to_json(self) -> dict[str, object]:
        """Plain data for the job file; ``kind`` says what kind of job it is."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a synthetic data set."""

    name: str
    shape: tuple[int, ...]  # the shape of one sample
    dtype: str  # its number format, by NumPy's name


@dataclass(frozen=True, slots=True)
class MindFormersJob:
    """Train a MindFormers model (static graph) from a rewritten copy of the user's config."""

    module: ClassVar[str] = "ms_tune.dryrun.child.mindformers"
    config_file: str  # file name of that copy, in the process's working folder
    columns: tuple[Column, ...]  # the data set's columns, in order
    batches: int  # batches that the synthetic data set holds: training steps
    batch_size: int  # samples in a batch as the data set gives it: all micro-batches of one step
    threads: int  # threads for dispatching operators; with few, MindSpore cannot build graphs with conditions

    def to_json(self) -> dict[str, object]:
        """Plain data for the job file."""
        return {"kind": "mindformers", **asdict(self)}


@dataclass(frozen=True, slots=True)
class MindSpeedJob:
    """Train a MindSpeed-Core-MS model (dynamic graph) from a rewritten copy of the user's config."""

    module: ClassVar[str] = "ms_tune.dryrun.child.mindspeed"
    package: str  # where the framework's modules lie
    config_file: str  # file name of that copy, in the process's working folder
    steps: int  # training steps

    def to_json(self) -> dict[str, object]:
        """Plain data for the job file."""
        return {"kind": "mindspeed", **asdict(self)}


@dataclass(frozen=True, slots=True)
class PynativeJob:
    """Train a MindFormers model (dynamic graph) from a rewritten copy of the user's config."""

    module: ClassVar[str] = "ms_tune.dryrun.child.pynative"
    config_file: str  # file name of that copy, in the process's working folder
    columns: tuple[Column, ...]  # the data set's columns, in order
    length: int  # tokens of a sample
    samples: int  # samples in the synthetic data set
    steps: int  # training steps
    # What one pipeline stage hands to the next: tokens of a rank, samples, hidden size; empty without a pipeline.
    handed: tuple[int, ...] = ()
    handed_dtype: str = ""  # its number format

    def to_json(self) -> dict[str, object]:
        """Plain data for the job file."""
        return {"kind": "pynative", **asdict(self)}


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
    fields = {name: data[name] for name in ("config_file", "length", "samples", "steps", "handed_dtype")}
    return PynativeJob(columns=_columns_from_json(data["columns"]), handed=tuple(data["handed"]), **fields)
