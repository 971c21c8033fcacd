"""Sub-commands of ``ms-tune memory`` that live in rooms of their own: name, and module of this package."""

from __future__ import annotations

SUBCOMMANDS: dict[str, str] = {}
