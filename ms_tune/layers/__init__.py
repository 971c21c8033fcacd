"""Pure arithmetic of layers: where each one is placed, what it recomputes and what it swaps. No files, no processes, no printing.

The one call is :func:`normalize`, which turns :class:`RecomputeInputs` into a :class:`RecomputePlan`.
"""

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
