"""Map functions of ``mindspore.ops`` and cells of ``mindspore.nn`` to equivalents in ``mindspore.mint``.

Compared by signature and by running both: values on the CPU, types and shapes on Ascend in simulation (MindSpore 2.9 and
2.10). Only functions with the same result are listed: those that only need the new name, those whose keywords are renamed
(``axis`` to ``dim``, ``keep_dims`` to ``keepdim``), and, without a rewrite, those whose equivalence cannot be verified that
way. ``gather``, ``transpose``, ``std``, ``max``, ``flatten`` and many others have another meaning in mint and are excluded. A
few (``unbind``, ``real``, ``imag``) return views in mint, so in-place changes show and no fix is safe.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAME_OPS = (
    "acos acosh add addbmm addmm addmv arange arccos arccosh arcsin arcsinh arctan arctan2 argmax asin "
    "asinh atan atan2 bincount bitwise_and bitwise_or bitwise_xor broadcast_to cdist clamp clip div dot "
    "eq exp2 float_power floor_divide fmod full full_like ge greater_equal imag inverse isfinite isneginf "
    "lerp linspace log10 log2 logaddexp logaddexp2 logsumexp mm mul ones_like outer pow real remainder sub "
    "sum swapaxes trace tril unbind unique_consecutive unsqueeze where xlogy zeros_like "
)
_FUNCTIONAL_OPS = (
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d cross_entropy "
    "dropout2d fold hardtanh interpolate l1_loss mse_loss pixel_shuffle silu softplus unfold "
)
_SAME_NN = (
    "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d BCELoss ConstantPad1d "
    "ConstantPad2d ConstantPad3d CrossEntropyLoss Dropout2d ELU Flatten Hardtanh KLDivLoss L1Loss MSELoss "
    "MaxUnpool2d Mish NLLLoss PixelShuffle ReLU6 ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d "
    "ReplicationPad2d ReplicationPad3d SiLU Threshold Upsample ZeroPad2d "
)
_OTHER = {
    "nn.SeLU": "mint.nn.SELU",
    "ops.gather_elements": "mint.gather",
    "ops.not_equal": "mint.ne",
    "ops.tensor_add": "mint.add",
    "ops.tensor_exp": "mint.exp",
    "ops.tensor_expm1": "mint.expm1",
    "ops.tensor_floordiv": "mint.floor_divide",
    "ops.tensor_ge": "mint.ge",
    "ops.tensor_gt": "mint.gt",
    "ops.tensor_le": "mint.le",
    "ops.tensor_mul": "mint.mul",
    "ops.tensor_pow": "mint.pow",
}

_RENAMED_OPS = (
    "all any argsort bmm cat chunk concat cummax cummin cumsum diff frac index_select mean nansum narrow "
    "repeat_interleave scatter split sqrt stack "
)
_RENAMED_FUNCTIONAL_OPS = "binary_cross_entropy elu glu kl_div logsigmoid max_unpool2d mish relu6 selu upsample "
_RENAMED_NN = "GLU "
_RENAMED_OTHER = {
    "ops.expand_dims": "mint.unsqueeze",
    "ops.gather_d": "mint.gather",
    "ops.invert": "mint.bitwise_not",
    "ops.matrix_norm": "mint.linalg.matrix_norm",
    "ops.qr": "mint.linalg.qr",
    "ops.reduce_max": "mint.amax",
    "ops.reduce_min": "mint.amin",
    "ops.unstack": "mint.unbind",
    "ops.vector_norm": "mint.linalg.vector_norm",
}


def _table(same: str, functional: str, cells: str, other: dict[str, str]) -> dict[str, str]:
    return {
        **{f"mindspore.ops.{name}": f"mint.{name}" for name in same.split()},
        **{f"mindspore.ops.{name}": f"mint.nn.functional.{name}" for name in functional.split()},
        **{f"mindspore.nn.{name}": f"mint.nn.{name}" for name in cells.split()},
        **{f"mindspore.{name}": new for name, new in other.items()},
    }


# Full name of the old function to the new one.
DROP_IN = _table(_SAME_OPS, _FUNCTIONAL_OPS, _SAME_NN, _OTHER)
WITH_KEYWORDS = _table(_RENAMED_OPS, _RENAMED_FUNCTIONAL_OPS, _RENAMED_NN, _RENAMED_OTHER)
# Reported, but not rewritten.
WITHOUT_FIX = {
    # Float learning rates only, Ascend only; only a device can show whether the fused kernel rounds in the same way.
    "mindspore.experimental.optim.AdamW": "mint.optim.AdamW",
    # The kernel has no CPU counterpart to compare with; for vectors of zeros the formula of ops divides by zero.
    "mindspore.nn.CosineEmbeddingLoss": "mint.nn.CosineEmbeddingLoss",
    "mindspore.ops.cosine_embedding_loss": "mint.nn.functional.cosine_embedding_loss",
}

# Operator classes of ops (``P.MatMul()``), each with the function of mint that does the same with default settings.
_OPERATORS = {
    "Abs": "abs", "Add": "add", "BatchMatMul": "bmm", "BroadcastTo": "broadcast_to", "Concat": "cat", "Cos": "cos", "Div": "div",
    "Equal": "eq", "Erf": "erf", "Exp": "exp", "ExpandDims": "unsqueeze", "GeLU": "nn.functional.gelu", "GreaterEqual": "ge",
    "Less": "lt", "Log": "log", "LogicalAnd": "logical_and", "LogicalNot": "logical_not", "LogicalOr": "logical_or",
    "MatMul": "matmul", "Maximum": "maximum", "Minimum": "minimum", "Mul": "mul", "Neg": "neg", "NotEqual": "ne",
    "OnesLike": "ones_like", "Pow": "pow", "ReLU": "nn.functional.relu", "ReduceMean": "mean", "ReduceSum": "sum",
    "Reshape": "reshape", "Rsqrt": "rsqrt", "Select": "where", "Sigmoid": "sigmoid", "Sin": "sin",
    "Softmax": "nn.functional.softmax", "Sqrt": "sqrt", "Square": "square", "Stack": "stack", "Sub": "sub", "Tanh": "tanh",
    "Transpose": "permute", "ZerosLike": "zeros_like",
}  # fmt: skip
OPERATORS = {f"mindspore.ops.{name}": f"mint.{new}" for name, new in _OPERATORS.items()}

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
