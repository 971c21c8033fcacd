"""Pure arithmetic of layers: where each one is placed and what it recomputes. No files, no processes, no printing.

The one call is :func:`normalize`, which turns :class:`RecomputeInputs` into a :class:`RecomputePlan`.
"""

from ms_tune.layers.inputs import KEYS, RecomputeInputs, RecomputeValues
from ms_tune.layers.plan import normalize
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
    "normalize",
]
