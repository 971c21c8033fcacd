"""What MindSpeed-Core-MS r0.1.0 accepts without a word although its author hardly meant it.

The sources are those of :mod:`ms_tune.dialects.mindspeed_ms.plan`, and ``mindspeed_ms/core/tensor_parallel/layers.py`` for
communication recompute and ``mindspeed_ms/legacy/model/activation.py`` for activations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.values import leaves
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ms_tune.dialects.mindspeed_ms.placement import CellPlan, MindSpeedInputs

# Activations that are cells: only a cell can be told to recompute.
_ACTIVATION_CELLS = frozenset({"gelu", "fast_gelu"})


def find_traps(inputs: MindSpeedInputs, plans: Mapping[tuple[int, int], CellPlan] | None) -> Iterator[Diagnostic]:
    """Every trap that can be told with what is known; ``plans`` is None when the framework stops."""
    if inputs.stages == 1 and inputs.num_layer_list:
        yield _warning("num-layer-list-ignored")
    yield from _model_traps(inputs)
    for kind, value in (inputs.recompute_config or {}).items():
        if any(isinstance(item, bool) for item in leaves(value or [])):
            yield _warning("bool-counts", key=kind, value=value)
    if plans is not None:
        yield from _effect_traps(inputs, plans)


def _model_traps(inputs: MindSpeedInputs) -> Iterator[Diagnostic]:
    """The settings of ``model_config``, beside the lists of ``parallel_config`` or alone."""
    full = inputs.granularity == "full"
    if inputs.recompute_config is not None:
        if inputs.granularity == "selective":
            yield _warning("selective-stays")
            if inputs.rows > 1:
                yield _warning("selective-forgotten")
        if full or inputs.method or inputs.num_layers:
            yield _warning("model-recompute-ignored")
        flags = (("select_recompute", inputs.select), ("select_comm_recompute", inputs.comm))
        for key, on in flags:
            if on:
                yield _warning("flag-beside-lists", key=key)
    elif full and not (inputs.method and inputs.num_layers):
        yield _warning("full-incomplete")
    elif not full and (inputs.method or inputs.num_layers):
        yield _warning("method-without-full")


def _effect_traps(inputs: MindSpeedInputs, plans: Mapping[tuple[int, int], CellPlan]) -> Iterator[Diagnostic]:
    """What is switched on and does nothing."""
    function = inputs.flash_attention and inputs.activation not in _ACTIVATION_CELLS
    if function and any(cell.select for cell in plans.values()):
        yield _warning("select-no-effect", activation=inputs.activation)
    if any(cell.comm for cell in plans.values()):
        if inputs.tensor == 1:
            yield _warning("comm-one-tensor-rank")
        elif not inputs.sequence_parallel:
            yield _warning("comm-no-sequence-parallel")


def _warning(trap: str, /, **params: object) -> Diagnostic:
    return Diagnostic(trap, Severity.WARNING, msg(f"plans.{trap}", **params))
