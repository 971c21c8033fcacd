"""How many cards and samples the config of a job says that there are, as its trainer reads them."""

from __future__ import annotations

from math import prod

from ms_tune.enums import Dialect
from ms_tune.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.source.yaml import SourceFile

MICRO_BATCHES = ("parallel_config", "micro_batch_num")  # where MindFormers' static graph says how many a step has
_MOST = 10**9  # of any size that is multiplied


class JobSplit(Record):
    """How a job is cut; None is not known."""

    cards: int | None
    batch: int | None
    micro_batches: int | None


def split_of(source: SourceFile, dialect: Dialect, processes: int | None) -> JobSplit:
    """Cards and samples of a config's job.

    Args:
        source: The config.
        dialect: Its dialect.
        processes: How many cards there are, as the user or the launch script says; None where nobody does.
    """
    if dialect is Dialect.MINDFORMERS:
        return _split_mindformers(source.data, processes)
    if dialect is Dialect.MINDSPEED_MS:
        return _split_mindspeed(source.data, processes)
    return _split_pynative(source.data, processes)


def is_parallel(source: SourceFile) -> bool:
    """Whether a config of MindFormers' static graph is run on several devices at all."""
    return bool(source.get(("use_parallel",), default=False))


def names_devices(source: SourceFile) -> bool:
    """Whether a config of MindFormers' static graph says itself how many devices it is for."""
    return source.get(("parallel_config", "data_parallel")) is not None


def named_shards(source: SourceFile) -> int | None:
    """The data-parallel ranks that a config of MindFormers' dynamic graph names."""
    shards = _read_section(source.data, "parallelism").get("data_parallel_shard")
    return shards if type(shards) is int and shards > 0 else None


def _split_mindformers(data: Mapping[object, object], processes: int | None) -> JobSplit:
    """MindFormers' static graph: ``global batch = batch_size x data_parallel x micro_batch_num`` (with stages) ``x accumulation``.

    On other cards than the config is for, its batch would be another one, too.
    """
    parallel = _read_section(data, "parallel_config")
    ways = [_read_number(parallel, name) or 1 for name in ("data_parallel", "model_parallel", "pipeline_stage")]
    context = _read_number(parallel, "context_parallel") or 1
    runner = _read_section(data, "runner_config")
    micro = (_read_number(parallel, "micro_batch_num") or 1) if ways[2] > 1 else 1
    size = _read_number(runner, "batch_size")
    more = (_read_number(runner, "gradient_accumulation_steps") or 1) * (
        _read_number(data, "micro_batch_interleave_num") or 1
    )
    batch = size * ways[0] * micro * more if size and parallel else None
    cards = prod(ways) * context if parallel else None
    if processes is not None and processes != cards:
        return JobSplit(processes, None, micro)
    return JobSplit(cards, batch, micro)


def _split_mindspeed(data: Mapping[object, object], processes: int | None) -> JobSplit:
    """MindSpeed-Core-MS r0.1.0: each data-parallel rank takes ``batch_size x micro_batch_num`` samples in a step.

    The number of these ranks follows from the cards (``initialize_model_parallel``).
    """
    parallel, dataset = _read_section(data, "parallel_config"), _read_section(data, "dataset_config")
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    ways = prod(_read_number(parallel, name) or 1 for name in names)
    micro, size = (_read_number(dataset, name) or 1 for name in ("micro_batch_num", "batch_size"))
    whole = processes is not None and processes % ways == 0
    batch = processes // ways * size * micro if processes is not None and whole else None
    return JobSplit(processes, batch, micro)


def _split_pynative(data: Mapping[object, object], processes: int | None) -> JobSplit:
    """MindFormers' dynamic graph: the batch is written; data-parallel ranks are written, or all that are left (``parallel_dims.py``).

    The samples of a growing batch (``rampup_batch_size``) are not known.
    """
    parallel, training = _read_section(data, "parallelism"), _read_section(data, "training")
    ways = prod(
        _read_number(parallel, name) or 1 for name in ("tensor_parallel", "context_parallel", "pipeline_parallel")
    )
    shards = _read_number(parallel, "data_parallel_shard")
    copies = _read_number(parallel, "data_parallel_replicate") or 1
    cards = processes or (ways * shards * copies if shards else None)
    batch = None if training.get("rampup_batch_size") else _read_number(training, "global_batch_size") or 1
    micro = None
    if cards is not None and batch is not None and cards % ways == 0:
        micro, rest = divmod(batch, cards // ways * (_read_number(training, "local_batch_size") or 1))
        micro = None if rest else micro or None
    return JobSplit(cards, batch, micro)


def _read_section(data: object, name: str) -> Mapping[object, object]:
    found = data.get(name) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}


def _read_number(section: Mapping[object, object], name: str) -> int | None:
    value = section.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST else None
