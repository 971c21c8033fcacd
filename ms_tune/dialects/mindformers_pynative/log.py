"""What the dynamic graph of MindFormers 2.0 and 2.1 logs while it sets the layers, part of the model by part.

Every rank logs about its own layers only; here the parts follow each other as they are numbered: chunk 0 over all stages,
then chunk 1. The texts are those of ``apply_recompute`` and ``apply_swap`` in
``mindformers/pynative/distributed/activation_checkpoint.py``. Left out are warnings, because a rank warns about every pattern that
is not for one of its layers, and what is said of communication layer by layer, which depends on how the model is split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ms_tune.dialects.mindformers_pynative.inputs import PynativeInputs, PynativeOutcome

_RULER = "-" * 69


def log_lines(inputs: PynativeInputs, outcome: PynativeOutcome) -> list[str]:
    """The lines; without the modules of the layers only those about whole layers."""
    return [line for layers in _parts(inputs, outcome) for line in _part(inputs, outcome, layers)]


def _parts(inputs: PynativeInputs, outcome: PynativeOutcome) -> Iterator[Sequence[int]]:
    """The layers of each part, those of prediction behind the last one."""
    for row in outcome.ranges or ():
        for cell in row:
            first, last = cell
            final = cell == (outcome.ranges or ())[-1][-1] and last == inputs.layers - 1
            yield range(first, last + 1 + (inputs.mtp_layers if final else 0))


def _part(inputs: PynativeInputs, outcome: PynativeOutcome, layers: Sequence[int]) -> Iterator[str]:
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
