"""What the child process is asked to do, as data that goes through a JSON file."""

from __future__ import annotations

from typing import Any, Protocol

from ms_tune.records import Record

JOB_FILE = "job.json"  # in the process's working folder
PARENT = "MS_TUNE_PARENT"  # the variable that tells a child process which one started it
# The data loader that a PynativeJob's config names; the child process puts synthetic samples in its place.
PYNATIVE_LOADER = "BlendedMegatronDatasetDataLoader"


class ChildJob(Protocol):
    """What a child process does; ``kind`` says what the job file calls it."""

    @property
    def module(self) -> str:
        """The module whose ``run`` does it, given the plain data."""

    def _asdict(self) -> dict[str, Any]: ...


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
