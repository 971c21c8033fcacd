"""What decides about the layers of the dynamic graph of MindFormers, and what comes of it step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ms_tune.enums import Dialect
from ms_tune.facts.releases import default_release

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.dialects.mindformers_pynative.modules import Modules
    from ms_tune.dialects.mindformers_pynative.placement import Ranges


@dataclass(frozen=True, slots=True)
class PynativeInputs:
    """What decides about the layers, with its types as the framework has checked them while it loaded the config."""

    layers: int  # layers without those of multi-token prediction
    mtp_layers: int = 0  # layers of multi-token prediction
    version: str = default_release(Dialect.MINDFORMERS_PYNATIVE)  # `2.0` or `2.1`
    stages: int = 1  # `parallelism.pipeline_parallel`
    chunks: int = 1  # `parallelism.pipeline_parallel_interleave_num`
    layers_per_stage: Any = "auto"  # `parallelism.pipeline_parallel_layers_per_stage`
    schedule: str = "1f1b"  # `parallelism.pipeline_parallel_schedule`
    mode: str = "None"  # `recompute.mode`
    full_layers: Any = None  # `recompute.full_recompute_layer`
    select_module: Any = None  # `recompute.select_module`
    exclude_op: Any = None  # `recompute.exclude_op`
    comm: bool = False  # `recompute_comm.enable`
    comm_module: Any = None  # `recompute_comm.select_module`
    swap: bool = False  # `swap.enable`
    prefetch: int = 1  # `swap.default_prefetch`
    layer_swap: Any = None  # `swap.layer_swap`
    op_swap: Any = None  # `swap.op_swap`
    # The paths of the modules and operators inside each layer, or None if the model is not known; then the plan names
    # the patterns themselves.
    modules: Modules | None = None
    # Whether `modules` has communication operators, too. They are there only once the model is split; without them a
    # pattern that may be meant for them stands for itself if it matches nothing else.
    comm_known: bool = True

    @property
    def total(self) -> int:
        """All layers that have a number."""
        return self.layers + self.mtp_layers


@dataclass(slots=True)
class PynativeOutcome:
    """What the framework has worked out so far."""

    step: str = "parallel"
    ranges: Ranges | None = None
    places: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    full: frozenset[int] = frozenset()
    select: Mapping[int, list[str]] = field(default_factory=dict)
    comm: Mapping[int, list[str]] = field(default_factory=dict)
    exclude: Mapping[int, list[str]] = field(default_factory=dict)
    overridden: dict[int, list[str]] = field(default_factory=dict)
    swapped: frozenset[int] = frozenset()
    op_swap: Mapping[int, list[str]] = field(default_factory=dict)
    reaches: list[tuple[str, str, Mapping[int, bool]]] = field(default_factory=list)
