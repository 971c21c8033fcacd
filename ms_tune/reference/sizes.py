"""Sizes that must divide one another, or the framework stops before the first step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ms_tune.dialects.job_parts import ContextMethod
from ms_tune.errors import ConfigError
from ms_tune.reference.ranks import ulysses_ways
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ms_tune.dialects.job_parts import TrainingConfig
    from ms_tune.reference.read import DynamicJob, Names

MOST_DEVICES = 1 << 20  # far more than any cluster has


def fewest_devices(config: TrainingConfig) -> int:
    """The smallest number of devices that can hold the model as it is split."""
    parallel, experts = config.parallelism, config.shape.experts
    ways = parallel.context * (parallel.tensor if experts and not experts.tensor_parallel else 1)
    needed = parallel.expert if experts else 1
    data_parallel = needed // math.gcd(ways, needed)
    return parallel.model_size * data_parallel


def check_devices(job: DynamicJob, path: Path) -> None:
    """The devices can be split as the config says.

    Raises:
        ConfigError: They cannot, or they are more than any job has: every rank of a group is written down.
    """
    if job.devices > MOST_DEVICES:
        raise ConfigError(msg("reference.too-many-devices", devices=job.devices, most=MOST_DEVICES), path=path)
    parallel, experts = job.config.parallelism, job.config.shape.experts
    if job.devices % parallel.model_size:
        raise ConfigError(msg("reference.devices", devices=job.devices, size=parallel.model_size), path=path)
    others = job.devices // parallel.pipeline
    if experts and experts.tensor_parallel:
        others //= parallel.tensor
    if experts and others % parallel.expert:
        raise ConfigError(
            msg("reference.expert-ranks", key=job.names.expert, ways=parallel.expert, ranks=others), path=path
        )


def check_sizes(config: TrainingConfig, path: Path, names: Names) -> None:
    """Every size can be split as the config says.

    Raises:
        ConfigError: One cannot; the text names both keys.
    """
    for size, key, ways, by in _divisions(config, names):
        if size % ways:
            raise ConfigError(msg("reference.not-divisible", key=key, size=size, by=by, ways=ways), path=path)


def _divisions(config: TrainingConfig, names: Names) -> Iterator[tuple[int, str, int, str]]:
    shape, parallel, experts = config.shape, config.parallelism, config.shape.experts
    tensor, ulysses = parallel.tensor, ulysses_ways(config)
    groups = shape.num_query_groups
    yield shape.num_attention_heads, names.heads, tensor * ulysses, f"{names.tensor} × {names.context}"
    yield max(groups, tensor), names.groups, min(groups, tensor), names.tensor
    yield max(1, groups // tensor), names.groups, ulysses, names.context
    yield shape.ffn_hidden_size, names.width, tensor, names.tensor
    yield shape.vocab_size, names.words, tensor, names.tensor
    yield parallel.context, names.context, ulysses, f"{names.context} (Ulysses)"
    # A ring gives each rank an early and a late part of the sequence; MindFormers' dynamic graph has none.
    ring = shape.legacy and parallel.context_method is not ContextMethod.ULYSSES
    parts = parallel.context * (2 if ring else 1)
    yield shape.seq_length, names.tokens, parts if parallel.context > 1 else 1, names.context
    if parallel.sequence:
        yield shape.seq_length, names.tokens, parallel.context * tensor, f"{names.tensor} × {names.context}"
    if experts:
        yield experts.count, names.experts, parallel.expert, names.expert
    if parallel.virtual_pipeline and shape.legacy:
        yield config.batch.micro_batch_num, names.micro_batches, parallel.pipeline, "pipeline"
