"""Checklists: the checks of the linter, as data.

A checklist is a YAML file (``checklists/schema.json`` tells its form). The built-in ones are checked against that
schema by a test; a user's own is checked when it is read.
"""

from __future__ import annotations

import json
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ms_tune.diagnostics import Category, Consequence, Family, Severity
from ms_tune.enums import Dialect
from ms_tune.lint.cache import read_values
from ms_tune.resources import data_folder
from ms_tune.source.edit import ChangeKind
from ms_tune.source.yaml import MISSING, load_source
from ms_tune.text import Text, msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ms_tune.diagnostics import KeyPath


_FOLDER = "checklists"
_SHARED = "common"


class Condition(NamedTuple):
    """What a value has to be."""

    kind: str  # `equals`, `one-of`, `not-one-of`, `forbidden`, `required` or `schema`
    operand: Any  # the value, the values, or the JSON Schema; nothing for `forbidden` and `required`


class When(NamedTuple):
    """A check is only made if the value at a path (or the framework's default for it) is like this, or the model is a legacy one."""

    path: KeyPath
    condition: Condition
    default: Any


class Expectation(NamedTuple):
    """A declared check: every value that a path pattern finds has to meet the condition."""

    paths: tuple[KeyPath, ...]
    condition: Condition


class FunctionTest(NamedTuple):
    """A check in code: a function of a module of :mod:`ms_tune.lint.checks`, and what to pass to it."""

    module: str
    name: str
    options: Mapping[str, Any]


class FixRule(NamedTuple):
    """How findings of a check are fixed."""

    kind: ChangeKind | None  # what is done; nothing for a rewrite or a move
    path: KeyPath | None  # where, if it is not the finding's own key path
    value: Any  # The new value or key. In a text, `{name}` stands for a parameter of the finding.
    spelled: bool  # whether `value` is the new value as YAML spells it (`set-text`)
    safe: bool  # whether the meaning of the config surely stays what its author wanted
    messages: frozenset[str]  # the messages of the check that it is for; empty for all
    rewrite: str | None = None  # the name of the function that fixes code or a setting of the environment
    sections: Mapping[str, KeyPath] = MappingProxyType({})  # the section that a key belongs into, by the key


class Evidence(NamedTuple):
    """Where a check's claim can be read in the framework's own source."""

    framework: str  # whose source it is
    version: str  # in which release
    file: str  # the path in its package or repository
    symbol: str = ""  # the class or function, such as `LayerSetting._check_inputs`; empty for the whole file


class Check(NamedTuple):
    """One entry of a checklist."""

    id: str  # `MST101`; stays the same for ever
    name: str  # `duplicate-key`: what is wrong, not what to do
    severity: Severity  # how bad it is
    category: Category  # what kind of trouble it is
    dialects: frozenset[Dialect]  # the dialects it is about
    versions: str | None  # the framework versions it is about, such as `>=1.7`; None for all
    when: tuple[When, ...]  # all of these must hold for the check to be made
    whole: bool  # whether it is about the config with the keys that it takes from a `base_config`
    test: Expectation | FunctionTest  # how to tell
    entry: Mapping[str, Any]  # as the checklist has it: of texts only those that are shown are looked at
    also: frozenset[str]  # other checks that the two examples cannot avoid
    fixes: tuple[FixRule, ...] = ()  # how its findings are fixed; the first that is for a finding's message counts
    profiles: frozenset[str] = frozenset()  # the profiles in which it is made; empty for all
    opposite: str | None = None  # the check of other profiles that finds wrong what this one wants
    family: Family | None = None  # the family that it is of, if it is of one

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
    def consequences(self) -> dict[str, Consequence]:
        """What happens in the run, by the message; ``default`` for messages that are not named.

        Empty in a user's own checklist that does not say it.
        """
        return _consequences(self.entry.get("consequence", {}))

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Where the claim can be read."""
        return tuple(Evidence(**item) for item in self.entry.get("evidence", ()))

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
    names = [_file_stem(one) for one in Dialect if dialect in (None, one)]
    folder = data_folder(_FOLDER)
    checks = (check for name in (_SHARED, *names) for check in read_checks(folder / f"{name}.yaml"))
    return tuple(check for check in checks if dialect is None or dialect in check.dialects)


@cache
def built_in_code() -> Mapping[str, tuple[Check, ...]]:
    """The checks for what is no config, by the kind of file that they are for: ``environment``, ``python``."""
    files = sorted((data_folder(_FOLDER) / "code").glob("*.yaml"))
    return {file.stem: read_checks(file) for file in files}


def read_checks(path: Path) -> tuple[Check, ...]:
    """The checks of a built-in checklist, which tests have compared with the schema."""
    return tuple(_checks(read_values(path)))


class Checklist(NamedTuple):
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


def all_names(check: Check) -> set[str]:
    """What a check is called by: its id and name, and those of its family."""
    family = check.family
    return {check.id, check.name} | ({family.id, family.name} if family else set())


def read_checklist(path: Path) -> Checklist:
    """A user's own checklist.

    Raises:
        ConfigError: The file is not a checklist.
    """
    import jsonschema  # noqa: PLC0415 - slow to import, and the built-in checklists do without

    source = load_source(path)
    schema = json.loads((data_folder(_FOLDER) / "schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(_for_own(schema))
    error = jsonschema.exceptions.best_match(validator.iter_errors(source.data))
    if error is not None:
        raise source.wrong(tuple(error.absolute_path), msg("lint.checklist.invalid", problem=error.message))
    return Checklist(tuple(_checks(source.data)), frozenset(source.data.get("disable", ())))


def _for_own(schema: dict[str, Any]) -> dict[str, Any]:
    """The form of a user's own checklist: texts may be in one language, or plain, and nobody has to prove a claim or name its consequence."""
    text, check = schema["$defs"]["text"], schema["$defs"]["check"]
    required = [name for name in check["required"] if name not in ("evidence", "consequence")]
    either = {"anyOf": [{"type": "string", "minLength": 1}, {**text, "required": [], "minProperties": 1}]}
    return {**schema, "$defs": {**schema["$defs"], "text": either, "check": {**check, "required": required}}}


def parse_path(path: object) -> KeyPath:
    """A key path, or a pattern of one, from ``a.b.*`` or ``[a, b, "*"]``."""
    return tuple(path) if isinstance(path, list) else tuple(str(path).split("."))


def _file_stem(dialect: Dialect) -> str:
    return dialect.value.replace("-", "_")


def _checks(data: Mapping[str, Any]) -> Iterable[Check]:
    conditions: dict[str, tuple[When, ...]] = {}
    for check in _entries(data):
        # Conditions that are the same are one object, and asked about once.
        yield check._replace(when=conditions.setdefault(repr(check.when), check.when)) if check.when else check


def _entries(data: Mapping[str, Any]) -> Iterable[Check]:
    for entry in data.get("checks", ()):
        if "members" not in entry:
            yield _check(entry, data["dialects"])
            continue
        # What the members share is said once.
        shared = {key: value for key, value in entry.items() if key != "members"}
        family = Family(entry["id"], entry["name"])
        for member in entry["members"]:
            yield _check(shared | member, data["dialects"])._replace(family=family)


def _check(entry: Mapping[str, Any], dialects: list[str]) -> Check:
    return Check(
        id=entry["id"],
        name=entry["name"],
        severity=Severity(entry["severity"]),
        category=Category(entry["category"]),
        dialects=frozenset(map(Dialect, entry.get("dialects", dialects))),
        versions=entry.get("versions"),
        when=tuple(map(_when, entry.get("when", ()))),
        whole=entry.get("whole", False),
        test=_test(entry["test"]),
        entry=entry,
        also=frozenset(entry.get("also", ())),
        fixes=tuple(map(_fix, _listed(entry.get("fix", ())))),
        profiles=frozenset(entry.get("profiles", ())),
        opposite=entry.get("opposite"),
    )


def _consequences(value: Mapping[str, str] | str) -> dict[str, Consequence]:
    """What happens in the run, by the message."""
    values = {"default": value} if isinstance(value, str) else value
    return {message: Consequence(name) for message, name in values.items()}


def _text(value: Mapping[str, str] | str) -> Text:
    """A text; where a checklist of a user's own has it in one language, it stands for both."""
    if isinstance(value, str):
        return Text(value, value)
    english, chinese = value.get("en"), value.get("zh")
    return Text(english or chinese or "", chinese or english or "")


def _listed(value: Any) -> Iterable[Any]:  # noqa: ANN401 - one entry or several
    return (value,) if isinstance(value, dict) else value


def _fix(value: Mapping[str, Any]) -> FixRule:
    name = next(name for name in FIXES if name in value)
    path = value[name] if name == "remove-key" and value[name] is not True else value.get("path")
    return FixRule(
        kind=None if name in ("rewrite", "move-key") else ChangeKind("set-value" if name == "set-text" else name),
        path=None if path is None else parse_path(path),
        value=None if name in ("remove-key", "rewrite", "move-key") else value[name],
        spelled=name == "set-text",
        safe=value["safe"],
        messages=frozenset(value.get("messages", ())),
        rewrite=value[name] if name == "rewrite" else None,
        sections={key: parse_path(section) for key, section in value.get("move-key", {}).items()},
    )


def _when(value: Mapping[str, Any]) -> When:
    if "legacy" in value:
        return When((), Condition("legacy", value["legacy"]), MISSING)
    return When(parse_path(value["path"]), _condition(value), value.get("default", MISSING))


def _test(value: Mapping[str, Any]) -> Expectation | FunctionTest:
    if "function" in value:
        module, _, name = value["function"].partition(".")
        return FunctionTest(module, name, value.get("options", {}))
    paths = value["paths"] if "paths" in value else [value["path"]]
    return Expectation(tuple(map(parse_path, paths)), _condition(value))


def _condition(value: Mapping[str, Any]) -> Condition:
    kind = next(kind for kind in CONDITIONS if kind in value)
    return Condition(kind, value[kind])


FIXES = ("remove-key", "set-value", "set-text", "rename-key", "add-key", "move-key", "rewrite")

CONDITIONS = ("equals", "one-of", "not-one-of", "forbidden", "required", "schema")
