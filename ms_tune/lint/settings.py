"""Select checks and their severities, from a project's settings file or the command line."""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path, PurePath

from ms_tune.diagnostics import Category, Diagnostic, Severity
from ms_tune.enums import CHECKED_DIALECTS, Dialect
from ms_tune.errors import ConfigError, UnsupportedError, UsageError, closest, closest_check, reason_of
from ms_tune.facts.query import release_of
from ms_tune.records import Any, NoReturn, Record
from ms_tune.source.files import read_bytes
from ms_tune.source.yaml import MAX_BYTES, decode
from ms_tune.text import Text, lookup, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias, TypeVar

    from ms_tune.lint.checklist import Check

    # Anything with an id, a name, a severity, a category and a family.
    SelectableRule: TypeAlias = Check | Diagnostic | "BuiltinRule"
    Rule = TypeVar("Rule", Check, Diagnostic)

PROFILES = ("performance", "debug-memory", "reproducible")
ALL = "all"

_PREFIX = r"[A-Z]{2,8}\d*"
_WILDCARDS = re.compile(r"(\*\*/|\*\*|\*|\?)")


class Selection(Record):
    """A selection of checks. A selector is an id, a prefix of ids (``MST4``), a name, a category or ``all``.

    The id and the name of a family select all its checks.

    Args:
        select: Run only these; None for all.
        ignore: Do not run these.
        severities: Severities that override the checks' own, by selector; the last match counts.
        profile: The purpose of the configs.
    """

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    severities: tuple[tuple[str, Severity], ...] = ()
    profile: str | None = None

    def choose(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """Return those checks or findings that are selected."""
        if self.select is None and not self.ignore:
            return tuple(rules)
        return tuple(rule for rule in rules if self.selects(rule))

    def selects(self, rule: SelectableRule) -> bool:
        """Return whether the check is selected."""
        chosen = self.select is None or any(fits(selector, rule) for selector in self.select)
        return chosen and not any(fits(selector, rule) for selector in self.ignore)

    def severity(self, rule: SelectableRule) -> Severity:
        """Return the severity of a finding of the check."""
        fitting = [severity for selector, severity in self.severities if fits(selector, rule)]
        return fitting[-1] if fitting else rule.severity

    def and_then(self, other: Selection) -> Selection:
        """Combine two selections; a ``select`` of the later one replaces ``select`` and ``ignore`` of the earlier one."""
        return Selection(
            select=self.select if other.select is None else other.select,
            ignore=other.ignore if other.select is not None else self.ignore + other.ignore,
            severities=self.severities + other.severities,
            profile=other.profile or self.profile,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Return every selector."""
        return (*(self.select or ()), *self.ignore, *dict(self.severities))


def fits(selector: str, rule: SelectableRule) -> bool:
    """Return whether a selector matches a check."""
    if selector in (ALL, rule.id, rule.name, rule.category.value):
        return True
    if rule.family is not None and selector == rule.family.name:
        return True
    return bool(re.fullmatch(_PREFIX, selector)) and rule.id.startswith(selector)


def path_matches(path: PurePath, pattern: str) -> bool:
    """Return whether a path (with ``/``) matches a glob: only ``**`` crosses folders, and a bare name matches anywhere."""
    if "/" not in pattern.rstrip("/"):
        pattern = f"**/{pattern}"
    text = path.as_posix()
    ends = {0}  # of the beginnings of the path that match; a regular expression would try all combinations of stars
    for part in _WILDCARDS.split(pattern.rstrip("/")):
        ends = _extend(text, ends, part) if part and ends else ends
    return any(text[end : end + 1] in ("", "/") for end in ends)


def _extend(text: str, ends: set[int], part: str) -> set[int]:
    if part == "**/":
        return ends | {at + 1 for at in range(min(ends), len(text)) if text[at] == "/"}
    if part == "**":
        return set(range(min(ends), len(text) + 1))
    if part == "*":
        reached: set[int] = set()
        for end in sorted(ends):
            if end not in reached:  # else up to the end of its folder as well
                reached.update(range(end, end + len(text[end:].partition("/")[0]) + 1))
        return reached
    if part == "?":
        return {end + 1 for end in ends if text[end : end + 1] not in ("", "/")}
    return {end + len(part) for end in ends if text.startswith(part, end)}


def ids_by_name(checks: Iterable[SelectableRule]) -> Mapping[str, frozenset[str]]:
    """Return the ids for each valid name: ids and names of checks and families, including the linter's own rules."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for rule in (*BUILTIN_RULES, *checks):
        for name in (rule.id, rule.name, *((rule.family.id, rule.family.name) if rule.family else ())):
            names[name].add(rule.id)
    return {name: frozenset(ids) for name, ids in names.items()}


def check_selectors(selectors: Iterable[str], rules: Sequence[SelectableRule], origin: str) -> None:
    """Refuse selectors that match nothing: a misspelt one would silently have no effect."""
    everything: tuple[SelectableRule, ...] = (*BUILTIN_RULES, *rules)
    categories = {category.value for category in Category}
    for selector in selectors:
        if selector in categories or any(fits(selector, rule) for rule in everything):
            continue
        known = [*ids_by_name(rules), *sorted(categories)]
        similar = closest_check(selector, known)
        hint = msg("rule.unknown.similar", similar=similar) if similar else msg("rule.unknown.hint")
        raise UsageError(msg("lint.unknown-check", name=selector, origin=origin), hint)


class BuiltinRule(Record):
    """A rule about ms-tune itself. Its texts are in ``ms_tune/texts/rule.json``."""

    id: str
    name: str
    severity: Severity
    category: Category
    bad: str = ""
    good: str = ""

    @property
    def family(self) -> None:
        """Return None: these rules belong to no family."""

    def text(self, part: str) -> Text:
        """Return its ``title``, ``why`` or ``help``."""
        return lookup(f"rule.{self.name}.{part}")


INTERNAL_ERROR = BuiltinRule("MST001", "internal-error", Severity.ERROR, Category.CORRECTNESS)
UNUSED_IGNORE = BuiltinRule(
    "MST002",
    "unused-ignore",
    Severity.WARNING,
    Category.STYLE,
    bad="profile: False  # ms-tune: ignore[profiling-on] measuring this week\n",
    good="profile: False\n",
)
MALFORMED_IGNORE = BuiltinRule(
    "MST003",
    "malformed-ignore",
    Severity.WARNING,
    Category.STYLE,
    bad="profile: True  # ms-tune: ignore, measuring this week\n",
    good="profile: True  # ms-tune: ignore[profiling-on] measuring this week\n",
)

TOO_MANY = BuiltinRule("MST004", "too-many-findings", Severity.INFO, Category.STYLE)

BUILTIN_RULES = (INTERNAL_ERROR, UNUSED_IGNORE, MALFORMED_IGNORE, TOO_MANY)


SETTINGS_FILE = "ms-tune.toml"
PROJECT_FILE = "pyproject.toml"
_TABLE = "ms-tune"
_MARK = b"ms-tune"  # a pyproject.toml without it is not parsed


class ProjectSettings(Record):
    """A project's settings for linting."""

    file: Path | None  # the settings file, if any
    folder: Path  # the folder that relative paths start from
    selection: Selection = Selection()  # the selection of checks
    by_path: tuple[tuple[tuple[str, ...], Selection], ...] = ()  # selections for files that match one of some globs
    names: tuple[str, ...] = ()  # every selector in it
    checklists: tuple[Path, ...] = ()  # the project's own checklists
    exclude: tuple[str, ...] = ()  # globs of files to skip in folders
    fail_on: Severity | None = None  # the least severity that makes the command fail
    baseline: Path | None = None  # known findings
    dialect: Dialect | None = None  # the dialect of all configs
    version: str | None = None  # the framework version to check for
    rule_page: str | None = None  # the address of the rule reference, with `{id}` and `{name}` for a check's

    def selection_for(self, file: Path) -> Selection:
        """Return the selection of checks for a file (an absolute path)."""
        selection = self.selection
        for patterns, more in self.by_path:
            if self.matches_any(file, patterns):
                selection = selection.and_then(more)
        return selection

    def matches_any(self, file: Path, patterns: tuple[str, ...]) -> bool:
        """Return whether a file (an absolute path) matches one of the globs, which are relative to the settings file."""
        relative = Path(os.path.relpath(file, self.folder))
        return any(path_matches(relative, pattern) for pattern in patterns)

    def page(self, rule: SelectableRule) -> str | None:
        """Return the address of the page about a check, if one is configured."""
        return self.rule_page and self.rule_page.replace("{id}", rule.id).replace("{name}", rule.name)


@cache
def settings_for(folder: Path) -> ProjectSettings:
    """Return the settings for files in a folder: the nearest file in it or above it."""
    for name in (SETTINGS_FILE, PROJECT_FILE):
        file = folder / name
        if file.is_file():
            settings = load_settings(file)
            if settings is not None:
                return settings
    return settings_for(folder.parent) if folder.parent != folder else ProjectSettings(None, folder)


def load_settings(file: Path) -> ProjectSettings | None:
    """Return the settings in a file; None for a ``pyproject.toml`` without any."""
    try:
        content = read_bytes(file, MAX_BYTES)
    except OSError as error:
        raise ConfigError(msg("config.unreadable", reason=reason_of(error)), path=file) from error
    shared = file.name == PROJECT_FILE
    if shared and _MARK not in content:
        return None
    toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        table = toml.loads(decode(content, file))
    except (ValueError, RecursionError) as error:  # also a number with too many digits
        raise ConfigError(msg("lint.settings.syntax", problem=error), path=file) from None
    if shared:
        tools = table.get("tool")
        table = tools.get(_TABLE) if isinstance(tools, dict) else None
        if table is None:
            return None
    return _SettingsReader(file, f"tool.{_TABLE}." if shared else "").settings(table)


# The kinds of settings, named after the suffix of the text that refuses others. Some texts have fixed choices.
_KINDS: Mapping[str, Any] = {"text": str, "texts": list, "table": dict, "tables": list}
_SELECTION = {"select": "texts", "ignore": "texts", "severity": "table", "profile": "text"}
_PER_PATH = {"paths": "texts", **_SELECTION}
_TOP = {
    **_SELECTION,
    "per-path": "tables",
    **dict.fromkeys(("checklists", "exclude"), "texts"),
    **dict.fromkeys(("fail-on", "baseline", "dialect", "framework-version", "rule-page"), "text"),
}
_CHOICES = {"profile": PROFILES, "dialect": CHECKED_DIALECTS, "fail-on": tuple(Severity)}


class _SettingsReader:
    """A reader of one settings table; it refuses anything unknown and names its key."""

    def __init__(self, file: Path, prefix: str) -> None:
        self._file = file
        self._prefix = prefix

    def settings(self, table: object) -> ProjectSettings:
        values = self._table(table, "", _TOP)
        selection = self._selection(values, "")
        by_path, names = [], [*selection.names]
        for entry in values.get("per-path", ()):
            rule = self._table(entry, "per-path.", _PER_PATH)
            more = self._selection(rule, "per-path.")
            by_path.append((tuple(rule.get("paths", ())), more))
            names += more.names
        version, folder = values.get("framework-version"), self._file.parent
        if version is not None:
            try:
                release_of(version)
            except UnsupportedError as error:
                raise ConfigError(error.message, path=self._file) from None
        return ProjectSettings(
            file=self._file,
            folder=folder,
            selection=selection,
            by_path=tuple(by_path),
            names=tuple(names),
            checklists=tuple(folder / name for name in values.get("checklists", ())),
            exclude=tuple(values.get("exclude", ())),
            fail_on=Severity(values["fail-on"]) if "fail-on" in values else None,
            baseline=folder / values["baseline"] if values.get("baseline") else None,
            dialect=Dialect(values["dialect"]) if "dialect" in values else None,
            version=version,
            rule_page=values.get("rule-page"),
        )

    def _selection(self, values: Mapping[str, Any], where: str) -> Selection:
        severities = values.get("severity", {})
        for name, severity in severities.items():
            self._check(f"{where}severity.{name}", severity, "text", tuple(Severity))
        return Selection(
            select=tuple(values["select"]) if "select" in values else None,
            ignore=tuple(values.get("ignore", ())),
            severities=tuple((name, Severity(severity)) for name, severity in severities.items()),
            profile=values.get("profile"),
        )

    def _table(self, table: object, where: str, known: Mapping[str, str]) -> Mapping[str, Any]:
        if not isinstance(table, dict):
            self._fail(where.rstrip("."), "lint.settings.table")
        for key, value in table.items():
            if key not in known:
                similar = closest(key, known)
                text_id = "lint.settings.similar" if similar else "lint.settings.unknown"
                self._fail(where + key, text_id, similar=similar)
            self._check(where + key, value, known[key], _CHOICES.get(key, ()))
        return table

    def _check(self, key: str, value: object, kind: str, choices: tuple[str, ...]) -> None:
        """Refuse a value of the wrong kind, or not among the choices, if any."""
        others = isinstance(value, list) and kind == "texts" and not all(isinstance(item, str) for item in value)
        if others or not isinstance(value, _KINDS[kind]):
            self._fail(key, f"lint.settings.{kind}")
        if choices and value not in choices:
            self._fail(key, "lint.settings.choice", value=value, choices=", ".join(choices))

    def _fail(self, key: str, text_id: str, **params: object) -> NoReturn:
        raise ConfigError(msg(text_id, key=self._prefix + key, **params), path=self._file)
