"""The sub-commands of ``ms-tune memory`` that replay, plan and import; each module is a command like any other."""

from __future__ import annotations

# Sub-command, and the module of this package that holds it.
SUBCOMMANDS = {"what-if": "memory_what_if", "plan": "memory_plan", "import-memlog": "memory_import"}

# The text with the one-line help of each.
SUMMARIES = {
    "what-if": "allocator.what-if.summary",
    "plan": "placement.plan.summary",
    "import-memlog": "memlog.summary",
}
