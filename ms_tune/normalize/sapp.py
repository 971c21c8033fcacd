"""Merge the lists of the pipeline tool SAPP into a config; only the affected values change.

SAPP prints MindFormers lists (:mod:`ms_tune.normalize.sapp_lists`). In the static graph they stay lists: the framework
chooses the operators of the model, or the patterns in the config are kept and get the new counts. Other dialects get
the same plan in their own form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ms_tune.diagnostics import Diagnostic, KeyPath, Severity
from ms_tune.dialects import LayerPlan, LayerSpec, PlanIssue, write_specs
from ms_tune.dialects.convert_layers import Converted, convert_plan
from ms_tune.dialects.draft import conversion_problem
from ms_tune.dialects.mindformers import read
from ms_tune.dialects.mindformers_pynative import read as pynative
from ms_tune.dialects.values import is_patterns
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.errors import ConfigError, UsageError
from ms_tune.facts.models import LAYERS, counterpart, models, names_of
from ms_tune.facts.query import DEFAULT_VERSION
from ms_tune.job import Job
from ms_tune.normalize.convert import TargetDialect, convert_translated
from ms_tune.normalize.run import normalize_recompute
from ms_tune.normalize.sapp_lists import KEYS, MOST, SappLists, Sizes, Table, plan_sapp, rebase_offsets
from ms_tune.normalize.sides import find_side, find_source_side, layers_with_experts
from ms_tune.source.edit import same_data
from ms_tune.source.edit_values import with_settings
from ms_tune.source.yaml import SourceFile, parse_source
from ms_tune.text import msg

_OFFSET: KeyPath = ("model", "model_config", "offset")
_LEGACY_SWAP: KeyPath = ("swap_config",)
_CORE_SWAP: KeyPath = ("model", "model_config")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Merged:
    """A config after merging SAPP's lists."""

    text: str  # the whole text
    count: int  # the number of changed or added values
    plan: LayerPlan  # the new plan, with the problems of the plan and of the merge


def convert_sapp(lists: SappLists, sizes: Sizes, target: TargetDialect) -> Converted:
    """Convert SAPP's lists to the settings of a dialect, without a config."""
    lists = rebase_offsets(lists, sizes.layers)
    plan = plan_sapp(lists, sizes, legacy=False)
    if target.dialect in (Dialect.MINDFORMERS_PYNATIVE, Dialect.MEGATRON):
        # SAPP does not name the model: use the operators that the framework chooses for a default one.
        name = models("core")[0]
        here = find_side("core", name, plan.framework_version, plan.layers, (), 0)
        problems = [conversion_problem("stand-in", Severity.WARNING, model=name)]
        return convert_translated(plan, here, target, problems)
    converted = convert_plan(plan, target.dialect.value, version=target.release)
    if target.dialect is Dialect.MINDSPEED_MS:
        return converted
    # Keep the lists: the framework chooses the operators of the model.
    values = dict(converted.values)
    for kind in KEYS[2:]:
        table = _list_beyond(lists, kind)
        values[f"recompute_config.{kind}"] = _flatten_chunk(table) if table else False
    return converted._replace(values=values)


def _list_beyond(lists: SappLists, kind: str) -> Table | None:
    """Return a list, or None if it covers only the layers that are fully recomputed."""
    table: Table | None = getattr(lists, kind)
    full = lists.recompute or [[0] * len(row) for row in table or ()]
    return None if table == full else table


def _flatten_chunk(table: Table) -> list[Any]:
    return [list(row) for row in table] if len(table) > 1 else list(table[0])


def merge_sapp(job: Job, lists: SappLists) -> Merged:
    """Merge SAPP's lists into a config.

    Settings from other files keep applying; settings that must change are written into the config itself.
    """
    source, dialect = job.source, job.dialect
    if dialect is Dialect.MINDFORMERS:
        inputs = read.read_inputs(job)
        chunks = (inputs.interleave_num or 1) if inputs.interleave else 1
        sizes = Sizes(inputs.layers, inputs.stage_num or inputs.stages, chunks)
    else:
        sizes = _dynamic_sizes(job)
    _check_sizes(lists, sizes)
    if any(map(any, lists.swap or ())) and dialect is not Dialect.MINDFORMERS:
        raise UsageError(msg("plans.sapp.swap", dialect=dialect.value))
    lists = rebase_offsets(lists, sizes.layers)
    problems: list[Diagnostic] = []
    plan = plan_sapp(lists, sizes, legacy=dialect is Dialect.MINDFORMERS and inputs.legacy)
    plan = plan._replace(framework_version=job.release.version)
    if dialect is Dialect.MINDFORMERS:
        by_id = inputs.swaps.swap is True if lists.swap is None else any(map(any, lists.swap))
        wanted = dict(_static_values(source, lists, plan, by_id=by_id))
        if lists.swap is not None:
            wanted |= dict(
                _swap_values(source, lists, plan, _swap_sections(wanted, sizes.stages, legacy=inputs.legacy))
            )
    else:
        wanted = dict(_other_values(job, lists, plan, problems))
    wanted = {path: value for path, value in wanted.items() if not same_data(source.get(path, _MISSING), value)}
    text, count = with_settings(job.original, wanted)
    merged = Job(
        parse_source(text, source.path),
        dialect=dialect,
        version=job.version,
        layers=job.layers,
        sizes_from=job.sizes_from,
    )
    result = normalize_recompute(merged)
    if result.failure is not None:
        raise UsageError(msg("normalize.not-written", framework=msg(f"normalize.framework.{dialect.value}")))
    lost = next((one for one in result.problems if one.id == PlanIssue.SWAP_NO_STAGE and lists.swap), None)
    if lost is not None:
        raise UsageError(lost.message)
    if not _is_unchanged(plan, result, lists):
        raise UsageError(msg("normalize.write-unproven"))
    problems += _report_own_values(source, dialect, lists)
    return Merged(text, count, result._replace(problems=(*result.problems, *problems)))


def _is_unchanged(plan: LayerPlan, result: LayerPlan, lists: SappLists) -> bool:
    acts = zip(plan.layers, result.switched_on or result.layers, strict=False)  # prediction layers come last
    in_full = lists.recompute is None or all(
        (one.recompute is RecomputeMode.FULL) is (other.recompute is RecomputeMode.FULL) for one, other in acts
    )
    swaps = lists.swap is None or _list_swapping(plan, lists) == [layer.layer for layer in result.layers if layer.swap]
    return in_full and swaps and (lists.offset is None or plan.placement == result.placement)


def _dynamic_sizes(job: Job) -> Sizes:
    source = job.source
    if job.dialect is Dialect.MINDSPEED_MS:
        sections = (("model_config", LAYERS), ("parallel_config", "pipeline_model_parallel_size"))
        chunks = source.get(("parallel_config", "virtual_pipeline_model_parallel_size"))
    else:
        sections = (("model", LAYERS), ("parallelism", "pipeline_parallel"))
        chunks = source.get(("parallelism", "pipeline_parallel_interleave_num"))
    found = source.get(sections[0])
    if job.dialect is Dialect.MINDFORMERS_PYNATIVE:
        found, _ = pynative.layer_counts(job)
    sizes = (found, source.get(sections[1], 1), 1 if chunks is None else chunks)
    for key, size in zip((*sections[0][1:], *sections[1][1:], "chunks"), sizes, strict=True):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            wrong = msg("normalize.not-a-count", name=key, value=size, minimum=1, maximum=MOST)
            raise ConfigError(wrong, path=source.path)
    return Sizes(*sizes)  # type: ignore[arg-type] # checked in the loop


def _check_sizes(lists: SappLists, sizes: Sizes) -> None:
    for key in KEYS:
        table = getattr(lists, key)
        if table is not None and (len(table), len(table[0])) != (sizes.chunks, sizes.stages):
            shapes = {"rows": len(table), "columns": len(table[0]), "chunks": sizes.chunks, "stages": sizes.stages}
            raise UsageError(msg("plans.sapp.other-sizes", key=key, **shapes), msg("plans.sapp.other-sizes.hint"))


def _static_values(
    source: SourceFile, lists: SappLists, plan: LayerPlan, *, by_id: bool
) -> Iterator[tuple[KeyPath, object]]:
    """Yield the values of the static graph; lists stay lists, except that they contain layer numbers if swap is on."""
    if lists.offset is not None:
        old = source.get(_OFFSET, 0)
        if any(map(any, lists.offset)) or isinstance(old, list):
            yield _OFFSET, _shape_like(old, lists.offset)
    for kind in KEYS[1:]:
        table = getattr(lists, kind)
        if table is not None:
            path: KeyPath = ("recompute_config", kind)
            idle = _list_beyond(lists, kind) is None if kind != "recompute" else not any(map(any, table))
            cells = _count_in_cells(plan) if by_id else ()
            counted = [layer.layer for layer, before in cells if before < table[layer.chunk][layer.stage]]
            yield from _count_values(path, source.get(path, False), table, counted if by_id else None, idle=idle)


def _count_in_cells(plan: LayerPlan) -> Iterator[tuple[LayerSpec, int]]:
    """Yield each layer with the number of layers before it in the same stage and chunk."""
    before: dict[tuple[int, int], int] = {}
    for layer in plan.layers:
        cell = (layer.chunk, layer.stage)
        yield layer, before.setdefault(cell, 0)
        before[cell] += 1


def _list_swapping(plan: LayerPlan, lists: SappLists) -> list[int]:
    """Return the layers that swap: in each stage and chunk, the given number after all layers that recompute."""
    tables = [table for kind in KEYS[1:] if (table := getattr(lists, kind))]
    found = []
    for layer, before in _count_in_cells(plan):
        first = max((table[layer.chunk][layer.stage] for table in tables), default=0)
        if lists.swap is not None and first <= before < first + lists.swap[layer.chunk][layer.stage]:
            found.append(layer.layer)
    return found


def _swap_values(
    source: SourceFile, lists: SappLists, plan: LayerPlan, sections: Iterable[KeyPath]
) -> Iterator[tuple[KeyPath, object]]:
    """Yield settings that swap whole layers, keeping the prefetch; both lists are written, else all attention would swap."""
    layers = _list_swapping(plan, lists)
    for section in (_LEGACY_SWAP, _CORE_SWAP):
        there = source.get(section)
        names = {
            name: _swap_name(there, name, core=section == _CORE_SWAP) for name in ("swap", "layer_swap", "op_swap")
        }
        if not layers or section not in sections:
            if isinstance(there, dict) and there.get(names["swap"]) is True:
                yield (*section, names["swap"]), False
            continue
        before = source.get((*section, names["layer_swap"]))
        first = before[0] if isinstance(before, list) and before else None
        prefetch = first.get("backward_prefetch") if isinstance(first, dict) else None
        if not isinstance(prefetch, int) or isinstance(prefetch, bool) or prefetch < 1:
            prefetch = 1
        yield (*section, names["swap"]), True
        yield (*section, names["layer_swap"]), [{"backward_prefetch": prefetch, "layers": layers}]
        yield (*section, names["op_swap"]), []


def _swap_sections(wanted: Mapping[KeyPath, object], stages: int, *, legacy: bool) -> tuple[KeyPath, ...]:
    """Return the sections for swap settings; models other than legacy ones have their own section.

    The framework's checks read the legacy section too: without it they refuse a list longer than the number of stages.
    """
    if legacy:
        return (_LEGACY_SWAP,)
    long = any(
        isinstance(value, list) and len(value) > stages
        for path, value in wanted.items()
        if path[0] == "recompute_config"
    )
    return (_CORE_SWAP, _LEGACY_SWAP) if long else (_CORE_SWAP,)


def _swap_name(section: object, name: str, *, core: bool) -> str:
    """Return the name that a section uses for a swap setting; models other than legacy ones accept two names."""
    known = names_of(name) if core else ()
    return next((other for other in known if isinstance(section, dict) and other in section), name)


def _count_values(
    path: KeyPath, old: object, table: Table, numbers: list[int] | None, *, idle: bool
) -> Iterator[tuple[KeyPath, object]]:
    """Yield new values for one kind of recompute; patterns in the old value are kept."""
    empty = [[0] * len(row) for row in table]

    def form(like: object) -> object:
        if numbers is not None:
            return [] if idle else numbers
        return _shape_like(like, empty if idle else table)

    if isinstance(old, dict):
        for pattern, value in old.items():
            if value is not False:
                yield (*path, pattern), form(value)
    elif isinstance(old, list) and old and is_patterns(old):
        yield path, False if idle else {pattern: form(None) for pattern in old}
    elif not idle or isinstance(old, list):
        yield path, form(old)
    elif old:
        yield path, False


def _shape_like(old: object, table: Any) -> object:  # noqa: ANN401 - a table, or a substitute for one
    rows = isinstance(old, list) and bool(old) and all(isinstance(row, list) for row in old)
    return [list(row) for row in table] if rows else _flatten_chunk(table)


def _report_own_values(source: SourceFile, dialect: Dialect, lists: SappLists) -> Iterator[Diagnostic]:
    for kind in KEYS[1:]:
        path = _PLACES[dialect][kind]
        if getattr(lists, kind) is None and source.get(path) not in (None, False, [], {}, 0):
            message = msg("plans.sapp.own-value", key=".".join(map(str, path)), kind=kind)
            yield Diagnostic("sapp-own-value", Severity.WARNING, message)


def _other_values(
    job: Job, lists: SappLists, plan: LayerPlan, problems: list[Diagnostic]
) -> Iterator[tuple[KeyPath, object]]:
    source = job.source
    if job.dialect is Dialect.MINDSPEED_MS:
        converted = convert_plan(plan, job.dialect.value)
        for key, value in converted.values.items():
            *_, kind = path = tuple(key.split("."))
            if kind == "num_layer_list" and lists.offset is not None:
                yield path, value
            elif kind in KEYS and getattr(lists, kind) is not None:
                sibling = ("parallel_config", kind)
                text = isinstance(source.get(sibling), str)
                # A text next to the section overrides the list inside it.
                yield (sibling, str(value)) if text else (path, value)
        return
    yield from _dynamic_values(job, lists, plan, problems)


def _dynamic_values(
    job: Job, lists: SappLists, plan: LayerPlan, problems: list[Diagnostic]
) -> Iterator[tuple[KeyPath, object]]:
    source, target = job.source, TargetDialect(Dialect.MINDFORMERS_PYNATIVE, plan.framework_version)
    ahead = _prediction_layers(job, plan)
    plan = plan._replace(layers=(*plan.layers, *ahead))
    there = find_source_side(job, plan, problems)
    core = counterpart(there.model, "core")
    here = find_side("core", core, DEFAULT_VERSION, plan.layers, layers_with_experts(there), len(ahead))
    converted = convert_translated(plan, here, target, [], there)
    if not any(source.get(_PLACES[target.dialect][kind]) for kind in KEYS[2:]):
        problems += converted.problems
    for key, value in converted.values.items():
        section, name = path = tuple(key.split(".", 1))
        if name == "pipeline_parallel_layers_per_stage":
            if lists.offset is not None and value != "auto":
                yield path, value
            continue
        if section not in ("recompute", "recompute_comm"):
            continue
        old = source.get(path)
        if name == "select_module" and isinstance(old, dict) and old:
            reached = "select_patterns" if section == "recompute" else "comm_patterns"
            specs = write_specs(layer.layer for layer in plan.layers if getattr(layer, reached))
            for pattern in old if specs else ():
                yield (*path, pattern), specs
        elif old != value and not (old is None and value in (None, False, [], "None")):
            yield path, value


def _prediction_layers(job: Job, plan: LayerPlan) -> list[LayerSpec]:
    """Return the config's prediction layers, which lists do not cover; fully recomputed ones stay so."""
    last = plan.layers[-1]
    there = pynative.unplaced(job).layers[len(plan.layers) :]
    does = [RecomputeMode.FULL if layer.recompute is RecomputeMode.FULL else RecomputeMode.NONE for layer in there]
    return [LayerSpec(layer.layer, last.stage, last.chunk, do) for layer, do in zip(there, does, strict=True)]


_PLACES: Mapping[Dialect, Mapping[str, KeyPath]] = {
    Dialect.MINDFORMERS: {kind: ("recompute_config", kind) for kind in KEYS[1:]},
    Dialect.MINDSPEED_MS: {kind: ("parallel_config", "recompute_config", kind) for kind in KEYS[1:]},
    Dialect.MINDFORMERS_PYNATIVE: {
        "recompute": ("recompute", "full_recompute_layer"),
        "select_recompute": ("recompute", "select_module"),
        "select_comm_recompute": ("recompute_comm", "select_module"),
    },
}
