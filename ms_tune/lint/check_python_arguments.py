"""Check Python code: arguments of MindSpore's functions and classes that it refuses at the call.

``facts/data/mindspore_arguments.json`` has for each function its arguments and what they refuse, as MindSpore itself
answered (``tests/oracle/make_arguments.py``).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.errors import closest
from ms_tune.facts.query import load
from ms_tune.lint.check_python_settings import keywords
from ms_tune.lint.python_code.module import Module, module_of
from ms_tune.lint.python_code.syntax import assigned, is_cell

_CELL, _DATASET = "mindspore.nn.Cell", "mindspore.dataset.Dataset"
_PARALLEL = "mindspore.parallel.auto_parallel.AutoParallel"
# The classes of objects, by the name that makes them.
_MADE = {
    _DATASET: r"mindspore\.dataset\.\w+Dataset$",
    _PARALLEL: r"mindspore(?:\.\w+)*\.AutoParallel$",
    _CELL: r"mindspore\.(?:mint\.)?nn\.[A-Z]\w*$",
}
_ALONE = {"recompute": _CELL}  # methods that no other class has
_ALIKE = 0.75
_DEPTH = 6
_UNKNOWN = object()


@cache
def _rows() -> Mapping[str, dict[str, Any]]:
    """Return the rows by all names of a function."""
    functions = load("mindspore_arguments")["functions"]
    return {name: row for first, row in functions.items() for name in (first, *row.get("names", ()))}


def refused_arguments(context: CheckContext) -> Iterator[Violation]:
    """Report a keyword that a function does not have, and a literal value that it refuses."""
    module, rows = module_of(context.source), _rows()
    for call, name in module.calls:
        full = name if name in rows else _method(module, call)
        row = rows.get(full)
        if row is None or _is_expected(module, call):
            continue
        given: dict[str, ast.expr] = {}
        for argument, node in zip(row["order"], call.args, strict=False):
            if isinstance(node, ast.Starred):
                break
            given[argument] = node
        known = (*row["order"], *row.get("keys", ()))
        for keyword in keywords(module, call):
            word = str(keyword.arg)
            given[word] = keyword.value
            similar = closest(word, known, _ALIKE)
            if word not in known and not row.get("more") and (similar or "keys" in row):
                params = {"function": _short(full), "argument": word, "similar": similar}
                message = "similar" if similar else "unknown"
                yield Violation((), message, params, span=module.span(keyword), is_certain="keys" in row)
        for argument, node in given.items():
            rule, value = row.get("refuses", {}).get(argument), _literal(module, node)
            message = "" if rule is None or value is _UNKNOWN else _refusal(rule, value)
            alone = rule is not None and "needs" in rule and rule["needs"] not in given and not _is_open(call)
            if message or (alone and value is not _UNKNOWN):
                choices = ", ".join(map(repr, rule.get("choices", ())))
                params = {"function": _short(full), "argument": argument, "given": repr(value), "choices": choices}
                params["needed"] = rule.get("needs", "")
                certain = message in ("default", "")
                yield Violation((), message or "needs", params, span=module.span(node), is_certain=certain)


def _is_expected(module: Module, call: ast.Call) -> bool:
    """Return whether the code is prepared for a refusal, as tests are (``with pytest.raises(ValueError)``)."""
    around = [one for one in module.around(call) if isinstance(one, ast.With | ast.Try)]
    return any(isinstance(one, ast.Try) or "raises" in ast.unparse(one.items[0]).lower() for one in around)


def _is_open(call: ast.Call) -> bool:
    """Return whether a call has arguments that are not written there."""
    return any(one.arg is None for one in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args)


def _refusal(rule: Mapping[str, Any], value: object) -> str:
    """Return the message for a refused value; empty if it is not known to be refused."""
    kind = type(value).__name__
    if kind in rule.get("types", ()):
        return "kind"
    if isinstance(value, str):
        if "choices" in rule:
            return "" if value in rule["choices"] else "choices"
        return "default" if "pattern" in rule and re.fullmatch(rule["pattern"], value) is None else ""
    if isinstance(value, tuple):
        below, above = rule.get("items_below", -float("inf")), rule.get("items_above", float("inf"))
        numbers = [one for one in value if isinstance(one, int | float)]
        return "default" if any(one <= below or one >= above for one in numbers) else ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    below, above = rule.get(f"{kind}_below", -float("inf")), rule.get(f"{kind}_above", float("inf"))
    return "default" if value <= below or value >= above or value in rule.get(f"{kind}_refused", ()) else ""


def _literal(module: Module, node: ast.expr) -> object:
    """Return a number, word or tuple that is written there, or that the only assignment of a name has."""
    if isinstance(node, ast.Name):
        values = list(assigned(module, node))
        node = values[0] if len(values) == 1 and values[0] is not None else node
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, int | float) else _UNKNOWN
    if isinstance(node, ast.Tuple):
        return tuple(_literal(module, one) for one in node.elts)
    return node.value if isinstance(node, ast.Constant) and node.value is not None else _UNKNOWN


def _method(module: Module, call: ast.Call) -> str:
    """Return the full name of a method of a cell, a data set or a parallel network; empty if the object is not known."""
    function = call.func
    if not isinstance(function, ast.Attribute):
        return ""
    owner = _class_of(module, function.value) or _ALONE.get(function.attr, "")
    return f"{owner}.{function.attr}" if owner else ""


def _class_of(module: Module, node: ast.expr, depth: int = _DEPTH) -> str:
    """Return which class's methods an expression has."""
    if not depth:
        return ""
    if isinstance(node, ast.Call):
        name = module.name(node.func)
        known = next((owner for owner, pattern in _MADE.items() if re.match(pattern, name)), "")
        if known or name.removeprefix("?") in _cells(module):
            return known or _CELL
        if isinstance(node.func, ast.Attribute) and f"{_DATASET}.{node.func.attr}" in _rows():
            return _class_of(module, node.func.value, depth - 1).replace(_CELL, "")
        return ""
    values: list[ast.expr | None] = []
    if isinstance(node, ast.Name):
        values = list(assigned(module, node))
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        values = list(module.attributes.get(node.attr, ()))
    found = {_class_of(module, one, depth - 1) for one in values if one is not None and not _continues(one, node)}
    return found.pop() if len(found) == 1 and None not in values else ""


def _continues(value: ast.expr, name: ast.expr) -> bool:
    """Return whether a value is made of the name itself: ``data = data.batch(8)``."""
    while isinstance(value, ast.Call | ast.Attribute):
        value = value.func if isinstance(value, ast.Call) else value.value
    return isinstance(value, ast.Name) and isinstance(name, ast.Name) and value.id == name.id


def _cells(module: Module) -> frozenset[str]:
    return frozenset(one.name for one in module.of(ast.ClassDef) if is_cell(module, one))


def _short(name: str) -> str:
    return name.removeprefix("mindspore.").replace("parallel.auto_parallel.", "")
