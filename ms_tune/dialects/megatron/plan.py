"""What every layer of a program does, from its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.layer_plan import MEGATRON, FrameworkStop, LayerPlan, LayerSpec, failure_of, failure_problem
from ms_tune.dialects.megatron.ignored import find_traps
from ms_tune.dialects.megatron.inputs import DESTINATIONS
from ms_tune.dialects.megatron.placement import has_experts, place
from ms_tune.dialects.megatron.recompute import check_built, check_ends, in_full, operators
from ms_tune.dialects.megatron.refusals import validated
from ms_tune.enums import LayerKind, RecomputeMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dialects.megatron.inputs import MegatronInputs, Settled
    from ms_tune.dialects.megatron.placement import StageChunk

FRAMEWORK = "MindSpeed-LLM"


def normalize_megatron(inputs: MegatronInputs) -> LayerPlan:
    """What each layer will do, exactly as the frameworks decide it.

    Never raises for what arguments may say: what the frameworks refuse is the plan's ``failure``.
    """
    step = "arguments"
    placement = None
    try:
        settled = validated(inputs)
        step = "placement"
        cells = place(inputs, settled)
        placement = _counts(inputs, settled, cells)
        for cell in cells:
            check_built(inputs, settled, cell)
        step = "forward"
        layers = tuple(layer for cell in cells for layer in _layers(inputs, settled, cell))
        ahead = _ahead(inputs, settled, cells, layers)
    except FrameworkStop as error:
        problem = failure_problem(step, FRAMEWORK, error)
        failure = failure_of(error)
        return LayerPlan(MEGATRON, inputs.release, placement, None, (), (problem,), (), failure)
    problems = tuple(find_traps(inputs, settled, cells, layers))
    formative = _formative(settled, placement, layers)
    return LayerPlan(MEGATRON, inputs.release, placement, formative, (*layers, *ahead), problems)


def _counts(inputs: MegatronInputs, settled: Settled, cells: Sequence[StageChunk]) -> tuple[tuple[int, ...], ...]:
    chunks = 2 if inputs.schedule == "dualpipev" else settled.chunks or 1
    counts = [[0] * inputs.stages for _ in range(chunks)]
    for cell in cells:
        counts[cell.chunk][cell.stage] = cell.count
    return tuple(map(tuple, counts))


def _layers(inputs: MegatronInputs, settled: Settled, cell: StageChunk) -> list[LayerSpec]:
    check_ends(inputs, settled, cell)
    done = [_parts(inputs, settled, cell, index) for index in range(cell.count)]
    groups = in_full(inputs, settled, cell)
    found = []
    for index in range(cell.count):
        looked_up = cell.looked_up + index
        idle = looked_up in settled.noop
        experts = has_experts(inputs, looked_up)
        kind = LayerKind.NOOP if idle else LayerKind.EXPERTS if experts else LayerKind.DENSE
        parts = done[index]
        full = groups[index] is not None
        found.append(
            LayerSpec(
                layer=cell.place + index,
                stage=cell.stage,
                chunk=cell.chunk,
                recompute=RecomputeMode.FULL if full else RecomputeMode.SELECT if parts else RecomputeMode.NONE,
                select_patterns=() if full else parts,
                overridden=parts if full else (),
                kind=kind,
            )
        )
    return found


def _parts(inputs: MegatronInputs, settled: Settled, cell: StageChunk, index: int) -> tuple[str, ...]:
    if cell.looked_up + index in settled.noop:
        return ()
    experts = has_experts(inputs, cell.looked_up + index)
    return operators(inputs, settled, cell, cell.number + index, experts=experts)


def _ahead(
    inputs: MegatronInputs, settled: Settled, cells: Sequence[StageChunk], layers: Sequence[LayerSpec]
) -> list[LayerSpec]:
    """The layers that predict further tokens: behind all others, each with the number of its cell's first layer.

    Never recomputed in full: their block has no ``_checkpointed_forward``.
    """
    last = cells[-1]
    experts = bool(inputs.experts) and (not layers or has_experts(inputs, last.looked_up + last.count - 1))
    parts = operators(inputs, settled, last, last.number, experts=experts) if inputs.ahead else ()
    return [
        LayerSpec(
            layer=last.place + last.count + index,
            stage=last.stage,
            chunk=last.chunk,
            recompute=RecomputeMode.SELECT if parts else RecomputeMode.NONE,
            select_patterns=parts,
            kind=LayerKind.PREDICTION,
        )
        for index in range(inputs.ahead or 0)
    ]


def _formative(settled: Settled, placement: Sequence[Sequence[int]], layers: Sequence[LayerSpec]) -> dict[str, object]:
    return {
        "layers": [list(row) for row in placement],
        "recompute_granularity": settled.granularity,
        "recompute_method": settled.method,
        DESTINATIONS["number"]: settled.number,
        "full": [layer.layer for layer in layers if layer.recompute is RecomputeMode.FULL],
        "noop": [layer.layer for layer in layers if layer.kind is LayerKind.NOOP],
        "experts": [layer.layer for layer in layers if layer.kind is LayerKind.EXPERTS],
    }
