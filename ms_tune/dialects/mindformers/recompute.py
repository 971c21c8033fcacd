"""Determine each layer's recomputation from a config's values, step by step like MindFormers.

Sources (MindFormers 1.6 to 2.1, MindSpore 2.6 to 2.10), including what they accept and where they fail:

- ``LayerSetting`` (location: :mod:`ms_tune.dialects.mindformers.placement`); its "Formative" lists are layers per
  (chunk, stage)
- ``_check_recompute`` and ``_check_swap`` in ``mindformers/tools/check_rules.py``
- ``TransformerConfig.__post_init__`` in ``mindformers/parallel_core/transformer_config.py``
- ``MultiTokenPredictionBlock`` in ``mindformers/parallel_core/training_graph/transformer/multi_token_prediction.py``
- ``_wrap_network_with_tool_cells`` in ``mindformers/trainer/base_trainer.py``
- ``set_pipeline_config`` in ``mindspore/parallel/_auto_parallel_context.py``
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import ENDLESS_LOOP, MINDFORMERS, FrameworkStop, LayerPlan, LayerSpec, failure_of, stop
from ms_tune.dialects.mindformers.ignored import find_ignored
from ms_tune.dialects.mindformers.placement import KEYS, NO_SWAP, LayerCell, Placement, RecomputeInputs, place_layers
from ms_tune.dialects.mindformers.swap import SwapEntries
from ms_tune.dialects.values import ArrayRow, NumpyCount, check_applied, drop_excluded, is_counts, is_patterns
from ms_tune.enums import RecomputeMode
from ms_tune.records import Any, NoReturn
from ms_tune.text import msg

_ALL_LAYERS = 2**31 - 1  # the meaning of True in a list of counts
_ZERO_BUBBLE_CHUNKS = 2
_NORM = (r".*\.norm",)
# The default patterns of a value without its own, for legacy models (True) and others.
DEFAULT_PATTERNS: Mapping[bool, Mapping[str, tuple[str, ...]]] = {
    True: {
        "select_recompute": (r"feed_forward\.mul", r"feed_forward\.w1\.activation\.silu"),
        "select_comm_recompute": _NORM,
    },
    False: {
        "select_recompute": (
            r"mlp\.shared_experts\.mul",
            r"mlp\.shared_experts\.activation_func\.silu",
            r"mlp\.mul",
            r"mlp\.activation_func\.silu",
        ),
        "select_comm_recompute": _NORM,
    },
}

Rows = list[list[int]]


class _Progress:
    """The intermediate state of the framework's steps."""

    def __init__(self) -> None:
        self.step = ""
        self.placement: Placement | None = None
        self.swap: SwapEntries | None = None  # swap of the layers; None if swap is off
        # The values in the framework's own form, by their names in its log, including those of `swap`.
        self.lists: dict[str, Any] | None = None
        self.reached: dict[str, dict[str, bool]] = {}  # for each key, which of its patterns apply to a layer
        self.layers: list[LayerSpec] = []
        self.dropped: list[tuple[str, str]] = []  # (key, pattern) removed by an exclude list
        self.log: list[str] = []


def normalize(inputs: RecomputeInputs) -> LayerPlan:
    """Return the plan of a config, exactly as the framework determines it.

    Never raises for invalid configs: a refusal by the framework is the plan's ``failure`` and its first problem.
    """
    progress = _Progress()
    failure = None
    problems: list[Diagnostic] = []
    try:
        _check_settings(inputs, progress)
        _set_layers(inputs, progress)
    except FrameworkStop as error:
        layer = len(progress.layers) if progress.step == "layer" else None
        failure = failure_of(error, layer)
        problems.append(failure_problem(progress.step, layer, error))
    placement, lists, swap, layers = progress.placement, progress.lists, progress.swap, progress.layers
    swap_traps = swap.find_ignored(inputs, lists, layers) if swap is not None and lists is not None else ()
    problems += find_ignored(inputs, placement, layers, progress.reached, swap_traps)
    for key, pattern in progress.dropped:
        message = msg("layers.pattern-excluded", key=key, pattern=pattern)
        problems.append(Diagnostic("pattern-excluded", Severity.INFO, message))
    return LayerPlan(
        dialect=MINDFORMERS,
        framework_version=inputs.version,
        placement=placement.counts if placement else None,
        formative=None
        if failure or lists is None
        else {  # patterns as texts; YAML may have parsed them as other types
            key: {str(pattern): rows for pattern, rows in value.items()} if isinstance(value, dict) else value
            for key, value in lists.items()
        },
        layers=() if failure else tuple(layers),
        problems=tuple(problems),
        log=tuple(progress.log),
        failure=failure,
    )


def failure_problem(step: str, layer: int | None, error: FrameworkStop) -> Diagnostic:
    """Build the problem for the framework's failure at a step, with a layer if it got that far."""
    where = msg(f"layers.step.{step}", layer=layer)
    if error.exception == ENDLESS_LOOP:
        message = msg("layers.endless-loop", where=where, why=error.why)
        return Diagnostic(ENDLESS_LOOP, Severity.ERROR, message)
    what = f"{error.exception}: {error.text}" if error.text else error.exception
    if error.why is None:
        message = msg("layers.rejected", where=where, what=what)
    else:
        message = msg("layers.rejected-why", where=where, what=what, why=error.why)
    return Diagnostic(f"{step}-rejected", Severity.ERROR, message)


def _check_settings(inputs: RecomputeInputs, progress: _Progress) -> None:
    """Run every check of the framework before it places a layer; the first one that raises ends it."""
    progress.step = "scheduler"
    if not inputs.interleave and inputs.scheduler != "1f1b":
        stop(
            "TypeError",
            f"When pipeline_interleave is False, {inputs.scheduler!r} is not supported, only '1f1b' is allowed.",
        )
    progress.step = "swap-config"
    entries = SwapEntries(inputs.swap) if inputs.swap is not NO_SWAP else None
    # The framework's own check; it uses the section `swap_config` even for models that ignore it.
    values = inputs.checked or inputs.values
    if entries is not None and inputs.swap.swap:
        progress.step = "swap-rules"
        entries.check(values, inputs.swap.default_prefetch)
    else:
        progress.step = "list-length"
        # Lists (not tuples) of counts must not be longer than the number of stages; nothing else is checked.
        for key, value in zip(KEYS[:3], values, strict=False):
            if isinstance(value, list) and len(value) > inputs.stages and is_counts(value):
                stop(
                    "ValueError",
                    f"length of {key} should be equal or less than pipeline_stage number, but get "
                    f"length of {key} ({value}) > pp({inputs.stages})",
                )
    progress.step = "core"
    if not inputs.legacy and not inputs.reduced:  # additional checks of such models when their config is converted
        if inputs.zero_bubble:
            _check_zero_bubble(inputs)
        if inputs.slice_activation:
            stop("ValueError", "For recompute, `recompute_slice_activation` is not supported in Mcore.")
    progress.step = "swap-config"
    if inputs.swaps is not NO_SWAP:
        entries = SwapEntries(inputs.swaps)
        progress.swap = entries if inputs.swaps.swap is True else None


def _check_zero_bubble(inputs: RecomputeInputs) -> None:
    chunks, stages = inputs.interleave_num, inputs.stages
    prefix = "When zero_bubble_v is enabled,"
    if chunks != _ZERO_BUBBLE_CHUNKS:
        stop("ValueError", f"{prefix} pp_interleave_num must be set to 2. But get {chunks}.")
    if stages < 2:  # noqa: PLR2004 - a V needs two stages
        stop("ValueError", f"{prefix} pp must be greater than or equal to 2. But get {stages}.")
    if inputs.micro_batches < 2 * stages:
        stop("ValueError", f"{prefix} micro_batch_num({inputs.micro_batches}) >= 2 * stage_num({stages}) must be met.")
    value = inputs.values.recompute
    if isinstance(value, (list, tuple)) and (is_counts(value) or len(value) < _ZERO_BUBBLE_CHUNKS):
        stop(
            "ValueError",
            f"{prefix} 'recompute' must provide explicit 2D configuration for each interleave, "
            "such as [[stage0_recompute, stage1_recompute], [stage0_recompute, stage1_recompute]].",
        )


def _set_layers(inputs: RecomputeInputs, progress: _Progress) -> None:
    """Place and set the layers; log lines and exceptions are the framework's."""
    progress.step = "offset"
    placement = progress.placement = place_layers(inputs)
    progress.log += [
        f"num_layers per stage: {[list(row) for row in placement.counts]}",
        f"Accumulated num_layers per stage: {placement.ends}",
        # The framework logs table columns here, even if zero_bubble_v moves a layer to another stage.
        f"Pipeline id list with start_stage: {[cell.column + inputs.start_stage for cell in placement.cells]}",
        f"Interleave id list: {[cell.chunk for cell in placement.cells]}",
    ]
    # One deepcopy call, so that aliased lists stay one object.
    values = dict(zip(KEYS, copy.deepcopy([*inputs.values]), strict=True))
    progress.step = "value"
    lists = format_lists(inputs, placement, values, progress.swap) | {"layer_swap": [], "op_swap": {}}
    _apply_excludes(inputs, lists, progress)
    progress.lists = lists
    progress.reached = {key: dict.fromkeys(lists[key], False) for key in KEYS[1:3]}
    if progress.swap is not None:
        progress.step = "swap"
        lists |= progress.swap.format_entries(inputs, progress.log)
    for cell in placement.cells:
        if cell.layer == inputs.layers:  # the first prediction layer, where these are placed with the others
            progress.step = "mtp"
            format_lists(inputs, placement, values, progress.swap)
        progress.step = "layer"
        progress.layers.append(set_layer(inputs, cell, lists, progress))
    if inputs.mtp_layers and not inputs.legacy and not inputs.reduced:
        # The block after the layers formats the values again, as modified by the first time.
        progress.step = "mtp"
        format_lists(inputs, placement, values, progress.swap)
    progress.step = "sequence"
    if inputs.sequence_splits > 1 and inputs.stages > 1:
        if inputs.values.recompute:
            stop("ValueError", "When using seq pipe, cannot apply full recompute.")
        if not inputs.legacy and inputs.version != "1.6":
            stop("ValueError", "seq_split_num > 1, is not supported when use_legacy=False.")


def _apply_excludes(inputs: RecomputeInputs, lists: dict[str, Any], progress: _Progress) -> None:
    """Apply exclude patterns to the lists, and log like the framework."""
    log = progress.log
    log.append(f"Formative layer_recompute: {lists['layer_recompute']}")
    if inputs.reduced:
        log += [f"Formative {key}: {lists[key]}" for key in KEYS[1:3]]
        return
    log.append(
        "The configuration of select_recompute_exclude and select_comm_recompute_exclude have the highest priority."
    )
    progress.step = "exclude"
    try:
        for key in KEYS[1:3]:
            if lists[f"{key}_exclude"]:
                drop_excluded(key, lists[key], lists[f"{key}_exclude"], progress.dropped, timed=inputs.version != "1.6")
    finally:
        log += [
            f"The pattern {pattern} in {key} conflicts with {key}_exclude and will be removed."
            for key, pattern in progress.dropped
        ]
    log += [f"Formative {key}: {lists[key]}" for key in KEYS[1:]]


def format_lists(
    inputs: RecomputeInputs, placement: Placement, values: Mapping[str, Any], swap: SwapEntries | None
) -> dict[str, Any]:
    """Return the five values in the framework's own form and order, by their names in its log.

    A value is layer counts per (chunk, stage): rows may be short or missing, and the framework fails only when it sets
    a layer that needs them. With swap on, a value is layer numbers, or True for all of them; excludes are still read as
    rows. Except for the first value, there is one per pattern; a value without patterns applies to the default
    patterns, if any.

    ``values`` is a copy that is modified in place, as in the framework.
    """
    rows = partial(format_rows, inputs, placement)
    chosen = rows if swap is None else swap.layer_ids
    lists: dict[str, Any] = {"layer_recompute": chosen(values["recompute"])}
    for key in KEYS[1:]:
        excludes, value = key.endswith("_exclude"), values[key]
        form = rows if excludes else chosen
        if excludes and inputs.reduced:
            lists[key] = {}  # that class does not support them
        elif isinstance(value, dict):
            lists[key] = {pattern: form(item) for pattern, item in value.items()}
        else:
            patterns = value if is_patterns(value) else DEFAULT_PATTERNS[inputs.legacy].get(key, ())
            lists[key] = {pattern: form(value) for pattern in patterns}
    return lists


def format_rows(inputs: RecomputeInputs, placement: Placement, value: object) -> Rows:
    """Return one value as layer counts per (chunk, stage)."""
    if isinstance(value, bool):
        return [list(row) if value else [0] * len(row) for row in placement.counts]
    if not isinstance(value, (list, tuple)):
        _stop_at_list(value)
    items = list(value) if inputs.version != "1.6" else value  # since 1.7 the list is copied first, its rows are not
    if inputs.zero_bubble:
        _reverse_second(items)
    if is_counts(items):
        for index, item in enumerate(items):
            if isinstance(item, bool):
                _write(items, index, _ALL_LAYERS if item else 0)
        return _share_out(items, placement)
    if is_patterns(items):
        return [list(row) for row in placement.counts]
    return _cut_rows(items, placement.counts)


def _share_out(items: Sequence[int], placement: Placement) -> Rows:
    """Spread one count per stage over its chunks: one layer at a time, round-robin, skipping full chunks."""
    rows = [[0] * len(row) for row in placement.counts]
    for column, item in enumerate(items):
        if column >= len(placement.totals):
            _stop_at_index(column, len(placement.totals))
        left = min(item, placement.totals[column])
        if left < 0:
            # The framework counts down from here and never reaches zero.
            stop(ENDLESS_LOOP, "", msg("layers.why.endless-loop", item=left))
        while left:
            for row, limits in zip(rows, placement.counts, strict=True):
                if left and row[column] < limits[column]:
                    row[column] += 1
                    left -= 1
    return rows


def _cut_rows(items: list[object] | tuple[object, ...], counts: Sequence[Sequence[int]]) -> Rows:
    """Clip a list with one row per chunk. Rows are changed in place, so an aliased row may already be changed."""
    for chunk, row in enumerate(items):
        if isinstance(row, bool):
            if chunk >= len(counts):
                _stop_at_index(chunk, len(counts))
            _write(items, chunk, ArrayRow(counts[chunk] if row else [0] * len(counts[chunk])))
        elif isinstance(row, (list, tuple)) and not isinstance(row, ArrayRow):
            for column, item in enumerate(row):
                if not isinstance(item, int) or isinstance(item, NumpyCount):
                    _stop_at_list(items, item)
                _write(row, column, _clamp(item, counts, chunk, column))
        else:
            _stop_at_list(items, row)
    return items  # type: ignore[return-value] # now rows of counts


def _clamp(item: int, counts: Sequence[Sequence[int]], chunk: int, column: int) -> int:
    if item is False:
        return 0
    if chunk >= len(counts):
        _stop_at_index(chunk, len(counts))
    if column >= len(counts[chunk]):
        _stop_at_index(column, len(counts[chunk]), axis=0 if item is True else 1)
    limit = counts[chunk][column]
    return NumpyCount(limit) if item is True or limit < item else item


def _write(items: list[Any] | tuple[Any, ...], index: int, value: object) -> None:
    if isinstance(items, tuple):
        stop("TypeError", "'tuple' object does not support item assignment")
    items[index] = value


def _stop_at_index(index: int, size: int, axis: int = 0) -> NoReturn:
    stop("IndexError", f"index {index} is out of bounds for axis {axis} with size {size}")


def _reverse_second(items: list[Any] | tuple[Any, ...]) -> None:
    """Reverse the second chunk's row for ``zero_bubble_v``: it counts from the last stage."""
    if len(items) < 2:  # noqa: PLR2004 - without a second row
        stop("IndexError", "list index out of range")
    second = items[1]
    if isinstance(second, (list, tuple, str)):
        _write(items, 1, second[::-1])
    elif isinstance(second, dict):
        stop("TypeError", "unhashable type: 'slice'")
    else:
        stop("TypeError", f"'{type(second).__name__}' object is not subscriptable")


def _stop_at_list(value: object, item: object = None) -> NoReturn:
    # The framework mentions select_recompute here for any value.
    why = msg("layers.why.written-twice") if isinstance(item, (NumpyCount, ArrayRow)) else None
    stop("ValueError", f"Illegal input list for select_recompute: {value}", why)


def set_layer(inputs: RecomputeInputs, cell: LayerCell, lists: Mapping[str, Any], progress: _Progress) -> LayerSpec:
    """Return one layer's plan. Full recompute wins; excludes apply to every layer, but not with swap."""
    swap, timed = progress.swap, inputs.version != "1.6"
    recompute = (
        inputs.values.recompute
    )  # the framework uses the original value to decide whether there is full recompute
    full = bool(recompute) and (isinstance(recompute, bool) or _is_reached(cell, lists["layer_recompute"], swap))
    patterns: dict[str, list[str]] = {key: [] for key in KEYS[1:]}
    overridden = []
    for key in KEYS[1:] if swap is None else KEYS[1:3]:
        hidden = full and key in progress.reached
        for pattern, layers in lists[key].items():
            try:
                reached = _is_reached(cell, layers, swap)
            except FrameworkStop:
                if not hidden:  # otherwise the framework does not check
                    raise
                continue
            if reached and key in progress.reached:
                progress.reached[key][pattern] = True
            if reached and hidden:
                overridden.append(str(pattern))
            elif reached:
                check_applied(pattern, timed=timed)
                patterns[key].append(str(pattern))
    select, comm, select_excludes, comm_excludes = map(tuple, patterns.values())
    mode = RecomputeMode.SELECT if select else RecomputeMode.COMM if comm else RecomputeMode.NONE
    return LayerSpec(
        layer=cell.layer,
        stage=cell.stage,
        chunk=cell.chunk,
        recompute=RecomputeMode.FULL if full else mode,
        select_patterns=select,
        comm_patterns=comm,
        select_excludes=select_excludes,
        comm_excludes=comm_excludes,
        swap=() if swap is None else swap.plan_layer(cell.layer, timed=timed),
        overridden=tuple(overridden),
    )


def _is_reached(cell: LayerCell, layers: Any, swap: SwapEntries | None) -> bool:  # noqa: ANN401 - rows, numbers or True
    """Return whether a formatted value applies to a layer: its rank is below the cell's count or, with swap, its number is listed."""
    if swap is not None:
        return layers is True or cell.layer in layers
    try:
        count: int = layers[cell.chunk][cell.column]
    except IndexError as error:  # of a list or tuple, depending on the config
        stop("IndexError", str(error))
    return 0 <= cell.rank < count
