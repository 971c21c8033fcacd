"""Determine each layer's recomputation and swap in the dynamic graph of MindFormers 2.0 and 2.1.

The rules are those of ``apply_ac`` in ``mindformers/pynative/distributed/activation_checkpoint.py`` and of
``apply_pp`` in ``mindformers/pynative/base_models/gpt/parallelize.py``. They apply only with more than one device; on a
single one the framework ignores these settings.

Patterns follow ``_expand_select_module``, ``_clean_and_parse_config`` and ``_clean_and_parse_comm_config`` of the
former: a regular expression must match the whole dotted path in a layer (``self_attention.linear_qkv``), where a plain
dot is any character.

Multi-token prediction layers are numbered after the last ordinary one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from ms_tune.dialects import (
    MINDFORMERS_PYNATIVE,
    FrameworkStop,
    LayerPlan,
    LayerSpec,
    SwapPlan,
    failure_of,
    failure_problem,
    parse_specs,
    report_literals,
    stop,
    stop_at_first,
    write_specs,
)
from ms_tune.dialects.mindformers_pynative.ignored import find_ignored
from ms_tune.dialects.mindformers_pynative.placement import (
    Modules,
    PynativeInputs,
    PynativeOutcome,
    Ranges,
    place_layers,
)
from ms_tune.dialects.mindformers_pynative.refusals import check_recompute, check_schedule, check_swap
from ms_tune.dialects.operators import topmost
from ms_tune.dialects.values import full_match, pattern_fault
from ms_tune.enums import RecomputeMode
from ms_tune.records import Any
from ms_tune.text import msg

FRAMEWORK = "MindFormers"
_MAY_BE_COMM = ("comm_select_module", "exclude_op")
_UNDER_FULL = ("select_module", "comm_select_module")  # settings that a fully recomputed layer ignores


def normalize_pynative(inputs: PynativeInputs) -> LayerPlan:
    """Return the plan of a config, exactly as the framework determines it.

    Never raises for invalid configs: a refusal by the framework is the plan's ``failure``.
    """
    working = inputs.copied()
    outcome = PynativeOutcome()
    stopped = None
    try:
        _go(working, outcome)
    except FrameworkStop as error:
        stopped = error
    problems = tuple(find_ignored(inputs, outcome))
    if stopped is not None:
        problems = (failure_problem(outcome.step, FRAMEWORK, stopped), *problems)
    complete = stopped is None and outcome.ranges is not None
    counts = tuple(tuple(last - first + 1 for first, last in row) for row in outcome.ranges or ())
    layers = tuple(_layers(working, outcome)) if complete else ()
    modules = {path for paths in (inputs.modules or {}).values() for path in paths}
    problems = (*problems, *report_literals(layers, modules.__contains__))
    return LayerPlan(
        dialect=MINDFORMERS_PYNATIVE,
        framework_version=inputs.version,
        placement=None if outcome.ranges is None else counts,
        formative=_formative(working, outcome) if complete else None,
        layers=layers,
        problems=problems,
        log=tuple(log_lines(working, outcome)) if complete else (),
        failure=failure_of(stopped) if stopped else None,
    )


def _go(inputs: PynativeInputs, outcome: PynativeOutcome) -> None:
    if inputs.stages == 0:
        # The framework first divides the number of devices by the product of all degrees.
        stop("ZeroDivisionError", "integer division or modulo by zero")
    if inputs.stages < 0:
        stop("ValueError", "", msg("plans.why.negative-stages", stages=inputs.stages))
    outcome.step = "placement"
    ranges: Ranges = (((0, inputs.layers - 1),),)
    if inputs.stages > 1:
        ranges = place_layers(inputs.layers, inputs.stages, inputs.chunks, inputs.layers_per_stage)
        if not ranges:
            return
    outcome.ranges = ranges
    outcome.places = _places(inputs, ranges)
    recompute = inputs.mode != "None" or inputs.comm
    if inputs.swap and inputs.stages > 1:
        outcome.step = "swap"
        stop("ValueError", "swap is not supported with pipeline parallel")
    if recompute:
        outcome.step = "value"
        stop_at_first(check_recompute(inputs, inputs.total))
        _apply_recompute(inputs, outcome)
    if inputs.swap:
        outcome.step = "swap"
        stop_at_first(check_swap(inputs, inputs.total))
        _apply_swap(inputs, outcome)
    if inputs.stages > 1:
        outcome.step = "schedule"
        check_schedule(inputs.schedule, inputs.chunks)


def _apply_recompute(inputs: PynativeInputs, outcome: PynativeOutcome) -> None:
    """Apply ``apply_recompute``: full recompute wins, and a chosen module includes its children."""
    on = inputs.mode != "None"
    outcome.full = frozenset(parse_specs(inputs.full_layers) if on else ()) & outcome.places.keys()
    if inputs.mode == "select":
        found = _expand(inputs.select_module.items(), "select_module", inputs, outcome)
        outcome.select = without_children(found, outcome.full)
    if on and inputs.exclude_op and inputs.version != "2.0":
        found = _expand(inputs.exclude_op.items(), "exclude_op", inputs, outcome)
        outcome.exclude = without_children(found, frozenset())
    if inputs.comm:
        found = _expand(inputs.comm_module.items(), "comm_select_module", inputs, outcome)
        outcome.comm = without_covered(found, outcome.full, outcome.select)
    if on and inputs.exclude_op and inputs.version == "2.0":
        names = list(inputs.exclude_op)
        outcome.exclude = dict.fromkeys(sorted(outcome.full | set(outcome.select)), names)


def _apply_swap(inputs: PynativeInputs, outcome: PynativeOutcome) -> None:
    """Apply ``apply_swap``: only the first layer entry is used."""
    entries = inputs.layer_swap or ()
    outcome.swapped = frozenset(parse_specs(entries[0]["layers"]) if entries else ()) & outcome.places.keys()
    names: list[tuple[str, Any]] = [(entry["op_name"], entry["layers"]) for entry in inputs.op_swap or ()]
    if inputs.version != "2.0":
        # They become one mapping, in which the last entry with a name wins.
        names = list(dict(names).items())
    if names:
        found = _expand(names, "op_swap", inputs, outcome)
        outcome.op_swap = without_children(found, outcome.swapped)


def _expand(
    patterns: Iterable[tuple[str, Any]], key: str, inputs: PynativeInputs, outcome: PynativeOutcome
) -> dict[int, list[str]]:
    keeps = key in _MAY_BE_COMM and not inputs.comm_known
    found, reaches = expand(patterns, outcome.places.keys(), inputs.modules, keeps=keeps)
    outcome.reaches += [(key, pattern, layers) for pattern, layers in reaches.items()]
    if key in _UNDER_FULL:
        for layer in outcome.full & found.keys():
            outcome.overridden.setdefault(layer, []).extend(found[layer])
    return found


def _layers(inputs: PynativeInputs, outcome: PynativeOutcome) -> Iterable[LayerSpec]:
    for layer, (chunk, stage) in sorted(outcome.places.items()):
        select, comm = outcome.select.get(layer, ()), outcome.comm.get(layer, ())
        yield LayerSpec(
            layer=layer,
            stage=stage,
            chunk=chunk,
            recompute=RecomputeMode.strongest(full=layer in outcome.full, select=select, comm=comm),
            select_patterns=tuple(select),
            comm_patterns=tuple(comm),
            select_excludes=tuple(outcome.exclude.get(layer, ())),
            swap=tuple(
                SwapPlan(target, inputs.prefetch)
                for target in ([""] if layer in outcome.swapped else outcome.op_swap.get(layer, ()))
            ),
            overridden=tuple(outcome.overridden.get(layer, ())),
        )


def _places(inputs: PynativeInputs, ranges: Ranges) -> dict[int, tuple[int, int]]:
    """Return the cell of each layer; a layer in two cells is assigned to the first."""
    places: dict[int, tuple[int, int]] = {}
    last = inputs.layers - 1
    for chunk, row in enumerate(ranges):
        for stage, (first, end) in enumerate(row):
            for layer in range(max(first, 0), min(end, last) + 1):
                places.setdefault(layer, (chunk, stage))
    # Prediction layers are built in the very last cell, and only if it contains the last layer.
    if ranges and ranges[-1][-1][1] == last:
        for layer in range(inputs.layers, inputs.total):
            places[layer] = (len(ranges) - 1, len(ranges[-1]) - 1)
    return places


def _formative(inputs: PynativeInputs, outcome: PynativeOutcome) -> dict[str, object]:
    texts = [[f"{first}-{last}" if last > first else str(first) for first, last in row] for row in outcome.ranges or ()]
    exclude: object = _by_module(outcome.exclude)
    if inputs.version == "2.0":
        exclude = list(inputs.exclude_op or ()) if inputs.mode != "None" else []
    swap = [{"layers": write_specs(outcome.swapped)}] if outcome.swapped else []
    return {
        "pipeline_parallel_layers_per_stage": [",".join(column) for column in zip(*texts, strict=True)],
        "full_recompute_layer": write_specs(outcome.full),
        "select_module": _by_module(outcome.select),
        "exclude_op": exclude,
        "recompute_comm.select_module": _by_module(outcome.comm),
        "layer_swap": swap,
        "op_swap": [{"op_name": name, "layers": layers} for name, layers in _by_module(outcome.op_swap).items()],
    }


def _by_module(found: Mapping[int, list[str]]) -> dict[str, list[str]]:
    layers: dict[str, list[int]] = {}
    for layer in sorted(found):
        for module in found[layer]:
            layers.setdefault(module, []).append(layer)
    return {module: write_specs(ids) for module, ids in layers.items()}


_RULER = "-" * 69


def log_lines(inputs: PynativeInputs, outcome: PynativeOutcome) -> Iterator[str]:
    """Yield the log lines, cell by cell; if modules are unknown only those about whole layers."""
    cells = [cell for row in outcome.ranges or () for cell in row]
    for first, last in cells:
        final = (first, last) == cells[-1] and last == inputs.layers - 1
        layers = range(first, last + 1 + (inputs.mtp_layers if final else 0))
        if inputs.mode != "None" or inputs.comm:
            yield from _recompute(inputs, outcome, layers)
        if inputs.swap:
            yield from _swap(inputs, outcome, layers)


def _recompute(inputs: PynativeInputs, outcome: PynativeOutcome, layers: Sequence[int]) -> Iterator[str]:
    known, by_name = inputs.modules is not None, inputs.version == "2.0"
    if inputs.exclude_op and by_name:
        yield f"Ops excluded from recompute (MUST_SAVE): {list(inputs.exclude_op)}"
    exclude = {} if by_name else outcome.exclude
    maps = (
        (inputs.mode == "select", "Recompute", outcome.select),
        (inputs.mode != "None" and inputs.exclude_op and not by_name, "ExcludeOp", exclude),
        (inputs.comm, "Comm Select Recompute", outcome.comm),
    )
    for shown, title, modules in maps:
        if shown and known:
            yield from _map(inputs, title, modules, layers)
    for layer in layers:
        yield from _named(inputs, f"Set exclude recompute at layer {layer}", exclude.get(layer))
        if layer in outcome.full:
            yield f"Set full recompute at layer {layer}"
        yield from _named(inputs, f"Set select recompute at layer {layer}", outcome.select.get(layer))


def _swap(inputs: PynativeInputs, outcome: PynativeOutcome, layers: Sequence[int]) -> Iterator[str]:
    if inputs.op_swap and inputs.modules is not None:
        yield from _map(inputs, "Swap", outcome.op_swap, layers)
    for layer in layers:
        if layer in outcome.swapped:
            yield f"Set layer swap at layer {layer}"
        yield from _named(inputs, f"Set select swap at layer {layer}", outcome.op_swap.get(layer))


def _map(
    inputs: PynativeInputs, title: str, modules: Mapping[int, Sequence[str]], layers: Sequence[int]
) -> Iterator[str]:
    word = "" if inputs.version != "2.0" or title.startswith("Comm") else "Select "
    yield f"--- Final {word}{title} Configuration Map---"
    for layer in layers:
        if layer in modules:
            yield f"layer{layer}: {', '.join(modules[layer]) or '(No Module)'}"
    yield _RULER


def _named(inputs: PynativeInputs, what: str, names: Sequence[str] | None) -> Iterator[str]:
    if names and inputs.modules is not None:
        yield f"{what}: {', '.join(names)}"


def expand(
    patterns: Iterable[tuple[str, Any]], layers: AbstractSet[int], modules: Modules | None, *, keeps: bool = False
) -> tuple[dict[int, list[str]], dict[str, dict[int, bool]]]:
    """Return the modules of each layer that match; and for each pattern and layer whether it matches any.

    If modules are unknown, a pattern represents its matches; with ``keeps`` also one that matches none of the modules.
    """
    found: dict[int, list[str]] = {}
    reaches: dict[str, dict[int, bool]] = {}
    for pattern, specs in patterns:
        hits = reaches.setdefault(pattern, {})
        for layer in parse_specs(specs):
            if layer not in layers:
                continue
            if pattern_fault(pattern):
                # The message is that of the module regex, which MindFormers uses and ms-tune does not.
                stop("regex.error", "", msg("plans.why.not-a-pattern", pattern=pattern))
            reached = [pattern]
            if modules is not None:
                reached = [path for path in modules.get(layer, ()) if full_match(pattern, path)]
                reached = reached or [pattern] * keeps
            hits[layer] = bool(reached)
            names = found.setdefault(layer, []) if reached else []
            names += [name for name in reached if name not in names]
    return found, reaches


def without_children(found: Mapping[int, Sequence[str]], full: AbstractSet[int]) -> dict[int, list[str]]:
    """Remove layers that are chosen as a whole, and modules inside a chosen module."""
    return {layer: topmost(names) for layer, names in found.items() if layer not in full}


def without_covered(
    found: Mapping[int, Sequence[str]], full: AbstractSet[int], parents: Mapping[int, Sequence[str]]
) -> dict[int, list[str]]:
    """Remove layers that are chosen as a whole, and modules inside those of another choice."""
    kept = {
        layer: [name for name in names if not any(name.startswith(f"{one}.") for one in parents.get(layer, ()))]
        for layer, names in found.items()
        if layer not in full
    }
    return {layer: names for layer, names in kept.items() if names}
