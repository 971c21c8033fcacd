"""Which checks are made, and how bad their findings are: what a project's settings file or a command line says."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from ms_tune.diagnostics import Category, Family, Severity
from ms_tune.enums import CHECKED_DIALECTS, Dialect
from ms_tune.errors import ConfigError, UnsupportedError, UsageError, closest, closest_check, reason_of
from ms_tune.facts.releases import release_of
from ms_tune.records import Record
from ms_tune.text import lookup, msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path, PurePath

    from ms_tune.text import Text

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


class Selection(Record):
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


class PathRule(Record):
    """A selection for some files: glob patterns relative to the settings file."""

    paths: tuple[str, ...]
    selection: Selection


class Selections(Record):
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


class OwnRule(Record):
    """A rule about ms-tune's own working. Its texts are in ``ms_tune/texts/rule.json``."""

    id: str
    name: str
    severity: Severity
    category: Category
    bad: str = ""
    good: str = ""

    @property
    def family(self) -> None:
        """Each stands alone."""

    def text(self, part: str) -> Text:
        """Its ``title``, ``why`` or ``help``."""
        return lookup(f"rule.{self.name}.{part}")


INTERNAL_ERROR = OwnRule("MST001", "internal-error", Severity.ERROR, Category.CORRECTNESS)
UNUSED_IGNORE = OwnRule(
    "MST002",
    "unused-ignore",
    Severity.WARNING,
    Category.STYLE,
    bad="profile: False  # ms-tune: ignore[profiling-on] measuring this week\n",
    good="profile: False\n",
)
MALFORMED_IGNORE = OwnRule(
    "MST003",
    "malformed-ignore",
    Severity.WARNING,
    Category.STYLE,
    bad="profile: True  # ms-tune: ignore, measuring this week\n",
    good="profile: True  # ms-tune: ignore[profiling-on] measuring this week\n",
)

TOO_MANY = OwnRule("MST004", "too-many-findings", Severity.INFO, Category.STYLE)

OWN_RULES = (INTERNAL_ERROR, UNUSED_IGNORE, MALFORMED_IGNORE, TOO_MANY)


OWN_FILE = "ms-tune.toml"
SHARED_FILE = "pyproject.toml"
_TABLE = "ms-tune"
_MARK = b"ms-tune"  # a pyproject.toml without it is not parsed


class ProjectSettings(Record):
    """What a project says about linting."""

    file: Path | None  # where it says so; None if nowhere
    folder: Path  # what relative paths are relative to
    selections: Selections = Selections()  # which checks are made
    checklists: tuple[Path, ...] = ()  # checklists of its own
    exclude: tuple[str, ...] = ()  # globs of files that a folder does not stand for
    fail_on: Severity | None = None  # the least severity that fails
    baseline: Path | None = None  # old findings
    dialect: Dialect | None = None  # what all configs are written for
    version: str | None = None  # the framework version to check for
    rule_page: str | None = None  # where the rule reference is read, with `{id}` and `{name}` for a check's

    def page(self, rule: SelectableRule) -> str | None:
        """The address of the page about a check, if one is configured."""
        return self.rule_page and self.rule_page.replace("{id}", rule.id).replace("{name}", rule.name)


@cache
def settings_for(folder: Path) -> ProjectSettings:
    """The settings for files in a folder: the nearest file in it or above it.

    Raises:
        ConfigError: A settings file is not one.
    """
    for name in (OWN_FILE, SHARED_FILE):
        file = folder / name
        if file.is_file():
            settings = load_settings(file)
            if settings is not None:
                return settings
    return settings_for(folder.parent) if folder.parent != folder else ProjectSettings(None, folder)


def load_settings(file: Path) -> ProjectSettings | None:
    """The settings in a file; None for a ``pyproject.toml`` that has none.

    Raises:
        ConfigError: The file is not a settings file.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(msg("config.unreadable", reason=reason_of(error)), path=file) from error
    shared = file.name == SHARED_FILE
    if shared and _MARK not in content:
        return None
    table: Any = _parse(content, file)
    if shared:
        tools = table.get("tool")
        table = tools.get(_TABLE) if isinstance(tools, dict) else None
        if table is None:
            return None
    return _SettingsReader(file, f"tool.{_TABLE}." if shared else "").settings(table)


def _parse(content: bytes, file: Path) -> dict[str, Any]:
    toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        table: dict[str, Any] = toml.loads(content.decode())
    except UnicodeDecodeError:
        raise ConfigError(msg("config.not-utf8"), path=file) from None
    except toml.TOMLDecodeError as error:
        raise ConfigError(msg("lint.settings.syntax", problem=error), path=file) from None
    return table


_TOP = (
    *("select", "ignore", "severity", "profile", "per-path", "checklists", "exclude", "fail-on", "baseline"),
    *("dialect", "framework-version", "rule-page"),
)
_PER_PATH = ("paths", "select", "ignore", "severity", "profile")


class _SettingsReader:
    """Reads one settings table; whatever is not understood is refused, with its key."""

    def __init__(self, file: Path, prefix: str) -> None:
        self._file = file
        self._prefix = prefix

    def settings(self, table: object) -> ProjectSettings:
        values = self._table(table, "", _TOP)
        entries = values.get("per-path", [])
        if not isinstance(entries, list):
            self._fail("per-path", "lint.settings.tables")
        by_path = []
        for entry in entries:
            rule = self._table(entry, "per-path.", _PER_PATH)
            by_path.append(PathRule(self._texts(rule, "paths", "per-path.") or (), self._selection(rule, "per-path.")))
        baseline = self._text(values, "baseline")
        dialect = self._one_of(values, "dialect", tuple(one.value for one in CHECKED_DIALECTS))
        fail_on = self._one_of(values, "fail-on", tuple(one.value for one in Severity))
        version = self._text(values, "framework-version")
        if version is not None:
            self._served(version)
        folder = self._file.parent
        return ProjectSettings(
            file=self._file,
            folder=folder,
            selections=Selections(self._selection(values), tuple(by_path)),
            checklists=tuple(folder / name for name in self._texts(values, "checklists") or ()),
            exclude=self._texts(values, "exclude") or (),
            fail_on=Severity(fail_on) if fail_on else None,
            baseline=folder / baseline if baseline else None,
            dialect=Dialect(dialect) if dialect else None,
            version=version,
            rule_page=self._text(values, "rule-page"),
        )

    def _served(self, version: str) -> None:
        try:
            release_of(version)
        except UnsupportedError as error:
            raise ConfigError(error.message, path=self._file) from None

    def _selection(self, values: Mapping[str, Any], where: str = "") -> Selection:
        severities = values.get("severity", {})
        if not isinstance(severities, dict):
            self._fail(f"{where}severity", "lint.settings.table")
        return Selection(
            select=self._texts(values, "select", where),
            ignore=self._texts(values, "ignore", where) or (),
            severities=tuple(
                (
                    name,
                    Severity(self._one_of(severities, name, tuple(one.value for one in Severity), f"{where}severity.")),
                )
                for name in severities
            ),
            profile=self._one_of(values, "profile", PROFILES, where),
        )

    def _table(self, table: object, where: str, known: tuple[str, ...]) -> Mapping[str, Any]:
        if not isinstance(table, dict):
            self._fail(where.rstrip("."), "lint.settings.table")
        for key in table:
            if key not in known:
                similar = closest(key, known)
                self._fail(
                    where + key, "lint.settings.similar" if similar else "lint.settings.unknown", similar=similar
                )
        return table

    def _text(self, values: Mapping[str, Any], key: str, where: str = "") -> str | None:
        value = values.get(key)
        if value is not None and not isinstance(value, str):
            self._fail(where + key, "lint.settings.text")
        return value

    def _texts(self, values: Mapping[str, Any], key: str, where: str = "") -> tuple[str, ...] | None:
        value = values.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self._fail(where + key, "lint.settings.texts")
        return tuple(value)

    def _one_of(self, values: Mapping[str, Any], key: str, choices: tuple[str, ...], where: str = "") -> str | None:
        value = self._text(values, key, where)
        if value is not None and value not in choices:
            self._fail(where + key, "lint.settings.choice", value=value, choices=", ".join(choices))
        return value

    def _fail(self, key: str, text_id: str, **params: object) -> NoReturn:
        raise ConfigError(msg(text_id, key=self._prefix + key, **params), path=self._file)
