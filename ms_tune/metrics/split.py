"""How a config's job is cut: cards, samples of a step, micro-batches; by the keys of its dialect and what started it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ms_tune.enums import Dialect
from ms_tune.planning.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.source.yaml import SourceFile

MOST = 10**9  # of any size that is multiplied


@dataclass(frozen=True, slots=True)
class JobSplit:
    """How a job is cut; None is not known."""

    cards: int | None
    batch: int | None
    micro_batches: int | None
    schedule: Schedule


def split_of(source: SourceFile, dialect: Dialect, processes: int | None) -> JobSplit:
    """Cards and samples of a config's job.

    Args:
        source: The config.
        dialect: Its dialect.
        processes: How many cards there are, as the user or the launch script says; None where nobody does.
    """
    if dialect is Dialect.MINDFORMERS:
        return _static(source.data, processes)
    if dialect is Dialect.MINDSPEED_MS:
        return _mindspeed(source.data, processes)
    return _pynative(source.data, processes)


def _static(data: Mapping[object, object], processes: int | None) -> JobSplit:
    """MindFormers' static graph: ``global batch = batch_size x data_parallel x micro_batch_num`` (with stages) ``x accumulation``.

    On other cards than the config is for, its batch would be another one, too.
    """
    parallel = _section(data, "parallel_config")
    ways = [_number(parallel, name) or 1 for name in ("data_parallel", "model_parallel", "pipeline_stage")]
    context = _number(parallel, "context_parallel") or 1
    runner = _section(data, "runner_config")
    micro = (_number(parallel, "micro_batch_num") or 1) if ways[2] > 1 else 1
    size = _number(runner, "batch_size")
    more = (_number(runner, "gradient_accumulation_steps") or 1) * (_number(data, "micro_batch_interleave_num") or 1)
    batch = size * ways[0] * micro * more if size and parallel else None
    cards = prod(ways) * context if parallel else None
    if processes is not None and processes != cards:
        return JobSplit(processes, None, micro, Schedule.INTERLEAVED)
    return JobSplit(cards, batch, micro, Schedule.INTERLEAVED)


def _mindspeed(data: Mapping[object, object], processes: int | None) -> JobSplit:
    """MindSpeed-Core-MS r0.1.0: each data-parallel rank takes ``batch_size x micro_batch_num`` samples in a step.

    The number of these ranks follows from the cards (``initialize_model_parallel``).
    """
    parallel, dataset = _section(data, "parallel_config"), _section(data, "dataset_config")
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    ways = prod(_number(parallel, name) or 1 for name in names)
    micro, size = (_number(dataset, name) or 1 for name in ("micro_batch_num", "batch_size"))
    whole = processes is not None and processes % ways == 0
    batch = processes // ways * size * micro if processes is not None and whole else None
    return JobSplit(processes, batch, micro, Schedule.INTERLEAVED_FULL_WARM_UP)


def _pynative(data: Mapping[object, object], processes: int | None) -> JobSplit:
    """MindFormers' dynamic graph: the batch is written; data-parallel ranks are written, or all that are left (``parallel_dims.py``).

    The samples of a growing batch (``rampup_batch_size``) are not known.
    """
    parallel, training = _section(data, "parallelism"), _section(data, "training")
    ways = prod(_number(parallel, name) or 1 for name in ("tensor_parallel", "context_parallel", "pipeline_parallel"))
    shards = _number(parallel, "data_parallel_shard")
    copies = _number(parallel, "data_parallel_replicate") or 1
    cards = processes or (ways * shards * copies if shards else None)
    batch = None if training.get("rampup_batch_size") else _number(training, "global_batch_size") or 1
    micro = None
    if cards is not None and batch is not None and cards % ways == 0:
        micro, rest = divmod(batch, cards // ways * (_number(training, "local_batch_size") or 1))
        micro = None if rest else micro or None
    return JobSplit(cards, batch, micro, Schedule.INTERLEAVED_SPREAD)


def _section(data: object, name: str) -> Mapping[object, object]:
    found = data.get(name) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}


def _number(section: Mapping[object, object], name: str) -> int | None:
    value = section.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST else None
