"""A name that surely means ``mindspore.mint`` at one place of a file, if need be after an import is made longer."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.config.spans import Edit
from ms_tune.lint.python_code.swaps import Swap, swap_of

if TYPE_CHECKING:
    from ms_tune.lint.python_code.module import Module

_MINT = "mindspore.mint"


@dataclass(frozen=True, slots=True)
class MintName:
    """How mint is called at a place, and what has to be added to an import for it."""

    words: str
    edits: tuple[Edit, ...] = ()
    swaps: tuple[Swap, ...] = ()


def mint_name(module: Module, node: ast.AST) -> MintName | None:
    """The name for a place; None if there is none.

    Only imports at the top level and above the place count, and only names that nothing else in the file binds.
    """
    line = getattr(node, "lineno", 0)
    imports = [one for one in module.tree.body if isinstance(one, (ast.Import, ast.ImportFrom)) and one.lineno < line]
    names = {name for one in imports for alias in one.names for name in (alias.asname or alias.name.partition(".")[0],)}
    for name in sorted(names):
        if module.bound.get(name) == {_MINT}:
            return MintName(name)
    for name in sorted(names):
        if module.bound.get(name) == {"mindspore"}:
            return MintName(f"{name}.mint")
    return _added(module, imports)


def _added(module: Module, imports: list[ast.Import | ast.ImportFrom]) -> MintName | None:
    """``mint`` as one more name of a ``from mindspore import ...``, in a file that has no such name."""
    if "mint" in module.bound or "mint" in module.read:
        return None
    for one in imports:
        if (
            isinstance(one, ast.ImportFrom)
            and one.module == "mindspore"
            and not one.level
            and one.names[-1].name != "*"
        ):
            longer = ast.ImportFrom(one.module, [*one.names, ast.alias("mint")], one.level)
            end = module.span(one.names[-1]).end
            return MintName("mint", (Edit(end, end, ", mint"),), (swap_of(one, ast.unparse(longer)),))
    return None
