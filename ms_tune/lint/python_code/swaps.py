"""What fixes do to a syntax tree, told apart from what they do to the text, so that one can be held against the other."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True)
class Swap:
    """One node of a syntax tree that becomes another.

    Args:
        node: The class of the node.
        place: Where it stands: first line and column, last line and column, as the parser counts them.
        words: What it becomes: an expression, statements (none at all removes it), or a keyword argument's new name.
    """

    node: str
    place: tuple[int, ...]
    words: str


def swap_of(node: ast.AST, words: str) -> Swap:
    """The swap of a node for what some words mean."""
    return Swap(type(node).__name__, _place(node), words)


def leads_to(before: str, swaps: Iterable[Swap], after: str) -> bool:
    """Whether the swaps, and nothing else, make of the code ``before`` what the code ``after`` means."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and the like were there before
            swapper = _Swapper(swaps)
            expected = swapper.visit(ast.parse(before))
            return swapper.done() and ast.dump(expected) == ast.dump(ast.parse(after))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _place(node: ast.AST) -> tuple[int, ...]:
    return tuple(getattr(node, name, -1) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"))


class _Swapper(ast.NodeTransformer):
    def __init__(self, swaps: Iterable[Swap]) -> None:
        self._words = {(one.node, one.place): one.words for one in swaps}
        self._used: set[tuple[str, tuple[int, ...]]] = set()

    def done(self) -> bool:
        """Whether every node was met."""
        return self._used == self._words.keys()

    def visit(self, node: ast.AST) -> Any:  # noqa: ANN401 - a node, several statements, or nothing
        key = (type(node).__name__, _place(node))
        words = self._words.get(key)
        if words is None:
            return self.generic_visit(node)
        self._used.add(key)
        if isinstance(node, ast.keyword):
            node.arg = words
            return self.generic_visit(node)
        if isinstance(node, ast.stmt):
            return _statements(words)
        return _expression(words)


@lru_cache(maxsize=256)
def _expression(words: str) -> ast.expr:
    """What words mean; many calls of one function are replaced by the same ones."""
    return ast.parse(f"({words})", mode="eval").body


def _statements(words: str) -> Sequence[ast.stmt]:
    return ast.parse(words).body
