"""What decides about the layers in MindSpeed-Core-MS r0.1.0, and what becomes of one cell of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class MindSpeedInputs:
    """What decides about placement and recompute, as it is after the config has been loaded."""

    layers: int  # `model_config.num_layers`
    tensor: int = 1  # Tensor-parallel size
    stages: int = 1  # pipeline stages
    chunks: int | None = None  # Virtual-pipeline chunks. The training entry hands None and 1 over as "none".
    standalone: bool = False  # `standalone_embedding_stage`: the first stage holds the embedding and no layer
    other_layers: bool = False  # whether `encoder_num_layers` or `decoder_num_layers` is set
    num_layer_list: Sequence[object] | None = None  # layers of each cell as given, or nothing
    # Lists of counts by kind, or None if there is no such setting at all.
    recompute_config: Mapping[str, object] | None = None
    granularity: str | None = None  # `model_config.recompute_granularity`
    method: str | None = None  # `model_config.recompute_method`
    num_layers: int | None = None  # `model_config.recompute_num_layers`
    select: bool = False  # `model_config.select_recompute`: every layer
    comm: bool = False  # `model_config.select_comm_recompute`: every layer
    flash_attention: bool = False  # `model_config.use_flash_attention`
    activation: str = "gelu"  # `model_config.hidden_act`
    experts: int = 1  # `moe_config.num_experts`
    sequence_parallel: bool = False  # `parallel_config.sequence_parallel`

    @property
    def rows(self) -> int:
        """Chunks, at least one."""
        return self.chunks or 1

    @property
    def select_operator(self) -> str:
        """What selective recompute repeats in a layer."""
        return "mlp.act_func" if self.flash_attention else "attention.core_attention"


@dataclass(frozen=True, slots=True)
class CellPlan:
    """One cell: how many layers, which one is the first, and how many do what.

    The first ``full`` layers recompute everything. ``select`` and ``comm`` count the layers behind those, both from
    the same place on.
    """

    count: int
    first: int
    full: int
    select: int
    comm: int
