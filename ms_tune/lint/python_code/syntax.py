"""Recognise parts of training code: step loops, step functions, cells, and values that are tensors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from ms_tune.lint.python_code.flow import calls_step, gradient_makers, stepping
from ms_tune.lint.python_code.module import FUNCTIONS, Function, Loop, Module

# Calls that make a loop a loop over training steps.
_STEP = re.compile(
    r"(?:^|[._])(?:train(?:ing)?_(?:one_)?step|train_one_step\w*|forward_backward\w*|grad_fn|step_fn|train_net(?:work)?|"
    r"net_with_(?:loss|criterion)|optimizer|opt(?:imizer)?\.step|backward)$"
)
# Functions that create a training step.
_STEP_MAKERS = re.compile(r"TrainOneStep\w*$|\bvalue_and_grad$")
_STEP_FUNCTIONS = re.compile(
    r"_*(?:train(?:ing)?_(?:one_)?step|train_one_step\w*|forward_step|forward_fn|forward_backward\w*|step_fn)"
)
# The methods that MindSpore calls in every step of Model.train (mindspore/train/callback/_callback.py, 2.9).
_CALLBACK_METHODS = ("step_begin", "step_end", "on_train_step_begin", "on_train_step_end")
_CELL_METHODS = ("construct", "bprop", "forward")
_FUNCTION_METHODS = ("forward", "backward")  # of `mindspore._Function`, which PyNative mode calls
# Conditions that are only true in some steps, or that are not part of training.
_RARE = re.compile(
    r"log|print|debug|verbose|save|eval|ckpt|checkpoint|profil|interval|dump|nan|inf|overflow", re.IGNORECASE
)
_CELL_BASES = re.compile(r"(?:^|\.)(?:Cell|Module|TrainOneStep\w*|WithLossCell|MultiOutputCell)$")

_ROUNDS = 5  # the most levels of functions that call functions
_FRESH = (
    *("cat", "concat", "stack", "zeros", "ones", "zeros_like", "ones_like", "full", "arange", "matmul", "bmm", "add"),
)


@lru_cache(maxsize=2)
def step_loops(module: Module) -> tuple[Loop, ...]:
    """Return the loops whose body, without functions defined in it, takes a training step; the innermost ones only."""
    made = frozenset(_find_step_names(module))
    loops = [node for node in module.loops if _calls_step(module, node, made)]
    outer = {one for loop in loops for one in module.around(loop)}
    return tuple(loop for loop in loops if loop not in outer)


def _calls_step(module: Module, loop: Loop, made: frozenset[str]) -> bool:
    calls = [node for node in module.local_nodes(loop) if isinstance(node, ast.Call)]
    if any(name in made or _STEP.search(name) for name in map(_dotted, (call.func for call in calls))):
        return True
    return any(calls_step(module, call) for call in calls)


def _find_step_names(module: Module) -> Iterator[str]:
    """Yield the names of training steps, as assigned: ``trainer = nn.TrainOneStepCell(...)``."""
    for call, name in module.calls:
        statement = module.parents.get(call)
        if _STEP_MAKERS.search(name) and isinstance(statement, ast.Assign):
            yield from filter(None, map(_dotted, statement.targets))


def is_step_result(module: Module, node: ast.expr, depth: int = 4) -> bool:
    """Return whether a value is a tensor of a training step: returned by a step, given to its gradient function, or made of these.

    A name may have a number before the loop (``total = 0``), and be part of its own new value (``total += loss``).
    """
    if isinstance(node, ast.Name) and depth:
        values = list(assigned(module, node))
        while values[1:] and isinstance(values[0], ast.Constant):
            del values[0]  # in text order
        if values == [None]:
            return node.id in _step_inputs(module)
        return bool(values) and all(one is not None and is_step_result(module, one, depth - 1) for one in values)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr not in _AWAY:
            inner = node.func.value
            if not isinstance(inner, ast.Call) and is_step_result(module, inner, depth - 1):
                return True
        return _takes_step(module, node) and _dotted(node.func).rpartition(".")[2] not in _fetching(module)
    if isinstance(node, ast.Compare) and not any(
        isinstance(one, ast.Is | ast.IsNot | ast.In | ast.NotIn) for one in node.ops
    ):
        return any(is_step_result(module, one, depth - 1) for one in (node.left, *node.comparators))
    return depth > 0 and any(is_step_result(module, one, depth - 1) for one in _parts(node))


def _takes_step(module: Module, call: ast.Call) -> bool:
    return _STEP.search(_dotted(call.func)) is not None or calls_step(module, call)


@lru_cache(maxsize=2)
def _fetching(module: Module) -> frozenset[str]:
    """Return the names of functions that return numbers: they fetch the value themselves."""
    returned = (
        (one.name, node) for one in module.functions for node in module.below(one) if isinstance(node, ast.Return)
    )
    waits = ("asnumpy", "item", "tolist")
    return frozenset(
        name
        for name, node in returned
        if any(isinstance(one, ast.Attribute) and one.attr in waits for one in ast.walk(node))
    )


@lru_cache(maxsize=2)
def _step_inputs(module: Module) -> frozenset[str]:
    """Return the variables of step loops that a gradient function is given; not a counter (``enumerate``, ``range``)."""
    found: set[str] = set()
    for loop in module.of(ast.For):
        counts = isinstance(loop.iter, ast.Call) and module.name(loop.iter.func).lstrip("?")
        if counts == "range":
            continue
        targets = (
            loop.target.elts[1:] if counts == "enumerate" and isinstance(loop.target, ast.Tuple) else [loop.target]
        )
        names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
        calls = (one for one in module.local_nodes(loop) if isinstance(one, ast.Call))
        given = (one for call in calls if _dotted(call.func) in gradient_makers(module) for one in call.args)
        found |= names & {one.id for one in given if isinstance(one, ast.Name)}
    return frozenset(found)


@lru_cache(maxsize=2)
def step_functions(module: Module) -> tuple[Function, ...]:
    """Return the functions that run in every step: methods of cells and callbacks, and functions with such names."""
    return tuple(node for node in module.functions if _runs_in_a_step(module, node))


def _runs_in_a_step(module: Module, function: Function) -> bool:
    around = module.parents.get(function)
    in_class = isinstance(around, ast.ClassDef) and (
        (function.name in _CELL_METHODS and is_cell(module, around))
        or (function.name in _CALLBACK_METHODS and any(module.name(one).endswith("Callback") for one in around.bases))
        or (function.name in _FUNCTION_METHODS and is_function(module, around))
    )
    if in_class or _STEP_FUNCTIONS.fullmatch(function.name) is not None:
        return True
    return function in stepping(module) and function in _called_in_loops(module)


@lru_cache(maxsize=2)
def _called_in_loops(module: Module) -> frozenset[Function]:
    """Return the functions that loops over steps call, directly or through each other."""
    names = {
        _dotted(call.func)
        for loop in step_loops(module)
        for call in module.local_nodes(loop)
        if isinstance(call, ast.Call)
    }
    found: set[Function] = set()
    functions = stepping(module)
    given = tuple(_find_gradient_targets(module))
    for _ in range(_ROUNDS):
        further = {one for one in functions - found if {one.name, f"self.{one.name}"} & names}
        if not further:
            break
        found |= further
        names |= {_dotted(call.func) for one in further for call in module.below(one) if isinstance(call, ast.Call)}
        names |= {computed for name, computed in given if name in names}
    return frozenset(found)


def _find_gradient_targets(module: Module) -> Iterator[tuple[str, str]]:
    """Yield a gradient function and its target by name: ``grad_fn``, ``forward`` in ``grad_fn = value_and_grad(forward)``."""
    for call, full in module.calls:
        statement = module.parents.get(call)
        if full.endswith("grad") and isinstance(statement, ast.Assign) and call.args:
            for target in statement.targets:
                yield _dotted(target), _dotted(call.args[0])


def is_cell(module: Module, node: ast.ClassDef) -> bool:
    """Return whether a class is a cell, by the names of its bases."""
    return any(_CELL_BASES.search(module.name(base)) for base in node.bases)


def is_function(module: Module, node: ast.ClassDef) -> bool:
    """Return whether a class is an operator with its own backward pass, for PyNative mode."""
    names = map(module.name, node.bases)
    return any(name.startswith("mindspore") and name.endswith("._Function") for name in names)


def is_guarded(module: Module, node: ast.AST, root: ast.AST) -> bool:
    """Return whether a node below ``root`` only runs in some steps: ``if step % 100 == 0``."""
    child = node
    for one in module.around(node):
        if isinstance(one, (ast.If, ast.IfExp)) and child is not one.test and _is_rare(one.test):
            return True
        if isinstance(one, (ast.ExceptHandler, ast.Assert, ast.Raise)):
            return True
        if one is root:
            return False
        child = one
    return False


def _is_rare(test: ast.expr) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            return True
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if _RARE.search(name):
            return True
    return False


def is_array(module: Module, node: ast.expr, depth: int = 3) -> bool:
    """Return whether a value surely is a NumPy array."""
    if isinstance(node, ast.Call) and module.name(node.func).startswith("numpy."):
        return True
    if not depth:
        return False
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("astype", "reshape", "copy") and is_array(module, node.func.value, depth - 1)
    if isinstance(node, ast.Name):
        values = list(assigned(module, node))
        return bool(values) and all(value is not None and is_array(module, value, depth - 1) for value in values)
    return False


def is_fresh(module: Module, node: ast.expr) -> bool:
    """Return whether a value is a tensor that was just created and is therefore contiguous."""
    name = module.name(node.func) if isinstance(node, ast.Call) else ""
    return name.startswith(("mindspore.ops.", "mindspore.mint.")) and name.rpartition(".")[2] in _FRESH


def assigned(module: Module, name: ast.Name) -> Iterator[ast.expr | None]:
    """Yield the values assigned to a name in its function (or file); None for an unknown value."""
    scope: ast.AST = module.function(name) or module.tree
    if isinstance(scope, FUNCTIONS):
        arguments = scope.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        if any(one is not None and one.arg == name.id for one in every):
            yield None
    yield from _list_assignments(module, scope).get(name.id, ())


# Cached: many names of one function are requested, but its nodes are visited once.
@lru_cache(maxsize=64)
def _list_assignments(module: Module, scope: ast.AST) -> dict[str, list[ast.expr | None]]:
    """Return the values assigned to each name in a function, or in a file outside of its functions."""
    found: dict[str, list[ast.expr | None]] = {}
    for node in module.local_nodes(scope):
        for target, value in _split_assignment(node):
            for name in {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}:
                found.setdefault(name, []).append(value)
    return found


def _split_assignment(node: ast.AST) -> Iterator[tuple[ast.AST, ast.expr | None]]:
    """Yield the targets of one statement with the assigned value; None if it is only known at run time.

    What is unpacked is an item of the value (``loss, grads = step(x)``), and ``total += loss`` is a sum.
    """
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, ast.AnnAssign):
        yield node.target, node.value
    elif isinstance(node, ast.AugAssign):
        yield node.target, ast.BinOp(node.target, node.op, node.value)
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.NamedExpr, ast.comprehension)):
        yield node.target, None
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, None


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.AST, ast.expr | None]]:
    if not isinstance(target, ast.Tuple | ast.List) or any(isinstance(one, ast.Starred) for one in target.elts):
        yield target, value if isinstance(target, ast.Name) else None
        return
    literal = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    for place, one in enumerate(target.elts):
        same = len(literal) == len(target.elts)
        yield from _unpacked(one, literal[place] if same else ast.Subscript(value, ast.Constant(place)))


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


_SOURCES = ("mindspore.ops.", "mindspore.mint.", "mindspore.Tensor", "mindspore.tensor", "mindspore.from_numpy")
# Functions of ops and mint whose result is not a tensor: sizes, types, answers, and other functions.
_OTHERS = re.compile(
    r"(?:shape|dyn_shape|size|rank|dtype|typeof|is_tensor|is_floating_point|is_complex|numel|isinstance_?|issubclass_?|hastype_?|"
    r"grad|value_and_grad|vjp|jvp|vmap|jacrev|jacfwd|get_grad|get_grads|derivative|constexpr|get_vm_impl_fn|get_cache_prim|"
    r"split|chunk|unbind|unstack|tensor_split|hsplit|vsplit|dsplit|meshgrid|broadcast_tensors|unique_with_pad|"
    r"topk|sort|min|max|unique|set_seed|manual_seed|seed|initial_seed|finfo|iinfo|(?:tuple|list|scalar|string|dict|bool|slice|not_in|in)_\w+)"
)
_TYPE = re.compile(r"mindspore(?:\.common)?(?:\.tensor)?\.Tensor$")
# Methods of a tensor whose result is not a tensor.
_AWAY = frozenset(
    (
        *("asnumpy", "numpy", "item", "tolist", "size", "dim", "ndimension", "numel", "nelement", "stride", "shape"),
        *("is_contiguous", "is_floating_point", "is_complex", "data_ptr", "storage_offset", "storage", "split"),
        *("chunk", "unbind", "has_init", "init_data", "backward", "register_hook"),
        *("dtype", "type", "nbytes", "itemsize"),
    )
)


def is_tensor(module: Module, node: ast.expr, depth: int = 4) -> bool:
    """Return whether a value surely is a tensor.

    It is the result of a function of ops or mint, of an operator (``P.MatMul()(x, y)``, ``self.matmul(x, y)``), of a tensor's
    method or of arithmetic with a tensor; an argument declared as one (``x: Tensor``); or a name for only such values.
    """
    if depth <= 0:
        return False
    if isinstance(node, ast.Call):
        return _is_constructed(module, node, depth)
    if isinstance(node, ast.Name):
        values = list(assigned(module, node))
        if values == [None] and _is_declared(module, node):
            return True
        return bool(values) and all(value is not None and is_tensor(module, value, depth - 1) for value in values)
    return any(is_tensor(module, part, depth - 1) for part in _parts(node))


def _parts(node: ast.expr) -> tuple[ast.expr, ...]:
    """Return those parts of an expression that make it a tensor if one of them is a tensor."""
    if isinstance(node, ast.BinOp):
        return (node.left, node.right)
    if isinstance(node, ast.UnaryOp):
        return () if isinstance(node.op, ast.Not) else (node.operand,)
    if isinstance(node, ast.Attribute):
        return (node.value,) if node.attr in ("T", "mT", "data") else ()
    return (node.value,) if isinstance(node, ast.Subscript) else ()


def _is_constructed(module: Module, call: ast.Call, depth: int) -> bool:
    name = module.name(call.func)
    if name.startswith(_SOURCES):
        last = name.rpartition(".")[2]
        return (last in ("Tensor", "tensor") or not last[:1].isupper()) and not _OTHERS.fullmatch(last)
    if isinstance(call.func, ast.Attribute) and call.func.attr not in _AWAY:
        inner = call.func.value
        if is_tensor(module, inner, depth - 1) and not is_array(module, inner):
            return True
    return _is_operator(module, call.func)


def _is_operator(module: Module, node: ast.expr) -> bool:
    """Return whether an expression is an operator object: ``P.Add()``, or a name or attribute that only receives such objects."""
    if isinstance(node, ast.Call):
        name = module.name(node.func)
        last = name.rpartition(".")[2]
        return name.startswith("mindspore.ops.") and last[:1].isupper() and last not in _NO_OPERATORS
    if isinstance(node, ast.Name):
        values = list(assigned(module, node))
        return bool(values) and all(isinstance(value, ast.Call) and _is_operator(module, value) for value in values)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        given = module.attributes.get(node.attr, ())
        return bool(given) and all(isinstance(value, ast.Call) and _is_operator(module, value) for value in given)
    return False


# Classes of ops whose call does not return a tensor.
_NO_OPERATORS = frozenset(
    (
        *("Shape", "DynamicShape", "TensorShape", "Size", "Rank", "DType", "IsInstance", "IsSubClass", "GradOperation"),
        *("HyperMap", "Map", "MultitypeFuncGraph", "Split", "TopK", "Sort", "Unique", "Unstack", "Depend", "Custom"),
        *("Meshgrid", "SplitV", "ReduceOp", "Print", "ArgMaxWithValue", "ArgMinWithValue", "BatchNorm", "LayerNorm"),
        *("Dropout", "Send", "Receive", "TensorDump", "CustomRegOp", "TBERegOp", "AiCPURegOp", "DataType", "Primitive"),
    )
)


def _is_declared(module: Module, node: ast.Name) -> bool:
    function = module.function(node)
    if not isinstance(function, FUNCTIONS):
        return False
    given = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    marks = [one.annotation for one in given if one.arg == node.id]
    return any(mark is not None and _TYPE.search(module.name(mark)) for mark in marks)
