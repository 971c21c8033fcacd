"""Define the jobs of child processes, as data in a JSON file."""

from __future__ import annotations

from ms_tune.records import Any, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class ChildJob(Protocol):
        """The job of a child process; ``kind`` is its name in the job file."""

        @property
        def module(self) -> str:
            """Return the module whose ``run`` executes the job, given the plain data."""

        def _asdict(self) -> dict[str, Any]: ...


JOB_FILE = "job.json"  # in the process's working folder
PARENT = "MS_TUNE_PARENT"  # the variable with the number of the process that started a child process
# The data loader that a PynativeJob's config names; the child process replaces it by synthetic samples.
PYNATIVE_LOADER = "BlendedMegatronDatasetDataLoader"


class Column(Record):
    """A column of a synthetic data set."""

    name: str
    shape: tuple[int, ...]  # the shape of one sample
    dtype: str  # its number format, by NumPy's name


class MindFormersJob(Record):
    """A job that trains a MindFormers model (static graph) from a rewritten copy of the user's config."""

    config_file: str  # file name of that copy, in the process's working folder
    columns: tuple[Column, ...]  # the data set's columns, in order
    batches: int  # batches in the synthetic data set: training steps
    batch_size: int  # samples per batch of the data set: all micro-batches of one step
    threads: int  # threads for dispatching operators; with too few, MindSpore cannot build graphs with conditions
    kind: str = "mindformers"
    module: str = "ms_tune.dryrun.child.mindformers"


class MindSpeedJob(Record):
    """A job that trains a MindSpeed-Core-MS model (dynamic graph) from a rewritten copy of the user's config."""

    package: str  # the package of the framework's modules
    config_file: str  # file name of that copy, in the process's working folder
    steps: int  # training steps
    kind: str = "mindspeed"
    module: str = "ms_tune.dryrun.child.mindspeed"


class PynativeJob(Record):
    """A job that trains a MindFormers model (dynamic graph) from a rewritten copy of the user's config."""

    config_file: str  # file name of that copy, in the process's working folder
    columns: tuple[Column, ...]  # the data set's columns, in order
    length: int  # tokens of a sample
    samples: int  # samples in the synthetic data set
    steps: int  # training steps
    # Shape of the output for the next pipeline stage: tokens of a rank, samples, hidden size; empty without a pipeline.
    handed: tuple[int, ...] = ()
    handed_dtype: str = ""  # its number format
    kind: str = "pynative"
    module: str = "ms_tune.dryrun.child.pynative"
