"""Map functions of ``mindspore.ops`` and cells of ``mindspore.nn`` to equivalents in ``mindspore.mint``.

Compared by signature and by running both: values on the CPU, types and shapes on Ascend in simulation (MindSpore 2.9 and
2.10). Only functions with the same result are listed: those that only need the new name, those whose keywords are renamed
(``axis`` to ``dim``, ``keep_dims`` to ``keepdim``), and, without a rewrite, those whose equivalence cannot be verified that
way. ``gather``, ``transpose``, ``std``, ``max``, ``flatten`` and many others have another meaning in mint and are excluded. A
few (``unbind``, ``real``, ``imag``) return views in mint, so in-place changes show and no fix is safe.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ms_tune.facts.query import load

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
