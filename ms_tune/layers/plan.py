"""The whole way from a config's values to what each layer recomputes, in the order in which MindFormers goes it.

Where the rules come from (MindFormers 1.8 to 2.1, MindSpore 2.7 to 2.10):

- ``LayerSetting`` in ``mindformers/parallel_core/training_graph/transformer/utils.py``
- ``_rule_recompute`` in ``mindformers/tools/check_rules.py``
- ``TransformerConfig.__post_init__`` in ``mindformers/parallel_core/transformer_config.py``
- ``MultiTokenPredictionBlock`` in ``mindformers/parallel_core/training_graph/transformer/multi_token_prediction.py``
- ``wrap_network_with_tool_cells`` in ``mindformers/trainer/base_trainer.py``
- ``set_pipeline_config`` in ``mindspore/parallel/_auto_parallel_context.py``
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.layers.effect import set_layer
from ms_tune.layers.placement import place
from ms_tune.layers.recompute import Formatter, drop_excluded, is_counts, working_copy
from ms_tune.layers.result import ENDLESS_LOOP, Failure, FrameworkStop, Problem, RecomputePlan, Severity, stop
from ms_tune.layers.traps import find_traps
from ms_tune.texts import msg

if TYPE_CHECKING:
    from ms_tune.layers.inputs import RecomputeInputs
    from ms_tune.layers.result import Formative, LayerPlan, Placement

_CHECKED_LENGTHS = ("recompute", "select_recompute", "select_comm_recompute")
_ZERO_BUBBLE_CHUNKS = 2


@dataclass
class _Progress:
    """How far the framework came."""

    step: str = ""
    layer: int | None = None
    placement: Placement | None = None
    formative: Formative | None = None
    layers: list[LayerPlan] = field(default_factory=list)
    dropped: list[tuple[str, str]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


def normalize(inputs: RecomputeInputs) -> RecomputePlan:
    """What each layer will recompute, exactly as the framework decides it.

    Never raises for what a config may say: what the framework refuses is the plan's ``failure`` and its first
    problem.
    """
    progress = _Progress()
    failure = None
    problems: list[Problem] = []
    try:
        _go(inputs, progress)
    except FrameworkStop as error:
        failure = Failure(error.exception, error.text, progress.layer)
        problems.append(_failure_problem(progress, error))
    problems += find_traps(inputs, progress.placement, progress.formative, progress.layers, progress.dropped)
    return RecomputePlan(
        placement=progress.placement,
        formative=None if failure else progress.formative,
        layers=() if failure else tuple(progress.layers),
        problems=tuple(problems),
        log=tuple(progress.log),
        failure=failure,
    )


def _failure_problem(progress: _Progress, error: FrameworkStop) -> Problem:
    where = msg(f"layers.step.{progress.step}", layer=progress.layer)
    if error.exception == ENDLESS_LOOP:
        message = msg("layers.endless-loop", where=where, why=error.why)
        return Problem(ENDLESS_LOOP, Severity.ERROR, message)
    what = f"{error.exception}: {error.text}" if error.text else error.exception
    if error.why is None:
        message = msg("layers.rejected", where=where, what=what)
    else:
        message = msg("layers.rejected-why", where=where, what=what, why=error.why)
    return Problem(f"{progress.step}-rejected", Severity.ERROR, message)


def _go(inputs: RecomputeInputs, progress: _Progress) -> None:
    """Every step of the framework; the first one that raises ends it."""
    progress.step = "scheduler"
    _check_scheduler(inputs)
    progress.step = "list-length"
    _check_lengths(inputs)
    progress.step = "core"
    _check_core(inputs)
    progress.step = "offset"
    progress.placement = place(inputs)
    _log_placement(inputs, progress.placement, progress.log)
    _format(inputs, progress.placement, progress)
    progress.step = "sequence"
    if inputs.sequence_splits > 1 and inputs.stages > 1 and inputs.values.recompute:
        stop("ValueError", "When using seq pipe, cannot apply full recompute.")


def _format(inputs: RecomputeInputs, placement: Placement, progress: _Progress) -> None:
    progress.step = "value"
    values = working_copy(inputs.values)
    formatter = Formatter(inputs, placement)
    formative = formatter.format(values)
    progress.log.append(f"Formative layer_recompute: {formative.layer_recompute}")
    progress.log.append(
        "The configuration of select_recompute_exclude and select_comm_recompute_exclude have the highest priority."
    )
    progress.step = "exclude"
    try:
        formative = drop_excluded(formative, progress.dropped)
    finally:
        progress.log += [
            f"The pattern {pattern} in {key} conflicts with {key}_exclude and will be removed."
            for key, pattern in progress.dropped
        ]
    progress.formative = formative
    progress.log += [
        f"Formative select_recompute: {formative.select_recompute}",
        f"Formative select_comm_recompute: {formative.select_comm_recompute}",
        f"Formative select_recompute_exclude: {formative.select_recompute_exclude}",
        f"Formative select_comm_recompute_exclude: {formative.select_comm_recompute_exclude}",
    ]
    progress.step = "layer"
    for layer in range(inputs.layers):
        progress.layer = layer
        progress.layers.append(set_layer(layer, placement, formative, values.recompute))
    progress.layer = None
    if inputs.mtp_layers and not inputs.legacy:
        # The block behind the layers formats the same values once more, as the first time has left them.
        progress.step = "mtp"
        formatter.format(values)


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
        value = inputs.values.get(key)
        if isinstance(value, list) and len(value) > inputs.stages and is_counts(value):
            stop(
                "ValueError",
                f"length of {key} should be equal or less than pipeline_stage number, but get "
                f"length of {key} ({value}) > pp({inputs.stages})",
            )


def _check_core(inputs: RecomputeInputs) -> None:
    """What a model that is not a legacy one checks on top, while its config is converted."""
    if inputs.legacy:
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
