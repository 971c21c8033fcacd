"""What each framework makes of a job: how its config is read, where layers lie, what they recompute and swap, what it refuses and ignores."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def dialect_module(dialect: str, part: str) -> Any:  # noqa: ANN401 - what a part has is for the caller to know
    """Import one part (``read``, ``write`` ...) of one dialect: a run needs one dialect, not all."""
    return import_module(f"ms_tune.dialects.{dialect.replace('-', '_')}.{part}")
