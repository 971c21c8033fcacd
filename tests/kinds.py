"""Name kinds of layers as in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ms_tune.dialects.stage import StageLayerKind


def labels(kinds: Mapping[StageLayerKind, int]) -> dict[str, int]:
    """Count layers by the name of their kind."""
    return {kind.label: count for kind, count in kinds.items()}
