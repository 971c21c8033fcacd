"""Values that are tensors for sure: by where they come from."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ms_tune.lint.python_code.module import FUNCTIONS
from ms_tune.lint.python_code.syntax import assigned, is_array

if TYPE_CHECKING:
    from ms_tune.lint.python_code.module import Module

_SOURCES = ("mindspore.ops.", "mindspore.mint.", "mindspore.Tensor", "mindspore.tensor", "mindspore.from_numpy")
# Functions of ops and mint whose result is no tensor: sizes, types, answers, and other functions.
_OTHERS = re.compile(
    r"(?:shape|dyn_shape|size|rank|dtype|typeof|is_tensor|is_floating_point|is_complex|numel|isinstance_?|issubclass_?|hastype_?|"
    r"grad|value_and_grad|vjp|jvp|vmap|jacrev|jacfwd|get_grad|get_grads|derivative|constexpr|get_vm_impl_fn|get_cache_prim|"
    r"split|chunk|unbind|unstack|tensor_split|hsplit|vsplit|dsplit|meshgrid|broadcast_tensors|unique_with_pad|"
    r"topk|sort|min|max|unique|set_seed|manual_seed|seed|initial_seed|finfo|iinfo|(?:tuple|list|scalar|string|dict|bool|slice|not_in|in)_\w+)"
)
_TYPE = re.compile(r"mindspore(?:\.common)?(?:\.tensor)?\.Tensor$")
# Methods of a tensor whose result is none.
_AWAY = frozenset(
    (
        *("asnumpy", "numpy", "item", "tolist", "size", "dim", "ndimension", "numel", "nelement", "stride", "shape"),
        *(
            "is_contiguous",
            "is_floating_point",
            "is_complex",
            "data_ptr",
            "storage_offset",
            "storage",
            "split",
            "chunk",
        ),
        *("unbind", "has_init", "init_data", "backward", "dtype", "type", "register_hook", "nbytes", "itemsize"),
    )
)


def is_tensor(module: Module, node: ast.expr, depth: int = 4) -> bool:
    """Whether a value surely is a tensor.

    Made by a function of ops or mint or by an operator (``P.MatMul()(x, y)``, ``self.matmul(x, y)``), by a method of a tensor or
    by arithmetic with one; an argument that says so (``x: Tensor``); a name that is only ever given such values.
    """
    if depth <= 0:
        return False
    if isinstance(node, ast.Call):
        return _is_made(module, node, depth)
    if isinstance(node, ast.Name):
        values = list(assigned(module, node))
        if values == [None] and _is_declared(module, node):
            return True
        return bool(values) and all(value is not None and is_tensor(module, value, depth - 1) for value in values)
    return any(is_tensor(module, part, depth - 1) for part in _parts(node))


def _parts(node: ast.expr) -> tuple[ast.expr, ...]:
    """The parts of an expression of which one tensor makes the whole one."""
    if isinstance(node, ast.BinOp):
        return (node.left, node.right)
    if isinstance(node, ast.UnaryOp):
        return () if isinstance(node.op, ast.Not) else (node.operand,)
    views = isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "data")
    return (node.value,) if isinstance(node, ast.Subscript) or (views and isinstance(node, ast.Attribute)) else ()


def _is_made(module: Module, call: ast.Call, depth: int) -> bool:
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
    """Whether an expression is an operator's object: ``P.Add()``, or a name or attribute that is only ever given one."""
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


# Classes of ops whose call gives no tensor.
_NO_OPERATORS = frozenset(
    (
        *("Shape", "DynamicShape", "TensorShape", "Size", "Rank", "DType", "IsInstance", "IsSubClass", "GradOperation"),
        *("HyperMap", "Map", "MultitypeFuncGraph", "Split", "TopK", "Sort", "Unique", "Unstack", "Depend", "Custom"),
        *("Meshgrid", "SplitV", "ReduceOp", "Print", "ArgMaxWithValue", "ArgMinWithValue", "BatchNorm", "LayerNorm"),
        *("Dropout", "Send", "Receive", "TensorDump", "CustomRegOp", "TBERegOp", "AiCPURegOp", "DataType", "Primitive"),
    )
)


def _is_declared(module: Module, node: ast.Name) -> bool:
    """Whether a name is an argument that is declared a tensor."""
    function = module.function(node)
    if not isinstance(function, FUNCTIONS):
        return False
    given = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    marks = [one.annotation for one in given if one.arg == node.id]
    return any(mark is not None and _TYPE.search(module.name(mark)) for mark in marks)
