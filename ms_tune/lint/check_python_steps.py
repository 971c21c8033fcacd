"""Check Python code: operations that cost time or memory in every training step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TypeGuard

from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.lint.python_code.flow import calls_step, is_compiled, is_graph_only, is_jit
from ms_tune.lint.python_code.module import FUNCTIONS, LOOPS, Loop, Module, module_of
from ms_tune.lint.python_code.syntax import (
    assigned,
    is_array,
    is_fresh,
    is_guarded,
    is_step_result,
    is_tensor,
    step_functions,
    step_loops,
)

# The calls that mindspore/utils/dryrun.py (2.9) itself warns about: each waits for the device.
_WAITING = ("asnumpy", "item", "tolist")
_SYNCHRONIZE = re.compile(r"mindspore(?:\.\w+)*\.synchronize$")
_STREAMS = re.compile(r"mindspore(?:\.\w+)*\.(?:current_stream|default_stream|Stream|Event)$")
_VIEWS = ("transpose", "permute", "swapaxes", "swapdims", "t", "narrow", "expand", "expand_as", "movedim", "moveaxis")
_AFTER = ("view", "view_as", "reshape")  # these require a contiguous tensor
_CASTS = ("float", "int", "bool", "str", "repr")
_COMPARING = ("max", "min")  # of Python: with several arguments they compare them
_REDUCING = ("max", "min", "any", "all", "sum", "mean", "isnan", "isfinite")
_SHAPING = ("nonzero", "masked_select", "unique", "unique_consecutive", "argwhere")
_LOGGING = ("debug", "info", "warning")
_BAR = ("set_postfix", "set_postfix_str", "set_description")  # of tqdm, which prints its arguments
_LONG = 1000  # steps of a loop that runs for hours
_LOSSES = ("loss", "losses", "logits", "grads", "grad", "outputs")
_IDENTITY = (ast.Is, ast.IsNot, ast.In, ast.NotIn)  # these do not read the tensor's value
_CONDITIONS = (ast.If, ast.While, ast.IfExp, ast.Assert)
_MODULES = ("numpy", "math", "time", "os", "json", "random", "dict")
# Functions of NumPy that return a number and not an array, which from_numpy refuses: these always, ...
_NUMBERS = re.compile(r"allclose|array_equal|isscalar|count_nonzero|ndim|size|(?:u?int|float|bool)\d*_?")
# ... these without an axis ...
_REDUCTIONS = re.compile(
    r"(?:nan)?(?:sum|prod|mean|std|var|max|min|median|argmax|argmin|percentile|quantile)|amax|amin|any|all|average"
)
# ... and these without a shape: the number of arguments before it, or 0 if all of them are its sizes.
_RANDOM = {"rand": 0, "randn": 0, "random": 0, "normal": 2, "uniform": 2, "randint": 2}
_COUNTS = re.compile(r"(?:\w*_)?(?:steps?|iterations?|train(?:ing)?_iters)", re.IGNORECASE)


def waiting(context: CheckContext) -> Iterator[Violation]:
    """Report a value fetched from the device in every step."""
    module = module_of(context.source)
    for node, root in _find_in_steps(module):
        if isinstance(node, ast.Call) and (what := _waits(module, node)) and not is_guarded(module, node, root):
            yield Violation((), params={"what": f"{what}()"}, span=module.span(node))
    for call, _ in module.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in _WAITING and is_compiled(module, call):
            yield Violation((), "compiled", {"what": f".{call.func.attr}()"}, span=module.span(call))


def _waits(module: Module, call: ast.Call) -> str:
    """Return the part of a call that waits for the device; empty if it does not wait."""
    function = call.func
    if _SYNCHRONIZE.match(module.name(function)) or _is_stream(module, function):
        return ast.unparse(function)[:40]
    if isinstance(function, ast.Attribute):
        bare = function.attr in _WAITING and not call.args and not call.keywords
        return f".{function.attr}" if bare and _may_be_tensor(module, function.value) else ""
    compares = isinstance(function, ast.Name) and function.id in _COMPARING and len(call.args) > 1
    if not isinstance(function, ast.Name) or (function.id not in _CASTS and not compares):
        return ""
    given = any(_is_value(module, argument) for argument in call.args[: None if compares else 1])
    return function.id if given else ""


def _is_value(module: Module, node: ast.expr) -> bool:
    """Return whether a value surely is a tensor, of a step or otherwise."""
    return is_tensor(module, node) or is_step_result(module, node)


def _is_stream(module: Module, function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute) or function.attr != "synchronize":
        return False
    value = function.value
    values = list(assigned(module, value)) if isinstance(value, ast.Name) else [value]
    return bool(values) and all(
        isinstance(one, ast.Call) and _STREAMS.match(module.name(one.func)) is not None for one in values
    )


def shapes(context: CheckContext) -> Iterator[Violation]:
    """Report operators in a step whose result's shape depends on values, so that the host waits to learn it."""
    module = module_of(context.source)
    for root in step_loops(module):
        for node in module.local_nodes(root):
            what = ""
            if isinstance(node, ast.Call):
                package, _, last = module.name(node.func).rpartition(".")
                owned = isinstance(node.func, ast.Attribute) and _is_value(module, node.func.value)
                if last in _SHAPING and (package in ("mindspore.ops", "mindspore.mint") or owned):
                    what = f"{last}()"
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_mask(module, node.slice):
                what = ast.unparse(node)[:40]
            if what and not is_guarded(module, node, root):
                yield Violation((), params={"what": what}, span=module.span(node))


def _is_mask(module: Module, node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        values = list(assigned(module, node))
        return bool(values) and all(
            one is not None and not isinstance(one, ast.Name) and _is_mask(module, one) for one in values
        )
    return isinstance(node, ast.Compare) and _is_value(module, node)


def growing(context: CheckContext) -> Iterator[Violation]:
    """Report ``losses.append(loss)`` in every step: the list keeps each step's tensor on the device."""
    module = module_of(context.source)
    for loop in step_loops(module):
        emptied = {name for node in module.local_nodes(loop) for name in _emptied(node)}
        for node in module.local_nodes(loop):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) != 1:
                continue
            owner, value = node.func.value, node.args[0]
            if node.func.attr != "append" or not isinstance(owner, (ast.Name, ast.Attribute)):
                continue
            kept = _is_value(module, value) or (isinstance(value, ast.Call) and calls_step(module, value))
            if kept and ast.unparse(owner) not in emptied and not is_guarded(module, node, loop):
                params = {"list": ast.unparse(owner)[:40], "value": ast.unparse(value)[:40]}
                yield Violation((), params=params, span=module.span(node))


def _emptied(node: ast.AST) -> Iterator[str]:
    """Yield the names of lists that a statement creates, empties or shortens."""
    if isinstance(node, (ast.Assign, ast.Delete)):
        for target in node.targets:
            yield ast.unparse(target.value if isinstance(target, ast.Subscript) else target)
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute) and function.attr in ("clear", "pop", "popleft"):
        yield ast.unparse(function.value)


def printing(context: CheckContext) -> Iterator[Violation]:
    """Report a tensor formatted in every step: in ``print(loss)``, a progress bar's text, and f-strings of log calls.

    The f-strings are built even if the log does not write them.
    """
    module = module_of(context.source)
    for node, root in _find_in_steps(module):
        if not isinstance(node, ast.Call):
            continue
        is_print = isinstance(node.func, ast.Name) and node.func.id == "print"
        is_log = isinstance(node.func, ast.Attribute) and node.func.attr in _LOGGING and "log" in ast.unparse(node.func)
        is_bar = isinstance(node.func, ast.Attribute) and node.func.attr in _BAR
        if not (is_print or is_log or is_bar) or is_guarded(module, node, root):
            continue
        shown = [*(node.args if is_print or is_bar else ()), *(one.value for one in node.keywords if is_bar)]
        if any(_shows_value(module, argument) for argument in shown):
            yield Violation((), "bar" if is_bar else "default", span=module.span(node))
        elif is_log and node.args and isinstance(node.args[0], ast.JoinedStr) and _shows_value(module, node.args[0]):
            yield Violation((), "log", span=module.span(node))


def truth(context: CheckContext) -> Iterator[Violation]:
    """Report ``if x.max() > y`` in code that runs in every step: the host waits for the device to decide.

    The same applies to a comparison with a tensor and to a tensor used as a condition itself.
    """
    module = module_of(context.source)
    loops = ((loop, loop) for loop in step_loops(module) if isinstance(loop, ast.While))
    for node, root in (*_find_in_steps(module), *loops):
        if isinstance(node, _CONDITIONS) and not is_guarded(module, node, root):
            part = next((one for one in ast.walk(node.test) if _decides(module, one)), None)
            if part is None and _is_value(module, _without_not(node.test)):
                part = _without_not(node.test)
            if part is not None:
                yield Violation((), params={"what": ast.unparse(part)[:40]}, span=module.span(part))


def builtin_sum(context: CheckContext) -> Iterator[Violation]:
    """Report Python's ``sum`` over a tensor, or over a list of them: it makes one addition per row or item."""
    module = module_of(context.source)
    for call, name in module.calls:
        if name == "?sum" and call.args:
            if is_tensor(module, call.args[0]):
                yield Violation((), span=module.span(call))
            elif _lists_tensors(module, call.args[0]):
                yield Violation((), "list", span=module.span(call))


def _lists_tensors(module: Module, node: ast.expr) -> bool:
    """Return whether a list or generator surely has tensors."""
    if isinstance(node, ast.List | ast.Tuple):
        return len(node.elts) > 1 and all(_is_value(module, one) for one in node.elts)
    if not isinstance(node, ast.ListComp | ast.GeneratorExp):
        return False
    items, root = [one for one in node.generators if _is_value(module, one.iter)], node.elt
    while isinstance(root, ast.Call | ast.Attribute) and getattr(root, "attr", "") not in _WAITING:
        root = root.func if isinstance(root, ast.Call) else root.value
    return is_tensor(module, node.elt) or any(ast.unparse(root) == ast.unparse(one.target) for one in items)


def contiguous(context: CheckContext) -> Iterator[Violation]:
    """Report ``.contiguous()`` of a tensor that surely is contiguous; of one that may be, once in a function."""
    module = module_of(context.source)
    seen: set[ast.AST | None] = set()
    for call, _ in module.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "contiguous" or call.args:
            continue
        inner, around = call.func.value, module.parents.get(call)
        # A tensor that is not contiguous cannot be viewed in another shape.
        is_viewed = any(_is_called(around, one) for one in _AFTER)
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "contiguous":
            yield Violation((), "twice", span=module.span(call))
        elif _is_view(inner, module) and not is_viewed:
            yield Violation((), "view", {"maker": ast.unparse(inner.func)[-40:]}, span=module.span(call))
        elif is_fresh(module, inner):
            maker = module.name(inner.func) if isinstance(inner, ast.Call) else ""
            yield Violation((), params={"maker": maker}, span=module.span(call))
        elif not (
            is_viewed or is_graph_only(module) or module.function(call) in seen or _is_called(around, "contiguous")
        ):
            seen.add(module.function(call))
            yield Violation((), "maybe", span=module.span(call))


def _is_called(node: ast.AST | None, method: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == method


def _is_view(node: ast.expr, module: Module) -> TypeGuard[ast.Call]:
    """Return whether an expression creates another view of a tensor."""
    if not isinstance(node, ast.Call):
        return False
    package, _, last = module.name(node.func).rpartition(".")
    if package in ("mindspore.ops", "mindspore.mint"):
        return last in _VIEWS
    method = node.func
    return isinstance(method, ast.Attribute) and method.attr in _VIEWS and is_tensor(module, method.value)


def copied_array(context: CheckContext) -> Iterator[Violation]:
    """Report ``Tensor(array)``: it copies data that ``mindspore.from_numpy`` shares. With a dtype it also converts."""
    module = module_of(context.source)
    for call, name in module.calls:
        alone = len(call.args) == 1 and not call.keywords
        if name not in ("mindspore.Tensor", "mindspore.tensor") or not alone or not is_array(module, call.args[0]):
            continue
        if not _may_be_number(module, call.args[0]) and not any(
            _is_small_literal(module, node) for node in ast.walk(call.args[0])
        ):
            yield Violation((), span=module.span(call))


def no_garbage_collection(context: CheckContext) -> Iterator[Violation]:
    """Report a very long loop over steps in a file that never collects garbage."""
    module = module_of(context.source)
    if any(name in ("gc.collect", "gc.disable", "gc.freeze") for _, name in module.calls):
        return
    for loop in step_loops(module):
        if _counts_steps(loop.test) if isinstance(loop, ast.While) else _is_long(loop.iter):
            yield Violation((), span=module.span(loop))


def called_each_step(context: CheckContext) -> Iterator[Violation]:
    """Report calls in every step that belong before or between steps; ``calls``: a pattern for each message."""
    module, patterns = module_of(context.source), context.options["calls"]
    for loop in step_loops(module):
        if _runs_epochs(module, loop):
            continue
        for node in module.local_nodes(loop):
            name = module.name(node.func) if isinstance(node, ast.Call) else ""
            message = next((one for one, pattern in patterns.items() if name and re.search(pattern, name)), None)
            if message and not is_guarded(module, node, loop):
                yield Violation((), message, {"called": name}, span=module.span(node))


def _runs_epochs(module: Module, loop: Loop) -> bool:
    """Return whether a loop is over epochs, whose steps a function with its own loop takes."""
    if "epoch" in ast.unparse(loop.test if isinstance(loop, ast.While) else loop.target).lower():
        return True
    called = {ast.unparse(one.func).rpartition(".")[2] for one in module.local_nodes(loop) if isinstance(one, ast.Call)}
    around = (module.function(one) for one in step_loops(module))
    return any(one is not None and one.name in called for one in around)


def compiled_again(context: CheckContext) -> Iterator[Violation]:
    """Report a graph that is compiled in every step: ``@jit`` on a function defined there, or ``jit(f)(x)``."""
    module = module_of(context.source)
    steps = {*step_loops(module), *step_functions(module)}
    for node in module.functions:
        mark = next((one for one in node.decorator_list if is_jit(module, one)), None)
        if mark is not None and steps & {*module.around(node)}:
            yield Violation((), params={"what": f"@{ast.unparse(mark)[:40]}"}, span=module.span(mark))
    for call, _ in module.calls:
        outer = module.parents.get(call)
        if isinstance(outer, FUNCTIONS) or not is_jit(module, call):
            continue  # a decorator was reported above
        around = {*module.around(call)}
        at_once = isinstance(outer, ast.Call) and outer.func is call
        if around & steps or (at_once and any(isinstance(one, LOOPS) for one in around)):
            yield Violation((), params={"what": ast.unparse(call)[:40]}, span=module.span(call))


def from_numpy_of_tensor(context: CheckContext) -> Iterator[Violation]:
    """Report ``Tensor.from_numpy(array)``, which is removed after 2.9; ``mindspore.from_numpy`` stays."""
    module = module_of(context.source)
    for call, name in module.calls:
        if name == "mindspore.Tensor.from_numpy":
            yield Violation((), span=module.span(call.func))


def _may_be_number(module: Module, node: ast.expr, depth: int = 3) -> bool:
    """Return whether a value from NumPy may be a single number."""
    if isinstance(node, ast.Name) and depth:
        return any(value and _may_be_number(module, value, depth - 1) for value in assigned(module, node))
    if not isinstance(node, ast.Call):
        return False
    package, _, function = module.name(node.func).rpartition(".")
    keywords = {keyword.arg for keyword in node.keywords}
    if package == "numpy.random" and function in _RANDOM:
        return "size" not in keywords and len(node.args) <= _RANDOM[function]
    if package == "numpy":
        reduced = _REDUCTIONS.fullmatch(function) and "axis" not in keywords and len(node.args) == 1
        return bool(reduced or _NUMBERS.fullmatch(function))
    method = node.func
    if isinstance(method, ast.Attribute) and method.attr in ("astype", "copy") and depth:
        return _may_be_number(module, method.value, depth - 1)
    return False


def _is_small_literal(module: Module, node: ast.AST) -> bool:
    """Return whether a node is a literal array of a few numbers, which costs nothing to copy."""
    return (
        isinstance(node, ast.Call)
        and module.name(node.func) == "numpy.array"
        and bool(node.args)
        and isinstance(node.args[0], (ast.List, ast.Tuple, ast.Constant))
    )


@lru_cache(maxsize=2)
def _find_in_steps(module: Module) -> tuple[tuple[ast.expr | ast.stmt, ast.AST], ...]:
    """Return the calls and conditions that run in every training step, each with the loop or function that contains it."""
    seen: dict[ast.expr | ast.stmt, ast.AST] = {}
    functions = () if is_graph_only(module) else step_functions(module)
    for root in (*step_loops(module), *functions):
        if is_compiled(module, root):
            continue  # a graph, whose values the compiler determines
        for node in module.local_nodes(root):
            if isinstance(node, (ast.Call, *_CONDITIONS)):
                seen.setdefault(node, root)
    return tuple(sorted(seen.items(), key=lambda pair: (pair[0].lineno, pair[0].col_offset)))


def _may_be_tensor(module: Module, node: ast.expr) -> bool:
    """Return whether a value may be a tensor: it is not known to be a NumPy array, a number or a module's function."""
    if isinstance(node, ast.Call):
        name = module.name(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _WAITING:
            return False  # already fetched; the inner call is reported
        return not name.startswith(_MODULES) and not name.startswith(("?len", "?str", "?list", "?dict"))
    return not is_array(module, node) and not isinstance(node, (ast.Constant, ast.Dict, ast.List))


def _shows_value(module: Module, node: ast.expr) -> bool:
    parts = [part.value for part in ast.walk(node) if isinstance(part, ast.FormattedValue)] or [node]
    if isinstance(node, ast.Call) and _is_called(node.func, "format"):
        parts = [*node.args, *(one.value for one in node.keywords)]
    return any(_is_value(module, part) or (isinstance(part, ast.Name) and part.id in _LOSSES) for part in parts)


def _is_reduction(module: Module, call: ast.Call) -> bool:
    name = module.name(call.func)
    if name.startswith(("mindspore.ops.", "mindspore.mint.")):
        return name.rpartition(".")[2] in _REDUCING
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in _REDUCING or call.args:
        return False
    return not name.startswith(_MODULES) and not is_array(module, function.value)


def _decides(module: Module, node: ast.AST) -> bool:
    """Return whether part of a condition must be fetched from the device: a reduction, or a comparison with a tensor."""
    if isinstance(node, ast.Call):
        return _is_reduction(module, node)
    if not isinstance(node, ast.Compare) or any(isinstance(one, _IDENTITY) for one in node.ops):
        return False
    return any(_is_value(module, side) for side in (node.left, *node.comparators))


def _without_not(test: ast.expr) -> ast.expr:
    return test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test


def _counts_steps(test: ast.expr) -> bool:
    """Return whether a ``while`` loop runs for the whole training: without a condition, or by counting its steps."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    names = [node.id if isinstance(node, ast.Name) else getattr(node, "attr", "") for node in ast.walk(test)]
    return any(_COUNTS.fullmatch(name) for name in names)


def _is_long(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    if node.func.id != "range" or not node.args:
        return False
    last = node.args[min(1, len(node.args) - 1)]
    if isinstance(last, ast.Constant):
        return isinstance(last.value, int) and last.value >= _LONG
    name = last.id if isinstance(last, ast.Name) else last.attr if isinstance(last, ast.Attribute) else ""
    return name.lower() in ("train_iters", "training_iters", "total_steps", "max_steps", "num_steps", "train_steps")
