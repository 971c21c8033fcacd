"""Describe the changes of a syntax tree by fixes, separately from the edits of the text, to verify one by the other."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Swap:
    """The replacement of one node of a syntax tree."""

    node: str  # the class of the node
    place: tuple[int, ...]  # its location: first line and column, last line and column, as the parser counts them
    words: str  # the replacement: an expression, statements (empty to remove it), or a keyword argument's new name


def swap_of(node: ast.AST, words: str) -> Swap:
    """Return the swap of a node for the code in ``words``."""
    return Swap(type(node).__name__, _place(node), words)


def leads_to(before: ast.Module, swaps: Iterable[Swap], after: str) -> bool:
    """Return whether the swaps, and nothing else, turn the tree ``before`` into the tree of the code ``after``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and the like were there before
            return _Swapper(swaps).makes(before, ast.parse(after))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _place(node: object) -> tuple[int, ...]:
    return tuple(getattr(node, name, -1) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"))


class _Swapper:
    """A comparison of a tree, with swaps applied, with another tree: in one pass, without changing either."""

    def __init__(self, swaps: Iterable[Swap]) -> None:
        self._words = {(one.node, one.place): one.words for one in swaps}
        self._kinds = frozenset(getattr(ast, kind) for kind, _ in self._words)
        self._used: set[tuple[str, tuple[int, ...]]] = set()

    def makes(self, before: ast.AST, after: ast.AST) -> bool:
        """Return whether every swap was applied and the trees are then equal, apart from locations."""
        waiting: list[tuple[ast.AST, ast.AST, bool]] = [(before, after, False)]
        while waiting:
            one, other, swapped = waiting.pop()
            if type(one) is not type(other):
                return False
            for name in one._fields:
                ours, theirs = getattr(one, name, None), getattr(other, name, None)
                if ours is theirs:  # `Load()`, None, names: the parser reuses equal objects
                    continue
                if isinstance(ours, ast.AST) and (swapped or type(ours) not in self._kinds):  # nearly all fields
                    if not isinstance(theirs, ast.AST):
                        return False
                    waiting.append((ours, theirs, swapped))
                elif isinstance(ours, (ast.AST, list)):
                    parts = self._parts(ours if isinstance(ours, list) else [ours], swapped=swapped)
                    against = theirs if isinstance(theirs, list) else [theirs]
                    if not _pair(list(parts), against, waiting):
                        return False
                elif type(ours) is not type(theirs) or repr(ours) != repr(theirs):
                    return False
        return self._used == self._words.keys()

    def _parts(self, nodes: Iterable[object], *, swapped: bool) -> Iterator[tuple[object, bool]]:
        """Yield the content of a field after the swaps, each part with whether it must not be swapped again."""
        for node in nodes:
            key = (type(node).__name__, _place(node)) if not swapped and type(node) in self._kinds else None
            words = self._words.get(key) if key is not None else None
            if key is None or words is None:
                yield node, swapped
                continue
            self._used.add(key)
            if isinstance(node, ast.keyword):
                yield ast.keyword(words, node.value), False
            elif isinstance(node, ast.stmt):
                yield from ((one, True) for one in ast.parse(words).body)
            else:
                yield _expression(words), True


def _pair(
    parts: Sequence[tuple[object, bool]], against: Sequence[Any], waiting: list[tuple[ast.AST, ast.AST, bool]]
) -> bool:
    """Add corresponding parts to the list to compare; return whether no difference was found yet."""
    if len(parts) != len(against):
        return False
    for (part, swapped), opposite in zip(parts, against, strict=True):
        if isinstance(part, ast.AST):
            waiting.append((part, opposite, swapped))
        elif part != opposite:  # a name of `global`; None, for `**` in a dictionary
            return False
    return True


@lru_cache(maxsize=256)
def _expression(words: str) -> ast.expr:
    """Parse an expression; cached, because many calls of one function get the same replacement."""
    return ast.parse(f"({words})", mode="eval").body
