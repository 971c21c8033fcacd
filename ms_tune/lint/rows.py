"""Convert the entries of a checklist to rows, the form from which the engine makes checks.

An expression is a text in a small part of Python's grammar: ``model.hidden_size % model.num_attention_heads != 0``. It
becomes nested lists for JSON and :func:`ms_tune.lint.expressions.evaluate`; Python never runs it as code.

Rows of built-in checklists are cached (:mod:`ms_tune.lint.checklist`); then a lint does not need this module.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import yaml

from ms_tune.dialects.check_context import parse_path
from ms_tune.lint.expressions import FUNCTIONS
from ms_tune.source.yaml import ANY
from ms_tune.source.yaml_nodes import Loader

if TYPE_CHECKING:
    Tree: TypeAlias = "list[Any]"  # an operation and its operands

MAX_LENGTH = 600
MAX_DEPTH = 30
CONDITIONS = ("equals", "one-of", "not-one-of", "forbidden", "required", "schema")

# The parts of an entry that its row copies, with their defaults.
_AS_IT_IS: dict[str, Any] = {
    **dict.fromkeys(("id", "name", "versions", "opposite", "family", "severity", "category")),
    "dialects": [],
    "whole": False,
    "profiles": [],
}
# Expressions that may be true although none of the keys in them is present.
_NOT_OF_KEYS = re.compile(
    r"\b(?:(?:network|degree|written|raw|startup|plan|framework|allocator)\.|known\(|on\(|either\(|integer\([^()]*,)"
)
_LAST_PART = re.compile(r"[A-Za-z_]\w*(?![\w.])")  # of each key path of an expression
# By the names of Python's classes for them.
_OPERATORS = {
    "Add": "+",
    "Sub": "-",
    "Mult": "*",
    "FloorDiv": "//",
    "Mod": "%",
    "Lt": "<",
    "LtE": "<=",
    "Gt": ">",
    "GtE": ">=",
    "Eq": "==",
    "NotEq": "!=",
    "In": "in",
    "NotIn": "not in",
    "Is": "is",
    "IsNot": "is not",
}


def read_rows(content: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows of a built-in checklist, and its entries."""
    entries = entries_of(yaml.load(content, Loader=Loader))  # noqa: S506 - it is a safe loader
    rows = []
    for entry in entries:
        rows.append(row_of(entry))  # noqa: PERF401 - one frame less in the deepest call chain of a lint
    return rows, entries


def rows_as_json(key: list[int], rows: list[dict[str, Any]], entries: list[dict[str, Any]]) -> str:
    """Return a checklist for the cache: a line with its rows, and one per entry; empty if JSON would change values such as dates."""
    parts: list[Any] = [{"key": key, "rows": rows}, *entries]
    lines = [json.dumps(one, ensure_ascii=False, default=str) for one in parts]
    return "\n".join(lines) if [json.loads(one) for one in lines] == parts else ""


def keep_rows(text: str, kept: str) -> None:
    """Write a checklist to the cache, if possible."""
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(kept), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - a text, as `os` takes it
        fresh = f"{kept}.{os.getpid()}"  # tempfile would be slow to import
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(fresh, kept)  # noqa: PTH105 - `fresh` is a text
        except OSError:
            os.unlink(fresh)  # noqa: PTH108 - as above
            raise


def entries_of(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of a checklist, with the settings that members of a family share copied to each."""
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
    """Return the parts of an entry that are needed to select and run its check, in a form that loads quickly."""
    row = {name: entry.get(name, default) for name, default in _AS_IT_IS.items()}
    tests = entry["test"] if isinstance(entry["test"], list) else [entry["test"]]
    first = tests[0]
    keys = [_keys_of(one) for one in tests]
    row["keys"] = sorted(set().union(*keys)) if all(keys) else []
    row["odd"] = first.get("odd", [])
    conditions = [_when(one) for one in entry.get("when", ())]
    row["when"] = ["and", *conditions] if conditions else None
    row["function"] = _function_of(first["function"]) if "function" in first else None
    row["options"] = first.get("options", {})
    row["asks-others"] = first.get("asks-others", False)
    row["tests"] = [] if "function" in first else [made for one in tests for made in _tests_of(one)]
    together = "function" in first or "refuse" in first
    row["remedy"] = "anywhere" if first.get("refuses-job") else "place" if together else "never"
    return row


def _function_of(name: str) -> list[str]:
    """Return the module (in ``dialects`` or ``lint``) and the name of a check function."""
    room, _, function = name.rpartition(".")
    above, _, part = room.rpartition(".")
    if above == "lint":
        return [f"ms_tune.lint.check_{part.removeprefix('check_')}", function]
    if above != "dialects" and not above.startswith("dialects."):
        raise ValueError(name)
    return [f"ms_tune.{room}", function]


def _keys_of(test: Mapping[str, Any]) -> list[str]:
    """Return the keys without which a test finds nothing, at any path; empty if this cannot be determined."""
    if "about" in test:
        return list(test["about"])
    patterns = [parse_path(path) for path in _listed(test.get("each", test.get("paths", test.get("path", []))))]
    if patterns:
        last = [[part for part in pattern if part != ANY and isinstance(part, str)][-1] for pattern in patterns]
        return [] if "required" in test else sorted(set(last))
    text = " ".join([*_cases(test).values(), test.get("given", ""), *test.get("let", {}).values()])
    return [] if "function" in test or _NOT_OF_KEYS.search(text) else sorted(set(_LAST_PART.findall(text)))


def _tests_of(test: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a test in the engine's form: the values it checks, the cases it reports, and their places."""
    if "refuse" not in test:
        return _expectations(test)
    patterns = [parse_path(path) for path in _listed(test.get("each", []))]
    own = {*test.get("let", {}), *(("value", "key", "within") if patterns else ())}
    refused: list[str] = []
    row: dict[str, Any] = {name: test[name] for name in ("defaults", "at-key") if name in test}
    row["cases"] = [[message, parse_expression(text, refused, own)] for message, text in _cases(test).items()]
    names = [*refused]
    if patterns:
        row["each"] = patterns
    if "given" in test:
        row["given"] = parse_expression(test["given"], names, own)
    row["let"] = {name: parse_expression(text, names, own) for name, text in test.get("let", {}).items()}
    row["names"] = list(dict.fromkeys(names))
    if "at" in test or not patterns:
        row["at"] = _listed(test["at"]) if "at" in test else list(dict.fromkeys(refused))
    if "place" in test:
        places = test["place"] if isinstance(test["place"], dict) else {"default": test["place"]}
        row["place"] = {message: parse_path(path) for message, path in places.items()}
    if "related" in test:
        row["related"] = [test["related"], list(dict.fromkeys(refused))]
    return [row]


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 - a name, a path, or several
    return value if isinstance(value, list) else [value]


def _cases(test: Mapping[str, Any]) -> dict[str, str]:
    """Return the cases that a test reports, by message."""
    refused = test.get("refuse", {})
    return refused if isinstance(refused, dict) else {"default": refused}


def _expectations(test: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return declarative tests of single values in the engine's form; a missing mapping requires nothing."""
    patterns = [parse_path(path) for path in _listed(test.get("paths", [test.get("path")]))]
    kind = next(kind for kind in CONDITIONS if kind in test)
    value: Tree = ["name", "value"]
    if kind != "required":
        cases = [["default", ["not", _condition(value, kind, test[kind])]]]
        return [{"each": patterns, "cases": cases, "at-key": kind == "forbidden"}]
    is_mapping = ["==", ["kind", value], ["value", "dict"]]
    return [
        {
            "each": [path],
            "cases": [["default", ["and", is_mapping, ["not in", ["value", name], value]]]],
            "place": {"default": ["", name]},
            "at-key": True,
        }
        for *path, name in patterns
    ]


def _when(value: Mapping[str, Any]) -> Tree:
    """Return a precondition as an expression. Null counts as missing, as in the frameworks."""
    if "legacy" in value:
        return ["is", ["name", "framework.legacy"], ["value", value["legacy"]]]
    if "holds" in value:
        return parse_expression(value["holds"])
    kind = next(kind for kind in CONDITIONS if kind in value)
    place: Tree = ["path", parse_path(value["path"])]
    if "default" in value:
        place = ["either", place, ["value", value["default"]]]
    return _condition(place, kind, value[kind])


def _condition(value: Tree, kind: str, operand: Any) -> Tree:  # noqa: ANN401 - of any type
    """Return the condition for a value as an expression; a missing value is not one of several, and is not required."""
    if kind in ("forbidden", "required"):
        return ["known", value] if kind == "required" else ["not", ["known", value]]
    if kind == "schema":
        return ["schema", value, ["value", operand]]
    found = ["in", value, ["value", [operand] if kind == "equals" else operand]]
    return ["is not", found, ["value", True]] if kind == "not-one-of" else found


class _Part(NamedTuple):
    """A part of an expression: its operation, the key paths in it, and its nesting depth."""

    tree: Tree
    names: list[str]
    depth: int


def parse_expression(text: str, names: list[str] | None = None, own: Iterable[str] = ()) -> Tree:
    """Parse an expression; add the names in it that are not in ``own`` to ``names``."""
    parts: dict[ast.AST, _Part] = {}
    try:
        # Cut a text that is too long, so that it is invalid.
        root = ast.parse(text.strip() if len(text) <= MAX_LENGTH else "", mode="eval").body
        for node in reversed(list(ast.walk(root))):  # the innermost first, because the others contain them
            if isinstance(node, ast.expr):
                parts[node] = _part_of(node, parts)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        parts = {}
    made = parts.get(root) if parts else None
    if made is None or made.depth > MAX_DEPTH:
        message = f"{text[:MAX_LENGTH]!r} is no expression of a checklist"
        raise ValueError(message)
    if names is not None:
        names += [name for name in made.names if name.partition(".")[0] not in own]
    return made.tree


def _part_of(node: ast.expr, parts: Mapping[ast.AST, _Part]) -> _Part:
    """Convert a part of an expression, whose own parts are converted already."""
    tree: Tree
    names: list[str] = []
    used: list[_Part] = []

    def take(*nodes: ast.AST, bound: str = "") -> list[Tree]:
        for one in nodes:
            used.append(parts[one])
            names.extend(name for name in parts[one].names if not bound or name.partition(".")[0] != bound)
        return [parts[one].tree for one in nodes]

    match node:
        case ast.Name(id=name):
            return _Part(["name", name], [name], 1)
        case ast.Attribute(value=ast.Name() | ast.Attribute() as owner, attr=attribute):
            name = f"{parts[owner].names[0]}.{attribute}"
            return _Part(["name", name], [name], 1)
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return _Part(["value", value], [], 1)
        case ast.Tuple(elts=items):
            made = take(*items)
            fixed = [one[1] for one in made if one[0] == "value"]
            tree = ["value", fixed] if len(fixed) == len(made) else ["tuple", *made]
        case ast.GeneratorExp(elt=part, generators=[ast.comprehension(target=ast.Name(id=name), iter=items, ifs=ifs)]):
            kept, *conditions = take(part, *ifs, bound=name)
            tree = ["each", name, *take(items), kept, ["and", *conditions] if conditions else None]
        case _:
            tree = _operation_of(node, take)
    return _Part(tree, names, 1 + max((one.depth for one in used), default=0))


def _operation_of(node: ast.expr, take: Callable[..., list[Tree]]) -> Tree:  # noqa: PLR0911 - one case a form
    match node:
        case ast.BoolOp(op=sign, values=values):
            return ["or" if isinstance(sign, ast.Or) else "and", *take(*values)]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ["not", *take(operand)]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ["-", ["value", 0], *take(operand)]
        case ast.BinOp(left=left, op=sign, right=right) if word := _OPERATORS.get(type(sign).__name__):
            return [word, *take(left, right)]
        case ast.Compare(left=left, ops=signs, comparators=others):
            words = [_OPERATORS[type(sign).__name__] for sign in signs]
            sides = take(left, *others)
            links = [[word, one, other] for word, one, other in zip(words, sides, sides[1:], strict=False)]
            return links[0] if len(links) == 1 else ["and", *links]
        case ast.Subscript(value=value, slice=ast.Constant(value=int() | str()) | ast.UnaryOp() as index):
            return ["item", *take(value, index)]
        case ast.Call(func=ast.Name(id=function), args=[_, *_] as arguments, keywords=[]) if function in FUNCTIONS:
            least, most = FUNCTIONS[function][1:]
            if least <= len(arguments) <= most:
                return [function, *take(*arguments)]
    raise ValueError
