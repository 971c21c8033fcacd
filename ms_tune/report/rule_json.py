"""A check as JSON, every text in both languages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.lint.rules import RuleEntry

VERSION = 1


def rules_json(rules: Iterable[RuleEntry]) -> dict[str, object]:
    """The checks as plain values."""
    return {"version": VERSION, "rules": [_rule(rule) for rule in rules]}


def _rule(rule: RuleEntry) -> dict[str, object]:
    return {
        "id": rule.id,
        "name": rule.name,
        "severity": rule.severity.value,
        "category": rule.category.value,
        "consequences": [{"id": one.value, **one.text._asdict()} for one in rule.consequences],
        "dialects": [dialect.value for dialect in rule.dialects],
        "versions": rule.versions,
        "profiles": list(rule.profiles),
        "opposite": rule.opposite,
        "family": rule.family and {"id": rule.family.id, "name": rule.family.name},
        "title": rule.title._asdict(),
        "why": rule.why._asdict(),
        "help": rule.help._asdict(),
        "fix": rule.fix,
        "bad": rule.bad,
        "good": rule.good,
        "evidence": [
            {"framework": item.framework, "version": item.version, "file": item.file, "symbol": item.symbol or None}
            for item in rule.evidence
        ],
    }
