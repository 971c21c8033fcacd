"""ms-tune: is a MindSpore large-model training config right, and does it fit, before any NPU is used.

As a library: ``from ms_tune import RecomputeInputs, RecomputeValues, normalize``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ms_tune.layers import RecomputeInputs, RecomputePlan, RecomputeValues, normalize

__version__ = "0.1.0"

__all__ = ["RecomputeInputs", "RecomputePlan", "RecomputeValues", "__version__", "normalize"]


def __getattr__(name: str) -> object:
    """Import the library's names on first use: the command line starts without them."""
    if name in __all__:
        from ms_tune import layers  # noqa: PLC0415 - see above

        value: object = getattr(layers, name)
        return value
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
