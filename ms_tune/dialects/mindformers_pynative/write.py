"""A plan as the dynamic graph of MindFormers writes it: ranges of layers by module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.dialects.cells import is_full
from ms_tune.dialects.convert_swap import swap_dynamic
from ms_tune.dialects.draft import KEYS
from ms_tune.dialects.layer_plan import MINDFORMERS_PYNATIVE
from ms_tune.dialects.layer_specs import write_specs
from ms_tune.dialects.operator_names import SWAP

if TYPE_CHECKING:
    from ms_tune.dialects.cells import Cells
    from ms_tune.dialects.draft import SettingsDraft
    from ms_tune.dialects.layer_plan import LayerPlan


def to_pynative(plan: LayerPlan, draft: SettingsDraft, version: str) -> None:
    """Write the settings for a release (``2.0``, ``2.1``)."""
    cells = draft.cells
    if cells.stages > 1 and any(count == 0 for row in cells.counts for count in row):
        empty = [stage for stage in range(cells.stages) if any(row[stage] == 0 for row in cells.counts)]
        draft.say("empty", Severity.ERROR, stages=", ".join(map(str, empty)))
    else:
        draft.values["parallelism.pipeline_parallel"] = cells.stages
        draft.values["parallelism.pipeline_parallel_interleave_num"] = cells.chunks
        draft.values["parallelism.pipeline_parallel_layers_per_stage"] = "auto" if cells.stages == 1 else _texts(cells)
    draft.values["model.num_hidden_layers"] = len(cells.layers)
    if cells.behind:
        draft.values["model.num_nextn_predict_layers"] = len(cells.behind)
    full = write_specs(layer.layer for layer in plan.layers if is_full(layer))
    found = {attribute: _modules(draft, attribute) for attribute in KEYS}
    select, comm = found["select_patterns"], found["comm_patterns"]
    draft.values["recompute.mode"] = "select" if select else "full" if full else "None"
    draft.values["recompute.full_recompute_layer"] = full
    draft.values["recompute.select_module"] = select or None
    draft.values["recompute_comm.enable"] = bool(comm)
    draft.values["recompute_comm.select_module"] = comm or None
    excludes = {**found["select_excludes"], **found["comm_excludes"]}
    if excludes and (full or select):
        if version == "2.0" or _is_names(plan):
            _excluded_names(plan, draft, version)
        else:
            draft.values["recompute.exclude_op"] = excludes
    swap_dynamic(draft.choices.named[SWAP], draft.cells, draft.values, draft.problems)


def _is_names(plan: LayerPlan) -> bool:
    """Whether what is excluded are names of operators for the whole model, as in MindFormers 2.0."""
    return plan.dialect == MINDFORMERS_PYNATIVE and plan.framework_version == "2.0"


def _excluded_names(plan: LayerPlan, draft: SettingsDraft, version: str) -> None:
    """Names for the whole model go to names only."""
    if version == "2.0" and _is_names(plan):
        names = dict.fromkeys(name for layer in plan.layers for name in layer.select_excludes)
        draft.values["recompute.exclude_op"] = list(names)
    else:
        draft.say("excludes", Severity.ERROR)


def _texts(cells: Cells) -> list[str]:
    columns = zip(*cells.rows, strict=True)
    return [",".join(write_specs(layer.layer for layer in cell)[0] for cell in column) for column in columns]


def _modules(draft: SettingsDraft, attribute: str) -> dict[str, list[str]]:
    """Layers by module. The dynamic graph takes no blank pattern."""
    found = {}
    for name, layers in draft.choices.layers(attribute).items():
        if name.strip():
            found[name] = write_specs(layers)
        else:
            draft.say("pattern", Severity.ERROR, key=KEYS[attribute], pattern=name)
    return found
