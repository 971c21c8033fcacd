"""Which checks are made, and how bad their findings are: what a command line or a settings file says about it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ms_tune.diagnostics import Category, Family, Severity
from ms_tune.errors import UsageError, closest_check
from ms_tune.lint.own import OWN_RULES
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import PurePath

PROFILES = ("performance", "debug-memory", "reproducible")
ALL = "all"

_PREFIX = re.compile(r"[A-Z]{2,8}\d*")


class SelectableRule(Protocol):
    """What can be selected: a check of a checklist, or a rule of the linter's own."""

    @property
    def id(self) -> str:
        """``MST101``."""

    @property
    def name(self) -> str:
        """``duplicate-key``."""

    @property
    def severity(self) -> Severity:
        """How bad it is, if nobody says otherwise."""

    @property
    def category(self) -> Category:
        """What kind of trouble it is about."""

    @property
    def family(self) -> Family | None:
        """The family that it is of, if it is of one."""


class Selection(NamedTuple):
    """Which checks are made. A selector is an id, the beginning of ids (``MST4``), a name, a category or ``all``.

    The id and the name of a family mean all its checks.

    Args:
        select: Only these; None for all.
        ignore: Not these.
        severities: Other severities than the checks' own, by selector; the last that fits counts.
        profile: What the configs are for.
    """

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    severities: tuple[tuple[str, Severity], ...] = ()
    profile: str | None = None

    def takes(self, rule: SelectableRule) -> bool:
        """Whether the check is made."""
        chosen = self.select is None or any(fits(selector, rule) for selector in self.select)
        return chosen and not any(fits(selector, rule) for selector in self.ignore)

    def severity(self, rule: SelectableRule) -> Severity:
        """How bad a finding of the check is."""
        fitting = [severity for selector, severity in self.severities if fits(selector, rule)]
        return fitting[-1] if fitting else rule.severity

    def and_then(self, other: Selection) -> Selection:
        """What the two say together. Where the later one names what to select, the earlier one's choice is gone."""
        return Selection(
            select=self.select if other.select is None else other.select,
            ignore=other.ignore if other.select is not None else self.ignore + other.ignore,
            severities=self.severities + other.severities,
            profile=other.profile or self.profile,
        )

    def names(self) -> Iterator[str]:
        """Every selector."""
        yield from self.select or ()
        yield from self.ignore
        yield from (selector for selector, _ in self.severities)


class PathRule(NamedTuple):
    """A selection for some files: glob patterns relative to the settings file."""

    paths: tuple[str, ...]
    selection: Selection


class Selections(NamedTuple):
    """A selection for every file, and more for some."""

    base: Selection = Selection()
    by_path: tuple[PathRule, ...] = ()
    final: Selection = Selection()  # the command line's

    def for_path(self, relative: PurePath) -> Selection:
        """What holds for a file, by its path relative to the settings file."""
        selection = self.base
        for rule in self.by_path:
            if any(path_matches(relative, pattern) for pattern in rule.paths):
                selection = selection.and_then(rule.selection)
        return selection.and_then(self.final)

    def names(self) -> Iterator[str]:
        """Every selector anywhere."""
        for selection in (self.base, *(rule.selection for rule in self.by_path), self.final):
            yield from selection.names()


def fits(selector: str, rule: SelectableRule) -> bool:
    """Whether a selector means a check."""
    if selector in (ALL, rule.id, rule.name, rule.category.value):
        return True
    if rule.family is not None and selector == rule.family.name:
        return True
    return bool(_PREFIX.fullmatch(selector)) and rule.id.startswith(selector)


def path_matches(path: PurePath, pattern: str) -> bool:
    """Whether a path (with ``/``) fits a glob: ``*`` stays in one folder, ``**`` does not, a bare name fits anywhere."""
    if "/" not in pattern.rstrip("/"):
        pattern = f"**/{pattern}"
    return bool(_translated(pattern.rstrip("/")).fullmatch(path.as_posix()))


def _translated(pattern: str) -> re.Pattern[str]:
    words = ""
    for part in re.split(r"(\*\*/|\*\*|\*|\?)", pattern):
        words += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part) or re.escape(part)
    return re.compile(f"{words}(?:/.*)?")


def known_names(checks: Iterable[SelectableRule]) -> Mapping[str, frozenset[str]]:
    """The ids that a name means: every check's id and name, and a family's; the linter's own rules, too."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for rule in (*OWN_RULES, *checks):
        for name in (rule.id, rule.name, *((rule.family.id, rule.family.name) if rule.family else ())):
            names[name].add(rule.id)
    return {name: frozenset(ids) for name, ids in names.items()}


def check_selectors(selectors: Iterable[str], rules: Sequence[SelectableRule], origin: str) -> None:
    """Refuse selectors that mean nothing: a misspelt one would silently do nothing.

    Raises:
        UsageError: There is one.
    """
    everything: tuple[SelectableRule, ...] = (*OWN_RULES, *rules)
    categories = {category.value for category in Category}
    for selector in selectors:
        if selector in categories or any(fits(selector, rule) for rule in everything):
            continue
        known = [*known_names(rules), *sorted(categories)]
        similar = closest_check(selector, known)
        hint = msg("rule.unknown.similar", similar=similar) if similar else msg("rule.unknown.hint")
        raise UsageError(msg("lint.unknown-check", name=selector, origin=origin), hint)
