"""Where weights are while nobody needs them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OffloadPolicy:
    """On the device."""


@dataclass(frozen=True)
class CPUOffloadPolicy(OffloadPolicy):
    """On the host."""
