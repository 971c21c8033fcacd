"""Create fixes of Python code: the rewrites of ``checklists/code/python.yaml``.

Each function receives the parsed file and the finding's violation. It returns edits of the text and, separately, the matching
changes of the syntax tree (:mod:`ms_tune.lint.python_code.swaps`), so that the two can be compared.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from ms_tune.diagnostics import TextEdit
from ms_tune.lint.environment.variables import items
from ms_tune.lint.python_code.mint_names import keeps_its_meaning, parameter_names
from ms_tune.lint.python_code.swaps import Swap, swap_of
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


def _accepted(module: Module, violation: Violation) -> Rewritten:
    """Convert the intended value to the type that the call accepts."""
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
    "accepted": _accepted,
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
