"""Provide the package's own source files to tests."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ms_tune.lint.checklist import built_in, built_in_code

PACKAGE = Path(__file__).parents[1] / "ms_tune"


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, and its parsed text."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Return whether it is an ``__init__.py``."""
        return self.path.name == "__init__.py"

    def inside(self, *packages: str) -> bool:
        """Return whether it is in one of the packages, named without ``ms_tune.``."""
        return any(f"{self.name}.".startswith(f"ms_tune.{package}.") for package in packages)


@dataclass(frozen=True)
class Import:
    """One imported name: ``from module import name``, or ``import module`` with an empty name.

    Attributes:
        typing_only: Whether it is below ``if TYPE_CHECKING``.
        by_name: Whether it is a call of ``import_module``.
    """

    module: str
    name: str
    line: int
    typing_only: bool
    by_name: bool = False


@cache
def modules() -> tuple[Module, ...]:
    """Return every module of the package."""
    found = []
    gc.disable()  # nothing of a tree can be freed, and to look for it takes half of the time
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path, ast.parse(path.read_text("utf-8"), str(path))))
    gc.enable()
    return tuple(found)


@cache
def nodes(module: Module) -> tuple[ast.AST, ...]:
    """Return all nodes of a module, cached: walking the tree takes longer than the tests' searches."""
    return tuple(ast.walk(module.tree))


@cache
def imports(module: Module) -> tuple[Import, ...]:
    """Return every import of a module, with relative ones made absolute, and ``import_module`` with all possible names."""
    return (*_imports(module, module.tree, typing_only=False), *_by_name(module))


def _by_name(module: Module) -> Iterator[Import]:
    package = module.name.rpartition(".")[0]  # may have the table of names
    files = [one for one in modules() if one.name in (module.name, package)]
    words: set[object] = {node.value for one in files for node in nodes(one) if isinstance(node, ast.Constant)}
    for node in nodes(module):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            named = _of_checks() if module.name == "ms_tune.lint.engine" else _names(node.args[0], words)
            for name in named:
                yield Import(name, "", node.lineno, typing_only=False, by_name=True)


def _of_checks() -> set[str]:
    """Return the modules whose functions the checklists name."""
    checks = (*built_in(), *(check for checks in built_in_code().values() for check in checks))
    return {check.function[0] for check in checks if check.function is not None}


def _names(argument: ast.expr, words: set[object]) -> Iterator[str]:
    """Return the possible arguments of ``import_module``: those with the prefix in the text, or else all modules."""
    if isinstance(argument, ast.Constant):
        yield str(argument.value)
    elif isinstance(argument, ast.JoinedStr) and isinstance(argument.values[0], ast.Constant):
        prefix = str(argument.values[0].value)
        parts = (re.escape(str(one.value)) if isinstance(one, ast.Constant) else r"\w+" for one in argument.values)
        form = re.compile("".join(parts))
        behind = {one.name for one in modules() if form.fullmatch(one.name)}
        yield from {name for name in behind if name.removeprefix(prefix) in words} or behind


def _imports(module: Module, node: ast.AST, *, typing_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, "", child.lineno, typing_only)
        elif isinstance(child, ast.ImportFrom):
            parts = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
            base = parts[: len(parts) - child.level + 1] if child.level else []
            source = ".".join([*base, *filter(None, [child.module])])
            for alias in child.names:
                yield Import(source, alias.name, child.lineno, typing_only)
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for part in child.body:
                yield from _imports(module, ast.Module([part], []), typing_only=True)
            for part in child.orelse:
                yield from _imports(module, ast.Module([part], []), typing_only=typing_only)
        elif isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):  # no expression imports
            yield from _imports(module, child, typing_only=typing_only)
