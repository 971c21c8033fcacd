"""Find the layer and the pass (forward, backward or recomputed) of an operator of MindSpore's graphs from its scope.

Scopes are paths of cells, ``Default/network-Net/layers-CellList/3-Block/MatMul-op0``; automatic differentiation adds
the prefix ``Gradients/``. Recomputed operators have ``recompute_`` before one of their parts (MindSpore 2.3 to 2.10):
in the first run, in the second, and in their ``Gradients/``. Kernels in a profile have the launcher before the scope
and their own name after it: ``Kernel::KernelLaunch::Gradients/Default/../MatMul-op1/aclnnMatmul``
(mindspore/profiler/analysis/viewer/ascend_kernel_details_viewer.py, 2.9).
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

# A list of cells also splits a pipeline's micro-batches (mindspore/nn/wrap/cell_wrapper.py, 2.9): these are not layers.
SCOPE_LAYER = re.compile(r"(?:^|/)(?!micro_inputs-)(\w+)-\w+/(\d+)-\w+")
_ROOTS = ("Default/", "Gradients/", "recompute_")  # mindspore/profiler/common/constant.py, 2.9
_OWNER = re.compile(r"(?:^|/)(\w+)-\w+$")
_LAYER_OF_SCOPE, _LAYER_OF_NAME = re.compile(r"/\d+(?=-)"), re.compile(r"\.\d+(?=\.)")


class ScopePass(str, Enum):
    """The pass of an operator; recomputed operators run twice, and scopes do not distinguish these runs."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"


def find_pass(path: str) -> ScopePass:
    """Return the pass of an operator of a layer."""
    path = path.rpartition("::")[2]
    if path.startswith("Gradients/") or "/Gradients/" in path:
        return ScopePass.BACKWARD
    return ScopePass.RECOMPUTE if path.startswith("recompute_") or "/recompute_" in path else ScopePass.FORWARD


def split_layer(path: str) -> tuple[str, str, str] | None:
    """Return the layer of an operator: the cell with the list of layers, the list, and the layer's number in it.

    Prediction layers have their own list: ``mtp``, ``layers``, ``0``.
    """
    path = path.replace("recompute_", "")
    found = SCOPE_LAYER.search(path)
    if found is None:
        return None
    owner = _OWNER.search(path[: found.start()])
    return owner[1] if owner else "", found[1], found[2]


def shorten_scope(name: str) -> str:
    """Return a kernel's name with a short scope: ``Gradients/layers.3/MatMul-op1``; unchanged if it has no scope."""
    launch, _, path = name.rpartition("::")
    if not path.startswith(_ROOTS):
        return name
    layer, operator = split_layer(path), path.split("/")[-2 if launch else -1]
    way = "Gradients/" if find_pass(path) is ScopePass.BACKWARD else ""
    return f"{way}{f'{layer[1]}.{layer[2]}' if layer else '…'}/{operator}"


@lru_cache(maxsize=262144)
def mask_layer_number(path: str) -> str:
    """Replace the layer number in a scope path or parameter name by ``*``."""
    path = _LAYER_OF_SCOPE.sub("/*", path)
    return _LAYER_OF_NAME.sub(".*", path) if "." in path else path
