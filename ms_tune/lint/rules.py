"""What there is to know about each check, for people: one form for checklists' checks and the linter's own rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in, built_in_code, combined, read_checklist
from ms_tune.lint.kinds import LANGUAGES
from ms_tune.lint.own import OWN_RULES
from ms_tune.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ms_tune.diagnostics import Category, Consequence, Family, Severity
    from ms_tune.lint.checklist import Check, Evidence
    from ms_tune.lint.own import OwnRule

_BRACES = re.compile(r"\{\{|\}\}|\{(\w+)\}")
# YAML puts a blank where a folded text goes on, which Chinese does not have.
_WIDE = "\u2e80-\u9fff\uff00-\uffef\u201c\u201d"
_FOLDED = re.compile(f"(?<=[{_WIDE}]) (?=[{_WIDE}])|(?<=[，。；：、！？）]) ")


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """One check as it is explained."""

    id: str  # `MST101`
    name: str  # `duplicate-key`
    severity: Severity  # how bad a finding is
    category: Category  # what kind of trouble it is about
    consequences: tuple[Consequence, ...]  # what happens in the run, each once; which of several depends on the finding
    title: Text  # the name as a sentence
    why: Text  # what happens if a finding is left as it is
    help: Text  # how to fix it; what depends on the finding stands in angle brackets
    dialects: tuple[Dialect, ...]  # the dialects it is about
    versions: str | None  # the framework versions it is about; None for all
    profiles: tuple[str, ...]  # the profiles in which it is made; empty for all
    opposite: str | None  # the name of the check that says the opposite in other profiles, if there is one
    family: Family | None  # the family that it is of, if it is of one
    fix: str  # `safe`, `unsafe` or `none`
    evidence: tuple[Evidence, ...]  # where the claim can be read
    bad: str  # an example that violates it; empty if there is none
    good: str  # the same example, fixed
    language: str = "yaml"  # what the examples are written in: `yaml`, `sh` or `python`


def all_rules(checklists: Iterable[Path] = ()) -> tuple[RuleEntry, ...]:
    """Every rule by its id, those of users' own checklists included.

    Raises:
        ConfigError: A file is not a checklist.
    """
    own = tuple(map(read_checklist, checklists))
    code = {check.id: (check, LANGUAGES[kind]) for kind, checks in built_in_code().items() for check in checks}
    checks = combined((*built_in(), *(check for check, _ in code.values())), own)
    rules = [*map(_own, OWN_RULES)]
    opposites = _opposites(checks)
    rules += [
        _rule(check, code[check.id][1] if check.id in code else _language(check), opposites.get(check.id))
        for check in checks
    ]
    return tuple(sorted(rules, key=lambda rule: (not rule.id.startswith("MST"), rule.id)))


def readable(text: Text) -> Text:
    """A text with its parameters in angle brackets: ``write <number>``."""
    return Text(*(_BRACES.sub(lambda match: f"<{match[1]}>" if match[1] else match[0][0], words) for words in text))


def _opposites(checks: Iterable[Check]) -> dict[str, str]:
    """The names of the checks that say the opposite of each other, both ways, by the id."""
    names = {check.id: check.name for check in checks}
    pairs = [(check.id, check.opposite) for check in checks if check.opposite in names]
    return {one: names[other] for pair in pairs for one, other in (pair, pair[::-1])}


def unfolded(text: Text) -> Text:
    """A text without the blanks that folding its Chinese lines has left."""
    return Text(text.en, _FOLDED.sub("", text.zh))


def _language(check: Check) -> str:
    return "sh" if check.dialects == {Dialect.MEGATRON} else "yaml"


def _rule(check: Check, language: str, opposite: str | None) -> RuleEntry:
    kinds = {fix.safe for fix in check.fixes}
    return RuleEntry(
        id=check.id,
        name=check.name,
        severity=check.severity,
        category=check.category,
        consequences=tuple(dict.fromkeys(check.consequences.values())),
        title=unfolded(check.title),
        why=unfolded(check.why),
        help=unfolded(readable(check.help)),
        dialects=tuple(dialect for dialect in Dialect if dialect in check.dialects),
        versions=check.versions,
        profiles=tuple(sorted(check.profiles)),
        opposite=opposite,
        family=check.family,
        fix="safe" if True in kinds else "unsafe" if kinds else "none",
        evidence=check.evidence,
        bad=check.bad,
        good=check.good,
        language=language,
    )


def _own(rule: OwnRule) -> RuleEntry:
    return RuleEntry(
        id=rule.id,
        name=rule.name,
        severity=rule.severity,
        category=rule.category,
        consequences=(),
        title=rule.text("title"),
        why=rule.text("why"),
        help=readable(rule.text("help")),
        dialects=tuple(Dialect),
        versions=None,
        profiles=(),
        opposite=None,
        family=None,
        fix="safe" if rule.name == "unused-ignore" else "none",
        evidence=(),
        bad=rule.bad,
        good=rule.good,
    )
