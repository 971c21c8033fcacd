"""Which part of a training step allocated a block: the forward pass, the backward pass or the update of the weights.

The dynamic graph tells by the Python stack, the static graph by the scope path of the operator. Both are known from
MindSpore 2.9 and 2.10 (``ops/composite/base.py``, ``common/recompute.py``, ``graph/api.py``) and the traces of real runs.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ms_tune.trace.memory_block import Block, Frame

EAGER = "PyNative"  # the task name of every block of the dynamic graph
CALLS = frozenset({"construct", "forward"})  # torch-like front ends on MindSpore call `construct` `forward`


class Phase(Enum):
    """A part of a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    STEP = "step"  # the training step's own operators: scaling, checking and clipping gradients
    UPDATE = "update"


class Origin(Enum):
    """Whose code a frame is, from the most to the least telling."""

    USER = 0
    LIBRARY = 1  # model libraries and other installed packages
    FRAMEWORK = 2  # MindSpore
    NOISE = 3  # the standard library, the tracker's own look at the stack


_GRAD_FORWARD = frozenset({"_pynative_forward_run", "_pynative_func_grad_forward"})
_GRAD_BACKWARD = frozenset({"_pynative_func_grad_backward", "bprop", "backward", "run_backward"})

_MINDSPORE = re.compile(r"(?:site|dist)-packages/mindspore/|/mindspore/python/mindspore/")
_LIBRARY = re.compile(
    r"(?:site|dist)-packages/|/ms_tune/"
    r"|/mindformers/(?:core|models|modules|parallel_core|pynative|trainer|wrapper|tools|pet|utils)/"
)
_STANDARD = re.compile(r"/lib(?:64)?/python3\.\d+/(?!(?:site|dist)-packages/)|^<|^$")
_OPTIMIZER_FILE = re.compile(
    r"(?:mindspore|mindformers)/(?:.*/)?optim(?:izer)?s?/|(?:^|/)(?:optimizers?|optim|adam\w*|muon|lamb|sgd)\.py$"
)

_TRAIN_STEP = re.compile(r"-\w*(?:TrainOneStep|TrainStep|LossScale)\w*$")
_UPDATE_SCOPE = re.compile(r"/optimizer-")
_CLIP_SCOPE = re.compile(r"/(?:clip_grad_norm|grad_reducer)-")
_GRAPH = re.compile(r"kernel_graph_?(\d+)")


def origin(frame: Frame) -> Origin:
    """Whose code a frame is."""
    path = frame.file.replace("\\", "/")
    if _STANDARD.search(path):
        return Origin.NOISE
    if _MINDSPORE.search(path):
        return Origin.FRAMEWORK
    return Origin.LIBRARY if _LIBRARY.search(path) else Origin.USER


def is_useful(stack: Sequence[Frame]) -> bool:
    """Whether the stack shows anything of the training script.

    Without launch blocking, the tracker runs in a thread of MindSpore's and sees only its own look at the stack.
    """
    return any(origin(frame) is not Origin.NOISE for frame in stack)


class Phases:
    """The phases of the blocks of a trace.

    Operators that a compiler pass made have no scope of their own, and eager code between the passes has no telling
    stack: such blocks belong to the phase of the last block before them that has one.

    Args:
        blocks: All blocks of the trace.
        state: The blocks of optimizer state, as far as known by name.
    """

    def __init__(self, blocks: Sequence[Block], state: Iterable[Block]) -> None:
        stacks = {id(block.stack): block.stack for block in blocks if block.task_name == EAGER}
        # With value_and_grad, only what is under its forward run is forward: a training step may be a cell itself.
        self._grad_runs = any(frame.function in _GRAD_FORWARD for stack in stacks.values() for frame in stack)
        by_stack = {key: self._of_stack(stack) for key, stack in stacks.items()}
        self._own = {id(block): by_stack[id(block.stack)] for block in blocks if block.task_name == EAGER}
        in_graphs = [block for block in blocks if block.task_name != EAGER and block.kind in _GRAPH_KINDS]
        self._own.update({id(block): _of_scope(block.node_name) for block in in_graphs})
        # MindSpore compiles nn.Adam in the dynamic graph, too: a graph that holds nothing but the optimizer.
        scoped = {_graph(block) for block in in_graphs if self._own[id(block)]}
        updates = {_graph(block) for block in state if block.task_name != EAGER} - scoped - {""}
        self._own.update({id(block): Phase.UPDATE for block in in_graphs if _graph(block) in updates})
        self._around: dict[int, Phase | None] = {}
        current: Phase | None = None
        for block in sorted(blocks, key=lambda block: block.start):
            own = self.of(block)
            current = own if own not in (None, Phase.STEP) else current
            self._around[id(block)] = current

    def of(self, block: Block) -> Phase | None:
        """The phase that allocated the block, by its own stack or scope; None if they do not tell."""
        return self._own.get(id(block))

    def around(self, block: Block) -> Phase | None:
        """The phase that allocated the block, by the blocks before it if it does not tell itself."""
        return self._around.get(id(block))

    def _of_stack(self, stack: Sequence[Frame]) -> Phase | None:
        """The phase by the innermost telling frame: recompute runs forward code inside the backward pass."""
        called = False
        for frame in reversed(stack):
            function, whose = frame.function, origin(frame)
            if _OPTIMIZER_FILE.search(frame.file):
                return Phase.UPDATE
            if function in _GRAD_FORWARD:
                return Phase.FORWARD
            if function in _GRAD_BACKWARD or (function == "grad" and whose is Origin.FRAMEWORK):
                return Phase.FORWARD if called else Phase.BACKWARD
            called = called or function in CALLS
        return Phase.FORWARD if called and not self._grad_runs else None


_GRAPH_KINDS = frozenset({"Kernel", "Somas", "SomasOutput", "GraphOutput", "WorkSpace"})


def _graph(block: Block) -> str:
    """The number of the block's graph: ``kernel_graph0`` and ``kernel_graph_0_DataPrepareActor`` are one graph."""
    match = _GRAPH.search(block.graph_name) or _GRAPH.search(block.task_name)
    return match[1] if match else ""


def _of_scope(path: str) -> Phase | None:
    """The phase by the scope path of an operator; None if it has no scope."""
    if path.startswith("Gradients/") or "/Gradients/" in path:
        return Phase.BACKWARD
    if _UPDATE_SCOPE.search(path):
        return Phase.UPDATE
    if _CLIP_SCOPE.search(path):
        return Phase.STEP
    if path.startswith("recompute_") or "/recompute_" in path:
        return Phase.FORWARD
    scope = path.rpartition("/")[0]
    if not path.startswith("Default/") or scope == "Default":
        return None
    return Phase.STEP if scope.count("/") == 1 and _TRAIN_STEP.search(scope) else Phase.FORWARD
