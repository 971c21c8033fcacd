"""What MindSpeed-Core-MS r0.1.0 recomputes of the layers of a cell.

``_get_recompute_nums``, ``_set_checkpointed_recompute`` and ``ParallelTransformerLayer._set_selective_recompute`` of
``mindspeed_ms/legacy/model/transformer.py``, branch r0.1.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.layer_plan import FrameworkStop, stop
from ms_tune.dialects.mindspeed_ms.placement import CellPlan, CountArray, Number, add, as_count, count_array, subtract

if TYPE_CHECKING:
    from ms_tune.dialects.mindspeed_ms.placement import LayerPlacer, MindSpeedInputs

KINDS = ("recompute", "select_recompute", "select_comm_recompute")


class CellRecompute:
    """The framework while it sets recompute, cell by cell. What does not depend on the rank is worked out once."""

    def __init__(self, inputs: MindSpeedInputs, placer: LayerPlacer) -> None:
        self._inputs, self._placer = inputs, placer
        self._kinds: dict[str, CountArray] | FrameworkStop | None = None

    def plan_cell(self, chunk: int, stage: int, count: Number, first: int, log: list[str]) -> CellPlan:
        """What the layers of a cell recompute (``ParallelTransformer.__init__``)."""
        inputs = self._inputs
        full, select, comm = (0, 0, 0) if inputs.recompute_config is None else self._listed(chunk, stage, count, log)
        layers = as_count(count)
        if inputs.recompute_config is None and inputs.granularity == "full" and inputs.method and inputs.full_layers:
            # Groups of so many layers with "uniform", each recomputed as one: no layer is left out.
            full = layers if inputs.method == "uniform" else min(layers, inputs.full_layers)
        full = min(full, layers)
        behind = layers - full
        # The copies that the layers are built from are made before the lists reset the granularity.
        every = inputs.select or inputs.granularity == "selective"
        cell = CellPlan(
            count=layers,
            first=first,
            full=full,
            select=behind if every else min(select, behind),
            comm=behind if inputs.comm else min(comm, behind),
        )
        self._check_activation(cell)
        return cell

    def _check_activation(self, cell: CellPlan) -> None:
        """The layer looks for the activation of its feed-forward block, which a mixture of experts does not have."""
        inputs = self._inputs
        everywhere = inputs.select and cell.count
        if inputs.flash_attention and inputs.experts > 1 and (cell.select or everywhere):
            stop("AttributeError", "The 'MoELayer' object has no attribute 'act_func'.")

    def _listed(self, chunk: int, stage: int, count: Number, log: list[str]) -> tuple[int, int, int]:
        """The counts that the lists have for a cell (``_get_recompute_nums``), and what is done with them."""
        inputs = self._inputs
        if self._kinds is None:
            try:
                self._kinds = {kind: self._checked(kind) for kind in KINDS if (inputs.recompute_config or {}).get(kind)}
            except FrameworkStop as error:
                self._kinds = error
        if isinstance(self._kinds, FrameworkStop):
            stop(self._kinds.exception, self._kinds.text)
        # With an embedding stage of its own, the first stage counts as -1 and takes the last stage's value.
        column = 0 if inputs.stages == 1 else stage - 1 if inputs.standalone else stage
        place = chunk * self._placer.columns + column % self._placer.columns
        full, select, comm = (self._kinds[kind].items[place] if kind in self._kinds else 0 for kind in KINDS)
        for name, extra in ((KINDS[2], comm), (KINDS[1], select)):
            if add(extra, full) > count:
                stop(
                    "ValueError",
                    f"Recompute layers must less or equal num layers, but got {name}_layers {extra} + "
                    f"full_recompute_layers {full} > num_layers {count}.",
                )
        where = f"in pp_rank:{column}" if inputs.chunks is None else f"in vpp_rank:{chunk}, pp_rank:{column}"
        log.append(
            f"{where}, full_recompute_layers is {full}, select_recompute_layers is {select}, "
            f"select_comm_recompute_layers is {comm}"
        )
        self._check_ranges(count, full, select, comm)
        return int(full), int(select), int(comm)

    def _checked(self, kind: str) -> CountArray:
        array = count_array((self._inputs.recompute_config or {})[kind])
        if not array.all_at_least(0):
            stop("ValueError", "recompute_num_array has element < 0")
        if array.shape != self._placer.layout:
            stop(
                "ValueError",
                f"The shape of recompute_num_list {array.shape} must equal to pp_layout {self._placer.layout}",
            )
        return array

    def _check_ranges(self, count: Number, full: Number, select: Number, comm: Number) -> None:
        """What is counted off layer by layer; numbers that are no whole ones get this far."""
        if full != 0 and full < 1:
            kind = "float64" if isinstance(full, float) else "int64"
            stop(
                "ValueError",
                f"The 'recompute_num_layers' must be in range of [1, {self._inputs.layers}], but got {full} with "
                f"type '{kind}'.",
            )
        both = min(select, comm)
        more = subtract(comm, select)
        for number in (full, both, more, subtract(subtract(subtract(count, both), more), full)):
            as_count(number)
