"""A migration as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ms_tune.migrate.result import Fate

if TYPE_CHECKING:
    from ms_tune.migrate.result import Entry, Migration
    from ms_tune.render.console import Console

_VERSION = 1


def migration_json(found: Migration, console: Console) -> dict[str, Any]:
    """Its keys are documented in ``docs/migrate.md``."""
    return {
        "version": _VERSION,
        "file": str(found.path),
        "dialect": found.dialect.value,
        "framework_version": found.release,
        "target_version": found.target,
        "refused": found.refused,
        "counts": {fate.value: found.count(fate) for fate in Fate},
        "keys": [_entry(one, console) for one in found.entries],
        "added": [{"to": ".".join(one.to), "value": one.value, "why": console.say(one.why)} for one in found.added],
        "proof": [{"part": one.name, "holds": one.holds, "detail": console.say(one.detail)} for one in found.proof],
        "proved": found.proved,
        "text": found.text,
    }


def _entry(one: Entry, console: Console) -> dict[str, Any]:
    return {
        "key": one.name,
        "line": one.line,
        "value": one.value,
        "fate": one.fate.value,
        "to": ".".join(one.to) or None,
        "new_value": one.new,
        "why": None if one.why is None else console.say(one.why),
        "blocks": one.blocks,
    }
