"""Recomputation and swap of every layer of a program, determined from its arguments.

Full recomputation: ``TransformerBlock._checkpointed_forward`` of Megatron-LM (core_v0.12.1), or MindSpeed's replacement
for ``--recompute-method block`` or ``--swap-attention`` (``mindspeed/core/memory/common.py``). Norms and activations:
the two versions of ``should_recompute`` in MindSpeed (``mindspeed/model/transformer.py``,
``mindspeed/core/memory/recompute/recompute_common.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import MEGATRON, FrameworkStop, LayerPlan, LayerSpec, failure_of, failure_problem, make_problem
from ms_tune.dialects.megatron.placement import (
    DESTINATIONS,
    FinalArguments,
    MegatronInputs,
    StageChunk,
    fail,
    has_experts,
    place_layers,
)
from ms_tune.dialects.megatron.refusals import validated
from ms_tune.enums import LayerKind, RecomputeMode

FRAMEWORK = "MindSpeed-LLM"


def normalize_megatron(inputs: MegatronInputs) -> LayerPlan:
    """Return the plan of a program, exactly as the frameworks determine it.

    Never raises for invalid arguments: a refusal by the frameworks is the plan's ``failure``.
    """
    step = "arguments"
    placement = None
    try:
        final = validated(inputs)
        step = "placement"
        cells = place_layers(inputs, final)
        placement = _counts(inputs, final, cells)
        for cell in cells:
            check_built(inputs, final, cell)
        step = "forward"
        layers = tuple(layer for cell in cells for layer in _layers(inputs, final, cell))
        ahead = _list_prediction_layers(inputs, final, cells, layers)
    except FrameworkStop as error:
        problem = failure_problem(step, FRAMEWORK, error)
        failure = failure_of(error)
        return LayerPlan(MEGATRON, inputs.release, placement, None, (), (problem,), (), failure)
    renumbered = [cell for cell in cells if cell.number != cell.first_layer and _other_parts(inputs, final, cell)]
    problems = tuple(find_ignored(inputs, final, cells, layers, renumbered))
    formative = _dump(final, placement, layers)
    return LayerPlan(MEGATRON, inputs.release, placement, formative, (*layers, *ahead), problems)


def _counts(inputs: MegatronInputs, final: FinalArguments, cells: Sequence[StageChunk]) -> tuple[tuple[int, ...], ...]:
    chunks = 2 if inputs.schedule == "dualpipev" else final.chunks or 1
    counts = [[0] * inputs.stages for _ in range(chunks)]
    for cell in cells:
        counts[cell.chunk][cell.stage] = cell.count
    return tuple(map(tuple, counts))


def _layers(inputs: MegatronInputs, final: FinalArguments, cell: StageChunk) -> list[LayerSpec]:
    check_ends(inputs, final, cell)
    done = [_parts(inputs, final, cell, index) for index in range(cell.count)]
    groups = in_full(inputs, final, cell)
    found = []
    for index in range(cell.count):
        looked_up = cell.looked_up + index
        idle = looked_up in final.noop
        experts = has_experts(inputs, looked_up)
        kind = LayerKind.NOOP if idle else LayerKind.EXPERTS if experts else LayerKind.DENSE
        parts = done[index]
        full = groups[index] is not None
        found.append(
            LayerSpec(
                layer=cell.first_layer + index,
                stage=cell.stage,
                chunk=cell.chunk,
                recompute=RecomputeMode.strongest(full=full, select=parts),
                select_patterns=() if full else parts,
                overridden=parts if full else (),
                kind=kind,
            )
        )
    return found


def _parts(inputs: MegatronInputs, final: FinalArguments, cell: StageChunk, index: int) -> tuple[str, ...]:
    if cell.looked_up + index in final.noop:
        return ()
    experts = has_experts(inputs, cell.looked_up + index)
    return operators(inputs, final, cell, cell.number + index, experts=experts)


def _list_prediction_layers(
    inputs: MegatronInputs, final: FinalArguments, cells: Sequence[StageChunk], layers: Sequence[LayerSpec]
) -> list[LayerSpec]:
    """Return the multi-token prediction layers, which follow all others and recompute the parts of their cell's first layer.

    Never fully recomputed: their block has no ``_checkpointed_forward``.
    """
    last = cells[-1]
    experts = bool(inputs.experts) and (not layers or has_experts(inputs, last.looked_up + last.count - 1))
    parts = operators(inputs, final, last, last.number, experts=experts) if inputs.ahead else ()
    return [
        LayerSpec(
            layer=last.first_layer + last.count + index,
            stage=last.stage,
            chunk=last.chunk,
            recompute=RecomputeMode.strongest(select=parts),
            select_patterns=parts,
            kind=LayerKind.PREDICTION,
        )
        for index in range(inputs.ahead or 0)
    ]


def _other_parts(inputs: MegatronInputs, final: FinalArguments, cell: StageChunk) -> bool:
    numbers = ((cell.number + index, cell.first_layer + index) for index in range(cell.count))
    parts = partial(operators, inputs, final, cell, experts=False)
    return any(parts(number) != parts(place) for number, place in numbers)


def _dump(final: FinalArguments, placement: Sequence[Sequence[int]], layers: Sequence[LayerSpec]) -> dict[str, object]:
    return {
        "layers": [list(row) for row in placement],
        "recompute_granularity": final.granularity,
        "recompute_method": final.method,
        DESTINATIONS["number"]: final.number,
        "full": [layer.layer for layer in layers if layer.recompute is RecomputeMode.FULL],
        "noop": [layer.layer for layer in layers if layer.kind is LayerKind.NOOP],
        "experts": [layer.layer for layer in layers if layer.kind is LayerKind.EXPERTS],
    }


NORMS: tuple[str, ...] = ("input_layernorm", "pre_mlp_layernorm")
ACTIVATION = "mlp.activation_func"
EXPERTS_ACTIVATION = "mlp.experts.activation_func"
_OF_MODULE = {
    "core_attn": ("self_attention.core_attention",),
    "layernorm": NORMS,
    "mla_up_proj": ("self_attention.qkv_up_proj",),
}


def in_full(inputs: MegatronInputs, final: FinalArguments, cell: StageChunk) -> list[int | None]:
    """Return, for each layer of a cell, the group of layers that are recomputed together; None if it is not recomputed."""
    nothing: list[int | None] = [None] * cell.count
    if final.granularity != "full":
        return nothing
    number = final.number or 0
    # MindSpeed selects its patches by the arguments as given, before --recompute-in-bubble changes them.
    patched = inputs.method == "block" or inputs.swap
    if patched and inputs.swap:
        return nothing
    if final.method == "block":
        if not patched:
            return [index if index < number else None for index in range(cell.count)]
        return [index if _by_block(inputs, final, cell, index, number) else None for index in range(cell.count)]
    return _uniform(cell, number)


def _by_block(inputs: MegatronInputs, final: FinalArguments, cell: StageChunk, index: int, number: int) -> bool:
    chunks = final.chunks if inputs.by_rank and final.chunks is not None else 1
    chunk = cell.chunk if inputs.by_rank and final.chunks is not None else 0
    if final.spare_last and index == cell.count - 1:
        last_chunk = final.chunks is None or cell.chunk == final.chunks - 1
        if cell.stage == inputs.stages - 1 and last_chunk:  # `mpu.is_pipeline_last_stage()`
            return False
    return index * chunks + chunk < number


def check_ends(inputs: MegatronInputs, final: FinalArguments, cell: StageChunk) -> None:
    """Stop if groups have no layers: the framework then loops forever before the first layer."""
    uniform = final.granularity == "full" and final.method == "uniform" and not inputs.swap
    if uniform and cell.count and (final.number or 0) <= 0:
        fail("uniform-nothing")


def _uniform(cell: StageChunk, number: int) -> list[int | None]:
    if not cell.count:
        return []
    if cell.count % number:
        fail("uniform-rest")
    return [index // number for index in range(cell.count)]


def check_built(inputs: MegatronInputs, final: FinalArguments, cell: StageChunk) -> None:
    """Raise the framework's exceptions about norms when it builds the layers of a cell."""
    for index in range(cell.count):
        if inputs.norm and cell.looked_up + index not in final.noop:
            _should(inputs, final, cell, cell.number + index, inputs.norm_layers, gated=True)


def operators(
    inputs: MegatronInputs, final: FinalArguments, cell: StageChunk, number: int, *, experts: bool
) -> tuple[str, ...]:
    """Return the recomputed parts of a layer, by its ``layer_number`` from 0."""
    found = list(_select_parts(final, inputs, experts=experts)) if final.granularity == "selective" else []
    if final.in_advance or inputs.in_bubble:
        if final.chunks is None and (inputs.norm or inputs.activation):
            fail("bubble-one-chunk")
        return tuple(found)  # the schedule determines the others for each micro-batch
    should = partial(_should, inputs, final, cell, number)
    later = inputs.release != "2.2"
    # Checked by the arguments when the block is built and by the config in every step; either one is enough.
    if inputs.norm and (should(inputs.norm_layers, gated=True) or should(inputs.norm_layers, gated=later)):
        found += [norm for norm in NORMS if norm not in found]
    # Grouped experts use MindSpeed's first function, also with overlapped communication (--moe-alltoall-overlap-comm,
    # --moe-allgather-overlap-comm: ``grouped_mlp_with_comp_and_comm_overlap_*.py``).
    gated = (experts and inputs.grouped) or later
    name = EXPERTS_ACTIVATION if experts else ACTIVATION
    if inputs.activation and should(inputs.activation_layers, gated=gated) and name not in found:
        found.append(name)
    return tuple(found)


def _select_parts(final: FinalArguments, inputs: MegatronInputs, *, experts: bool) -> list[str]:
    found: list[str] = []
    for module in final.modules:
        if module == "moe":
            found += ["mlp"] if experts else []
        elif module in ("mlp", "layernorm") and inputs.norm:
            continue  # the forward method that --recompute-norm installs ignores them
        elif module == "mlp":
            found += [] if experts else ["mlp"]
        elif module == "moe_act":
            found += [EXPERTS_ACTIVATION] if experts and inputs.grouped else []
        else:
            found += _OF_MODULE.get(module, ())
    return list(dict.fromkeys(found))


def _should(  # noqa: PLR0913 - the rule's inputs
    inputs: MegatronInputs, final: FinalArguments, cell: StageChunk, number: int, layers: int | None, *, gated: bool
) -> bool:
    """Return ``should_recompute``: true for layers after the fully recomputed ones, counted over the chunks of a stage.

    With ``gated`` chunks count only with ``--enable-recompute-layers-per-pp-rank``, which MindSpeed's second function
    requires since 2.3.
    """
    of_chunk = final.layers_of_chunk if final.chunks is not None else inputs.layers // inputs.stages
    if of_chunk is None:
        fail("chunk-unknown")
    if of_chunk == 0:
        fail("priority-of-nothing")
    virtual = final.chunks is not None and (inputs.by_rank or not gated)
    priority = (number % of_chunk) * (final.chunks or 1 if virtual else 1) + (cell.chunk if virtual else 0)
    full = final.number or 0
    if full and priority < full:
        return False
    return layers is None or priority < full + layers


def find_ignored(
    inputs: MegatronInputs,
    final: FinalArguments,
    cells: Sequence[StageChunk],
    layers: Sequence[LayerSpec],
    renumbered: Sequence[StageChunk],
) -> Iterator[Diagnostic]:
    """Yield the accepted arguments that are ignored or probably wrong.

    ``renumbered`` are the cells whose layers recompute different parts because of their ``layer_number``.
    """
    built = sum(cell.count for cell in cells)
    if built != inputs.layers:
        yield make_problem("layers-built", Severity.ERROR, built=built, layers=inputs.layers)
    moved = [cell for cell in cells if cell.looked_up != cell.first_layer and _other_kinds(inputs, final, cell)]
    if moved:
        yield make_problem("looked-up", cells=_named(moved))
    if renumbered:
        yield make_problem("numbered", cells=_named(renumbered))
    idle = sum(layer.kind is LayerKind.NOOP for layer in layers)
    if final.noop and idle < len(final.noop):
        yield make_problem("noop-missed", found=idle, asked=len(final.noop))
    if inputs.experts and not inputs.dense and (inputs.frequency or 1) > 1:
        yield make_problem("frequency-ignored", frequency=inputs.frequency)
    yield from _of_recompute(inputs, final, layers)


def _other_kinds(inputs: MegatronInputs, final: FinalArguments, cell: StageChunk) -> bool:
    return any(
        (number in final.noop, has_experts(inputs, number)) != (place in final.noop, has_experts(inputs, place))
        for number, place in ((cell.looked_up + index, cell.first_layer + index) for index in range(cell.count))
    )


def _of_recompute(inputs: MegatronInputs, final: FinalArguments, layers: Sequence[LayerSpec]) -> Iterator[Diagnostic]:
    full = any(layer.recompute is RecomputeMode.FULL for layer in layers)
    if final.granularity == "full" and inputs.swap:
        yield make_problem("swap-instead")
    elif final.granularity == "full" and not full:
        yield make_problem("full-nothing")
    if final.granularity is None and inputs.method and not inputs.swap:
        yield make_problem("method-alone")
    if inputs.modules and final.granularity != "selective":
        yield make_problem("modules-ignored")
    for on, number, name in (
        (inputs.activation, inputs.activation_layers, "recompute-activation-function"),
        (inputs.norm, inputs.norm_layers, "recompute-norm"),
    ):
        if number is not None and not on:
            yield make_problem("number-alone", name=name)
    if inputs.in_bubble or final.in_advance:
        yield make_problem("at-run-time")
    if inputs.checked("moe_zero_memory") not in (None, "disable"):
        yield make_problem("zero-memory", Severity.INFO, level=inputs.checked("moe_zero_memory"))
    if final.method == "block" and final.number and inputs.by_rank and final.chunks is None:
        yield make_problem("by-rank-ignored", Severity.INFO)


def _named(cells: Sequence[StageChunk]) -> str:
    shown = [f"stage {cell.stage}, chunk {cell.chunk}" for cell in cells[:3]]
    return "; ".join(shown) + ("; …" if len(cells) > len(shown) else "")
