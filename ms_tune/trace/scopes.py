"""What the scope of an operator of MindSpore's graphs tells: its layer, and whether it runs forward, backward or once more.

Scopes are paths of cells, ``Default/network-Net/layers-CellList/3-Block/MatMul-op0``; automatic differentiation puts ``Gradients/``
before them. What is recomputed has ``recompute_`` before one of their parts (MindSpore 2.3 to 2.10): in its first run, in its second
one, and in what ``Gradients/`` made of it.
"""

from __future__ import annotations

import re
from enum import Enum

SCOPE_LAYER = re.compile(r"(?:^|/)(\w+)-\w+/(\d+)-\w+")


class Pass(str, Enum):
    """When an operator runs; what is recomputed runs twice, and scopes do not tell its first run from its second."""

    FORWARD = "forward"
    BACKWARD = "backward"
    RECOMPUTE = "recompute"


def pass_of(path: str) -> Pass:
    """The pass of an operator of a layer."""
    if path.startswith("Gradients/") or "/Gradients/" in path:
        return Pass.BACKWARD
    return Pass.RECOMPUTE if path.startswith("recompute_") or "/recompute_" in path else Pass.FORWARD
