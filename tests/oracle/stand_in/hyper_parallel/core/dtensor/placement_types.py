"""How tensors are distributed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """What becomes of a tensor along one side of the mesh."""

    def is_shard(self) -> bool:
        """Whether it is cut."""
        return False


@dataclass(frozen=True)
class Replicate(Placement):
    """Every device has all of it."""


@dataclass(frozen=True)
class Partial(Placement):
    """Every device has a summand of it."""


@dataclass(frozen=True)
class Shard(Placement):
    """Every device has a part along a dimension."""

    dim: int

    def is_shard(self) -> bool:
        """Whether it is cut."""
        return True
