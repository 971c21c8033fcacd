"""Check Python code: cells with their own backward pass, optimizers, and hand-written operators.

``used_bprop_inputs`` (MindSpore 2.4.10 and later, ``pynative/grad/grad.cc``): indices of the arguments of ``bprop`` that are
kept from the forward pass; 0 to n-1 are the inputs of ``construct``, n is its output, and ``dout``, the last argument, is
always available. Arguments that are not listed are None, or zeros if the list is empty.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.lint.python_code.flow import is_graph_only
from ms_tune.lint.python_code.module import FUNCTIONS, Function, Module, module_of
from ms_tune.lint.python_code.syntax import assigned, is_cell, is_function

_LISTED = "used_bprop_inputs"
_OF_CELLS = {"construct": "forward", "bprop": "backward"}  # the names of these methods in a `_Function`
_OPTIMIZERS = [f"mindspore.nn.{place}Optimizer" for place in ("", "optim.", "optim.optimizer.")]
_SILU = ("mindspore.ops.silu", "mindspore.mint.nn.functional.silu")


def keeps_everything(context: CheckContext) -> Iterator[Violation]:
    """Report a cell whose ``bprop`` does not list its inputs: all inputs and the output are kept.

    This does not apply to static graphs, which keep exactly the values that their backward part reads.
    """
    module = module_of(context.source)
    for cell, bprop in () if is_graph_only(module) else _cells(module):
        listed = any(isinstance(node, ast.Attribute) and node.attr == _LISTED for node in ast.walk(cell))
        inputs = _inputs(cell)
        needed = None if inputs is None else set(range(inputs + 1))
        reads_all = needed is not None and needed <= {index for _, index in _find_reads(bprop, inputs or 0)}
        if not listed and not reads_all:
            yield Violation((), params={"cell": cell.name}, span=module.span(bprop))


def reads_unlisted(context: CheckContext) -> Iterator[Violation]:
    """Report a ``bprop`` that reads an argument missing in ``used_bprop_inputs``: it receives None or zeros."""
    module = module_of(context.source)
    for cell, bprop in _cells(module):
        listed = _read_used_inputs(cell)
        inputs = _inputs(cell)
        if listed is None or inputs is None:
            continue
        for node, index in _find_reads(bprop, inputs):
            if index not in listed and 0 <= index <= inputs:
                what = f"input {index}" if index < inputs else "the output"
                params = {"index": index, "cell": cell.name, "listed": sorted(listed), "what": what}
                yield Violation((), params=params, span=module.span(node))


def never_called(context: CheckContext) -> Iterator[Violation]:
    """Report a backward pass with a name that only the other kind of class uses.

    For a cell it is ``bprop(self, *inputs, out, dout)``, for a ``_Function`` ``backward(ctx, *grad_outputs)``
    (``mindspore/common/_grad_function.py``, 2.9). If it is not called, ``construct`` itself is differentiated.
    """
    module = module_of(context.source)
    for node in module.of(ast.ClassDef):
        methods = {one.name: one for one in node.body if isinstance(one, FUNCTIONS)}
        backward = methods.get("backward")
        if is_function(module, node):
            for name, instead in _OF_CELLS.items():
                if name in methods:
                    params = {"method": name, "instead": instead, "owner": node.name}
                    yield Violation((), "function", params, span=module.span(methods[name]))
        elif is_cell(module, node) and backward is not None and "bprop" not in methods:
            first, *_ = (*backward.args.posonlyargs, *backward.args.args, None)
            if first is not None and first.arg == "ctx":
                yield Violation((), params={"owner": node.name}, span=module.span(backward))


def wrong_number(context: CheckContext) -> Iterator[Violation]:
    """Report a ``bprop`` whose arguments are not the inputs of ``construct``, the output and ``dout``."""
    module = module_of(context.source)
    for cell, bprop in _cells(module):
        inputs, arguments = _inputs(cell), bprop.args
        named = len(arguments.posonlyargs) + len(arguments.args) - 1
        optional = any(one.args.defaults for one in _methods(cell, "construct"))
        varied = arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults
        if inputs is not None and not optional and not varied and named != inputs + 2:
            params = {"cell": cell.name, "number": named, "wanted": inputs + 2, "inputs": inputs}
            yield Violation((), params=params, span=module.span(bprop))


def unjitted_optimizer(context: CheckContext) -> Iterator[Violation]:
    """Report an optimizer whose update is not compiled; a static graph always compiles it."""
    module = module_of(context.source)
    for node in () if is_graph_only(module) else module.of(ast.ClassDef):
        update = next(_methods(node, "construct"), None)
        if update is None or not any(module.name(base) in _OPTIMIZERS for base in node.bases):
            continue
        named = (one for one in ast.walk(node) if isinstance(one, (ast.Call, ast.Name, ast.Attribute)))
        if not any("jit" in ast.unparse(one) for one in named):
            yield Violation((), params={"optimizer": node.name}, span=module.span(update))


def unused_listed(context: CheckContext) -> Iterator[Violation]:
    """Report ``used_bprop_inputs`` that names arguments which ``bprop`` does not read: they are kept for nothing."""
    module = module_of(context.source)
    for cell, bprop in _cells(module):
        listed, inputs = _read_used_inputs(cell), _inputs(cell)
        whole = any(
            isinstance(one, ast.Name)
            and one.id == getattr(bprop.args.vararg, "arg", "")
            and not isinstance(module.parents.get(one), ast.Subscript)
            for one in ast.walk(bprop)
        )
        if listed is None or inputs is None or whole:
            continue
        unread = sorted(
            one for one in listed - {index for _, index in _find_reads(bprop, inputs)} if 0 <= one <= inputs
        )
        place = next(one for one in ast.walk(cell) if isinstance(one, ast.Attribute) and one.attr == _LISTED)
        if unread:
            params = {"cell": cell.name, "unread": ", ".join(map(str, unread))}
            yield Violation((), params=params, span=module.span(place))


def unfused(context: CheckContext) -> Iterator[Violation]:
    """Report SwiGLU, RMSNorm and rotary embedding written by hand, for which MindSpore has fused operators."""
    module = module_of(context.source)
    for node in module.of(ast.BinOp):
        sides = (node.left, node.right)
        if isinstance(node.op, ast.Add):
            products = [one for one in sides if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult)]
            words = [{_last(part) for part in (one.left, one.right)} for one in products]
            if len(words) == 2 and any("cos" in one for one in words) and any("sin" in one for one in words):  # noqa: PLR2004
                yield Violation((), "rotary", span=module.span(node))
        elif isinstance(node.op, ast.Mult):
            calls = [(side, module.name(side.func)) for side in sides if isinstance(side, ast.Call)]
            if any(name in _SILU for _, name in calls) or any(_gates(one, name, sides) for one, name in calls):
                yield Violation((), span=module.span(node))
            elif any(name.endswith(".rsqrt") and _is_mean_square(module, one) for one, name in calls):
                yield Violation((), "norm", span=module.span(node))


def _last(node: ast.expr) -> str:
    """Return ``cos`` or ``sin`` for a factor whose name has that word."""
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return next((word for word in ("cos", "sin") if re.search(rf"(?:^|_){word}(?:_|$)", name.lower())), "")


def _gates(call: ast.Call, name: str, sides: tuple[ast.expr, ast.expr]) -> bool:
    """Return whether a product is ``a * sigmoid(a)``."""
    same = [ast.unparse(one) for one in sides if one is not call]
    return (
        name.startswith("mindspore.") and name.endswith(".sigmoid") and [ast.unparse(one) for one in call.args] == same
    )


def _is_mean_square(module: Module, call: ast.Call) -> bool:
    """Return whether ``rsqrt`` is of the mean of squares, written there or under the name that its argument has."""
    text = " ".join(map(ast.unparse, call.args))
    names = (one for argument in call.args for one in ast.walk(argument) if isinstance(one, ast.Name))
    text += " ".join(ast.unparse(value) for one in names for value in assigned(module, one) if value is not None)
    return "mean" in text and re.search(r"\b(?:pow|square)\(|\*\* 2|\b(\w+) \* \1\b", text) is not None


def _cells(module: Module) -> Iterator[tuple[ast.ClassDef, Function]]:
    for node in module.of(ast.ClassDef):
        if is_cell(module, node):
            yield from ((node, method) for method in _methods(node, "bprop"))


def _methods(node: ast.ClassDef, name: str) -> Iterator[Function]:
    return (one for one in node.body if isinstance(one, FUNCTIONS) and one.name == name)


def _read_used_inputs(cell: ast.ClassDef) -> frozenset[int] | None:
    """Return all argument indices that ``used_bprop_inputs`` of a cell may list; None if one of its lists is not a literal."""
    assigned = [node for node in ast.walk(cell) if isinstance(node, ast.Assign)]
    lists = [
        one.value for one in assigned for at in one.targets if isinstance(at, ast.Attribute) and at.attr == _LISTED
    ]
    found = [_index(item) for one in lists if isinstance(one, (ast.List, ast.Tuple)) for item in one.elts]
    if not lists or None in found or not all(isinstance(one, (ast.List, ast.Tuple)) for one in lists):
        return None
    return frozenset(index for index in found if index is not None)


def _inputs(cell: ast.ClassDef) -> int | None:
    """Return the number of inputs of ``construct``; None if it varies."""
    method = next(_methods(cell, "construct"), None)
    if method is None or method.args.vararg or method.args.kwarg or method.args.kwonlyargs:
        return None
    return len(method.args.posonlyargs) + len(method.args.args) - 1


def _find_reads(bprop: Function, inputs: int) -> Iterator[tuple[ast.AST, int]]:
    """Yield every read of an argument of ``bprop``, with its index; the last one, ``dout``, is n + 1."""
    arguments = bprop.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)][1:]
    for node in ast.walk(bprop):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names and not arguments.vararg:
            yield node, names.index(node.id)
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and arguments.vararg is not None
            and not names
            and node.value.id == arguments.vararg.arg
        ):
            index = _index(node.slice)
            if index is not None:
                yield node, index if index >= 0 else inputs + 2 + index


def _index(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _index(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None
