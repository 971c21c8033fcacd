"""Checklists: the checks of the linter, as data.

A checklist is a YAML file (``checklists/schema.json`` tells its form). The built-in ones are checked against that
schema by a test; a user's own is checked when it is read. What of an entry is not looked at is not read.

YAML is twenty times as slow to read as JSON, and the built-in files never change. An installed ms-tune has the rows of a checklist
beside the file, as JSON (``hatch_build.py`` makes it); a checkout writes it into ``MS_TUNE_CACHE``, else into ``ms-tune`` in the user's
own cache folder. It counts only if it was made of the very bytes of the file. Without a folder that can be written everything works,
and starts a little later.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import yaml

from ms_tune.diagnostics import Category, Consequence, Family, Severity
from ms_tune.dialects.check_context import FixRule
from ms_tune.enums import ChangeKind, Dialect
from ms_tune.facts.query import data_folder
from ms_tune.lint.expressions import Expression, parse_expression
from ms_tune.records import Record
from ms_tune.source.yaml import ANY, MISSING, load_source
from ms_tune.source.yaml_nodes import Loader
from ms_tune.text import Text, msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ms_tune.diagnostics import KeyPath

_FORM = 4  # of the JSON
_TEXT = "tag:yaml.org,2002:str"


def read_checks(path: Path) -> tuple[Check, ...]:
    """The checks of a built-in checklist, which tests have compared with the schema."""
    content = path.read_bytes()
    key = _key(content)
    kept = _kept_in(path)
    for place in (f"{str(path).removesuffix('.yaml')}.json", kept):
        if place is not None:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(place, "rb") as file:  # noqa: PTH123
                first, *lines = file.read().split(b"\n")
                found = json.loads(first)
                if found["key"] == key and len(found["rows"]) == len(lines):
                    return tuple(map(Check, found["rows"], lines))
    entries = _entries_of(read_values(content))
    if kept is not None:
        _keep(kept, rows_as_json(content))
    return tuple(Check(row_of(one), one) for one in entries)


def rows_as_json(content: bytes) -> str:
    """What is kept of a checklist: a line with its rows, and a line for each entry; of an empty text if JSON would change it, as it would dates."""
    entries = _entries_of(read_values(content))
    rows = {"key": _key(content), "rows": [row_of(one) for one in entries]}
    lines = [json.dumps(one, ensure_ascii=False, default=str) for one in (rows, *entries)]
    return "\n".join(lines) if [json.loads(one) for one in lines] == [rows, *entries] else ""


def _key(content: bytes) -> list[int]:
    return [_FORM, len(content), zlib.crc32(content)]


def read_values(content: bytes) -> Any:  # noqa: ANN401 - whatever YAML holds
    """The values in a YAML file of ours."""
    # Without positions, which nobody asks for here.
    loader = Loader(content)
    return _values(loader, loader.get_single_node())


def _values(loader: Any, node: yaml.Node | None) -> Any:  # noqa: ANN401 - whatever YAML holds
    """What ``yaml.load`` gives, in half the time: nearly all of a checklist is texts, which need no constructor."""
    if isinstance(node, yaml.SequenceNode):
        return [_values(loader, one) for one in node.value]
    if isinstance(node, yaml.MappingNode) and all(key.tag == _TEXT for key, _ in node.value):
        return {key.value: _values(loader, one) for key, one in node.value}
    if node is None:  # an empty file
        return None
    return node.value if node.tag == _TEXT else loader.construct_object(node, deep=True)


def _kept_in(path: Path) -> str | None:
    folder = os.environ.get("MS_TUNE_CACHE")
    if not folder:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - "~" may stay
        folder = os.path.join(base, "ms-tune")  # noqa: PTH118 - start-up time
    if not os.path.isabs(folder):  # noqa: PTH117 - start-up time
        return None
    return os.path.join(folder, "checklists", f"{path.stem}-{zlib.crc32(str(path).encode()):08x}.json")  # noqa: PTH118


def _keep(kept: str, text: str) -> None:
    if not text:
        return
    folder = os.path.dirname(kept)  # noqa: PTH120 - start-up time
    with contextlib.suppress(OSError):
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - start-up time
        fresh = f"{kept}.{os.getpid()}"  # tempfile would be slow to import
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(fresh, kept)  # noqa: PTH105 - `fresh` is a text
        except OSError:
            os.unlink(fresh)  # noqa: PTH108 - as above
            raise


_FOLDER = "checklists"
_SHARED = "common"
_NOT_OF_KEYS = re.compile(r"\b(?:network|degree|written)\.")
_LAST_PART = re.compile(r"[A-Za-z_]\w*(?![\w.])")  # of each key path of an expression

FIXES = ("remove-key", "set-value", "set-text", "rename-key", "add-key", "move-key", "rewrite")
CONDITIONS = ("equals", "one-of", "not-one-of", "forbidden", "required", "schema")
# What of an entry its row has as it is, and what stands for what it does not say.
_ROW: dict[str, Any] = {
    **dict.fromkeys(("id", "name", "versions", "opposite", "family", "severity", "category")),
    "dialects": [],
    "whole": False,
    "profiles": [],
}


class When(Record):
    """A check is only made if the value at a path (or the framework's default for it) is like this, or an expression holds."""

    path: KeyPath
    condition: str  # one of `CONDITIONS`, or `legacy` or `holds`
    operand: Any  # the value, the values, the JSON Schema, or the expression; nothing for `forbidden` and `required`
    default: Any = MISSING


class Expectation(Record):
    """A declared check: every value that a path pattern finds has to meet the condition."""

    paths: tuple[KeyPath, ...]
    condition: str  # one of `CONDITIONS`
    operand: Any


class Refusal(Record):
    """A declared check of settings together: what is refused, as an expression."""

    refuse: Expression
    given: Expression | None  # only where this holds, too
    defaults: Mapping[str, Any]  # values of settings that are not written
    at: Sequence[str]  # the settings to point at, the first that is written; none for those of the expression
    related: str | None  # the message for the other settings, which are not pointed at without it


class FunctionTest(Record):
    """A check in code: a function below :mod:`ms_tune`, and what to pass to it."""

    module: str
    name: str
    options: Mapping[str, Any]
    asks_others: bool = False  # whether it asks what all others found, and is made last
    refuses_job: bool = (
        False  # whether what it finds stops the framework, so that the job's remedy is a fix of it wherever it lies
    )


class Evidence(Record):
    """Where a check's claim can be read in the framework's own source."""

    framework: str  # whose source it is
    version: str  # in which release
    file: str  # the path in its package or repository
    symbol: str = ""  # the class or function, such as `LayerSetting._check_inputs`; empty for the whole file


class Check:
    """One entry of a checklist.

    Args:
        row: What is looked at to choose and to make it (see :func:`row_of`).
        entry: As the checklist has it, or the JSON of it.
    """

    def __init__(self, row: Mapping[str, Any], entry: Mapping[str, Any] | bytes) -> None:
        self._row, self._entry = row, entry
        self.id: str = row["id"]  # `MST101`; stays the same for ever
        self.name: str = row["name"]  # `duplicate-key`: what is wrong, not what to do
        self.versions: str | None = row["versions"]  # the releases it is about, such as `>=1.7`; None for all
        self.whole: bool = row["whole"]  # whether it is about the config with what its `base_config` says
        self.opposite: str | None = row["opposite"]  # the check of other profiles that finds wrong what this one wants
        self.profiles = frozenset[str](row["profiles"])  # the profiles in which it is made; empty for all
        # It finds nothing where none of these keys is written, wherever they stand; empty if that cannot be said.
        self.keys = row["keys"]

    @cached_property
    def entry(self) -> Mapping[str, Any]:
        """What the checklist says."""
        found: Mapping[str, Any] = json.loads(self._entry) if isinstance(self._entry, bytes) else self._entry
        return found

    @cached_property
    def dialects(self) -> frozenset[Dialect]:
        """Those that it is about."""
        return frozenset(map(Dialect, self._row["dialects"]))

    def is_about(self, dialect: Dialect) -> bool:
        """Whether it is about configs of a dialect."""
        return dialect.value in self._row["dialects"]

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

    @cached_property
    def when(self) -> tuple[When, ...]:
        """All of these must hold for the check to be made."""
        return tuple(When(*one) for one in self._row["when"])

    @cached_property
    def test(self) -> Expectation | Refusal | FunctionTest:
        """How to tell."""
        kind, *values = self._row["test"]
        if kind == "refuse":
            refuse, given, *others = values
            return Refusal(Expression(*refuse), given and Expression(*given), *others)
        return FunctionTest(*values) if kind == "function" else Expectation(*values)

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
    def consequences(self) -> dict[str, Consequence]:
        """What happens in the run, by the message; ``default`` for messages that are not named.

        Empty in a user's own checklist that does not say it.
        """
        found = self.entry.get("consequence", {})
        found = {"default": found} if isinstance(found, str) else found
        return {message: Consequence(name) for message, name in found.items()}

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
    names = [one.value.replace("-", "_") for one in Dialect if dialect in (None, one)]
    folder = data_folder(_FOLDER)
    checks = (check for name in (_SHARED, *names) for check in read_checks(folder / f"{name}.yaml"))
    return tuple(check for check in checks if dialect is None or check.is_about(dialect))


@cache
def built_in_code() -> Mapping[str, tuple[Check, ...]]:
    """The checks for what is no config, by the kind of file that they are for: ``environment``, ``python``."""
    files = sorted((data_folder(_FOLDER) / "code").glob("*.yaml"))
    return {file.stem: read_checks(file) for file in files}


def _entries_of(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries of a checklist, each by itself: what the members of a family share is said once in the file."""
    about = {"dialects": data["dialects"]} if "dialects" in data else {}
    entries = []
    for entry in data.get("checks", ()):
        shared = {**about, **entry}
        members = shared.pop("members", None)
        if members is not None:
            shared["family"] = [entry["id"], entry["name"]]
        entries += [shared | one for one in ([{}] if members is None else members)]
    return entries


def row_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What of an entry is looked at to choose and to make a check, in the form that is quick to read.

    Raises:
        ValueError: An expression is none, or a function is of no room of checks.
    """
    row = {name: entry.get(name, default) for name, default in _ROW.items()}
    test = entry["test"]
    row["keys"] = _keys_of(test)
    row["when"] = [_when(one) for one in entry.get("when", ())]
    if "function" in test:
        module, name = _function_of(test["function"])
        asks, refuses = test.get("asks-others", False), test.get("refuses-job", False)
        row["test"] = ["function", module, name, test.get("options", {}), asks, refuses]
    elif "refuse" in test:
        given = [*parse_expression(test["given"])] if "given" in test else None
        at = test.get("at", [])
        at = [at] if isinstance(at, str) else at
        refuse = [*parse_expression(test["refuse"])]
        row["test"] = ["refuse", refuse, given, test.get("defaults", {}), at, test.get("related")]
    else:
        row["test"] = ["expect", [parse_path(path) for path in _paths(test)], *_condition(test)]
    return row


def _function_of(name: str) -> tuple[str, str]:
    """The module and the name of a function: a dialect's own checks are in its folder, those of every plan beside the dialects, all others beside the linter."""
    room, _, function = name.rpartition(".")
    above, _, part = room.rpartition(".")
    if above == "lint":
        return f"ms_tune.lint.check_{part.removeprefix('check_')}", function
    if above != "dialects" and not above.startswith("dialects."):
        raise ValueError(name)
    return f"ms_tune.{room}", function


def _keys_of(test: Mapping[str, Any]) -> list[str]:
    """The keys without which a test finds nothing, wherever they stand; none if that cannot be said."""
    if "about" in test:
        return list(test["about"])
    if "refuse" in test:
        text = f"{test['refuse']} {test.get('given', '')}"
        return [] if _NOT_OF_KEYS.search(text) else sorted(set(_LAST_PART.findall(text)))
    last = [] if "function" in test or "required" in test else [parse_path(path)[-1] for path in _paths(test)]
    return [] if ANY in last else sorted(set(map(str, last)))


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
    checks = []
    for number, entry in enumerate(_entries_of(source.data)):
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


def parse_path(path: object) -> list[str | int]:
    """A key path, or a pattern of one, from ``a.b.*`` or ``[a, b, "*"]``."""
    return path if isinstance(path, list) else [*str(path).split(".")]


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


def _when(value: Mapping[str, Any]) -> list[Any]:
    if "legacy" in value:
        return [[], "legacy", value["legacy"]]
    if "holds" in value:
        return [[], "holds", [*parse_expression(value["holds"])]]
    default = [value["default"]] if "default" in value else []
    return [parse_path(value["path"]), *_condition(value), *default]


def _paths(test: Mapping[str, Any]) -> Iterable[Any]:
    return test["paths"] if "paths" in test else [test["path"]]


def _condition(value: Mapping[str, Any]) -> tuple[str, Any]:
    kind = next(kind for kind in CONDITIONS if kind in value)
    return kind, value[kind]
