"""A plan as MindSpeed-Core-MS writes it: counts of layers, recomputed in full first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.dialects.cells import is_full
from ms_tune.dialects.draft import has, never, runs, squeeze

if TYPE_CHECKING:
    from collections.abc import Callable

    from ms_tune.dialects.draft import SettingsDraft
    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.dialects.plan_result import LayerSpec


def to_mindspeed_ms(plan: LayerPlan, draft: SettingsDraft) -> None:
    """Write the settings."""
    cells = draft.cells
    prefix = "parallel_config"
    columns = _mindspeed_placement(draft, prefix)
    if any(layer.select_excludes or layer.comm_excludes for layer in cells.layers):
        draft.say("excludes", Severity.ERROR)
    if any(layer.swap for layer in plan.layers):
        draft.say("swap", Severity.ERROR)
    requests: tuple[tuple[str, Callable[[LayerSpec], bool]], ...] = (
        ("recompute", is_full),
        ("select_recompute", partial(has, draft.choices.reached("select_patterns"))),
        ("select_comm_recompute", partial(has, draft.choices.reached("comm_patterns"))),
    )
    for key, wanted in requests:
        rows = runs(draft, key, wanted, never if wanted is is_full else is_full, over=False)
        if rows is None or columns is None:
            continue
        if columns and any(row[-1] for row in rows):
            # A fault of the framework: the stage of the embedding reads the last stage's value and stops over it.
            draft.say("standalone", Severity.ERROR, key=key)
            continue
        draft.values[f"{prefix}.recompute_config.{key}"] = squeeze(cells, [row[columns:] for row in rows])


def _mindspeed_placement(draft: SettingsDraft, prefix: str) -> int | None:
    """The placement as counts; gives the number of leading stages without layers, or None if it cannot be said."""
    cells = draft.cells
    counts = cells.counts
    leading = int(cells.stages > 1 and all(row[0] == 0 for row in counts))
    empty = [stage for stage in range(leading, cells.stages) if any(row[stage] == 0 for row in counts)]
    if empty or len(cells.layers) < cells.stages * cells.chunks:
        draft.say("empty", Severity.ERROR, stages=", ".join(map(str, empty or [0])))
        return None
    draft.values["model_config.num_layers"] = len(cells.layers)
    draft.values[f"{prefix}.pipeline_model_parallel_size"] = cells.stages
    if cells.chunks > 1:
        draft.values[f"{prefix}.virtual_pipeline_model_parallel_size"] = cells.chunks
    if leading:
        draft.values[f"{prefix}.standalone_embedding_stage"] = True
    if cells.stages > 1:
        draft.values[f"{prefix}.num_layer_list"] = squeeze(cells, [row[leading:] for row in counts])
    return leading
