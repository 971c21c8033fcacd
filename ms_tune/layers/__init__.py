"""Pure arithmetic of layers: where each is placed, what it recomputes and what it swaps. No files, no processes, no printing.

For programs there is one call, :func:`normalize`, which turns :class:`RecomputeInputs` into a :class:`RecomputePlan`. The names
are looked up when they are used: the dialects' parts, which all begin by importing this package, stay apart.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ms_tune.layers.mindformers.inputs import KEYS, RecomputeInputs, RecomputeValues, SwapValues
    from ms_tune.layers.mindformers.plan import normalize
    from ms_tune.layers.result import (
        ENDLESS_LOOP,
        Effect,
        Failure,
        Formative,
        LayerPlan,
        Placement,
        Problem,
        RecomputePlan,
        Severity,
        SwapPlan,
    )

__all__ = [
    "ENDLESS_LOOP",
    "KEYS",
    "Effect",
    "Failure",
    "Formative",
    "LayerPlan",
    "Placement",
    "Problem",
    "RecomputeInputs",
    "RecomputePlan",
    "RecomputeValues",
    "Severity",
    "SwapPlan",
    "SwapValues",
    "normalize",
]
_INPUTS = ("KEYS", "RecomputeInputs", "RecomputeValues", "SwapValues")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(name)
    module = "mindformers.inputs" if name in _INPUTS else "mindformers.plan" if name == "normalize" else "result"
    return getattr(import_module(f"ms_tune.layers.{module}"), name)
