"""Define which weights are split, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hyper_parallel.core.dtensor.placement_types import Placement


@dataclass(frozen=True)
class ShardingPlan:
    """The distribution of a cell's weights, by name."""

    plan: Mapping[str, Sequence[Placement]]
