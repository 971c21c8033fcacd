"""Write a plan for MindFormers' static graph: an offset from the even split, and lists of counts or layers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ms_tune.diagnostics import KeyPath, Severity
from ms_tune.dialects import FrameworkStop
from ms_tune.dialects.draft import LISTS, SettingsDraft, count_layers, flatten_chunk, is_full, write_static_swap
from ms_tune.dialects.mindformers.placement import KEYS, Placement, RecomputeInputs, place_layers
from ms_tune.dialects.mindformers.read import read_inputs
from ms_tune.dialects.mindformers.recompute import format_rows, normalize
from ms_tune.dialects.operators import SWAP
from ms_tune.dialects.remedy import guess_flag
from ms_tune.dialects.values import drop_excluded, is_counts, is_patterns, leaves, pattern_fault, to_int32
from ms_tune.facts.models import LAYERS, names_of
from ms_tune.source.edit import same_data
from ms_tune.source.yaml import MISSING, SourceFile, Values

if TYPE_CHECKING:
    from ms_tune.dialects import JobView, LayerPlan


def write_layers(draft: SettingsDraft) -> None:
    """Write the settings; legacy models have swap in another section."""
    cells, legacy = draft.cells, draft.legacy
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
    # Mcore models have a value under that name, and MindFormers refuses a second name.
    draft.values[f"model.model_config.{LAYERS if legacy else 'num_hidden_layers'}"] = len(cells.layers)
    draft.values["parallel_config.pipeline_stage"] = cells.stages
    draft.values["model.model_config.offset"] = flatten_chunk(cells, offset) if any(map(any, offset)) else 0
    if cells.chunks > 1:
        draft.values["model.model_config.pp_interleave_num"] = cells.chunks
        draft.values["parallel.pipeline_config.pipeline_interleave"] = True
        draft.values["parallel.pipeline_config.pipeline_scheduler"] = "1f1b"
    swapping = bool(draft.choices.layers_by_name[SWAP])
    full = {layer.layer for layer in cells.layers if is_full(layer)}
    recompute = _list_layers(draft, "recompute", full, (), by_id=swapping)
    if swapping:
        sections = ["swap_config"] if legacy else ["model.model_config"]
        if not legacy and isinstance(recompute, list) and len(recompute) > cells.stages:
            # The model ignores it, but without it a list longer than the number of stages is refused.
            sections.append("swap_config")
        write_static_swap(draft, sections)
    draft.values["recompute_config.recompute"] = False if recompute is None else recompute
    for attribute, key in LISTS.items():
        value = _mindformers_patterns(draft, key, attribute, by_id=swapping)
        chosen = draft.values.get(f"recompute_config.{key.removesuffix('_exclude')}")
        # With swap on, exclude lists have no effect; otherwise they remove equivalent patterns.
        if key.endswith("_exclude") and value and (swapping or _excludes_pattern(value, chosen)):
            draft.say("excludes", Severity.ERROR)
            value = False
        draft.values[f"recompute_config.{key}"] = value


def _excludes_pattern(excluded: object, chosen: object) -> bool:
    """Return whether an exclude list removes a pattern from the other list, regardless of layers."""
    if not isinstance(excluded, dict) or not isinstance(chosen, dict):
        return False
    dropped: list[tuple[str, str]] = []
    drop_excluded("", dict(chosen), excluded, dropped, timed=True)
    return bool(dropped)


def _mindformers_patterns(draft: SettingsDraft, key: str, attribute: str, *, by_id: bool) -> object:
    """Return a mapping of patterns. Excludes also apply to fully recomputed layers."""
    found: dict[str, object] = {}
    for name, layers in draft.choices.layers(attribute).items():
        idle = {
            layer.layer
            for layer in draft.cells.layers
            if (is_full(layer) and not key.endswith("_exclude")) or not draft.matches_part(name, layer)
        }
        value = _list_layers(draft, key, set(layers), idle, by_id=by_id)
        if value is not None:
            found[draft.spelled(name)] = value
    return found or False


def _list_layers(
    draft: SettingsDraft, key: str, wanted: Collection[int], idle: Collection[int], *, by_id: bool
) -> object:
    """Return the wanted layers: numbers with swap on, otherwise counts from the first layer of each cell."""
    chosen = [layer.layer for layer in draft.cells.layers if layer.layer in wanted]
    if not chosen:
        return None
    if by_id:
        return chosen
    rows = count_layers(draft, key, wanted, idle, over=True)
    return None if rows is None else flatten_chunk(draft.cells, rows)


_OFFSET: KeyPath = ("model", "model_config", "offset")
_SECTION = "recompute_config"


def explicit_lists(job: JobView) -> tuple[LayerPlan, Values]:
    """Return the plan, and explicit forms of lists that are not explicit yet (recompute lists and ``offset``)."""
    inputs = read_inputs(job)
    plan = normalize(inputs)
    return plan, dict(_wanted(job.source, inputs, plan))


def _wanted(source: SourceFile, inputs: RecomputeInputs, plan: LayerPlan) -> Iterator[tuple[KeyPath, object]]:
    if plan.formative is None:
        return
    placement, offset = place_layers(inputs), source.get(_OFFSET)
    slots_fit = placement.slots == len(placement.cells)
    found: list[tuple[KeyPath, object, object]] = []
    if isinstance(offset, list) and slots_fit and len(placement.offset) * len(placement.offset[0]) > 1:
        found.append((_OFFSET, offset, _shape_rows(placement.offset)))
    for key in KEYS:
        found += _explicit_values(key, source.get((_SECTION, key)), inputs, plan.formative)
    for path, old, new in found:
        if old is not False and new is not None and not same_data(old, new):
            yield path, new


def _explicit_values(
    key: str, value: object, inputs: RecomputeInputs, lists: Mapping[str, Any]
) -> Iterator[tuple[KeyPath, object, object]]:
    """Yield the parts of one value with their explicit forms, or None. False and empty lists are explicit already."""
    path: KeyPath = (_SECTION, key)
    if not value:
        return
    if key == "recompute":
        # A list ignores recompute_slice_activation, so True must stay True with it.
        if value is not True or not (inputs.legacy and inputs.slice_activation):
            yield path, value, _form(key, lists["layer_recompute"], inputs)
        return
    forms = {pattern: _form(key, layers, inputs) for pattern, layers in lists[key].items()}
    if isinstance(value, dict):
        for pattern, old in value.items():
            if str(pattern) in forms:  # an exclude list may have removed it
                yield (*path, str(pattern)), old, forms[str(pattern)]
    elif is_patterns(value):
        if forms.keys() == set(value if isinstance(value, (list, tuple)) else ()):
            yield path, value, forms
    elif forms:
        yield path, value, next(iter(forms.values()))


def _form(key: str, layers: Any, inputs: RecomputeInputs) -> object:  # noqa: ANN401 - rows, numbers or True
    """Return the explicit form: counts, or layer numbers with swap on; None if impossible."""
    if layers is True:
        return None
    if inputs.swaps.swap is True and not key.endswith("exclude"):
        return sorted({int(layer) for layer in layers if 0 <= layer < inputs.layers})
    return _shape_rows(layers, backwards=inputs.zero_bubble)


def _shape_rows(rows: Sequence[Sequence[int]], *, backwards: bool = False) -> list[object]:
    """Return rows for several chunks or a flat list for one. ``zero_bubble_v`` reverses the second row."""
    plain = [[int(item) for item in row] for row in rows]
    if backwards:
        plain[1].reverse()
    return list(plain) if len(plain) > 1 else list(plain[0])


_MODEL = ("model", "model_config")
_PIPELINE = ("parallel", "pipeline_config")
_RECOMPUTE = ("recompute_config",)
_PARALLEL = ("parallel_config",)
_CHUNKS = "pp_interleave_num"  # a setting of the model
_ZERO_BUBBLE = 2  # chunks, and minimum stages


def propose(job: JobView) -> Iterator[Values]:
    """Yield values that may get the framework past its failing step, the smallest change first."""
    inputs = read_inputs(job, fewest=0)
    step = job.plan.problems[0].id.removesuffix("-rejected")
    if step == "scheduler":
        yield {(*_PIPELINE, "pipeline_scheduler"): "1f1b"}
    elif step == "core":
        yield from _core(job, inputs)
    elif step == "offset":
        yield from _offset(job, inputs)
    elif step == "sequence":
        yield {(*_PARALLEL, "seq_split_num"): 1}
    else:
        yield from _propose_values(job, inputs)


def _name_setting(job: JobView, name: str) -> KeyPath:
    """Return the key path of a model setting: the name in the config, otherwise that of the model's class."""
    source, facts = job.source, job.model.facts
    names = facts.names(name)
    own = name if name in names else names[0]
    section = source.get(_MODEL)
    found = [one for one in names_of(name) if isinstance(section, dict) and one in section]
    found.sort(key=lambda one: source.get((*_MODEL, one)) is None)
    return (*_MODEL, next(iter(found), names[0] if names[0] in facts.defaults else own))


def _core(job: JobView, inputs: RecomputeInputs) -> Iterator[Values]:
    yield {(*_RECOMPUTE, "recompute_slice_activation"): False}
    if not inputs.zero_bubble:
        return
    yield {_name_setting(job, _CHUNKS): _ZERO_BUBBLE}
    yield {(*_PARALLEL, "pipeline_stage"): max(inputs.stages, _ZERO_BUBBLE)}
    yield {(*_PARALLEL, "micro_batch_num"): _ZERO_BUBBLE * inputs.stages}
    placement = _propose_placement(job, inputs)
    value = inputs.values.recompute
    if placement is not None and is_counts(value):
        try:
            rows = format_rows(inputs._replace(scheduler="1f1b"), placement, value)
        except FrameworkStop:
            return
        yield {(*_RECOMPUTE, "recompute"): [rows[0], *(row[::-1] for row in rows[1:])]}


def _propose_placement(job: JobView, inputs: RecomputeInputs) -> Placement | None:
    """Return the placement, or that with the proposed offset."""
    try:
        return place_layers(inputs)
    except FrameworkStop:
        pass
    for proposal in _offset(job, inputs):
        named = {path[-1]: value for path, value in proposal.items()}
        chunks = next((named[name] for name in names_of(_CHUNKS) if name in named), inputs.interleave_num)
        layers = next((named[name] for name in names_of(LAYERS) if name in named), inputs.layers)
        more: dict[str, Any] = {"interleave_num": chunks, "layers": layers}
        try:
            return place_layers(inputs._replace(offset=named.get("offset", inputs.offset), **more))
        except FrameworkStop:
            continue
    return None


def _offset(job: JobView, inputs: RecomputeInputs) -> Iterator[Values]:
    """Yield the offset nearest to the configured one with all layers placed and no empty cell."""
    chunks = inputs.interleave_num if inputs.interleave else 1
    more: dict[KeyPath, object] = {}
    if chunks is None or chunks < 1:
        chunks = 1
        more = {_name_setting(job, _CHUNKS): 1}
        yield more
    layers, stages = inputs.placed_layers, inputs.stage_num or inputs.stages
    if stages <= layers < stages * chunks:
        chunks = layers // stages
        more = {_name_setting(job, _CHUNKS): chunks}
    cells = stages * chunks
    if layers < cells:
        # A list is valid for this number of layers only.
        by_layer = isinstance(job.source.get((*_MODEL, "moe_layer_freq")), list)
        if not by_layer:
            yield {**more, _name_setting(job, LAYERS): cells, (*_MODEL, "offset"): 0}
        return
    base = layers // cells
    counts = [base] * cells
    try:
        _, items = to_int32(inputs.offset)
    except FrameworkStop:
        items = []
    if items and cells % len(items) == 0:
        counts = [min(max(base + extra, 1), layers) for extra in items * (cells // len(items))]
    _fill(counts, layers)
    flat = [count - base for count in counts]
    rows = [flat[start : start + stages] for start in range(0, cells, stages)]
    yield {**more, (*_MODEL, "offset"): 0 if not any(flat) else rows if chunks > 1 else flat}


def _fill(counts: list[int], layers: int) -> None:
    """Add layers to the smallest cells or remove them from the largest; ends last because of embedding and head."""
    order = [*range(1, len(counts) - 1), *{len(counts) - 1: None, 0: None}]
    while sum(counts) != layers:
        if sum(counts) < layers:
            counts[min(order, key=counts.__getitem__)] += 1
        else:
            counts[max(order, key=counts.__getitem__)] -= 1


def _propose_values(job: JobView, inputs: RecomputeInputs) -> Iterator[Values]:
    """Yield valid forms of recompute and swap values: one at a time, then all together."""
    swap = ("swap_config",) if inputs.legacy else _MODEL
    parts: list[Values] = [*_swap_parts(job.source, ("swap_config",))]
    if swap is _MODEL:
        if job.source.get(("swap_config", "swap")) is True:
            yield {("swap_config", "swap"): False}  # checks use it, the model does not
        parts += _swap_parts(job.source, _MODEL)
    by_id = inputs.swaps.swap is True or job.source.get(("swap_config", "swap")) is True
    placement = _propose_placement(job, inputs)
    if placement is not None or by_id:
        for key in KEYS:
            value = job.source.get((*_RECOMPUTE, key), MISSING)
            if value is not MISSING:
                parts += _of_key(key, value, inputs, placement, by_id=by_id)
    yield from parts
    together = {path: value for part in parts for path, value in part.items()}
    if len(parts) > 1:
        yield together


def _of_key(
    key: str,
    value: Any,  # noqa: ANN401 - the value as in the config
    inputs: RecomputeInputs,
    placement: Placement | None,
    *,
    by_id: bool,
) -> Iterator[Values]:
    path: KeyPath = (*_RECOMPUTE, key)
    by_id = by_id and not key.endswith("_exclude")
    every: object = list(range(inputs.placed_layers)) if by_id else True
    named = key != "recompute"
    if named and isinstance(value, str) and _is_pattern(value):
        yield {path: {value: every}}
    elif named and isinstance(value, dict):
        legal = {pattern: _legal(item, inputs, placement, by_id=by_id) for pattern, item in value.items()}
        if by_id:
            legal = {name: (every if item else []) if isinstance(item, bool) else item for name, item in legal.items()}
        yield from ({(*path, pattern): legal[pattern]} for pattern in value if legal[pattern] is not value[pattern])
        if not all(map(_is_pattern, value)):
            yield {path: {pattern: item for pattern, item in legal.items() if _is_pattern(pattern)} or False}
    elif named and isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        kept = [item for item in value if _is_pattern(item)]
        if kept != value and not by_id and not inputs.zero_bubble:
            yield {path: kept or False}
        elif by_id or inputs.zero_bubble:
            yield {path: dict.fromkeys(kept, every) or False}
    else:
        new = _legal(value, inputs, placement, by_id=by_id)
        if new is not value:
            yield {path: new}


def _is_pattern(value: object) -> bool:
    return isinstance(value, str) and not any(map(pattern_fault, value.split(r"\.")))


def _legal(value: Any, inputs: RecomputeInputs, placement: Placement | None, *, by_id: bool) -> Any:  # noqa: ANN401
    """Return the nearest valid value; the same object if it is valid already."""
    if isinstance(value, bool):
        return value
    if by_id or placement is None:
        ids = sorted(
            {item for item in map(_whole, leaves(value)) if item is not None and 0 <= item < inputs.placed_layers}
        )
        return value if isinstance(value, list) and value == ids else ids
    if value is None or isinstance(value, dict) or (inputs.zero_bubble and value == []):
        return False
    counts = placement.counts
    totals = placement.totals
    if not isinstance(value, (list, tuple)):
        number = _whole(value)
        new: Any = False if number is None else _cut([number] * len(totals), totals)
    elif any(isinstance(item, (list, tuple)) for item in value) or (inputs.zero_bubble and len(value) > 0):
        limits = [row[::-1] if inputs.zero_bubble and chunk == 1 else row for chunk, row in enumerate(counts)]
        new = [_cut(value[chunk] if chunk < len(value) else [], limit) for chunk, limit in enumerate(limits)]
    else:
        new = _cut(value[: len(totals)], totals[: len(value)])
    return value if same_data(new, value) else new


def _cut(row: Any, limits: Sequence[int]) -> list[int]:  # noqa: ANN401 - the value as in the config
    """Return one whole number per limit, each at most its limit."""
    if isinstance(row, bool):
        return list(limits) if row else [0] * len(limits)
    items = row if isinstance(row, (list, tuple)) else [row] * len(limits)
    padded = [*items, *[0] * len(limits)][: len(limits)]
    return [
        limit if item is True else max(0, min(_whole(item) or 0, limit))
        for item, limit in zip(padded, limits, strict=True)
    ]


def _whole(item: object) -> int | None:
    if isinstance(item, bool):
        return None
    try:
        return int(item)  # type: ignore[call-overload, no-any-return]  # anything that int accepts
    except (TypeError, ValueError, OverflowError):
        return None


def _swap_parts(source: SourceFile, section: KeyPath) -> Iterator[Values]:
    given = source.get(section)
    if not isinstance(given, dict):
        return
    for name in names_of("swap"):
        if name in given and not isinstance(given[name], bool):
            yield {(*section, name): guess_flag(given[name])}
    prefetch = given.get("default_prefetch", 1)
    if not _is_prefetch(prefetch):
        yield {(*section, "default_prefetch"): 1}
        prefetch = 1
    for name in (*names_of("layer_swap"), "op_swap"):
        value = given.get(name)
        if value is None:
            continue
        entries = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
        legal = [_entry(entry, prefetch) for entry in entries if _is_entry(entry, named=name == "op_swap")]
        if any(entry["layers"] is True for entry in legal):
            legal = [{**entry, "backward_prefetch": legal[0]["backward_prefetch"]} for entry in legal]
        new: object = legal[0] if isinstance(value, dict) and legal else legal
        if not same_data(new, value):
            yield {(*section, name): new}


def _is_prefetch(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_entry(entry: object, *, named: bool) -> bool:
    if not isinstance(entry, dict):
        return False
    names = entry.get("op_name") if named else "a"
    return all(map(_is_pattern, names if isinstance(names, list) else [names])) if names else False


def _entry(entry: dict[str, Any], prefetch: object) -> dict[str, Any]:
    layers = entry.get("layers")
    if layers is None:
        layers = True
    elif not isinstance(layers, bool):
        numbers = [item for item in map(_whole, leaves(layers)) if item is not None]
        layers = layers if numbers == layers else numbers
    own = entry.get("backward_prefetch")
    return {**entry, "backward_prefetch": own if _is_prefetch(own) else prefetch, "layers": layers}
