"""Define the common form of dynamic-graph configs of all dialects, and check it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ms_tune.diagnostics import Severity
from ms_tune.dialects import LayerPlan, LayerSpec
from ms_tune.dialects.job_parts import ContextMethod, SettingChange, TrainingConfig
from ms_tune.dialects.stage import StageLayer
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.reference.job import ulysses_degree
from ms_tune.text import Message, msg

# The optimizer's name if AdamW is one operator although the dialect's own consists of several.
FUSED_ADAMW = "AdamW (fused)"
# A layer and its place: chunk, stage, layer.
Placed: TypeAlias = "tuple[int, int, StageLayer]"


@dataclass(frozen=True, slots=True)
class Names:
    """The dialect's names of sizes that must be divisible by one another."""

    tensor: str
    context: str
    expert: str
    heads: str
    groups: str
    width: str
    words: str
    tokens: str
    experts: str
    micro_batches: str


@dataclass(frozen=True, slots=True)
class DynamicJob:
    """A training job in dynamic graph."""

    config: TrainingConfig  # the model, independent of the dialect
    layers: tuple[Placed, ...]  # all layers of the model with their places
    devices: int  # devices of the job
    names: Names  # the dialect's names of the sizes
    batch_key: tuple[str, int]  # the key of the number of micro-batches per step, and its value per micro-batch
    # Return the config changes that replace the model's layers by others.
    layer_changes: Callable[[Sequence[Placed], Sequence[Placed]], Iterable[SettingChange]]
    not_included: tuple[Message, ...]  # its parts that the reference transformer omits
    warnings: tuple[Message, ...]  # notes for the config's author
    validated: tuple[Message, ...]  # validations of the reference transformer for such a job
    unproved: tuple[Message, ...] = ()  # parts that could not be validated


def placed_layers(
    plan: LayerPlan, of: Callable[[LayerSpec], StageLayer], path: Path
) -> tuple[tuple[Placed, ...], tuple[Message, ...]]:
    """Return all layers as placed by the framework, and notes for the config's author."""
    if plan.failure is not None or plan.placement is None:
        errors = [problem.message for problem in plan.problems if problem.severity is Severity.ERROR]
        raise ConfigError(errors[0] if errors else msg("reference.no-placement"), path=path)
    warnings = tuple(problem.message for problem in plan.problems if problem.severity is Severity.WARNING)
    return tuple((layer.chunk, layer.stage, of(layer)) for layer in plan.layers), warnings


def refuse_unserved(unserved: Mapping[str, tuple[object, bool]]) -> None:
    """Raise :class:`UnsupportedError` for a setting that the reference transformer does not support."""
    for key, (value, served) in unserved.items():
        if not served:
            raise UnsupportedError(
                msg("dryrun.reference.not-served", key=key, value=value), msg("dryrun.reference.not-served.hint")
            )


MOST_DEVICES = 1 << 20  # far more than any cluster has


def fewest_devices(config: TrainingConfig) -> int:
    """Return the smallest number of devices that fits the model with its parallel split."""
    parallel, experts = config.parallelism, config.shape.experts
    ways = parallel.context * (parallel.tensor if experts and not experts.tensor_parallel else 1)
    needed = parallel.expert if experts else 1
    data_parallel = needed // math.gcd(ways, needed)
    return parallel.model_size * data_parallel


def check_devices(job: DynamicJob, path: Path) -> None:
    """Check that the devices can be split as configured."""
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
    """Check that every size can be split as configured."""
    for size, key, ways, by in _list_divisions(config, names):
        if size % ways:
            raise ConfigError(msg("reference.not-divisible", key=key, size=size, by=by, ways=ways), path=path)


def _list_divisions(config: TrainingConfig, names: Names) -> Iterator[tuple[int, str, int, str]]:
    shape, parallel, experts = config.shape, config.parallelism, config.shape.experts
    tensor, ulysses = parallel.tensor, ulysses_degree(config)
    groups = shape.num_query_groups
    yield shape.num_attention_heads, names.heads, tensor * ulysses, f"{names.tensor} × {names.context}"
    yield max(groups, tensor), names.groups, min(groups, tensor), names.tensor
    yield max(1, groups // tensor), names.groups, ulysses, names.context
    yield shape.ffn_hidden_size, names.width, tensor, names.tensor
    yield shape.vocab_size, names.words, tensor, names.tensor
    yield parallel.context, names.context, ulysses, f"{names.context} (Ulysses)"
    # A ring gives each rank an early and a late part of the sequence; MindFormers' dynamic graph has no ring.
    ring = shape.legacy and parallel.context_method is not ContextMethod.ULYSSES
    parts = parallel.context * (2 if ring else 1)
    yield shape.seq_length, names.tokens, parts if parallel.context > 1 else 1, names.context
    if parallel.sequence:
        yield shape.seq_length, names.tokens, parallel.context * tensor, f"{names.tensor} × {names.context}"
    if experts:
        yield experts.routed, names.experts, parallel.expert, names.expert
    if parallel.virtual_pipeline and shape.legacy:
        yield config.batch.micro_batch_num, names.micro_batches, parallel.pipeline, "pipeline"
