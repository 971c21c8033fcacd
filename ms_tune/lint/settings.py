"""Settings of a project: ``ms-tune.toml``, or ``[tool.ms-tune]`` in ``pyproject.toml``, in a folder or above it."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ms_tune.diagnostics import Severity
from ms_tune.enums import CHECKED_DIALECTS, Dialect
from ms_tune.errors import ConfigError, UnsupportedError, closest, reason_of
from ms_tune.facts.releases import release_of
from ms_tune.lint.selection import PROFILES, PathRule, Selection, Selections
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ms_tune.lint.selection import SelectableRule

OWN_FILE = "ms-tune.toml"
SHARED_FILE = "pyproject.toml"
_TABLE = "ms-tune"
_MARK = b"ms-tune"  # a pyproject.toml without it is not parsed


class ProjectSettings(NamedTuple):
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
