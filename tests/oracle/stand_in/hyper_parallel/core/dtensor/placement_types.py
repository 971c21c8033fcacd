"""How tensors would be distributed: MindFormers writes tables of it when its modules are imported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """What becomes of a tensor along one side of the mesh."""


@dataclass(frozen=True)
class Replicate(Placement):
    """Every device has all of it."""


@dataclass(frozen=True)
class Shard(Placement):
    """Every device has a part along a dimension."""

    dim: int
