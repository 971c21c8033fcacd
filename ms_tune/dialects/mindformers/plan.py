"""The whole way from a config's values to what each layer recomputes, in the order in which MindFormers goes it.

Where the rules come from (MindFormers 1.6 to 2.1, MindSpore 2.6 to 2.10):

- ``LayerSetting`` (see :mod:`ms_tune.dialects.mindformers.placement` for where it is)
- ``_check_recompute`` and ``_check_swap`` in ``mindformers/tools/check_rules.py``
- ``TransformerConfig.__post_init__`` in ``mindformers/parallel_core/transformer_config.py``
- ``MultiTokenPredictionBlock`` in ``mindformers/parallel_core/training_graph/transformer/multi_token_prediction.py``
- ``_wrap_network_with_tool_cells`` in ``mindformers/trainer/base_trainer.py``
- ``set_pipeline_config`` in ``mindspore/parallel/_auto_parallel_context.py``
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.layer_plan import ENDLESS_LOOP, MINDFORMERS, FrameworkStop, LayerPlan, failure_of, stop
from ms_tune.dialects.mindformers.ignored import find_traps
from ms_tune.dialects.mindformers.placement import KEYS, place_layers
from ms_tune.dialects.mindformers.recompute import format_lists, is_counts, set_layer
from ms_tune.dialects.mindformers.swap import (
    check_recompute,
    check_swap,
    format_swap,
    log_conflicts,
    read_swap,
    swap_layer,
)
from ms_tune.dialects.values import drop_excluded
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.dialects.layer_plan import LayerSpec
    from ms_tune.dialects.mindformers.placement import Placement, RecomputeInputs, RecomputeValues
    from ms_tune.dialects.mindformers.swap import SwapEntries

_ZERO_BUBBLE_CHUNKS = 2


class _Progress:
    """How far the framework came."""

    def __init__(self) -> None:
        self.step = ""
        self.placement: Placement | None = None
        # The values in the framework's own form, by the names that it logs them under, with those of `swap`.
        self.lists: dict[str, Any] | None = None
        self.layers: list[LayerSpec] = []
        self.dropped: list[tuple[str, str]] = []  # patterns that an exclude list takes out, by key
        self.log: list[str] = []


def normalize(inputs: RecomputeInputs) -> LayerPlan:
    """What each layer will recompute, exactly as the framework decides it.

    Never raises for what a config may say: what the framework refuses is the plan's ``failure`` and its first
    problem.
    """
    progress = _Progress()
    failure = None
    problems: list[Diagnostic] = []
    try:
        _go(inputs, progress)
    except FrameworkStop as error:
        layer = len(progress.layers) if progress.step == "layer" else None
        failure = failure_of(error, layer)
        problems.append(failure_problem(progress.step, layer, error))
    problems += find_traps(inputs, progress.placement, progress.lists, progress.layers, progress.dropped)
    return LayerPlan(
        dialect=MINDFORMERS,
        framework_version=inputs.version,
        placement=progress.placement.counts if progress.placement else None,
        formative=None if failure else progress.lists and _with_texts(progress.lists),
        layers=() if failure else tuple(progress.layers),
        problems=tuple(problems),
        log=tuple(progress.log),
        failure=failure,
    )


def _with_texts(lists: Mapping[str, Any]) -> dict[str, Any]:
    """The lists with all patterns as texts, which YAML may have read as other values."""
    return {
        key: {str(pattern): rows for pattern, rows in value.items()} if isinstance(value, dict) else value
        for key, value in lists.items()
    }


def failure_problem(step: str, layer: int | None, error: FrameworkStop) -> Diagnostic:
    """The problem that tells where the framework stops: at a step of its way, with a layer if it got that far."""
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


def _go(inputs: RecomputeInputs, progress: _Progress) -> None:  # noqa: C901 - one step after the other
    """Every step of the framework; the first one that raises ends it."""
    progress.step = "scheduler"
    if not inputs.interleave and inputs.scheduler != "1f1b":
        stop(
            "TypeError",
            f"When pipeline_interleave is False, {inputs.scheduler!r} is not supported, only '1f1b' is allowed.",
        )
    progress.step = "swap-config"
    swap = read_swap(inputs.swap)
    _check_values(inputs, swap, progress)
    progress.step = "core"
    if not inputs.legacy and not inputs.reduced:
        _check_core(inputs)
    progress.step = "swap-config"
    if not inputs.legacy:
        swap = read_swap(inputs.swaps)
    progress.step = "offset"
    placement = progress.placement = place_layers(inputs)
    progress.log += [
        f"num_layers per stage: {[list(row) for row in placement.counts]}",
        f"Accumulated num_layers per stage: {[list(row) for row in placement.ends]}",
        # The framework logs the columns of its tables here, also where zero_bubble_v sends a layer to another stage.
        f"Pipeline id list with start_stage: {[cell.column + inputs.start_stage for cell in placement.cells]}",
        f"Interleave id list: {[cell.chunk for cell in placement.cells]}",
    ]
    values = copy.deepcopy(inputs.values)  # lists that are one object still are one object
    lists = progress.lists = _format(inputs, placement, values, progress)
    if inputs.swaps.swap is True:
        _format_swap(inputs, swap, lists, progress)
    for cell in placement.cells:
        if cell.layer == inputs.layers:  # the first prediction layer, where they are placed with the others
            progress.step = "mtp"
            format_lists(inputs, placement, values)
        progress.step = "layer"
        layer = set_layer(inputs, cell, lists)
        if inputs.swaps.swap is True:
            layer = layer._replace(swap=swap_layer(inputs, cell.layer, lists))
        progress.layers.append(layer)
    if inputs.mtp_layers and not inputs.legacy and not inputs.reduced:
        progress.step = (
            "mtp"  # the block behind the layers formats the values once more, as the first time has left them
        )
        format_lists(inputs, placement, values)
    progress.step = "sequence"
    if inputs.sequence_splits > 1 and inputs.stages > 1:
        if inputs.values.recompute:
            stop("ValueError", "When using seq pipe, cannot apply full recompute.")
        if not inputs.legacy and inputs.since("1.7"):
            stop("ValueError", "seq_split_num > 1, is not supported when use_legacy=False.")


def _check_values(inputs: RecomputeInputs, swap: SwapEntries, progress: _Progress) -> None:
    """The framework's own check; it looks at the section ``swap_config`` even for models that never see it."""
    values = inputs.checked or inputs.values
    if inputs.swap.swap:
        progress.step = "swap-rules"
        check_recompute(values)
        check_swap(swap, inputs.swap.default_prefetch)
        return
    progress.step = "list-length"
    # Lists (not tuples) of counts must not be longer than there are stages; nothing else is looked at.
    for key in KEYS[:3]:
        value = getattr(values, key)
        if isinstance(value, list) and len(value) > inputs.stages and is_counts(value):
            stop(
                "ValueError",
                f"length of {key} should be equal or less than pipeline_stage number, but get "
                f"length of {key} ({value}) > pp({inputs.stages})",
            )


def _format(
    inputs: RecomputeInputs, placement: Placement, values: RecomputeValues, progress: _Progress
) -> dict[str, Any]:
    """Values -> the framework's own form, with what it logs on the way."""
    progress.step = "value"
    log = progress.log
    lists = format_lists(inputs, placement, values) | {"layer_swap": [], "op_swap": {}}
    log.append(f"Formative layer_recompute: {lists['layer_recompute']}")
    if not inputs.reduced:
        log.append(
            "The configuration of select_recompute_exclude and select_comm_recompute_exclude have the highest priority."
        )
        progress.step = "exclude"
        try:
            for key in KEYS[1:3]:
                drop_excluded(key, lists[key], lists[f"{key}_exclude"], progress.dropped, timed=inputs.since("1.7"))
        finally:
            log += [
                f"The pattern {pattern} in {key} conflicts with {key}_exclude and will be removed."
                for key, pattern in progress.dropped
            ]
    log += [f"Formative {key}: {lists[key]}" for key in (KEYS[1:3] if inputs.reduced else KEYS[1:])]
    return lists


def _format_swap(inputs: RecomputeInputs, swap: SwapEntries, lists: dict[str, Any], progress: _Progress) -> None:
    progress.step = "swap"
    found = format_swap(swap)
    progress.log += [f"Formative layer swap: {found['layer_swap']}", f"Formative op swap: {found['op_swap']}"]
    log_conflicts(inputs, found, progress.log)
    lists |= found


def _check_core(inputs: RecomputeInputs) -> None:
    """What a model that is not a legacy one checks on top, while its config is converted."""
    if inputs.zero_bubble:
        _check_zero_bubble(inputs)
    if inputs.slice_activation:
        stop("ValueError", "For recompute, `recompute_slice_activation` is not supported in Mcore.")


def _check_zero_bubble(inputs: RecomputeInputs) -> None:
    chunks, stages = inputs.interleave_num, inputs.stages
    prefix = "When zero_bubble_v is enabled,"
    if chunks != _ZERO_BUBBLE_CHUNKS:
        stop("ValueError", f"{prefix} pp_interleave_num must be set to 2. But get {chunks}.")
    if stages < 2:  # noqa: PLR2004 - a V needs two
        stop("ValueError", f"{prefix} pp must be greater than or equal to 2. But get {stages}.")
    if inputs.micro_batches < 2 * stages:
        stop(
            "ValueError",
            f"{prefix} micro_batch_num({inputs.micro_batches}) >= 2 * stage_num({stages}) must be met.",
        )
    value = inputs.values.recompute
    if isinstance(value, (list, tuple)) and (is_counts(value) or len(value) < _ZERO_BUBBLE_CHUNKS):
        stop(
            "ValueError",
            f"{prefix} 'recompute' must provide explicit 2D configuration for each interleave, "
            "such as [[stage0_recompute, stage1_recompute], [stage0_recompute, stage1_recompute]].",
        )
