"""A plan as the static graph of MindFormers writes it: an offset from the even split, lists of counts or of layers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.dialects.cells import is_full
from ms_tune.dialects.convert_swap import swap_static
from ms_tune.dialects.draft import KEYS, has, never, runs, squeeze
from ms_tune.dialects.operator_names import SWAP
from ms_tune.dialects.patterns import drop_excluded

if TYPE_CHECKING:
    from collections.abc import Callable

    from ms_tune.dialects.draft import SettingsDraft
    from ms_tune.dialects.plan_result import LayerSpec


def to_mindformers(draft: SettingsDraft, *, legacy: bool) -> None:
    """Write the settings; ``legacy`` names where a model of that kind has its swap."""
    cells = draft.cells
    counts = cells.counts
    flat = [count for row in counts for count in row]
    if 0 in flat[1:-1]:
        empty = [stage for stage in range(cells.stages) if any(row[stage] == 0 for row in counts)]
        draft.say("empty", Severity.ERROR, stages=", ".join(map(str, empty)))
        return
    if not legacy:
        draft.values["use_legacy"] = False
    base = len(cells.layers) // len(flat)
    offset = [[count - base for count in row] for row in counts]
    # Models that are not legacy ones have a value for that name, and MindFormers refuses a second one.
    draft.values[f"model.model_config.{'num_layers' if legacy else 'num_hidden_layers'}"] = len(cells.layers)
    draft.values["parallel_config.pipeline_stage"] = cells.stages
    draft.values["model.model_config.offset"] = squeeze(cells, offset) if any(map(any, offset)) else 0
    if cells.chunks > 1:
        draft.values["model.model_config.pp_interleave_num"] = cells.chunks
        draft.values["parallel.pipeline_config.pipeline_interleave"] = True
        draft.values["parallel.pipeline_config.pipeline_scheduler"] = "1f1b"
    swapping = bool(draft.choices.named[SWAP])
    full = _listed(draft, "recompute", is_full, never, by_id=swapping)
    if swapping:
        sections = ["swap_config"] if legacy else ["model.model_config"]
        if not legacy and isinstance(full, list) and len(full) > cells.stages:
            # The model does not hear of it, but a list that is longer than there are stages is refused without.
            sections.append("swap_config")
        swap_static(draft.choices.named[SWAP], sections, draft.values, draft.problems, draft.spelled)
    draft.values["recompute_config.recompute"] = False if full is None else full
    for attribute, key in KEYS.items():
        value = _mindformers_patterns(draft, key, attribute, by_id=swapping)
        chosen = draft.values.get(f"recompute_config.{key.removesuffix('_exclude')}")
        # With swap on, exclude lists have no effect; without, they take patterns away that say the same.
        if key.endswith("_exclude") and value and (swapping or _takes_away(value, chosen)):
            draft.say("excludes", Severity.ERROR)
            value = False
        draft.values[f"recompute_config.{key}"] = value


def _takes_away(excluded: object, chosen: object) -> bool:
    """Whether an exclude list takes a pattern out of the list beside it, whatever layers they are for."""
    if not isinstance(excluded, dict) or not isinstance(chosen, dict):
        return False
    dropped: list[tuple[str, str]] = []
    drop_excluded("", dict(chosen), excluded, dropped, timed=True)
    return bool(dropped)


def _mindformers_patterns(draft: SettingsDraft, key: str, attribute: str, *, by_id: bool) -> object:
    """A mapping of patterns. An exclude reaches layers that are recomputed in full as well."""
    found: dict[str, object] = {}
    for name, layers in draft.choices.layers(attribute).items():
        value = _listed(draft, key, partial(has, set(layers)), partial(_without_effect, draft, key, name), by_id=by_id)
        if value is not None:
            found[draft.spelled(name)] = value
    return found or False


def _without_effect(draft: SettingsDraft, key: str, name: str, layer: LayerSpec) -> bool:
    return (is_full(layer) and not key.endswith("_exclude")) or not draft.is_there(name, layer)


def _listed(
    draft: SettingsDraft,
    key: str,
    wanted: Callable[[LayerSpec], bool],
    idle: Callable[[LayerSpec], bool],
    *,
    by_id: bool,
) -> object:
    """The layers wanted: their numbers when swap is on, else counts from the first layer of each cell on."""
    chosen = [layer.layer for layer in draft.cells.layers if wanted(layer)]
    if not chosen:
        return None
    if by_id:
        return chosen
    rows = runs(draft, key, wanted, idle, over=True)
    return None if rows is None else squeeze(draft.cells, rows)
