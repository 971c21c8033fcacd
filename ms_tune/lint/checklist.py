"""Checklists: the checks of the linter, as data.

A checklist is a YAML file (``checklists/schema.json`` tells its form). The built-in ones are checked against that
schema by a test; a user's own is checked when it is read. What of an entry is not looked at is not read.

YAML is twenty times as slow to read as JSON, and the built-in files never change. What is installed, a checkout among it, has the rows
of a checklist beside the file, as JSON (``hatch_build.py`` makes it); a checkout that is used as it is, or changed since, writes them into
``MS_TUNE_CACHE``, else into ``ms-tune`` in the user's own cache folder. They count only if they were made of the very bytes of the file.
Without a folder that can be written everything works, and starts a little later. Rows are made by :mod:`ms_tune.lint.rows`.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from functools import cache, cached_property

from ms_tune.diagnostics import Category, Family, Severity
from ms_tune.dialects.check_context import FixRule, parse_path
from ms_tune.enums import ChangeKind, Dialect
from ms_tune.facts.query import data_folder
from ms_tune.records import Record
from ms_tune.source.yaml import load_source
from ms_tune.text import Text, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

_FORM = 7  # of the JSON
FOLDER = "checklists"
_SHARED = "common"
FIXES = ("remove-key", "set-value", "set-text", "rename-key", "add-key", "move-key", "rewrite")


def read_checks(path: Path) -> tuple[Check, ...]:
    """The checks of a built-in checklist, which tests have compared with the schema."""
    content = path.read_bytes()
    # Kept rows were made of these very bytes of the file, or are made anew.
    key, kept = [_FORM, len(content), zlib.crc32(content)], None
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
                if found["key"] == key and len(found["rows"]) == len(lines):
                    return tuple(map(Check, found["rows"], lines))
    from ms_tune.lint.rows import keep_rows, read_rows, rows_as_json  # noqa: PLC0415 - rows are made once, and kept

    rows, entries = read_rows(content)
    if kept is not None and (text := rows_as_json(key, rows, entries)):
        keep_rows(text, kept)
    return tuple(map(Check, rows, entries))


class Check:
    """One entry of a checklist.

    Args:
        row: What is looked at to choose and to make it (see :func:`ms_tune.lint.rows.row_of`).
        entry: As the checklist has it, or the JSON of it.
    """

    def __init__(self, row: Mapping[str, Any], entry: Mapping[str, Any] | bytes) -> None:
        self._row, self._entry = row, entry
        self.id: str = row["id"]  # `MST101`; stays the same for ever
        self.name: str = row["name"]  # `duplicate-key`: what is wrong, not what to do
        self.versions: str | None = row["versions"]  # the releases it is about, such as `>=1.7`; None for all
        self.whole: bool = row["whole"]  # whether it is about the config with what its `base_config` says
        self.opposite: str | None = row["opposite"]  # the check of other profiles that finds wrong what this one wants
        self.profiles: Sequence[str] = row["profiles"]  # the profiles in which it is made; empty for all
        self.dialect_names: Sequence[str] = row["dialects"]
        # It finds nothing where none of these keys is written, wherever they stand; empty if that cannot be said.
        self.keys: Sequence[str] = row["keys"]
        self.odd: Sequence[str] = row["odd"]  # nor where none of these kinds of oddities is; empty likewise
        self.when: list[Any] | None = row["when"]  # the expression that has to hold for the check to be made
        # The function that makes it, and what to pass to it; or the tests that the engine makes itself.
        self.function: Sequence[str] | None = row["function"]
        self.options: Mapping[str, Any] = row["options"]
        self.tests: Sequence[Mapping[str, Any]] = row["tests"]
        self.asks_others: bool = row["asks-others"]  # whether it asks what all others found, and is made last

    @cached_property
    def entry(self) -> Mapping[str, Any]:
        """What the checklist says."""
        found: Mapping[str, Any] = json.loads(self._entry) if isinstance(self._entry, bytes) else self._entry
        return found

    @cached_property
    def dialects(self) -> frozenset[Dialect]:
        """Those that it is about."""
        return frozenset(map(Dialect, self.dialect_names))

    @cached_property
    def family(self) -> Family | None:
        """The family that it is of, if it is of one."""
        family = self._row["family"]
        return None if family is None else Family(*family)

    @cached_property
    def severity(self) -> Severity:
        """How bad it is."""
        return Severity(self._row["severity"])

    @cached_property
    def category(self) -> Category:
        """What kind of trouble it is about."""
        return Category(self._row["category"])

    @cached_property
    def also(self) -> frozenset[str]:
        """Other checks that the two examples cannot avoid."""
        return frozenset(self.entry.get("also", ()))

    @property
    def remedy(self) -> str:
        """Of an error without a fix of its own: whether the job's remedy fixes it ``anywhere``, at the ``place`` it is about, or ``never``."""
        return str(self._row["remedy"])

    @cached_property
    def fixes(self) -> tuple[FixRule, ...]:
        """How its findings are fixed; the first that is for a finding's message counts."""
        fixes = self.entry.get("fix", ())
        return tuple(map(_fix, (fixes,) if isinstance(fixes, dict) else fixes))

    @property
    def title(self) -> Text:
        """The name as a sentence."""
        return _text(self.entry["title"])

    @property
    def why(self) -> Text:
        """What happens if it is left as it is."""
        return _text(self.entry["why"])

    @property
    def help(self) -> Text:
        """How to fix it."""
        return _text(self.entry["help"])

    @property
    def messages(self) -> dict[str, Text]:
        """What to say about one finding; ``default``, and others if the check tells cases apart."""
        messages = self.entry.get("messages") or {"default": self.entry["message"]}
        return {name: _text(text) for name, text in messages.items()}

    @property
    def consequences(self) -> dict[str, str]:
        """What happens in the run, by the message; ``default`` for messages that are not named.

        Empty in a user's own checklist that does not say it.
        """
        found = self.entry.get("consequence", {})
        return {"default": found} if isinstance(found, str) else found

    @property
    def bad(self) -> str:
        """A config that violates it."""
        return str(self.entry["bad"])

    @property
    def good(self) -> str:
        """The same config, fixed."""
        return str(self.entry["good"])


@cache
def built_in(dialect: Dialect | None = None) -> tuple[Check, ...]:
    """The checks that ms-tune brings along: those for a dialect, or all."""
    names = [one.value.replace("-", "_") for one in Dialect if dialect in (None, one)]
    checks: list[Check] = []
    for name in (_SHARED, *names):
        checks += read_checks(data_folder(FOLDER) / f"{name}.yaml")
    return tuple([one for one in checks if dialect is None or dialect.value in one.dialect_names])


@cache
def built_in_code() -> Mapping[str, tuple[Check, ...]]:
    """The checks for what is no config, by the kind of file that they are for: ``environment``, ``python``."""
    files = sorted((data_folder(FOLDER) / "code").glob("*.yaml"))
    return {file.stem: read_checks(file) for file in files}


def all_names(check: Check) -> set[str]:
    """What a check is called by: its id and name, and those of its family."""
    family = check.family
    return {check.id, check.name} | ({family.id, family.name} if family else set())


class Checklist(Record):
    """A user's own checklist: checks that are added or take the place of others, and checks that are turned off."""

    checks: tuple[Check, ...]
    disable: frozenset[str]


def combined(checks: Iterable[Check], own: Iterable[Checklist]) -> tuple[Check, ...]:
    """The checks with users' own: one with the id or the name of another, or of a family, takes its place."""
    result = list(checks)
    for checklist in own:
        names = {name for check in checklist.checks for name in (check.id, check.name)} | checklist.disable
        result = [check for check in result if not all_names(check) & names]
        result += checklist.checks
    return tuple(result)


def read_checklist(path: Path) -> Checklist:
    """A user's own checklist.

    Raises:
        ConfigError: The file is not a checklist.
    """
    import jsonschema  # noqa: PLC0415 - slow to import, and the built-in checklists do without

    from ms_tune.lint.rows import entries_of, row_of  # noqa: PLC0415 - as above

    source = load_source(path)
    schema = json.loads((data_folder(FOLDER) / "schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(_for_own(schema))
    error = jsonschema.exceptions.best_match(validator.iter_errors(source.data))
    if error is not None:
        raise source.wrong(tuple(error.absolute_path), msg("lint.checklist.invalid", problem=error.message))
    checks = []
    for number, entry in enumerate(entries_of(source.data)):
        try:
            checks.append(Check(row_of(entry), entry))
        except ValueError as problem:
            raise source.wrong(("checks", number, "test"), msg("lint.checklist.invalid", problem=problem)) from None
    return Checklist(tuple(checks), frozenset(source.data.get("disable", ())))


def _for_own(schema: dict[str, Any]) -> dict[str, Any]:
    """The form of a user's own checklist: texts may be in one language, or plain, and nobody has to prove a claim or name its consequence."""
    text, check = schema["$defs"]["text"], schema["$defs"]["check"]
    required = [name for name in check["required"] if name not in ("evidence", "consequence")]
    either = {"anyOf": [{"type": "string", "minLength": 1}, {**text, "required": [], "minProperties": 1}]}
    return {**schema, "$defs": {**schema["$defs"], "text": either, "check": {**check, "required": required}}}


def _text(value: Mapping[str, str] | str) -> Text:
    """A text; where a checklist of a user's own has it in one language, it stands for both."""
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
