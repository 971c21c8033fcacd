"""What a dynamic-graph config comes to, whatever its dialect."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ms_tune.diagnostics import Severity
from ms_tune.dialects.job_parts import ContextMethod
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.reference.job import ulysses_ways
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ms_tune.dialects import LayerPlan, LayerSpec
    from ms_tune.dialects.job_parts import SettingChange, TrainingConfig
    from ms_tune.dialects.stage import StageLayer
    from ms_tune.text import Message

# The optimizer's name where AdamW is one operator although the dialect's own is several.
FUSED_ADAMW = "AdamW (fused)"
# A layer and where it is: chunk, stage, layer.
Placed: TypeAlias = "tuple[int, int, StageLayer]"


@dataclass(frozen=True, slots=True)
class Names:
    """What the dialect calls the sizes that must divide one another."""

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
    hidden: str


@dataclass(frozen=True, slots=True)
class DynamicJob:
    """A training job in the dynamic graph."""

    config: TrainingConfig  # the neutral model
    layers: tuple[Placed, ...]  # all layers of the model and where they are
    devices: int  # devices of the job
    names: Names  # what the dialect calls the sizes
    batch_key: tuple[str, int]  # the key that says how many micro-batches a step has, and its value for each of them
    # What it takes to say in the config that the model has other layers.
    layer_changes: Callable[[Sequence[Placed], Sequence[Placed]], Iterable[SettingChange]]
    not_included: tuple[Message, ...]  # what the reference transformer leaves out of it
    warnings: tuple[Message, ...]  # what the config's author should know
    validated: tuple[Message, ...]  # what the reference transformer was held to for such a job
    unproved: tuple[Message, ...] = ()  # and what nothing could hold it to


def placed_layers(
    plan: LayerPlan, of: Callable[[LayerSpec], StageLayer], path: Path
) -> tuple[tuple[Placed, ...], tuple[Message, ...]]:
    """All layers as the framework would have them, and what its author should know."""
    if plan.failure is not None or plan.placement is None:
        errors = [problem.message for problem in plan.problems if problem.severity is Severity.ERROR]
        raise ConfigError(errors[0] if errors else msg("reference.no-placement"), path=path)
    warnings = tuple(problem.message for problem in plan.problems if problem.severity is Severity.WARNING)
    return tuple((layer.chunk, layer.stage, of(layer)) for layer in plan.layers), warnings


def refuse_unserved(unserved: Mapping[str, tuple[object, bool]]) -> None:
    """Refuse what the reference transformer does not do: a figure for another model would be a wrong figure."""
    for key, (value, served) in unserved.items():
        if not served:
            raise UnsupportedError(
                msg("dryrun.reference.not-served", key=key, value=value), msg("dryrun.reference.not-served.hint")
            )


MOST_DEVICES = 1 << 20  # far more than any cluster has


def fewest_devices(config: TrainingConfig) -> int:
    """The smallest number of devices that can hold the model as it is split."""
    parallel, experts = config.parallelism, config.shape.experts
    ways = parallel.context * (parallel.tensor if experts and not experts.tensor_parallel else 1)
    needed = parallel.expert if experts else 1
    data_parallel = needed // math.gcd(ways, needed)
    return parallel.model_size * data_parallel


def check_devices(job: DynamicJob, path: Path) -> None:
    """The devices can be split as the config says."""
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
    """Every size can be split as the config says."""
    for size, key, ways, by in _list_divisions(config, names):
        if size % ways:
            raise ConfigError(msg("reference.not-divisible", key=key, size=size, by=by, ways=ways), path=path)


def _list_divisions(config: TrainingConfig, names: Names) -> Iterator[tuple[int, str, int, str]]:
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
        yield experts.routed, names.experts, parallel.expert, names.expert
    if parallel.virtual_pipeline and shape.legacy:
        yield config.batch.micro_batch_num, names.micro_batches, parallel.pipeline, "pipeline"
