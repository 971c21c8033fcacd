"""What the child process is asked to do, as data that goes through a JSON file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ms_tune.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


JOB_FILE = "job.json"  # in the process's working folder
PARENT = "MS_TUNE_PARENT"  # the variable that tells a child process which one started it
# The data loader that a PynativeJob's config names; the child process puts synthetic samples in its place.
PYNATIVE_LOADER = "BlendedMegatronDatasetDataLoader"


_JobT = TypeVar("_JobT")


class ChildJob(Protocol):
    """What a child process does; ``kind`` says what the job file calls it."""

    @property
    def module(self) -> str:
        """The module whose ``run`` does it, given the plain data."""

    def _asdict(self) -> dict[str, Any]: ...


def plain_data(value: Any) -> Any:  # noqa: ANN401 - a job, and whatever it is made of
    """A job as the job file has it: records as mappings."""
    if hasattr(value, "_asdict"):
        return {name: plain_data(part) for name, part in value._asdict().items()}
    return [plain_data(part) for part in value] if isinstance(value, tuple) else value


class Column(Record):
    """A column of a synthetic data set."""

    name: str
    shape: tuple[int, ...]  # the shape of one sample
    dtype: str  # its number format, by NumPy's name


class MindFormersJob(Record):
    """Train a MindFormers model (static graph) from a rewritten copy of the user's config."""

    config_file: str  # file name of that copy, in the process's working folder
    columns: tuple[Column, ...]  # the data set's columns, in order
    batches: int  # batches that the synthetic data set holds: training steps
    batch_size: int  # samples in a batch as the data set gives it: all micro-batches of one step
    threads: int  # threads for dispatching operators; with few, MindSpore cannot build graphs with conditions
    kind: str = "mindformers"
    module: str = "ms_tune.dryrun.child.mindformers"


class MindSpeedJob(Record):
    """Train a MindSpeed-Core-MS model (dynamic graph) from a rewritten copy of the user's config."""

    package: str  # where the framework's modules lie
    config_file: str  # file name of that copy, in the process's working folder
    steps: int  # training steps
    kind: str = "mindspeed"
    module: str = "ms_tune.dryrun.child.mindspeed"


class PynativeJob(Record):
    """Train a MindFormers model (dynamic graph) from a rewritten copy of the user's config."""

    config_file: str  # file name of that copy, in the process's working folder
    columns: tuple[Column, ...]  # the data set's columns, in order
    length: int  # tokens of a sample
    samples: int  # samples in the synthetic data set
    steps: int  # training steps
    # What one pipeline stage hands to the next: tokens of a rank, samples, hidden size; empty without a pipeline.
    handed: tuple[int, ...] = ()
    handed_dtype: str = ""  # its number format
    kind: str = "pynative"
    module: str = "ms_tune.dryrun.child.pynative"


def job_from_json(kind: Callable[..., _JobT], data: Mapping[str, Any]) -> _JobT:
    """A job of this kind, from its plain data."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    if "columns" in values:
        values["columns"] = tuple(Column(one["name"], tuple(one["shape"]), one["dtype"]) for one in values["columns"])
    return kind(**values)
