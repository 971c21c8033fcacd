"""Parse one Python file: its syntax tree, the meaning of its names, and the locations of its nodes in the text."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from heapq import merge
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from ms_tune.diagnostics import Location
from ms_tune.errors import ConfigError
from ms_tune.source.yaml_nodes import Document
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.source.yaml import SourceFile

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (*FUNCTIONS, ast.ClassDef, ast.Lambda)  # nodes with their own statements
_ROOTS = (*_SCOPES, *LOOPS)  # nodes whose descendants are requested
_LEAVES = (ast.Name, ast.Constant, ast.Pass, ast.alias)
_Node = TypeVar("_Node", bound=ast.AST)

_PACKAGES = ("mindspore", "msadapter", "mindformers", "mindspeed_ms")
# The canonical names of modules that MindSpore also provides under another name.
_SAME = {
    "mindspore.ops.functional": "mindspore.ops",
    "mindspore.ops.operations": "mindspore.ops",
    "mindspore.context": "mindspore",
    "mindspore.common.tensor": "mindspore",
    "mindspore.common": "mindspore",
}
_ALIASES = tuple(f"{alias}." for alias in _SAME)
# The names of `from mindspore import *` (`mindspore.__all__`, 2.9) that checks use; none is a built-in.
_TOP = frozenset(
    (
        *("Tensor", "tensor", "Parameter", "set_context", "set_deterministic", "set_auto_parallel_context", "jit"),
        *("from_numpy", "set_device", "PYNATIVE_MODE", "GRAPH_MODE", "Model"),
    )
)
# The starts of lines that an older parser refuses (PEP 695, "What's New In Python 3.12").
_NEWER = (
    ((3, 12), re.compile(r"\s*type\s+[^\W\d]\w*\s*(?:\[.*\]\s*)?=(?!=)")),
    ((3, 12), re.compile(r"\s*(?:async\s+)?(?:def|class)\s+[^\W\d]\w*\s*\[")),
)
_TOO_DEEP = ("too many nested", "too many statically nested", "too many levels of indentation")
_MODULES_OF_CLASSES = ("mindspore.nn", "mindspore.ops.operations", "mindspore.mint.nn")


@dataclass(frozen=True, eq=False)
class Module:
    """A parsed file; two of them are equal only if they are the same object."""

    tree: ast.Module  # its syntax tree
    parents: dict[ast.AST, ast.AST] = field(repr=False)  # the parent of each node
    names: dict[str, str]  # the full dotted name for each imported name
    lines: Document = field(repr=False)  # the text, with its lines
    ends: dict[ast.AST, tuple[int, int]] = field(repr=False)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Return every node, parents before children, otherwise in text order."""
        return (self.tree, *self.parents)

    @cached_property
    def _by_kind(self) -> dict[type[ast.AST], list[int]]:
        """Return the positions of the nodes of each class in :attr:`nodes`."""
        found: dict[type[ast.AST], list[int]] = {}
        for place, node in enumerate(self.nodes):
            if type(node) in found:
                found[type(node)].append(place)
            else:
                found[type(node)] = [place]
        return found

    def of(self, *kinds: type[_Node]) -> Iterator[_Node]:
        """Yield the nodes of some classes, in the order of :attr:`nodes`, without iterating over all others."""
        places = [self._by_kind.get(kind, []) for kind in kinds]
        return cast("Iterator[_Node]", (self.nodes[place] for place in (merge(*places) if places[1:] else places[0])))

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """Return every function and method."""
        return tuple(cast("Iterator[Function]", self.of(*FUNCTIONS)))

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Return every loop."""
        return tuple(cast("Iterator[Loop]", self.of(*LOOPS)))

    def below(self, root: ast.AST) -> Sequence[ast.AST]:
        """Return all descendants of a file, function, class or loop, parents first."""
        start, end = self.ends[root]
        return self.nodes[start + 1 : end]

    def local_nodes(self, root: ast.AST) -> Iterator[ast.AST]:
        """Yield the descendants of a file, function, class or loop, except those inside functions and classes defined there."""
        start, end = self.ends[root]
        nodes, at = self.nodes, start + 1
        while at < end:
            node = nodes[at]
            yield node
            at = self.ends[node][1] if isinstance(node, _SCOPES) else at + 1

    @property
    def uses_mindspore(self) -> bool:
        """Return whether the file imports anything of MindSpore."""
        return any(name.partition(".")[0] in _PACKAGES for name in self.names.values())

    def name(self, node: ast.AST) -> str:
        """Return the full dotted name of an expression such as ``ops.cat``, or an empty text."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.names.get(node.id) or self._from_star(node.id))
        full = ".".join(reversed(parts))
        if not full.startswith(_ALIASES):
            return full
        for alias, real in _SAME.items():
            if full.startswith(f"{alias}."):
                return f"{real}{full[len(alias) :]}"
        return full

    def _from_star(self, name: str) -> str:
        """Resolve a name that the file does not bind: a name of ``from mindspore import *``, or a built-in (``?NAME``)."""
        if name in self.bound or not self.stars:
            return f"?{name}"
        own = [star for star in self.stars if star.partition(".")[0] in _PACKAGES]
        for star in reversed(own):
            if star == "mindspore" and name in _TOP:
                return f"mindspore.{name}"
            if star.startswith(("mindspore.ops", "mindspore.mint", "mindspore.nn")) and len(self.stars) == len(own):
                return f"{star}.{name}" if star not in _MODULES_OF_CLASSES or name[:1].isupper() else f"?{name}"
        return f"?{name}"

    @cached_property
    def stars(self) -> tuple[str, ...]:
        """Return the modules of all ``import *``."""
        found = [node for node in self.of(ast.ImportFrom) if node.module and not node.level]
        return tuple(str(node.module) for node in found if any(alias.name == "*" for alias in node.names))

    @cached_property
    def attributes(self) -> dict[str, list[ast.expr]]:
        """Return the values assigned to each attribute of ``self``, anywhere in the file."""
        found: dict[str, list[ast.expr]] = {}
        for node in self.of(ast.Assign):
            for target in node.targets:
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                ):
                    found.setdefault(target.attr, []).append(node.value)
        return found

    @cached_property
    def calls(self) -> tuple[tuple[ast.Call, str], ...]:
        """Return every call, in text order, with the full name of the called function."""
        found = list(self.of(ast.Call))
        found.sort(key=lambda call: (call.lineno, call.col_offset))
        return tuple((node, self.name(node.func)) for node in found)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes that contain a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def is_opt_in(self, node: ast.AST, switches: re.Pattern[str]) -> bool:
        """Return whether a node only runs if a switch of the code itself is on: ``if args.debug: ...``."""
        for one in self.around(node):
            if isinstance(one, ast.If) and node in one.body and switches.search(ast.unparse(one.test)):
                return True
            node = one
        return False

    @cached_property
    def bound(self) -> dict[str, set[str]]:
        """Return, for each name in the file, the full names under which it is imported, or an empty text for other bindings."""
        found: dict[str, set[str]] = {}
        for node in self.of(*_BINDING):
            for name, full in _bindings(node):
                found.setdefault(name, set()).add(full)
        return found

    @cached_property
    def imports(self) -> tuple[ast.Import | ast.ImportFrom, ...]:
        """Return the imports at the top level."""
        return tuple(one for one in self.tree.body if isinstance(one, (ast.Import, ast.ImportFrom)))

    @cached_property
    def read(self) -> frozenset[str]:
        """Return every name that the code reads or assigns."""
        return frozenset(node.id for node in self.of(ast.Name))

    def at(self, span: Location | None, *kinds: type[ast.AST]) -> ast.AST | None:
        """Return the expression or keyword argument of one of the kinds whose location is exactly this span."""
        if span is None:
            return None
        for kind in kinds:
            for node in self._by_line(kind).get(span.line, ()):
                own = self.span(node)
                if (own.start, own.end) == (span.start, span.end):
                    return node
        return None

    @cached_property
    def _lines_of(self) -> dict[type[ast.AST], dict[int, list[ast.AST]]]:
        return {}

    def _by_line(self, kind: type[ast.AST]) -> dict[int, list[ast.AST]]:
        """Return the nodes of a class by their first line, so that spans are only computed for requested lines."""
        if kind not in self._lines_of:
            found: dict[int, list[ast.AST]] = {}
            for node in self.of(kind):
                found.setdefault(getattr(node, "lineno", 0), []).append(node)
            self._lines_of[kind] = found
        return self._lines_of[kind]

    def function(self, node: ast.AST) -> Function | None:
        """Return the function that contains a node."""
        return next((one for one in self.around(node) if isinstance(one, FUNCTIONS)), None)

    def span(self, node: ast.AST) -> Location:
        """Return the location of an expression or statement; of a compound statement, that of its first line."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        end_line, end_column = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", column)
        start = self._offset(line, column)
        end = self._offset(end_line, end_column)
        if isinstance(node, (*FUNCTIONS, *LOOPS, ast.ClassDef, ast.If, ast.With)):
            newline = self.lines.text.find("\n", start, end)
            end = newline if newline >= 0 else end
            end = start + len(self.lines.text[start:end].rstrip())
        return self.lines.span(start, end)

    def _offset(self, line: int, column: int) -> int:
        """Return the offset of a place from the parser, whose columns count bytes of UTF-8."""
        start = self.lines.starts[line - 1]
        text = self.lines.text[start : start + column]
        if text.isascii():
            return start + column
        return start + len(text.encode()[:column].decode(errors="ignore"))


def module_of(source: SourceFile) -> Module:
    """Return the parsed file of a source."""
    return _module(source.text, source.path)


@lru_cache(maxsize=2)
def _module(text: str, path: Path) -> Module:
    lines = Document(text, path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and the like are left to other linters
            tree = ast.parse(text)
        parents, ends = _parents(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise refusal(error, path) from error
    module = Module(tree, parents, {}, lines, ends)
    imported = (pair for node in module.of(ast.Import, ast.ImportFrom) for pair in _bindings(node))
    module.names.update((name, full) for name, full in imported if not full.startswith("."))
    return module


def refusal(error: Exception, path: Path, running: tuple[int, int] = sys.version_info[:2]) -> ConfigError:
    """Return the error for a file that the parser refuses."""
    line, column = getattr(error, "lineno", None), getattr(error, "offset", None)
    version = _dotted(running)
    if isinstance(error, (RecursionError, MemoryError)) or str(getattr(error, "msg", "")).startswith(_TOO_DEEP):
        return ConfigError(msg("lint_code.too-deep", version=version), path=path, line=line, column=column)
    text = (error.text or "") if isinstance(error, SyntaxError) else ""
    needed = next((release for release, form in _NEWER if release > running and form.match(text)), None)
    if needed is not None:
        message = msg("lint_code.newer", needed=_dotted(needed), version=version)
        hint = msg("lint_code.newer.hint", needed=_dotted(needed))
        return ConfigError(message, hint, path=path, line=line, column=column)
    return ConfigError(msg("lint_code.not-python", version=version), path=path, line=line, column=column)


def _dotted(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))


def _parents(tree: ast.Module) -> tuple[dict[ast.AST, ast.AST], dict[ast.AST, tuple[int, int]]]:
    """Return the parent of each node, in the order of :attr:`Module.nodes`, and the range of each root."""
    found: dict[ast.AST, ast.AST] = {}
    ends: dict[ast.AST, tuple[int, int]] = {tree: (0, 0)}
    waiting: list[tuple[ast.AST, ast.AST | None]] = [(tree, None)]
    waiting += [(child, tree) for child in reversed(_children(tree))]
    while waiting:
        node, parent = waiting.pop()
        if parent is None:  # all descendants of a root have been visited
            ends[node] = (ends[node][0], len(found) + 1)
            continue
        found[node] = parent
        if isinstance(node, _ROOTS):
            ends[node] = (len(found), 0)
            waiting.append((node, None))
        if type(node) not in _LEAVES:
            waiting += [(child, node) for child in reversed(_children(node))]
    return found, ends


def _children(node: ast.AST) -> list[ast.AST]:
    """Return the children of a node, without ``Load()``, ``Add()`` and the like, which are as numerous as the names."""
    found: list[ast.AST] = []
    for name in _fields(type(node)):  # type: ignore[arg-type] # a class does have a hash
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif isinstance(value, list):
            found += [one for one in value if isinstance(one, ast.AST)]
    return found


@cache
def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    return tuple(name for name in kind._fields if name not in ("ctx", "op", "ops", "attr", "kind", "type_comment"))


# The nodes that may bind a name.
_BINDING = (
    *(ast.Import, ast.ImportFrom, ast.Name, ast.arg, *FUNCTIONS, ast.ClassDef, ast.ExceptHandler),
    *(ast.MatchAs, ast.MatchStar, ast.MatchMapping),
)


def _bindings(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that a node binds, each with the full name that it is imported as, or an empty text."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (top, top)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{'.' * node.level}{node.module or ''}.{alias.name}"
    elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id, ""
    elif isinstance(node, ast.arg):
        yield node.arg, ""
    elif isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name, ""
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest, ""
