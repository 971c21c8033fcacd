"""What a dynamic-graph config comes to, whatever its dialect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ms_tune.diagnostics import Severity
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from ms_tune.dialects.job_parts import SettingChange, TrainingConfig
    from ms_tune.dialects.layer_plan import LayerPlan, LayerSpec
    from ms_tune.dialects.stage import StageLayer
    from ms_tune.source.yaml import SourceFile
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
    """All layers as the framework would have them, and what its author should know.

    Raises:
        ConfigError: The framework refuses the plan.
    """
    if plan.failure is not None or plan.placement is None:
        errors = [problem.message for problem in plan.problems if problem.severity is Severity.ERROR]
        raise ConfigError(errors[0] if errors else msg("reference.no-placement"), path=path)
    warnings = tuple(problem.message for problem in plan.problems if problem.severity is Severity.WARNING)
    return tuple((layer.chunk, layer.stage, of(layer)) for layer in plan.layers), warnings


def recomputed(layer: LayerSpec) -> bool:
    """Whether all of the layer is recomputed."""
    return layer.recompute is RecomputeMode.FULL


def refuse_unserved(unserved: Mapping[str, tuple[object, bool]]) -> None:
    """Refuse what the reference transformer does not do: a figure for another model would be a wrong figure.

    Args:
        unserved: By key of the config: its value, and whether it is served.

    Raises:
        UnsupportedError: One of them is not.
    """
    for key, (value, served) in unserved.items():
        if not served:
            raise UnsupportedError(
                msg("dryrun.reference.not-served", key=key, value=value), msg("dryrun.reference.not-served.hint")
            )


def section(source: SourceFile, name: str) -> dict[Any, Any]:
    """A section of a config, empty where it has none."""
    value = source.data.get(name)
    return value if isinstance(value, dict) else {}
