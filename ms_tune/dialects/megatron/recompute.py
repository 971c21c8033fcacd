"""Recomputation and swap of every layer of a program, determined from its arguments.

Full recomputation: ``TransformerBlock._checkpointed_forward`` of Megatron-LM (core_v0.12.1), or MindSpeed's replacement
for ``--recompute-method block`` or ``--swap-attention`` (``mindspeed/core/memory/common.py``). Norms and activations:
the two versions of ``should_recompute`` in MindSpeed (``mindspeed/model/transformer.py``,
``mindspeed/core/memory/recompute/recompute_common.py``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.dialects import MEGATRON, FrameworkStop, LayerPlan, LayerSpec, failure_of, failure_problem, tell_trap
from ms_tune.dialects.megatron.placement import DESTINATIONS, fail, has_experts, place
from ms_tune.dialects.megatron.refusals import validated
from ms_tune.enums import LayerKind, RecomputeMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.dialects.megatron.placement import MegatronInputs, Settled, StageChunk

FRAMEWORK = "MindSpeed-LLM"


def normalize_megatron(inputs: MegatronInputs) -> LayerPlan:
    """Return the plan of a program, exactly as the frameworks determine it.

    Never raises for invalid arguments: a refusal by the frameworks is the plan's ``failure``.
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
    renumbered = [cell for cell in cells if cell.number != cell.place and _other_parts(inputs, settled, cell)]
    problems = tuple(find_traps(inputs, settled, cells, layers, renumbered))
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
                recompute=RecomputeMode.strongest(full=full, select=parts),
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
    """Return the multi-token prediction layers: after all others, each with the number of its cell's first layer.

    Never fully recomputed: their block has no ``_checkpointed_forward``.
    """
    last = cells[-1]
    experts = bool(inputs.experts) and (not layers or has_experts(inputs, last.looked_up + last.count - 1))
    parts = operators(inputs, settled, last, last.number, experts=experts) if inputs.ahead else ()
    return [
        LayerSpec(
            layer=last.place + last.count + index,
            stage=last.stage,
            chunk=last.chunk,
            recompute=RecomputeMode.strongest(select=parts),
            select_patterns=parts,
            kind=LayerKind.PREDICTION,
        )
        for index in range(inputs.ahead or 0)
    ]


def _other_parts(inputs: MegatronInputs, settled: Settled, cell: StageChunk) -> bool:
    numbers = ((cell.number + index, cell.place + index) for index in range(cell.count))
    parts = partial(operators, inputs, settled, cell, experts=False)
    return any(parts(number) != parts(place) for number, place in numbers)


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


NORMS: tuple[str, ...] = ("input_layernorm", "pre_mlp_layernorm")
ACTIVATION = "mlp.activation_func"
EXPERTS_ACTIVATION = "mlp.experts.activation_func"
_OF_MODULE = {
    "core_attn": ("self_attention.core_attention",),
    "layernorm": NORMS,
    "mla_up_proj": ("self_attention.qkv_up_proj",),
}


def in_full(inputs: MegatronInputs, settled: Settled, cell: StageChunk) -> list[int | None]:
    """Return the recomputation group of each layer of a cell; None for a layer that is not recomputed."""
    nothing: list[int | None] = [None] * cell.count
    if settled.granularity != "full":
        return nothing
    number = settled.number or 0
    # MindSpeed selects its patches by the arguments as given, before --recompute-in-bubble changes them.
    patched = inputs.method == "block" or inputs.swap
    if patched and inputs.swap:
        return nothing
    if settled.method == "block":
        if not patched:
            return [index if index < number else None for index in range(cell.count)]
        return [index if _by_block(inputs, settled, cell, index, number) else None for index in range(cell.count)]
    return _uniform(cell, number)


def _by_block(inputs: MegatronInputs, settled: Settled, cell: StageChunk, index: int, number: int) -> bool:
    chunks = settled.chunks if inputs.by_rank and settled.chunks is not None else 1
    chunk = cell.chunk if inputs.by_rank and settled.chunks is not None else 0
    if settled.spare_last and index == cell.count - 1:
        last_chunk = settled.chunks is None or cell.chunk == settled.chunks - 1
        if cell.stage == inputs.stages - 1 and last_chunk:  # `mpu.is_pipeline_last_stage()`
            return False
    return index * chunks + chunk < number


def check_ends(inputs: MegatronInputs, settled: Settled, cell: StageChunk) -> None:
    """Stop if groups have no layers: the framework then loops forever before the first layer."""
    uniform = settled.granularity == "full" and settled.method == "uniform" and not inputs.swap
    if uniform and cell.count and (settled.number or 0) <= 0:
        fail("uniform-nothing")


def _uniform(cell: StageChunk, number: int) -> list[int | None]:
    if not cell.count:
        return []
    if cell.count % number:
        fail("uniform-rest")
    return [index // number for index in range(cell.count)]


def check_built(inputs: MegatronInputs, settled: Settled, cell: StageChunk) -> None:
    """Raise the framework's exceptions about norms when it builds the layers of a cell."""
    for index in range(cell.count):
        if inputs.norm and cell.looked_up + index not in settled.noop:
            _should(inputs, settled, cell, cell.number + index, inputs.norm_layers, gated=True)


def operators(
    inputs: MegatronInputs, settled: Settled, cell: StageChunk, number: int, *, experts: bool
) -> tuple[str, ...]:
    """Return the recomputed parts of a layer, by its ``layer_number`` from 0."""
    found = list(_selected(settled, inputs, experts=experts)) if settled.granularity == "selective" else []
    if settled.in_advance or inputs.in_bubble:
        if settled.chunks is None and (inputs.norm or inputs.activation):
            fail("bubble-one-chunk")
        return tuple(found)  # the schedule determines the others for each micro-batch
    should = partial(_should, inputs, settled, cell, number)
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


def _selected(settled: Settled, inputs: MegatronInputs, *, experts: bool) -> list[str]:
    found: list[str] = []
    for module in settled.modules:
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
    inputs: MegatronInputs, settled: Settled, cell: StageChunk, number: int, layers: int | None, *, gated: bool
) -> bool:
    """Return ``should_recompute``: true for layers after the fully recomputed ones, counted over the chunks of a stage.

    With ``gated`` chunks count only with ``--enable-recompute-layers-per-pp-rank``, which MindSpeed's second function
    requires since 2.3.
    """
    of_chunk = settled.layers_of_chunk if settled.chunks is not None else inputs.layers // inputs.stages
    if of_chunk is None:
        fail("chunk-unknown")
    if of_chunk == 0:
        fail("priority-of-nothing")
    virtual = settled.chunks is not None and (inputs.by_rank or not gated)
    priority = (number % of_chunk) * (settled.chunks or 1 if virtual else 1) + (cell.chunk if virtual else 0)
    full = settled.number or 0
    if full and priority < full:
        return False
    return layers is None or priority < full + layers


def find_traps(
    inputs: MegatronInputs,
    settled: Settled,
    cells: Sequence[StageChunk],
    layers: Sequence[LayerSpec],
    renumbered: Sequence[StageChunk],
) -> Iterator[Diagnostic]:
    """Yield every trap in arguments that the frameworks accept.

    Layers of ``renumbered`` cells recompute other parts by ``layer_number`` than their position suggests.
    """
    built = sum(cell.count for cell in cells)
    if built != inputs.layers:
        yield tell_trap("layers-built", Severity.ERROR, built=built, layers=inputs.layers)
    moved = [cell for cell in cells if cell.looked_up != cell.place and _other_kinds(inputs, settled, cell)]
    if moved:
        yield tell_trap("looked-up", cells=_named(moved))
    if renumbered:
        yield tell_trap("numbered", cells=_named(renumbered))
    idle = sum(layer.kind is LayerKind.NOOP for layer in layers)
    if settled.noop and idle < len(settled.noop):
        yield tell_trap("noop-missed", found=idle, asked=len(settled.noop))
    if inputs.experts and not inputs.dense and (inputs.frequency or 1) > 1:
        yield tell_trap("frequency-ignored", frequency=inputs.frequency)
    yield from _of_recompute(inputs, settled, layers)


def _other_kinds(inputs: MegatronInputs, settled: Settled, cell: StageChunk) -> bool:
    return any(
        (number in settled.noop, has_experts(inputs, number)) != (place in settled.noop, has_experts(inputs, place))
        for number, place in ((cell.looked_up + index, cell.place + index) for index in range(cell.count))
    )


def _of_recompute(inputs: MegatronInputs, settled: Settled, layers: Sequence[LayerSpec]) -> Iterator[Diagnostic]:
    full = any(layer.recompute is RecomputeMode.FULL for layer in layers)
    if settled.granularity == "full" and inputs.swap:
        yield tell_trap("swap-instead")
    elif settled.granularity == "full" and not full:
        yield tell_trap("full-nothing")
    if settled.granularity is None and inputs.method and not inputs.swap:
        yield tell_trap("method-alone")
    if inputs.modules and settled.granularity != "selective":
        yield tell_trap("modules-ignored")
    for on, number, name in (
        (inputs.activation, inputs.activation_layers, "recompute-activation-function"),
        (inputs.norm, inputs.norm_layers, "recompute-norm"),
    ):
        if number is not None and not on:
            yield tell_trap("number-alone", name=name)
    if inputs.in_bubble or settled.in_advance:
        yield tell_trap("at-run-time")
    if inputs.other("moe_zero_memory") not in (None, "disable"):
        yield tell_trap("zero-memory", Severity.INFO, level=inputs.other("moe_zero_memory"))
    if settled.method == "block" and settled.number and inputs.by_rank and settled.chunks is None:
        yield tell_trap("by-rank-ignored", Severity.INFO)


def _named(cells: Sequence[StageChunk]) -> str:
    shown = [f"stage {cell.stage}, chunk {cell.chunk}" for cell in cells[:3]]
    return "; ".join(shown) + ("; …" if len(cells) > len(shown) else "")
