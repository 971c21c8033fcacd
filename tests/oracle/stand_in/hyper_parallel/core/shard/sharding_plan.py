"""Which weights are cut, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hyper_parallel.core.dtensor.placement_types import Placement


@dataclass(frozen=True)
class ShardingPlan:
    """What becomes of the weights of a cell, by name."""

    plan: Mapping[str, Sequence[Placement]]
