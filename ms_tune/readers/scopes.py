"""What the scope of an operator of MindSpore's graphs tells: its layer, and whether it runs forward, backward or once more.

Scopes are paths of cells, ``Default/network-Net/layers-CellList/3-Block/MatMul-op0``; automatic differentiation puts ``Gradients/``
before them. What is recomputed has ``recompute_`` before one of their parts (MindSpore 2.3 to 2.10): in its first run, in its second
one, and in what ``Gradients/`` made of it. A profile's kernels have what launched them before that, and their own name behind:
``Kernel::KernelLaunch::Gradients/Default/../MatMul-op1/aclnnMatmul`` (mindspore/profiler/analysis/viewer/ascend_kernel_details_viewer.py, 2.9).
"""

from __future__ import annotations

import re
from enum import Enum

# A pipeline's micro-batches are cut by a list of cells, too (mindspore/nn/wrap/cell_wrapper.py, 2.9): no layers.
SCOPE_LAYER = re.compile(r"(?:^|/)(?!micro_inputs-)(\w+)-\w+/(\d+)-\w+")
_ROOTS = ("Default/", "Gradients/", "recompute_")  # mindspore/profiler/common/constant.py, 2.9
_OWNER = re.compile(r"(?:^|/)(\w+)-\w+$")


class ScopePass(str, Enum):
    """When an operator runs; what is recomputed runs twice, and scopes do not tell its first run from its second."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"


def find_pass(path: str) -> ScopePass:
    """The pass of an operator of a layer."""
    path = path.rpartition("::")[2]
    if path.startswith("Gradients/") or "/Gradients/" in path:
        return ScopePass.BACKWARD
    return ScopePass.RECOMPUTE if path.startswith("recompute_") or "/recompute_" in path else ScopePass.FORWARD


def split_layer(path: str) -> tuple[str, str, str] | None:
    """The layer of an operator: the cell that has the list of layers, the list, and the layer's number in it.

    Prediction layers have a list of their own: ``mtp``, ``layers``, ``0``.
    """
    path = path.replace("recompute_", "")
    found = SCOPE_LAYER.search(path)
    if found is None:
        return None
    owner = _OWNER.search(path[: found.start()])
    return owner[1] if owner else "", found[1], found[2]


def shorten_scope(name: str) -> str:
    """A kernel's name with its scope in short: ``Gradients/layers.3/MatMul-op1``; names without a scope stay."""
    launch, _, path = name.rpartition("::")
    if not path.startswith(_ROOTS):
        return name
    layer, operator = split_layer(path), path.split("/")[-2 if launch else -1]
    way = "Gradients/" if find_pass(path) is ScopePass.BACKWARD else ""
    return f"{way}{f'{layer[1]}.{layer[2]}' if layer else '…'}/{operator}"
