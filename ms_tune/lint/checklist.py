"""Read checklists: the linter's checks, as data.

A checklist is a YAML file (format: ``checklists/schema.json``). A test validates the built-in ones against that schema; a
user's own is validated when it is read. Parts of an entry that are not needed are not parsed.

YAML takes twenty times as long to read as JSON, and the built-in files rarely change. So the rows of a checklist are cached
as JSON: next to the file (``hatch_build.py`` writes it during installation), or in ``MS_TUNE_CACHE``, else in ``ms-tune`` in
the user's cache folder. They are valid only for exactly the same bytes of the file. Without a writable folder everything
works, but starts a little later. :mod:`ms_tune.lint.rows` makes the rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path

from ms_tune.diagnostics import Category, Family, Severity
from ms_tune.dialects.check_context import FixRule, parse_path
from ms_tune.enums import ChangeKind, Dialect
from ms_tune.facts.query import data_folder
from ms_tune.lint.expressions import find_schema_error
from ms_tune.records import Any, Record
from ms_tune.source.yaml import load_source
from ms_tune.text import Text, msg

_FORM = 7  # version of the JSON format
FOLDER = "checklists"
_SHARED = "common"
_WRITTEN = ("megatron_stops", "mindformers_stops", "mindformers_pynative_stops")  # by scripts, from the sources
FIXES = ("remove-key", "set-value", "set-text", "rename-key", "add-key", "move-key", "rewrite")


def content_key(content: bytes) -> list[int]:
    """Return the key of a checklist's cached rows, which are valid only for exactly the same bytes (also ``hatch_build.py``)."""
    return [_FORM, len(content), zlib.crc32(content)]


def read_checks(path: Path) -> tuple[Check, ...]:
    """Return the checks of a built-in checklist, which tests have validated against the schema."""
    content = path.read_bytes() if path.exists() else b""  # an installed package has the JSON only
    key, kept = content_key(content), None
    folder = os.environ.get("MS_TUNE_CACHE")
    if not folder:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - "~" may stay
        folder = os.path.join(base, "ms-tune")  # noqa: PTH118 - start-up time
    if os.path.isabs(folder):  # noqa: PTH117 - as above
        kept = os.path.join(folder, "checklists", f"{path.stem}-{zlib.crc32(str(path).encode()):08x}.json")  # noqa: PTH118
    for place in (f"{str(path).removesuffix('.yaml')}.json", kept):
        if place is not None:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(place, "rb") as file:  # noqa: PTH123
                first, *lines = file.read().split(b"\n")
                found = json.loads(first)
                if (found["key"] == key or not content) and len(found["rows"]) == len(lines):
                    return tuple(map(Check, found["rows"], lines))
    from ms_tune.lint.rows import keep_rows, read_rows, rows_as_json  # noqa: PLC0415 - only if not cached

    rows, entries = read_rows(content)
    if kept is not None and (text := rows_as_json(key, rows, entries)):
        keep_rows(text, kept)
    return tuple(map(Check, rows, entries))


class Check:
    """One entry of a checklist."""

    def __init__(self, row: Mapping[str, Any], entry: Mapping[str, Any] | bytes) -> None:
        self._row, self._entry = row, entry
        self.id: str = row["id"]  # `MST101`; never changes
        self.name: str = row["name"]  # `duplicate-key`: the problem, not the solution
        self.versions: str | None = row["versions"]  # the releases it applies to, such as `>=1.7`; None for all
        self.checks_merged: bool = row["whole"]  # whether it checks the config merged with its `base_config`
        self.opposite: str | None = row["opposite"]  # the check of other profiles that requires the opposite
        self.profiles: Sequence[str] = row["profiles"]  # the profiles that run it; empty for all
        self.dialect_names: Sequence[str] = row["dialects"]
        # It finds nothing if none of these keys is present anywhere; empty if this cannot be determined.
        self.keys: Sequence[str] = row["keys"]
        self.odd: Sequence[str] = row["odd"]  # nor if none of these kinds of oddities is; empty likewise
        self.when: list[Any] | None = row["when"]  # the expression that must be true for the check to run
        # The function that runs it, and its options; or the tests that the engine runs itself.
        self.function: Sequence[str] | None = row["function"]
        self.options: Mapping[str, Any] = row["options"]
        self.tests: Sequence[Mapping[str, Any]] = row["tests"]
        self.runs_last: bool = row["asks-others"]  # whether it uses the findings of all others, and so runs last

    @cached_property
    def entry(self) -> Mapping[str, Any]:
        """Return the whole entry of the checklist."""
        found: Mapping[str, Any] = json.loads(self._entry) if isinstance(self._entry, bytes) else self._entry
        return found

    @cached_property
    def dialects(self) -> frozenset[Dialect]:
        """Return the dialects that it applies to."""
        return frozenset(map(Dialect, self.dialect_names))

    @cached_property
    def family(self) -> Family | None:
        """Return its family, or None."""
        family = self._row["family"]
        return None if family is None else Family(*family)

    @cached_property
    def severity(self) -> Severity:
        """Return the severity of its findings."""
        return Severity(self._row["severity"])

    @cached_property
    def category(self) -> Category:
        """Return the kind of problem that it checks for."""
        return Category(self._row["category"])

    @cached_property
    def also(self) -> frozenset[str]:
        """Return the other checks that report something in the two examples of this one."""
        return frozenset(self.entry.get("also", ()))

    @property
    def remedy(self) -> str:
        """Return where a remedy of the whole job may fix an error of the check: ``anywhere``, at its ``place`` or ``never``."""
        return str(self._row["remedy"])

    @cached_property
    def fixes(self) -> tuple[FixRule, ...]:
        """Return the rules for fixing its findings; the first one that matches a finding's message applies."""
        fixes = self.entry.get("fix", ())
        return tuple(map(_fix, (fixes,) if isinstance(fixes, dict) else fixes))

    @property
    def title(self) -> Text:
        """Return its title, which is its name as a sentence."""
        return _text(self.entry["title"])

    @property
    def why(self) -> Text:
        """Return the effect of ignoring it."""
        return _text(self.entry["why"])

    @property
    def help(self) -> Text:
        """Return the instructions for fixing it."""
        return _text(self.entry["help"])

    @property
    def messages(self) -> dict[str, Text]:
        """Return the messages of its findings: ``default``, and others if the check distinguishes cases."""
        messages = self.entry.get("messages") or {"default": self.entry["message"]}
        return {name: _text(text) for name, text in messages.items()}

    @property
    def consequences(self) -> dict[str, str]:
        """Return the effect on the run by message; ``default`` applies to messages without their own.

        It may be empty in a user's own checklist.
        """
        found = self.entry.get("consequence", {})
        return {"default": found} if isinstance(found, str) else found

    @property
    def bad(self) -> str:
        """Return an example config with the problem."""
        return str(self.entry["bad"])

    @property
    def good(self) -> str:
        """Return the same config, fixed."""
        return str(self.entry["good"])


@cache
def built_in(dialect: Dialect | None = None) -> tuple[Check, ...]:
    """Return the built-in checks of a dialect, or of all."""
    names = [one.value.replace("-", "_") for one in Dialect if dialect in (None, one)]
    checks: list[Check] = []
    for name in (_SHARED, *names, *(one for one in _WRITTEN if one.partition("_stops")[0] in names)):
        checks += read_checks(data_folder(FOLDER) / f"{name}.yaml")
    return tuple([one for one in checks if dialect is None or dialect.value in one.dialect_names])


@cache
def built_in_form() -> tuple[Check, ...]:
    """Return the built-in checks of the form of a config, which apply to all releases of all frameworks."""
    return tuple(read_checks(data_folder(FOLDER) / f"{_SHARED}.yaml"))


@cache
def built_in_code() -> Mapping[str, tuple[Check, ...]]:
    """Return the built-in checks for files that are not configs, by kind of file: ``environment``, ``python``."""
    files = {file.with_suffix(".yaml") for file in (data_folder(FOLDER) / "code").iterdir()}
    return {file.stem: read_checks(file) for file in sorted(files)}


def all_names(check: Check) -> set[str]:
    """Return the id and name of a check, and those of its family."""
    family = check.family
    return {check.id, check.name} | ({family.id, family.name} if family else set())


class Checklist(Record):
    """A user's own checklist: checks that are added or replace others, and checks that are turned off."""

    checks: tuple[Check, ...]
    disable: frozenset[str]


def combined(checks: Iterable[Check], own: Iterable[Checklist]) -> tuple[Check, ...]:
    """Merge users' own checks into others: each replaces checks or families with the same id or name."""
    result = list(checks)
    for checklist in own:
        names = {name for check in checklist.checks for name in (check.id, check.name)} | checklist.disable
        result = [check for check in result if not all_names(check) & names]
        result += checklist.checks
    return tuple(result)


def read_checklist(path: Path) -> Checklist:
    """Read a user's own checklist."""
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time
    from ms_tune.lint.rows import entries_of, row_of  # noqa: PLC0415 - Python's parser is slow to import

    need("ms-tune lint", "checklists", "jsonschema")
    source = load_source(path)
    schema = json.loads((data_folder(FOLDER) / "schema.json").read_text(encoding="utf-8"))
    error = find_schema_error(source.data, _user_schema(schema))
    if error is not None:
        raise source.wrong(tuple(error.absolute_path), msg("lint.checklist.invalid", problem=error.message))
    checks = []
    for number, entry in enumerate(entries_of(source.data)):
        try:
            checks.append(Check(row_of(entry), entry))
        except ValueError as problem:
            raise source.wrong(("checks", number, "test"), msg("lint.checklist.invalid", problem=problem)) from None
    return Checklist(tuple(checks), frozenset(source.data.get("disable", ())))


def _user_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema for users' own checklists: texts may be in one language, evidence and consequence are optional."""
    text, check = schema["$defs"]["text"], schema["$defs"]["check"]
    required = [name for name in check["required"] if name not in ("evidence", "consequence")]
    either = {"anyOf": [{"type": "string", "minLength": 1}, {**text, "required": [], "minProperties": 1}]}
    return {**schema, "$defs": {**schema["$defs"], "text": either, "check": {**check, "required": required}}}


def _text(value: Mapping[str, str] | str) -> Text:
    """Return a text; if a user's own checklist has it in one language only, use it for both."""
    if isinstance(value, str):
        return Text(value, value)
    english, chinese = value.get("en"), value.get("zh")
    return Text(english or chinese or "", chinese or english or "")


def _fix(value: Mapping[str, Any]) -> FixRule:
    name = next(name for name in FIXES if name in value)
    path = value[name] if name == "remove-key" and value[name] is not True else value.get("path")
    return FixRule(
        kind=None if name in ("rewrite", "move-key") else ChangeKind("set-value" if name == "set-text" else name),
        path=None if path is None else tuple(parse_path(path)),
        value=None if name in ("remove-key", "rewrite", "move-key") else value[name],
        spelled=name == "set-text",
        safe=value["safe"],
        messages=frozenset(value.get("messages", ())),
        rewrite=value[name] if name == "rewrite" else None,
        sections={key: tuple(parse_path(section)) for key, section in value.get("move-key", {}).items()},
    )
