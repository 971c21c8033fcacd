"""Define the changes that `mutants.py` may make in a module, and draw mutants from them."""

from __future__ import annotations

import ast
import operator
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OTHER: dict[type[ast.AST], Callable[[], ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
_BOUND = re.compile("_?(MOST|MAX|LONGEST|LARGEST)(_|$)")
_LARGE = 100  # fewer are counted by people
_COMPUTED: dict[type[ast.AST], Callable[[Any, Any], float]] = {
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}


@dataclass(frozen=True)
class Mutant:
    """One changed module.

    Attributes:
        path: The module, relative to the checkout.
        function: The changed function; empty at module level.
        line: The changed line.
        change: The statement before and after, in one line.
        text: The module with the change.
    """

    path: str
    function: str
    line: int
    change: str
    text: str

    @property
    def room(self) -> str:
        """Return the folder of the module."""
        return self.path.split("/")[1]

    def __str__(self) -> str:
        """Return the position and the change as text."""
        return f"{self.path}:{self.line} {self.function}: {self.change}"


@dataclass(frozen=True)
class Site:
    """A place that can be changed, with functions to change it and to restore it."""

    line: int
    statement: ast.stmt
    function: str
    do: Callable[[], None]
    undo: Callable[[], None]


def sites(tree: ast.Module) -> Iterator[Site]:
    """Yield everything in a module that can be changed, except types, decorators and texts."""
    yield from (site for site in _sites(tree, "", None) if not _is_same_bound(site))


def _sites(node: ast.AST, function: str, statement: ast.stmt | None) -> Iterator[Site]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        function = f"{function}.{node.name}".lstrip(".")
    if isinstance(node, ast.stmt):
        statement = node
    if statement is not None:
        for do, undo in _changes(node):
            yield Site(getattr(node, "lineno", statement.lineno), statement, function, do, undo)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or _is_typing(node):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_promise(child):
                yield from _sites(child, function, statement)


def _is_promise(node: ast.AST) -> bool:
    """Return whether a node is the ``strict=True`` of a ``zip``: no input makes the lengths differ, except through a defect of ms-tune."""
    return isinstance(node, ast.keyword) and node.arg == "strict" and ast.unparse(node.value) == "True"


def _is_same_bound(site: Site) -> bool:
    """Return whether only the last digits of a limit change, such as 10,001 layers instead of 10,000."""
    statement = site.statement
    if site.function or not isinstance(statement, ast.Assign):
        return False
    before = _values(statement)
    site.do()
    after = _values(statement)
    site.undo()
    changed = [(name, old, new) for (name, old), (_, new) in zip(before, after, strict=True) if old != new]
    return bool(changed) and all(
        _BOUND.match(name) and old is not None and new is not None and old >= _LARGE and abs(new - old) <= old / 10
        for name, old, new in changed
    )


def _values(statement: ast.Assign) -> list[tuple[str, float | None]]:
    """Return the names that are assigned, and their values."""
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return [(ast.unparse(one), _value(other)) for one, other in zip(target.elts, value.elts, strict=False)]
    return [(ast.unparse(target), _value(value))]


def _value(node: ast.expr) -> float | None:
    """Return the value of a number, or of a product, power or shift of numbers."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        left, right = _value(node.left), _value(node.right)
        return None if left is None or right is None else _COMPUTED[type(node.op)](left, right)
    return None


def _is_typing(node: ast.AST) -> bool:
    test = node.test if isinstance(node, ast.If) else node.targets[0] if isinstance(node, ast.Assign) else None
    return test is not None and "TYPE_CHECKING" in ast.unparse(test)


def _changes(node: ast.AST) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    if isinstance(node, ast.Compare):
        operators: list[Any] = node.ops
        for place, old in enumerate(node.ops):
            yield from _swaps(operators, place, _OTHER[type(old)]())
    if isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)) and type(node.op) in _OTHER:
        yield from _sets(node, "op", _OTHER[type(node.op)]())
    if isinstance(node, (ast.If, ast.IfExp, ast.While)) and not _is_typing(node):
        yield from _sets(node, "test", ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int)):
        yield from _sets(node, "value", not node.value if isinstance(node.value, bool) else node.value + 1)
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield from _sets(node, "value", ast.Constant(None))
    for name in ("body", "orelse"):
        body: list[Any] = found if isinstance(found := getattr(node, name, None), list) else []
        for place, each in enumerate(body):
            if isinstance(each, (ast.Break, ast.Continue)):
                other = ast.Continue() if isinstance(each, ast.Break) else ast.Break()
                yield from _swaps(body, place, ast.copy_location(other, each))


def _sets(node: ast.AST, name: str, new: object) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    old = getattr(node, name)
    yield lambda: setattr(node, name, new), lambda: setattr(node, name, old)


def _swaps(items: list[Any], place: int, new: ast.AST) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    old = items[place]
    yield lambda: items.__setitem__(place, new), lambda: items.__setitem__(place, old)


def mutants(checkout: Path, rooms: list[str], count: int, seed: int) -> list[Mutant]:
    """Return this many mutants of these folders, drawn uniformly from all places."""
    trees = {
        path: ast.parse(path.read_text("utf-8"))
        for room in rooms
        for path in sorted((checkout / "ms_tune" / room).rglob("*.py"))
    }
    found = [(path, site) for path, tree in trees.items() for site in sites(tree)]
    print(f"{len(found)} places in {len(trees)} modules")
    drawn = random.Random(seed).sample(found, min(count, len(found)))  # noqa: S311 - a sample, no secret
    made = []
    for path, site in drawn:
        before = ast.unparse(site.statement).splitlines()
        site.do()
        after, text = ast.unparse(ast.fix_missing_locations(site.statement)).splitlines(), ast.unparse(trees[path])
        site.undo()
        pairs = [pair for pair in zip(before, after, strict=False) if pair[0] != pair[1]] or [("", "")]
        made.append(Mutant(path.relative_to(checkout).as_posix(), site.function, site.line, _change(*pairs[0]), text))
    return made


def _change(before: str, after: str) -> str:
    """Return a line before and after the change; a long line is shortened to the part around the change."""
    pairs = enumerate(zip(before, after, strict=False))
    at = next((place for place, pair in pairs if pair[0] != pair[1]), min(len(before), len(after)))
    return " -> ".join(line[max(0, at - 50) : at + 50].strip() for line in (before, after))
