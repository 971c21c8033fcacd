"""Write a plan for MindSpeed-Core-MS: counts of layers, with full recompute first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ms_tune.diagnostics import KeyPath, Severity
from ms_tune.dialects import FrameworkStop
from ms_tune.dialects.draft import SettingsDraft, count_layers, flatten_chunk, is_full
from ms_tune.dialects.mindspeed_ms.placement import divide
from ms_tune.dialects.mindspeed_ms.read import literal_list, plan_layers
from ms_tune.dialects.mindspeed_ms.recompute import KINDS
from ms_tune.dialects.remedy import guess_flag, guess_number
from ms_tune.dialects.sections import is_count
from ms_tune.dialects.values import leaves
from ms_tune.enums import Dialect
from ms_tune.facts.keys import key_at
from ms_tune.source.edit import same_data
from ms_tune.source.yaml import MISSING, SourceFile, Values

if TYPE_CHECKING:
    from ms_tune.dialects import JobView, LayerPlan


def write_layers(draft: SettingsDraft) -> None:
    """Write the settings."""
    cells = draft.cells
    prefix = "parallel_config"
    columns = _mindspeed_placement(draft, prefix)
    if any(layer.select_excludes or layer.comm_excludes for layer in cells.layers):
        draft.say("excludes", Severity.ERROR)
    if any(layer.swap for layer in draft.plan.layers):
        draft.say("swap", Severity.ERROR)
    full = {layer.layer for layer in cells.layers if is_full(layer)}
    requests = {
        "recompute": full,
        "select_recompute": draft.choices.reached("select_patterns"),
        "select_comm_recompute": draft.choices.reached("comm_patterns"),
    }
    for key, wanted in requests.items():
        rows = count_layers(draft, key, wanted, () if key == "recompute" else full, over=False)
        if rows is None or columns is None:
            continue
        if columns and any(row[-1] for row in rows):
            # A bug of the framework: the embedding stage reads the last stage's value and stops.
            draft.say("standalone", Severity.ERROR, key=key)
            continue
        draft.values[f"{prefix}.recompute_config.{key}"] = flatten_chunk(cells, [row[columns:] for row in rows])


def _mindspeed_placement(draft: SettingsDraft, prefix: str) -> int | None:
    """Write the placement as counts; return the number of leading stages without layers, or None if impossible."""
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
        draft.values[f"{prefix}.num_layer_list"] = flatten_chunk(cells, [row[leading:] for row in counts])
    return leading


_SECTION = "parallel_config"


def explicit_lists(job: JobView) -> tuple[LayerPlan, Values]:
    """Return the plan, and explicit forms of lists that are not explicit yet."""
    source, plan = job.source, plan_layers(job)
    wanted = {} if plan.failure is not None else dict(_wanted(source))
    return plan, {path: value for path, value in wanted.items() if not same_data(source.get(path), value)}


def _wanted(source: SourceFile) -> Iterator[tuple[KeyPath, object]]:
    path: KeyPath = (_SECTION, "num_layer_list")
    placed = source.get(path)
    if placed:
        yield path, _whole(literal_list(placed) if isinstance(placed, str) else placed)
    for kind in KINDS:
        path = (_SECTION, kind)
        text = source.get(path)
        if isinstance(text, str):
            # Outside the section only a text is allowed: the framework passes it to ast.literal_eval.
            yield path, str(_whole(literal_list(text)))
        path = (_SECTION, "recompute_config", kind)
        if source.get(path):
            yield path, _whole(source.get(path))


def _whole(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, bool) else value


_PARALLEL = "parallel_config"
_MODEL = "model_config"
_LISTS: KeyPath = (_PARALLEL, "recompute_config")
_STAGES = "pipeline_model_parallel_size"
_CHUNKS = "virtual_pipeline_model_parallel_size"
_FLAGS = (
    (_PARALLEL, "sequence_parallel"),
    (_MODEL, "use_flash_attention"),
    (_MODEL, "select_recompute"),
    (_MODEL, "select_comm_recompute"),
)
_CHOICES = ("recompute_method", "recompute_granularity")
_OTHERS = ("encoder_num_layers", "decoder_num_layers")
_MOST = 10_000
_GUIDE = "_list"  # suffix of names in the tuning guide


def propose(job: JobView) -> Iterator[Values]:
    """Yield values that may get the framework past its failing step, the smallest change first."""
    source = job.source
    step = job.plan.problems[0].id.removesuffix("-rejected")
    if step == "load":
        yield from _load(source)
        return
    parts = [*_placement(source), *_values(source)]
    yield from parts
    yield {path: value for part in parts for path, value in part.items()}


def _sections(source: SourceFile) -> tuple[dict[str, Any], dict[str, Any]]:
    parallel, model = (source.data.get(name) or {} for name in (_PARALLEL, _MODEL))
    return parallel, model


def _load(source: SourceFile) -> Iterator[Values]:  # noqa: C901 - one setting after the other
    parallel, model = _sections(source)
    for key in ("tensor_model_parallel_size", _STAGES):
        if not is_count(parallel.get(key, 1)):
            yield {(_PARALLEL, key): guess_number(parallel[key])}
    if _CHUNKS in parallel and not is_count(parallel[_CHUNKS]):
        yield {(_PARALLEL, _CHUNKS): MISSING}
    for section, key in _FLAGS:
        value = (parallel if section == _PARALLEL else model).get(key, False)
        if not isinstance(value, bool):
            yield {(section, key): guess_flag(value)}
    for key in _CHOICES:
        if model.get(key) not in (None, *key_at(Dialect.MINDSPEED_MS, _MODEL, key).choices):
            yield {(_MODEL, key): MISSING}
    if "hidden_act" in model and not isinstance(model["hidden_act"], str):
        yield {(_MODEL, "hidden_act"): MISSING}
    for key in _OTHERS:
        if key in model:
            yield {(_MODEL, key): MISSING}
    number = model.get("recompute_num_layers")
    if number is not None:
        yield {(_MODEL, "recompute_num_layers"): min(guess_number(number), guess_number(model.get("num_layers")))}
    if not is_count(model.get("num_layers")):
        yield {(_MODEL, "num_layers"): guess_number(model.get("num_layers"))}
    yield from _lists(source, parallel)


def _lists(source: SourceFile, parallel: dict[str, Any]) -> Iterator[Values]:
    section = parallel.get("recompute_config")
    if "num_layer_list" in parallel:
        yield {(_PARALLEL, "num_layer_list"): MISSING}
    if section is not None and not isinstance(section, dict):
        yield {_LISTS: MISSING}
    elif isinstance(section, dict):
        for key, value in section.items():
            if value and not isinstance(value, list):
                yield {(*_LISTS, key): [value] if is_count(value) else MISSING}
            if key not in KINDS:
                meant = str(key).removeprefix("full_").removesuffix(_GUIDE)
                renamed = {(*_LISTS, meant): value} if meant in KINDS and meant not in section else {}
                yield {(*_LISTS, key): MISSING, **renamed}
        yield from _values(source)
    for kind in KINDS:
        if kind in parallel:
            yield {(_PARALLEL, kind): MISSING}


def _layout(source: SourceFile) -> tuple[int, int, int]:
    parallel, model = _sections(source)
    stages, chunks = parallel.get(_STAGES, 1), parallel.get(_CHUNKS)
    rows = chunks if is_count(chunks) else 1
    if parallel.get("standalone_embedding_stage") and stages > 1:
        stages -= 1
    return model["num_layers"], rows, stages


def _placement(source: SourceFile) -> Iterator[Values]:
    parallel, model = _sections(source)
    for key in _OTHERS:
        if model.get(key):
            yield {(_MODEL, key): MISSING}
    layers, chunks, columns = _layout(source)
    stages = parallel.get(_STAGES, 1)
    if stages == 1 and chunks > 1:
        yield {(_PARALLEL, _CHUNKS): MISSING}
    if layers < stages * chunks:
        yield {(_PARALLEL, _CHUNKS): MISSING} if layers >= stages else {(_MODEL, "num_layers"): stages * chunks}
        return
    value = parallel.get("num_layer_list")
    if value:
        rows = _fit_rows(value, chunks, columns)
        flat = [max(1, min(count, layers)) for row in rows for count in row]
        while sum(flat) != layers:
            more = sum(flat) < layers
            at = (min if more else max)(range(len(flat)), key=flat.__getitem__)
            flat[at] += 1 if more else -1
        rows = [flat[start : start + columns] for start in range(0, len(flat), columns)]
        yield {(_PARALLEL, "num_layer_list"): rows if chunks > 1 else rows[0]}


def _fit_rows(value: Any, chunks: int, columns: int) -> list[list[int]]:  # noqa: ANN401 - the value as in the config
    try:
        items = leaves(literal_list(value) if isinstance(value, str) else value)
    except FrameworkStop:
        items = []
    numbers = [
        int(item) if isinstance(item, int) or (isinstance(item, float) and abs(item) < _MOST) else 0 for item in items
    ]
    flat = [*numbers, *[0] * (chunks * columns)][: chunks * columns]
    return [flat[start : start + columns] for start in range(0, len(flat), columns)]


def _values(source: SourceFile) -> Iterator[Values]:  # noqa: C901, PLR0912 - one way to write them after the other
    parallel, model = _sections(source)
    if not is_count(model.get("num_layers")) or not is_count(parallel.get(_STAGES, 1)):
        return
    layers, chunks, columns = _layout(source)
    if chunks * columns > _MOST:
        return
    stages = parallel.get(_STAGES, 1)
    placed = parallel.get("num_layer_list")
    if placed and stages > 1:
        counts = _fit_rows(placed, chunks, columns)
    else:
        counts = [divide(share, columns) for share in divide(layers, chunks)]
    section = parallel.get("recompute_config")
    given: dict[KeyPath, Any] = {}
    for kind in KINDS:
        if parallel.get(kind) is not None:
            given[_PARALLEL, kind] = parallel[kind]
        elif isinstance(section, dict) and section.get(kind):
            listed: KeyPath = (*_LISTS, kind)
            given[listed] = section[kind]
    used = [[0] * columns for _ in counts]
    fitted: Values = {}
    for path, value in given.items():
        rows = [
            [max(0, min(item, limit - taken)) for item, limit, taken in zip(row, limits, full, strict=True)]
            for row, limits, full in zip(_fit_rows(value, chunks, columns), counts, used, strict=True)
        ]
        if path[-1] == KINDS[0]:
            used = rows
        shaped: object = rows if chunks > 1 else rows[0]
        fitted = {**fitted, path: str(shaped) if path[0:1] == path[:-1] else shaped}
    for path, value in fitted.items():
        yield {path: value}
    for path in given:
        yield {path: MISSING}
    if len(fitted) > 1:
        yield fitted
    if stages > columns and fitted:
        # The embedding stage reads the last stage's number.
        yield dict.fromkeys(fitted, MISSING)
    if model.get("use_flash_attention"):
        yield {path: MISSING for path in given if path[-1] == KINDS[1]} or {(_MODEL, "select_recompute"): False}
        yield {(_MODEL, "select_recompute"): False, **{path: MISSING for path in given if path[-1] == KINDS[1]}}
