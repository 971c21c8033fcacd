"""Write a plan for MindFormers' dynamic graph: ranges of layers by module."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ms_tune.diagnostics import KeyPath, Severity
from ms_tune.dialects import MINDFORMERS_PYNATIVE, parse_specs, write_specs
from ms_tune.dialects.draft import LISTS, Cells, SettingsDraft, is_full, write_dynamic_swap
from ms_tune.dialects.mindformers_pynative.read import SECTIONS, plan_layers
from ms_tune.dialects.remedy import guess_flag, guess_number
from ms_tune.dialects.sections import find_section
from ms_tune.dialects.values import pattern_fault
from ms_tune.errors import MsTuneError
from ms_tune.facts.models import LAYERS
from ms_tune.source.yaml import MISSING, SourceFile, Values

if TYPE_CHECKING:
    from ms_tune.dialects import JobView, LayerPlan


def write_layers(draft: SettingsDraft) -> None:
    """Write the settings for a release (``2.0``, ``2.1``)."""
    plan, cells = draft.plan, draft.cells
    version = ".".join(draft.release.split(".")[:2])
    if cells.stages > 1 and any(count == 0 for row in cells.counts for count in row):
        empty = [stage for stage in range(cells.stages) if any(row[stage] == 0 for row in cells.counts)]
        draft.say("empty", Severity.ERROR, stages=", ".join(map(str, empty)))
    else:
        draft.values["parallelism.pipeline_parallel"] = cells.stages
        draft.values["parallelism.pipeline_parallel_interleave_num"] = cells.chunks
        draft.values["parallelism.pipeline_parallel_layers_per_stage"] = "auto" if cells.stages == 1 else _texts(cells)
    draft.values["model.num_hidden_layers"] = len(cells.layers)
    if cells.mtp_layers:
        draft.values["model.num_nextn_predict_layers"] = len(cells.mtp_layers)
    full = write_specs(layer.layer for layer in plan.layers if is_full(layer))
    found = {attribute: _write_modules(draft, attribute) for attribute in LISTS}
    select, comm = found["select_patterns"], found["comm_patterns"]
    draft.values["recompute.mode"] = "select" if select else "full" if full else "None"
    draft.values["recompute.full_recompute_layer"] = full
    draft.values["recompute.select_module"] = select or None
    draft.values["recompute_comm.enable"] = bool(comm)
    draft.values["recompute_comm.select_module"] = comm or None
    excludes = {**found["select_excludes"], **found["comm_excludes"]}
    if excludes and (full or select):
        # In MindFormers 2.0 they are operator names for the whole model.
        by_name = plan.dialect == MINDFORMERS_PYNATIVE and plan.framework_version == "2.0"
        if by_name != (version == "2.0"):
            draft.say("excludes", Severity.ERROR)
        elif by_name:
            names = dict.fromkeys(name for layer in plan.layers for name in layer.select_excludes)
            draft.values["recompute.exclude_op"] = list(names)
        else:
            draft.values["recompute.exclude_op"] = excludes
    write_dynamic_swap(draft)


def _texts(cells: Cells) -> list[str]:
    columns = zip(*cells.rows, strict=True)
    return [",".join(write_specs(layer.layer for layer in cell)[0] for cell in column) for column in columns]


def _write_modules(draft: SettingsDraft, attribute: str) -> dict[str, list[str]]:
    found = {}
    for name, layers in draft.choices.layers(attribute).items():
        if name.strip():
            found[name] = write_specs(layers)
        else:
            draft.say("pattern", Severity.ERROR, key=LISTS[attribute], pattern=name)
    return found


_LAYERS_OF_STAGES: KeyPath = ("parallelism", "pipeline_parallel_layers_per_stage")


def explicit_lists(job: JobView) -> tuple[LayerPlan, Values]:
    """Return the plan, and explicit forms of lists that are not explicit yet."""
    plan = plan_layers(job)
    return plan, {} if plan.failure is not None else dict(_wanted(job.source, plan))


def _wanted(source: SourceFile, plan: LayerPlan) -> Iterator[tuple[KeyPath, object]]:
    stages = source.get(_LAYERS_OF_STAGES)
    ranges = (plan.formative or {}).get("pipeline_parallel_layers_per_stage")
    if plan.placement is not None and len(plan.placement[0]) > 1 and stages not in (None, "auto", ranges):
        yield _LAYERS_OF_STAGES, ranges
    there = {layer.layer for layer in plan.layers}
    for path in _lists(source, plan.framework_version):
        given: Any = source.get(path)
        wanted = write_specs(layer for layer in parse_specs(given) if layer in there)
        # A list must not become empty, which the framework may refuse.
        if wanted and wanted != [str(item) for item in given]:
            yield path, wanted


def _lists(source: SourceFile, version: str) -> Iterator[KeyPath]:
    mode = source.get(("recompute", "mode"), "None")
    if mode != "None":
        if source.get(("recompute", "full_recompute_layer")):
            yield "recompute", "full_recompute_layer"
        if version != "2.0":
            yield from _of_patterns(source, ("recompute", "exclude_op"))
    if mode == "select":
        yield from _of_patterns(source, ("recompute", "select_module"))
    if source.get(("recompute_comm", "enable")):
        yield from _of_patterns(source, ("recompute_comm", "select_module"))
    if source.get(("swap", "enable")):
        if source.get(("swap", "layer_swap")):
            yield "swap", "layer_swap", 0, "layers"  # other entries are ignored
        entries: Any = source.get(("swap", "op_swap")) or ()
        for index in range(len(entries)):
            yield "swap", "op_swap", index, "layers"


def _of_patterns(source: SourceFile, path: KeyPath) -> Iterator[KeyPath]:
    patterns: Any = source.get(path) or ()
    for pattern in patterns:
        yield (*path, pattern)


_SECTIONS = ("recompute", "recompute_comm", "swap")
_SPEC = re.compile(r"\s*(\d{1,4000})\s*(?:[-:~]\s*(\d{1,4000})\s*)?")
_STAGES = "pipeline_parallel_layers_per_stage"
_CHUNKS = "pipeline_parallel_interleave_num"
_SWITCHES = {"recompute_comm": "enable", "swap": "enable"}


def propose(job: JobView) -> Iterator[Values]:
    """Yield values that may get the framework past its failing step, the smallest change first."""
    source, plan, counts = job.source, job.plan, _counts(job)
    step = plan.problems[0].id.removesuffix("-rejected")
    if step == "load":
        yield from _load(source)
    elif step in {"parallel", "placement"}:
        yield from _placement(source, counts)
    elif step == "schedule":
        yield {("parallelism", "pipeline_parallel_schedule"): "1f1b"}
    elif counts is not None:
        parts = [part for part in _values(source, plan.framework_version, sum(counts)) if part]
        yield from parts
        yield {path: value for part in parts for path, value in part.items()}


def _counts(job: JobView) -> tuple[int, int] | None:
    """Return the numbers of ordinary and multi-token prediction layers in the plan of the model without other settings."""
    data = {key: value for key, value in job.source.data.items() if key not in {*_SECTIONS, "parallelism"}}
    try:
        plan = job.with_source(job.source.replace(data=data)).plan
    except MsTuneError:
        return None
    placed = plan.placement[0][0] if plan.placement else 0
    return (placed, len(plan.layers) - placed) if placed else None


def _load(source: SourceFile) -> Iterator[Values]:  # noqa: C901 - one setting after the other
    for name in (*_SECTIONS, "parallelism"):
        if name in source.data and not isinstance(source.data[name], dict):
            yield {(name,): MISSING}
    for name in _SECTIONS:
        section = find_section(source.data, name)
        unknown = [key for key in section if key not in SECTIONS[name][1]]
        if unknown:
            yield {(name, key): MISSING for key in unknown}
        switch = _SWITCHES.get(name, "")
        if switch in section and not isinstance(section[switch], bool):
            yield {(name, switch): guess_flag(section[switch])}
    recompute = find_section(source.data, "recompute")
    mode = recompute.get("mode", "None")
    if mode not in ("None", "full", "select"):
        full, select = bool(recompute.get("full_recompute_layer")), bool(recompute.get("select_module"))
        guess = "select" if select else "full" if full and mode else "None"
        lowered = str(mode).strip().lower()
        yield {("recompute", "mode"): lowered if lowered in ("full", "select") else guess}
        yield {("recompute", "mode"): "None"}
    numbers = [("parallelism", "pipeline_parallel"), ("parallelism", _CHUNKS), ("swap", "default_prefetch")]
    for name, key in numbers:
        value = find_section(source.data, name).get(key, 1)
        if value is None:
            yield {(name, key): MISSING}
        elif isinstance(value, bool) or not isinstance(value, int):
            yield {(name, key): guess_number(value)}
    parallelism = find_section(source.data, "parallelism")
    if not isinstance(parallelism.get("pipeline_parallel_schedule", ""), str):
        yield {("parallelism", "pipeline_parallel_schedule"): MISSING}
        yield {("parallelism", "pipeline_parallel_schedule"): "1f1b"}
    stages = parallelism.get(_STAGES)
    if isinstance(stages, list):
        yield {
            ("parallelism", _STAGES): [
                ",".join(map(str, item)) if isinstance(item, list) else str(item) for item in stages
            ]
        }
    yield {("parallelism", _STAGES): "auto"}


def _placement(source: SourceFile, counts: tuple[int, int] | None) -> Iterator[Values]:
    section = find_section(source.data, "parallelism")
    stages, chunks = section.get("pipeline_parallel", 1), section.get(_CHUNKS, 1)
    if stages < 1:
        yield {("parallelism", "pipeline_parallel"): 1}
        return
    if chunks < 1:
        yield {("parallelism", _CHUNKS): 1}
        return
    if counts is None:
        return
    layers, cells = counts[0], stages * chunks
    if layers % cells == 0 and section.get(_STAGES, "auto") != "auto":
        yield {("parallelism", _STAGES): "auto"}
    if layers < cells:
        yield {("parallelism", _CHUNKS): 1, ("parallelism", _STAGES): MISSING}
        yield {("model", LAYERS if LAYERS in find_section(source.data, "model") else "num_hidden_layers"): cells}
        return
    # Surplus layers go to the middle, because the first and last cell contain embedding and head.
    sizes = [layers // cells] * cells
    for index in range(1, 1 + layers % cells):
        sizes[index] += 1
    ends = [sum(sizes[: index + 1]) for index in range(cells)]
    texts = [write_specs(range(end - size, end))[0] for end, size in zip(ends, sizes, strict=True)]
    yield {("parallelism", _STAGES): [",".join(texts[stage::stages]) for stage in range(stages)]}


def _values(source: SourceFile, version: str, total: int) -> Iterator[Values]:
    recompute, comm, swap = (find_section(source.data, name) for name in _SECTIONS)
    mode = recompute.get("mode", "None")
    if recompute.get("full_recompute_layer") is not None:
        yield _specs(("recompute", "full_recompute_layer"), recompute["full_recompute_layer"], total)
    if mode == "full" and not recompute.get("full_recompute_layer"):
        yield {("recompute", "full_recompute_layer"): [f"0-{total - 1}"] if total > 1 else ["0"]}
    for name, section, keys in (
        ("recompute", recompute, ("select_module", "exclude_op")),
        ("recompute_comm", comm, ("select_module",)),
    ):
        for key in keys:
            if section.get(key) is not None and (key != "exclude_op" or version != "2.0"):
                yield from _propose_modules((name, key), section[key], total)
    if version == "2.0" and recompute.get("exclude_op") is not None:
        names = recompute["exclude_op"]
        listed = [names] if isinstance(names, str) else list(names) if isinstance(names, (list, dict)) else []
        yield {("recompute", "exclude_op"): [name for name in listed if isinstance(name, str) and name.strip()]}
    if mode == "select" and not recompute.get("select_module"):
        yield {("recompute", "mode"): "full" if recompute.get("full_recompute_layer") else "None"}
    if comm.get("enable") is True and not comm.get("select_module"):
        yield {("recompute_comm", "enable"): False}
    if swap.get("enable") is True:
        yield from _swap(source, swap, total)


def _swap(source: SourceFile, swap: dict[str, Any], total: int) -> Iterator[Values]:
    prefetch = swap.get("default_prefetch", 1)
    off: Values = {("swap", "enable"): False}
    if total == 1 or find_section(source.data, "parallelism").get("pipeline_parallel", 1) > 1:
        yield off
        return
    if not 1 <= prefetch < total:
        prefetch = max(1, min(prefetch, total - 1))
        yield {("swap", "default_prefetch"): prefetch}
    for key in ("layer_swap", "op_swap"):
        value = swap.get(key)
        entries = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
        if value is not None and not isinstance(value, list):
            yield {("swap", key): entries}
        kept = [entry for entry in entries if _is_entry(entry, named=key == "op_swap")]
        if len(kept) != len(entries):
            yield {("swap", key): kept}
            return
        for index, entry in enumerate(entries):
            yield _specs(("swap", key, index, "layers"), entry["layers"], total - prefetch)


def _is_entry(entry: object, *, named: bool) -> bool:
    if not isinstance(entry, dict) or "layers" not in entry:
        return False
    return not named or _is_pattern(entry.get("op_name"))


def _is_pattern(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and not pattern_fault(value)


def _propose_modules(path: KeyPath, value: object, total: int) -> Iterator[Values]:
    every = write_specs(range(total))
    if isinstance(value, (str, list)):
        names = [value] if isinstance(value, str) else value
        yield {path: {name: every for name in names if _is_pattern(name)} or None}
    elif not isinstance(value, dict):
        yield {path: None}
    elif not all(map(_is_pattern, value)):
        yield {path: {name: specs for name, specs in value.items() if _is_pattern(name)} or None}
    else:
        for name, specs in value.items():
            yield _specs((*path, name), specs, total)


def _specs(path: KeyPath, value: object, total: int) -> Values:
    items = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    layers: set[int] = set()
    for item in items:
        match = _SPEC.fullmatch(str(item))
        if match:
            first, last = int(match[1]), int(match[2] or match[1])
            layers.update(range(min(first, last), min(max(first, last) + 1, total)))
    return {path: write_specs(layers)}
