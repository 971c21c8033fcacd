"""What decides about the layers of the dynamic graph of MindFormers, and what comes of it step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ms_tune.frameworks.dialect import Dialect
from ms_tune.frameworks.releases import default_release

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.layers.pynative.modules import Modules
    from ms_tune.layers.pynative.placement import Ranges


@dataclass(frozen=True, slots=True)
class PynativeInputs:
    """What decides about the layers, with its types as the framework has checked them while it loaded the config.

    Args:
        layers: Layers without those of multi-token prediction.
        mtp_layers: Layers of multi-token prediction.
        version: ``2.0`` or ``2.1``.
        stages: ``parallelism.pipeline_parallel``.
        chunks: ``parallelism.pipeline_parallel_interleave_num``.
        layers_per_stage: ``parallelism.pipeline_parallel_layers_per_stage``.
        schedule: ``parallelism.pipeline_parallel_schedule``.
        mode: ``recompute.mode``.
        full_layers: ``recompute.full_recompute_layer``.
        select_module: ``recompute.select_module``.
        exclude_op: ``recompute.exclude_op``.
        comm: ``recompute_comm.enable``.
        comm_module: ``recompute_comm.select_module``.
        swap: ``swap.enable``.
        prefetch: ``swap.default_prefetch``.
        layer_swap: ``swap.layer_swap``.
        op_swap: ``swap.op_swap``.
        modules: The paths of the modules and operators inside each layer, or None if the model is not known; then
            the plan names the patterns themselves.
        comm_known: Whether ``modules`` has communication operators, too. They are there only once the model is split;
            without them a pattern that may be meant for them stands for itself if it matches nothing else.
    """

    layers: int
    mtp_layers: int = 0
    version: str = default_release(Dialect.MINDFORMERS_PYNATIVE)
    stages: int = 1
    chunks: int = 1
    layers_per_stage: Any = "auto"
    schedule: str = "1f1b"
    mode: str = "None"
    full_layers: Any = None
    select_module: Any = None
    exclude_op: Any = None
    comm: bool = False
    comm_module: Any = None
    swap: bool = False
    prefetch: int = 1
    layer_swap: Any = None
    op_swap: Any = None
    modules: Modules | None = None
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
