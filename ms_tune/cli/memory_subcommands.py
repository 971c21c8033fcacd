"""The sub-commands of ``ms-tune memory`` that live in rooms of their own; each module is a command like any other."""

from __future__ import annotations

# Sub-command, and the module of this package that holds it.
SUBCOMMANDS: dict[str, str] = {}

# The text with the one-line help of each.
SUMMARIES: dict[str, str] = {}
