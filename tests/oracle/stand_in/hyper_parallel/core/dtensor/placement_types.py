"""Define the distribution of tensors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """The distribution of a tensor along one axis of the mesh."""

    def is_shard(self) -> bool:
        """Return whether the tensor is split."""
        return False


@dataclass(frozen=True)
class Replicate(Placement):
    """Every device has the whole tensor."""


@dataclass(frozen=True)
class Partial(Placement):
    """Every device has a summand of the tensor."""


@dataclass(frozen=True)
class Shard(Placement):
    """Every device has a part along a dimension."""

    dim: int

    def is_shard(self) -> bool:
        """Return whether the tensor is split."""
        return True
