"""What the frameworks take without a word although its author hardly meant it; the sources are those of the rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.megatron.placement import has_experts
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.dialects import LayerSpec
    from ms_tune.dialects.megatron.inputs import MegatronInputs, Settled
    from ms_tune.dialects.megatron.placement import StageChunk


def find_traps(
    inputs: MegatronInputs,
    settled: Settled,
    cells: Sequence[StageChunk],
    layers: Sequence[LayerSpec],
    renumbered: Sequence[StageChunk],
) -> Iterator[Diagnostic]:
    """Every trap of a program that the frameworks take.

    Args:
        inputs: The arguments.
        settled: What has been made of them.
        cells: Where the layers lie.
        layers: What they do.
        renumbered: The cells whose layers would recompute other parts by their place than by their ``layer_number``.
    """
    built = sum(cell.count for cell in cells)
    if built != inputs.layers:
        yield _problem("layers-built", Severity.ERROR, built=built, layers=inputs.layers)
    moved = [cell for cell in cells if cell.looked_up != cell.place and _other_kinds(inputs, settled, cell)]
    if moved:
        yield _problem("looked-up", Severity.WARNING, cells=_named(moved))
    if renumbered:
        yield _problem("numbered", Severity.WARNING, cells=_named(renumbered))
    idle = sum(layer.kind is LayerKind.NOOP for layer in layers)
    if settled.noop and idle < len(settled.noop):
        yield _problem("noop-missed", Severity.WARNING, found=idle, asked=len(settled.noop))
    if inputs.experts and not inputs.dense and (inputs.frequency or 1) > 1:
        yield _problem("frequency-ignored", Severity.WARNING, frequency=inputs.frequency)
    yield from _of_recompute(inputs, settled, layers)


def _other_kinds(inputs: MegatronInputs, settled: Settled, cell: StageChunk) -> bool:
    """Whether a layer of a cell would do nothing, or have experts, by its place and not by the number that it is looked up by."""
    return any(
        (number in settled.noop, has_experts(inputs, number)) != (place in settled.noop, has_experts(inputs, place))
        for number, place in ((cell.looked_up + index, cell.place + index) for index in range(cell.count))
    )


def _of_recompute(inputs: MegatronInputs, settled: Settled, layers: Sequence[LayerSpec]) -> Iterator[Diagnostic]:
    full = any(layer.recompute is RecomputeMode.FULL for layer in layers)
    if settled.granularity == "full" and inputs.swap:
        yield _problem("swap-instead", Severity.WARNING)
    elif settled.granularity == "full" and not full:
        yield _problem("full-nothing", Severity.WARNING)
    if settled.granularity is None and inputs.method and not inputs.swap:
        yield _problem("method-alone", Severity.WARNING)
    if inputs.modules and settled.granularity != "selective":
        yield _problem("modules-ignored", Severity.WARNING)
    for on, number, name in (
        (inputs.activation, inputs.activation_layers, "recompute-activation-function"),
        (inputs.norm, inputs.norm_layers, "recompute-norm"),
    ):
        if number is not None and not on:
            yield _problem("number-alone", Severity.WARNING, name=name)
    if inputs.in_bubble or settled.in_advance:
        yield _problem("at-run-time", Severity.WARNING)
    if inputs.other("moe_zero_memory") not in (None, "disable"):
        yield _problem("zero-memory", Severity.INFO, level=inputs.other("moe_zero_memory"))
    if settled.method == "block" and settled.number and inputs.by_rank and settled.chunks is None:
        yield _problem("by-rank-ignored", Severity.INFO)


def _named(cells: Sequence[StageChunk]) -> str:
    shown = [f"stage {cell.stage}, chunk {cell.chunk}" for cell in cells[:3]]
    return "; ".join(shown) + ("; …" if len(cells) > len(shown) else "")


def _problem(trap: str, severity: Severity, /, **params: object) -> Diagnostic:
    return Diagnostic(trap, severity, msg(f"megatron_layers.trap.{trap}", **params))
