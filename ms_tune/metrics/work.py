"""The floating-point operations of a training step, by the conventions in use, and what recomputing adds to them.

A backward pass is two forward passes. Three conventions, of which one is chosen and the others are shown beside it:

* ``full``: attention scores count in full, as the papers of Megatron-LM count (Narayanan et al., 2021, appendix; Korthikanti et al.,
  2022, section 6.3) and ``num_floating_point_operations`` of Megatron-LM and MindFormers do;
* ``causal``: half of the scores, which is what causal attention needs;
* ``6n``: six operations for each weight that a token meets, and none for scores (Kaplan et al., 2020; PaLM's MFU without attention).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.estimate.flops import Widths, head_flops, layer_flops, prediction_flops, score_flops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dialects.layer_plan import LayerSpec

_FORWARD_AND_BACKWARD = 3
# Patterns of operators that stand for attention's core: of MindFormers' and MindSpeed's networks, and Megatron's module.
_CORE = ("core_attn", "core_attention", "flash_attention", "dotproductattention", "flashattention")


class Convention(str, Enum):
    """How operations are counted."""

    FULL = "full"
    CAUSAL = "causal"
    SIX_N = "6n"


@dataclass(frozen=True, slots=True)
class LayerWork:
    """What a layer does."""

    experts: bool  # whether it has experts
    prediction: bool = False  # whether it predicts further tokens
    recompute: RecomputeMode = RecomputeMode.NONE  # what of it is recomputed
    core: bool = False  # whether attention's core is among the operators that are


@dataclass(frozen=True, slots=True)
class Work:
    """Operations of one token in a step."""

    model: dict[Convention, int]  # of the forward and the backward pass, by convention
    # The same with what is recomputed; what operators beside attention's core cost again is left out, which is next to
    # nothing of the operations.
    hardware: dict[Convention, int]


def layers_of(plans: Sequence[LayerSpec], dense: int, *, experts: bool) -> tuple[LayerWork, ...]:
    """The layers of a plan; ``dense`` is how many without experts come first, where the plan does not tell."""
    found = []
    for plan in plans:
        if plan.kind is LayerKind.NOOP:
            continue
        has = experts and (plan.kind is LayerKind.EXPERTS or (plan.kind is not LayerKind.DENSE and plan.layer >= dense))
        core = any(name in pattern.lower() for pattern in plan.select_patterns for name in _CORE)
        found.append(LayerWork(has, plan.kind is LayerKind.PREDICTION, plan.recompute, core))
    return tuple(found)


def work_of(widths: Widths, layers: Sequence[LayerWork]) -> Work:
    """The operations of one token in a training step."""
    model: dict[Convention, int] = {}
    hardware: dict[Convention, int] = {}
    for convention in Convention:
        forward = again = 0
        for layer in layers:
            scores = _counted_score_flops(widths, convention)
            one = layer_flops(widths, experts=layer.experts) - score_flops(widths) + scores
            forward += one + (prediction_flops(widths) if layer.prediction else 0)
            if layer.recompute is RecomputeMode.FULL:
                again += one
            elif layer.core:
                again += scores
        forward += head_flops(widths)
        model[convention] = _FORWARD_AND_BACKWARD * forward
        hardware[convention] = model[convention] + again
    return Work(model, hardware)


def _counted_score_flops(widths: Widths, convention: Convention) -> int:
    whole = score_flops(widths)
    return {Convention.FULL: whole, Convention.CAUSAL: whole // 2, Convention.SIX_N: 0}[convention]
