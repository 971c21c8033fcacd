"""The whole way from a config's values to what each layer recomputes, in the order in which MindFormers goes it.

Where the rules come from (MindFormers 1.6 to 2.1, MindSpore 2.6 to 2.10):

- ``LayerSetting`` (see :mod:`ms_tune.dialects.mindformers.inputs` for where it is)
- ``_check_recompute`` and ``_check_swap`` in ``mindformers/tools/check_rules.py``
- ``TransformerConfig.__post_init__`` in ``mindformers/parallel_core/transformer_config.py``
- ``MultiTokenPredictionBlock`` in ``mindformers/parallel_core/training_graph/transformer/multi_token_prediction.py``
- ``_wrap_network_with_tool_cells`` in ``mindformers/trainer/base_trainer.py``
- ``set_pipeline_config`` in ``mindspore/parallel/_auto_parallel_context.py``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.layer_plan import ENDLESS_LOOP, Failure, Formative, FrameworkStop, RecomputePlan, stop
from ms_tune.dialects.mindformers.ignored import find_traps
from ms_tune.dialects.mindformers.inputs import is_counts
from ms_tune.dialects.mindformers.placement import place
from ms_tune.dialects.mindformers.recompute import Formatter, set_layer, working_copy
from ms_tune.dialects.mindformers.swap import (
    check_recompute,
    check_swap,
    format_recompute,
    format_swap,
    log_conflicts,
    read_swap,
)
from ms_tune.dialects.values import drop_excluded
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.dialects.layer_plan import LayerSpec, Placement
    from ms_tune.dialects.mindformers.inputs import RecomputeInputs, RecomputeValues
    from ms_tune.dialects.mindformers.swap import SwapConfig

_CHECKED_LENGTHS = ("recompute", "select_recompute", "select_comm_recompute")
_EXCLUDES = ("select_recompute_exclude", "select_comm_recompute_exclude")
_ZERO_BUBBLE_CHUNKS = 2


class _Progress:
    """How far the framework came."""

    def __init__(self) -> None:
        self.step = ""
        self.layer: int | None = None
        self.placement: Placement | None = None
        self.formative: Formative | None = None
        self.layers: list[LayerSpec] = []
        self.dropped: list[tuple[str, str]] = []
        self.log: list[str] = []


def normalize(inputs: RecomputeInputs) -> RecomputePlan:
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
        failure = Failure(error.exception, error.text, progress.layer)
        problems.append(failure_problem(progress.step, progress.layer, error))
    problems += find_traps(inputs, progress.placement, progress.formative, progress.layers, progress.dropped)
    return RecomputePlan(
        placement=progress.placement,
        formative=None if failure else progress.formative,
        layers=() if failure else tuple(progress.layers),
        problems=tuple(problems),
        log=tuple(progress.log),
        failure=failure,
    )


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


def _go(inputs: RecomputeInputs, progress: _Progress) -> None:
    """Every step of the framework; the first one that raises ends it."""
    progress.step = "scheduler"
    _check_scheduler(inputs)
    progress.step = "swap-config"
    section = read_swap(inputs.swap)
    _check_rules(inputs, section, progress)
    progress.step = "core"
    _check_core(inputs)
    progress.step = "swap-config"
    swap = section if inputs.legacy else read_swap(inputs.swaps)
    progress.step = "offset"
    progress.placement = place(inputs)
    _log_placement(inputs, progress.placement, progress.log)
    formatter = Formatter(inputs, progress.placement)
    values = working_copy(inputs.values)
    _format(inputs, formatter, values, swap, progress)
    _set_layers(inputs, formatter, values, progress)
    progress.step = "sequence"
    if inputs.sequence_splits > 1 and inputs.stages > 1:
        if inputs.values.recompute:
            stop("ValueError", "When using seq pipe, cannot apply full recompute.")
        if not inputs.legacy and inputs.rules.one_class:
            stop("ValueError", "seq_split_num > 1, is not supported when use_legacy=False.")


def _check_rules(inputs: RecomputeInputs, section: SwapConfig, progress: _Progress) -> None:
    """The framework's own check; it looks at the section ``swap_config`` even for models that never see it."""
    progress.step = "list-length"
    if not section.on:
        _check_lengths(inputs)
        return
    progress.step = "swap-rules"
    check_recompute(inputs.checked or inputs.values)
    check_swap(section, inputs.swap.default_prefetch)


def _format(
    inputs: RecomputeInputs, formatter: Formatter, values: RecomputeValues, swap: SwapConfig, progress: _Progress
) -> None:
    """Values -> the framework's own form, with what it logs on the way."""
    progress.step = "value"
    log = progress.log
    if swap.on:
        by_id = format_recompute(inputs, values)
        select_exclude, comm_exclude = (formatter.patterns(key, values) for key in _EXCLUDES)
        formative = Formative([], {}, {}, select_exclude, comm_exclude, by_id)
        select, comm = dict(by_id.select_recompute), dict(by_id.select_comm_recompute)
        log.append(f"Formative layer_recompute: {by_id.layer_recompute}")
        _drop(inputs, formative, (select, comm), progress)
        formative = formative._replace(by_id=by_id._replace(select_recompute=select, select_comm_recompute=comm))
    else:
        formative = formatter.format(values)
        log.append(f"Formative layer_recompute: {formative.layer_recompute}")
        rows, comm_rows = dict(formative.select_recompute), dict(formative.select_comm_recompute)
        _drop(inputs, formative, (rows, comm_rows), progress)
        formative = formative._replace(select_recompute=rows, select_comm_recompute=comm_rows)
    progress.formative = formative
    if not inputs.reduced:
        log.append(f"Formative select_recompute_exclude: {formative.select_recompute_exclude}")
        log.append(f"Formative select_comm_recompute_exclude: {formative.select_comm_recompute_exclude}")
    if swap.on:
        progress.formative = _format_swap(inputs, swap, formative, progress)


def _drop(
    inputs: RecomputeInputs,
    formative: Formative,
    patterns: tuple[dict[object, Any], dict[object, Any]],
    progress: _Progress,
) -> None:
    """Take out of the patterns those that exclude lists name too."""
    log = progress.log
    if not inputs.reduced:
        log.append(
            "The configuration of select_recompute_exclude and select_comm_recompute_exclude have the highest priority."
        )
        progress.step = "exclude"
        timed = inputs.rules.timed_patterns
        try:
            for key, found in zip(("select_recompute", "select_comm_recompute"), patterns, strict=True):
                drop_excluded(key, found, getattr(formative, f"{key}_exclude"), progress.dropped, timed=timed)
        finally:
            log += [
                f"The pattern {pattern} in {key} conflicts with {key}_exclude and will be removed."
                for key, pattern in progress.dropped
            ]
    log += [f"Formative select_recompute: {patterns[0]}", f"Formative select_comm_recompute: {patterns[1]}"]


def _format_swap(inputs: RecomputeInputs, swap: SwapConfig, formative: Formative, progress: _Progress) -> Formative:
    progress.step = "swap"
    layer_swap, op_swap = format_swap(swap)
    progress.log += [f"Formative layer swap: {layer_swap}", f"Formative op swap: {op_swap}"]
    assert formative.by_id is not None  # noqa: S101 - the caller has just made it
    by_id = formative.by_id._replace(layer_swap=layer_swap, op_swap=op_swap)
    log_conflicts(inputs.values, by_id, inputs.rules, progress.log)
    return formative._replace(by_id=by_id)


def _set_layers(inputs: RecomputeInputs, formatter: Formatter, values: RecomputeValues, progress: _Progress) -> None:
    assert progress.placement is not None  # noqa: S101 - the caller has just made both
    assert progress.formative is not None  # noqa: S101
    progress.step = "layer"
    timed = inputs.rules.timed_patterns
    for layer in range(inputs.placed_layers):
        if layer == inputs.layers:
            _format_again(formatter, values, progress)
        progress.layer = layer
        plan = set_layer(layer, progress.placement, progress.formative, values.recompute, timed=timed)
        progress.layers.append(plan)
    progress.layer = None
    if inputs.mtp_layers and not inputs.legacy and not inputs.reduced:
        _format_again(formatter, values, progress)


def _format_again(formatter: Formatter, values: RecomputeValues, progress: _Progress) -> None:
    """The block behind the layers formats the same values once more, as the first time has left them."""
    progress.layer = None
    progress.step = "mtp"
    if progress.formative is not None and progress.formative.by_id is not None:
        for key in _EXCLUDES:
            formatter.patterns(key, values)
    else:
        formatter.format(values)
    progress.step = "layer"


def _log_placement(inputs: RecomputeInputs, placement: Placement, log: list[str]) -> None:
    log.append(f"num_layers per stage: {[list(row) for row in placement.counts]}")
    log.append(f"Accumulated num_layers per stage: {[list(row) for row in placement.ends]}")
    # The framework logs the columns of its tables here, also where zero_bubble_v sends a layer to another stage.
    log.append(f"Pipeline id list with start_stage: {[cell.column + inputs.start_stage for cell in placement.cells]}")
    log.append(f"Interleave id list: {[cell.chunk for cell in placement.cells]}")


def _check_scheduler(inputs: RecomputeInputs) -> None:
    if not inputs.interleave and inputs.scheduler != "1f1b":
        stop(
            "TypeError",
            f"When pipeline_interleave is False, {inputs.scheduler!r} is not supported, only '1f1b' is allowed.",
        )


def _check_lengths(inputs: RecomputeInputs) -> None:
    """Lists (not tuples) of counts must not be longer than there are stages; nothing else is looked at."""
    for key in _CHECKED_LENGTHS:
        value = (inputs.checked or inputs.values).get(key)
        if isinstance(value, list) and len(value) > inputs.stages and is_counts(value):
            stop(
                "ValueError",
                f"length of {key} should be equal or less than pipeline_stage number, but get "
                f"length of {key} ({value}) > pp({inputs.stages})",
            )


def _check_core(inputs: RecomputeInputs) -> None:
    """What a model that is not a legacy one checks on top, while its config is converted."""
    if inputs.legacy or inputs.reduced:
        return
    if inputs.zero_bubble:
        _check_core_zero_bubble(inputs)
    if inputs.slice_activation:
        stop("ValueError", "For recompute, `recompute_slice_activation` is not supported in Mcore.")


def _check_core_zero_bubble(inputs: RecomputeInputs) -> None:
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
