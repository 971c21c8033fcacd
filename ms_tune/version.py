"""The version of ms-tune: a module of its own, because the package's face imports what needs it."""

from __future__ import annotations

__version__ = "0.2.0"
