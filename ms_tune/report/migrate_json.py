"""A migration as JSON."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from ms_tune.workflows.migrate.result import Fate

if TYPE_CHECKING:
    from ms_tune.report.console import Console
    from ms_tune.workflows.migrate.memory import BothSides, DifferenceReason
    from ms_tune.workflows.migrate.result import Migration

_VERSION = 1


def migration_json(found: Migration, sides: BothSides | None, console: Console) -> dict[str, Any]:
    """Its keys are documented in ``docs/migrate.md``."""
    return {
        "version": _VERSION,
        "file": str(found.path),
        "dialect": found.dialect.value,
        "framework_version": found.release,
        "target_version": found.target,
        "refused": found.refused,
        "missing": [console.say(one) for one in found.missing],
        "counts": {fate.value: found.count(fate) for fate in Fate},
        "keys": [
            {
                "key": one.name,
                "line": one.line,
                "value": _plain(one.value),
                "fate": one.fate.value,
                "to": ".".join(one.to) or None,
                "new_value": _plain(one.new),
                "why": None if one.why is None else console.say(one.why),
                "blocks": one.blocks,
            }
            for one in found.entries
        ],
        "added": [{"to": ".".join(one.to), "value": one.value, "why": console.say(one.why)} for one in found.added],
        "proof": [{"part": one.name, "holds": one.holds, "detail": console.say(one.detail)} for one in found.proof],
        "proved": found.proved,
        "memory": None if sides is None else _memory(sides, console),
        "text": found.text,
    }


def _memory(sides: BothSides, console: Console) -> dict[str, Any]:
    return {
        "stages": [
            {
                "stage": one.stage,
                "old_peak_bytes": one.old_peak,
                "new_peak_bytes": one.new_peak,
                "old_categories_at_peak": dict(one.old),
                "new_categories_at_peak": dict(one.new),
                "weights_and_optimizer_by_theory": None if one.same is None else list(one.same),
                "explained": None if one.explained is None else _explained(one.explained),
            }
            for one in sides.stages
        ],
        "limits": [console.say(one) for one in sides.limits],
        "unproved": [console.say(one) for one in sides.unproved],
    }


def _explained(found: DifferenceReason) -> dict[str, Any]:
    return {
        "layers": found.layers,
        "old_peak_bytes": found.peaks[0],
        "new_peak_bytes": found.peaks[1],
        "old_phase": found.phases[0],
        "new_phase": found.phases[1],
        "bytes_of_each_further_layer": None if found.each_layer is None else list(found.each_layer),
        "differences": [
            {
                "kind": one.kind.value,
                "side": "new" if one.in_new else "old",
                "operator": one.operator,
                "where": one.location,
                "bytes": one.bytes,
                "count": one.count,
            }
            for one in found.more
        ],
    }


def _plain(value: object) -> object:
    """A value of YAML as JSON has it: dates, bytes, sets and numbers without an end are words."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_plain, value))
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and isfinite(value)):
        return value
    return str(value)
