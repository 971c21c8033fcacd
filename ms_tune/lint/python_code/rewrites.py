"""Create fixes of Python code: the rewrites of ``checklists/code/python.yaml``.

Each function receives the parsed file and the finding's violation. It returns edits of the text and, separately, the matching
changes of the syntax tree (:class:`Swap`), so that the two can be compared.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from ms_tune.diagnostics import TextEdit
from ms_tune.facts.query import load
from ms_tune.lint.environment.settings import items
from ms_tune.source.edit import EditRefusedError
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from ms_tune.dialects.check_context import Violation
    from ms_tune.lint.python_code.module import Module

    Rewrite: TypeAlias = Callable[[Module, Violation], "Rewritten"]

_FLIPPED: Mapping[object, str] = {"ON": "OFF", "OFF": "ON"}
_REST_OF_LINE = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n|\Z)")
_SHOWN = 40  # characters of code in a title
_MINT = "mindspore.mint"
_NAMES = load("mint")
# Full name of the old function to the new one.
DROP_IN: Mapping[str, str] = _NAMES["same"]
WITH_KEYWORDS: Mapping[str, str] = _NAMES["keywords"]
# Reported, but not rewritten.
WITHOUT_FIX: Mapping[str, str] = {name: one["mint"] for name, one in _NAMES["without_fix"].items()}
# Operator classes of ops (``P.MatMul()``), each with the function of mint that does the same with default settings.
OPERATORS: Mapping[str, str] = _NAMES["operators"]

# The names of parameters in mint: for any function, for one of WITH_KEYWORDS, and for a few.
_AXES = {"axis": "dim", "keep_dims": "keepdim", "keepdims": "keepdim"}
_PARAMETERS = {**_AXES, "x": "input", "input_x": "input"}
_LOSS = {"logits": "input", "labels": "target"}
_OWN: Mapping[str, Mapping[str, str]] = {
    "mindspore.ops.binary_cross_entropy": _LOSS,
    "mindspore.ops.kl_div": _LOSS,
    "mindspore.ops.matrix_norm": _AXES,
    "mindspore.ops.qr": {"input": "A"},
    "mindspore.ops.vector_norm": _AXES,  # the tensor is `x` in mint as well
}
# Parameters that mint's function lacks, and their positions in the list of arguments.
_GONE = {
    "mindspore.ops.split": ("output_num", None),  # before MindSpore 2.0
    "mindspore.ops.upsample": ("recompute_scale_factor", 5),
}


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A fix, not yet verified: its title, the edits of the text, and the swaps in the tree."""

    title: Message
    edits: tuple[TextEdit, ...]
    swaps: tuple[Swap, ...]


def _flip(module: Module, violation: Violation) -> Rewritten:
    value = _argument(module, violation)
    given = value.value
    if isinstance(given, bool):
        return _rewrite_node(module, value, str(not given))
    return _rewrite_node(module, value, _quoted(module, value, _FLIPPED.get(given) or _unclear()))


def _convert_switch(module: Module, violation: Violation) -> Rewritten:
    """Replace a switch by a value of the type that the call accepts."""
    value = _argument(module, violation)
    word = str(value.value).strip().lower()
    on = word in ("true", "on", "1")
    if not on and word not in ("false", "off", "0"):
        _unclear()
    if isinstance(module.at(violation.span, ast.keyword), ast.keyword):
        state = "ON" if on else "OFF"
        quoted = _quoted(module, value, state) if isinstance(value.value, str) else f"'{state}'"
        return _rewrite_node(module, value, quoted)
    return _rewrite_node(module, value, str(on))


def _drop_call(module: Module, violation: Violation) -> Rewritten:
    """Remove a statement that is only the call, including its line if nothing else is on it."""
    call = module.at(violation.span, ast.Call) or _unclear()
    statement = module.parents.get(call)
    if not isinstance(statement, ast.Expr):
        _unclear()
    text, span = module.lines.text, module.span(statement)
    title = msg("lint.fix.remove-words", old=_shown(text[span.start : span.end]))
    start = module.lines.starts[span.line - 1]
    rest = _REST_OF_LINE.match(text, span.end)
    around = module.parents[statement]
    bodies = [getattr(around, name, None) for name in ("body", "orelse", "finalbody")]
    alone = any(isinstance(body, list) and body == [statement] for body in bodies)
    if text[start : span.start].strip() or rest is None or (alone and not isinstance(around, ast.Module)):
        # A block must not be empty.
        return Rewritten(title, (TextEdit(span.start, span.end, "pass"),), (swap_of(statement, "pass"),))
    return Rewritten(title, (TextEdit(start, rest.end(), ""),), (swap_of(statement, ""),))


def _mint(module: Module, violation: Violation) -> Rewritten:
    """Replace a function by its counterpart in mint, under a name that refers to it here, and rename keyword arguments."""
    function = module.at(violation.span, ast.Attribute, ast.Name)
    call = module.parents.get(function) if function is not None else None
    if not isinstance(call, ast.Call) or not isinstance(function, (ast.Attribute, ast.Name)):
        _unclear()
    root: ast.expr = function
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or len(module.bound.get(root.id, ())) != 1:
        _unclear()
    old = module.name(function)
    if not keeps_its_meaning(old, call) or any(keyword.arg is None for keyword in call.keywords):
        _unclear()
    name, changes = _name_of_mint(module, function)
    words = f"{name}{str(violation.params['new']).removeprefix('mint')}"
    kind = "lint.fix.rewrite-import" if changes else "lint.fix.rewrite"
    made = _rewrite_node(module, function, words, msg(kind, old=_shown(_words(module, function)), new=words))
    names = parameter_names(old)
    for keyword in call.keywords:
        if keyword.arg and keyword.arg in names:
            start, new = module.span(keyword).start, names[keyword.arg]
            changes.append((TextEdit(start, start + len(keyword.arg), new), swap_of(keyword, new)))
    edits, swaps = (edit for edit, _ in changes), (swap for _, swap in changes)
    return Rewritten(made.title, (*made.edits, *edits), (*made.swaps, *swaps))


def _colon(module: Module, violation: Violation) -> Rewritten:
    """Change an item ``key=value`` of ``MS_ALLOC_CONF`` to ``key:value``."""
    words = str(violation.params["item"])
    if words.count("=") != 1:
        _unclear()
    key, _, setting = words.partition("=")
    return _item(module, violation, words, f"{key.strip()}:{setting.strip()}")


REWRITES: Mapping[str | None, Rewrite] = {
    "flip": _flip,
    "accepted": _convert_switch,
    "drop-call": _drop_call,
    "mint": _mint,
    "colon": _colon,
    "tracker-off": lambda module, violation: _item(
        module, violation, str(violation.params["item"]), "memory_tracker:False"
    ),
}


def _argument(module: Module, violation: Violation) -> ast.Constant:
    """Return the literal value of a keyword argument, or of the first argument of a call."""
    node = module.at(violation.span, ast.keyword, ast.Call)
    value = node.value if isinstance(node, ast.keyword) else None
    if isinstance(node, ast.Call):
        value = next(iter((*node.args, *(keyword.value for keyword in node.keywords))), None)
    return value if isinstance(value, ast.Constant) else _unclear()


def _item(module: Module, violation: Violation, old: str, new: str) -> Rewritten:
    """Replace one item in a string of allocator settings."""
    node = module.at(violation.span, ast.Constant)
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        _unclear()
    found = [item for item in items(node.value) if item.text == old]
    if len(found) != 1:
        _unclear()
    value, start = node.value, found[0].start
    words = _quoted(module, node, value[:start] + new + value[start + len(old) :])
    return _rewrite_node(module, node, words, msg("lint.fix.rewrite", old=_shown(old), new=_shown(new)))


def _rewrite_node(module: Module, node: ast.AST, words: str, title: Message | None = None) -> Rewritten:
    span = module.span(node)
    title = title or msg("lint.fix.rewrite", old=_shown(_words(module, node)), new=_shown(words))
    return Rewritten(title, (TextEdit(span.start, span.end, words),), (swap_of(node, words),))


def _quoted(module: Module, node: ast.Constant, new: str) -> str:
    """Return a text in the quotes of the string it replaces, which must be in one piece and without escapes."""
    words = _words(module, node)
    if not isinstance(node.value, str) or words not in (f"'{node.value}'", f'"{node.value}"'):
        raise EditRefusedError(msg("edits.pieced"))
    return f"{words[0]}{new}{words[0]}"


def _words(module: Module, node: ast.AST) -> str:
    span = module.span(node)
    return module.lines.text[span.start : span.end]


def _shown(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= _SHOWN else f"{words[: _SHOWN - 1]}…"


def _unclear() -> NoReturn:
    raise EditRefusedError(msg("edits.unclear"))


def _name_of_mint(module: Module, node: ast.expr) -> tuple[str, list[tuple[TextEdit, Swap]]]:
    """Return the name of ``mindspore.mint`` at a place, and the additions to imports that it needs.

    Only top-level imports above the place count, and only names that nothing else in the file binds.
    """
    imports = [one for one in module.imports if one.lineno < node.lineno]
    names = {name for one in imports for alias in one.names for name in (alias.asname or alias.name.partition(".")[0],)}
    for package, part in ((_MINT, ""), ("mindspore", ".mint")):
        for name in sorted(names):
            if module.bound.get(name) == {package}:
                return f"{name}{part}", []
    for one in imports if "mint" not in module.bound and "mint" not in module.read else ():
        is_top = isinstance(one, ast.ImportFrom) and one.module == "mindspore" and not one.level
        if is_top and one.names[-1].name != "*":
            longer = ast.ImportFrom("mindspore", [*one.names, ast.alias("mint")], 0)
            end = module.span(one.names[-1]).end
            return "mint", [(TextEdit(end, end, ", mint"), swap_of(one, ast.unparse(longer)))]
    raise EditRefusedError(msg("edits.no-name-for-mint"))


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
        """Yield the nodes of a field after the swaps, each with whether it is new and must not be swapped again."""
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
    """Append corresponding nodes to the list of those to compare; return False at a difference."""
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


def parameter_names(name: str) -> Mapping[str, str]:
    """Return the names of an old function's parameters in mint, if they differ."""
    return _OWN.get(name, _PARAMETERS if name in WITH_KEYWORDS else _AXES)


def counterpart(name: str, call: ast.Call) -> str | None:
    """Return the function of mint for a call; None if none accepts its arguments."""
    gone, place = _GONE.get(name, (None, None))
    if gone and any(one.arg == gone for one in call.keywords):
        return None
    if place is not None and len(call.args) > place:
        return None
    if name == "mindspore.ops.softmax":  # without an axis, mint's chooses one by the number of dimensions
        along = len(call.args) > 1 or any(one.arg == "axis" for one in call.keywords)
        return "mint.nn.functional.softmax" if along else None
    return DROP_IN.get(name) or WITH_KEYWORDS.get(name) or WITHOUT_FIX.get(name)


def keeps_its_meaning(name: str, call: ast.Call) -> bool:
    """Return whether renaming is all that a call needs.

    ``mint.any`` accepts the tensor alone or with one axis; ``ops.any`` also accepts several axes, none, and ``keep_dims``
    without an axis (``mindspore/ops/functional_overload.py``, 2.9).
    """
    if name in WITHOUT_FIX or name == "mindspore.ops.softmax":
        return False
    if name != "mindspore.ops.any":
        return True
    axes = [*call.args[1:2], *(one.value for one in call.keywords if one.arg == "axis")]
    if not axes:
        return len(call.args) + len(call.keywords) == 1 and not any(isinstance(one, ast.Starred) for one in call.args)
    return all(_is_index(axis) for axis in axes)


def _is_index(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool)
