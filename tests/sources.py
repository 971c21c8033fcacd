"""The package's own source files, for tests that read them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[1] / "ms_tune"


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, and its parsed text."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Whether it is an ``__init__.py``."""
        return self.path.name == "__init__.py"

    def inside(self, *packages: str) -> bool:
        """Whether it lies in one of the packages, named without ``ms_tune.``."""
        return any(f"{self.name}.".startswith(f"ms_tune.{package}.") for package in packages)


@dataclass(frozen=True)
class Import:
    """One imported name: ``from module import name``, or ``import module`` with an empty name.

    Attributes:
        typing_only: It stands under ``if TYPE_CHECKING``.
    """

    module: str
    name: str
    line: int
    typing_only: bool


@cache
def modules() -> tuple[Module, ...]:
    """Every module of the package."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, path, ast.parse(path.read_text("utf-8"), str(path))))
    return tuple(found)


def imports(module: Module) -> Iterator[Import]:
    """Every import of a module, relative ones spelled out."""
    yield from _imports(module, module.tree, typing_only=False)


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
        else:
            yield from _imports(module, child, typing_only=typing_only)
