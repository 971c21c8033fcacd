"""Find the part of a training step that allocated a block: forward pass, backward pass or update of the weights.

The dynamic graph shows it by the Python stack, the static graph by the operator's scope path; see MindSpore 2.9 and
2.10 (``ops/composite/base.py``, ``common/recompute.py``, ``graph/api.py``) and the traces of real runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ms_tune.readers.memory_block import Frame
from ms_tune.readers.table import Table

EAGER = "PyNative"  # the task name of every block of the dynamic graph
CALLS = frozenset({"construct", "forward"})  # `forward` is `construct` in torch-like front ends on MindSpore
_GRAD_FORWARD = frozenset({"_pynative_forward_run", "_pynative_func_grad_forward"})
_GRAD_BACKWARD = frozenset({"_pynative_func_grad_backward", "bprop", "backward", "run_backward"})
_MINDSPORE = re.compile(r"(?:site|dist)-packages/mindspore/|/mindspore/python/mindspore/")
_LIBRARY = re.compile(
    r"(?:site|dist)-packages/|/ms_tune/"
    r"|/mindformers/(?:core|models|modules|parallel_core|pynative|trainer|wrapper|tools|pet|utils)/"
)
_STANDARD = re.compile(r"/lib(?:64)?/python3\.\d+/(?!(?:site|dist)-packages/)|/ms_tune/dryrun/child/hook/|^<|^$")
_OPTIMIZER_FILE = re.compile(
    r"(?:mindspore|mindformers)/(?:.*/)?optim(?:izer)?s?/|(?:^|/)(?:optimizers?|optim|adam\w*|muon|lamb|sgd)\.py$"
)
# Operators that only a backward pass or an optimizer runs, by MindSpore's names: used if nothing else shows the phase.
_GRADIENT_OPERATOR = re.compile(r"(?:Grad|GradExt|GradV\d+|Backward)(?:-(?:op)?\d+)?$")
_UPDATE_OPERATOR = re.compile(
    r"(?:^|/)(?:(?:Fused|Sparse)*Apply[A-Z]\w*|(?:Fused)?Adam\w*|Lamb\w*|Momentum|SGD)(?:-(?:op)?\d+)?$"
)
_TRAIN_STEP = re.compile(r"-\w*(?:TrainOneStep|TrainStep|LossScale)\w*$")
_UPDATE_SCOPE = re.compile(r"/optimizer-")
_CLIP_SCOPE = re.compile(r"/(?:clip_grad_norm|grad_reducer)-")
_GRAPH = re.compile(r"kernel_graph_?(\d+)")
_GRAPH_OUTPUTS = frozenset({"Kernel", "SomasOutput"})
_GRAPH_KINDS = _GRAPH_OUTPUTS | {"Somas", "GraphOutput", "WorkSpace"}


class Phase(Enum):
    """A part of a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    STEP = "step"  # the training step's own operators: scaling, checking and clipping gradients
    UPDATE = "update"
    RECOMPUTE = "recompute"  # the forward pass again, within the backward pass; only a dry-run of HyperParallel says so


_BRIEF = 3  # temporary blocks of one operator
ORDER = tuple(Phase)
_BY_TASK = {phase.value: phase for phase in Phase} | {"optimizer": Phase.UPDATE}


class FrameOrigin(Enum):
    """Origin of the code of a frame, the most relevant first."""

    USER = 0
    LIBRARY = 1  # model libraries and other installed packages
    FRAMEWORK = 2  # MindSpore
    # the standard library, the tracker's own stack capture, dryrun's wrappers of operators
    NOISE = 3


@lru_cache(maxsize=65536)
def classify_frame(frame: Frame) -> FrameOrigin:
    """Return the origin of the code of a frame."""
    path = frame.file.replace("\\", "/")
    if _STANDARD.search(path):
        return FrameOrigin.NOISE
    if _MINDSPORE.search(path):
        return FrameOrigin.FRAMEWORK
    return FrameOrigin.LIBRARY if _LIBRARY.search(path) else FrameOrigin.USER


def is_useful(stack: Sequence[Frame]) -> bool:
    """Return whether the stack shows any code of the training script.

    Without launch blocking, the tracker runs in a thread of MindSpore and sees only its own stack capture.
    """
    return any(classify_frame(frame) is not FrameOrigin.NOISE for frame in stack)


class Phases:
    """Phases of the rows of a trace, as numbers: 0 for none, else the phase's index in :data:`ORDER` plus one.

    Operators of compiler passes have no scope, and eager code between the passes has no frame that shows a phase. Such
    a block certainly belongs to a phase only if the blocks before and after it agree.
    """

    def __init__(self, table: Table, state: NDArray[np.bool_]) -> None:
        eager = table.task.rows_in([EAGER])
        stacks = table.stack.values
        used = set(np.unique(table.stack.codes[eager]).tolist())
        # With value_and_grad, only its forward run is forward: a training step may itself be a cell.
        self._grad_runs = any(_is_grad_run(stacks[code]) for code in used)
        by_stack = [self._read_stack_phase(stack) if code in used else None for code, stack in enumerate(stacks)]
        in_graphs = ~eager & table.kind.rows_in(_GRAPH_KINDS)
        scoped = set(np.unique(table.node.codes[in_graphs]).tolist())
        by_scope = [_read_scope_phase(path) if code in scoped else None for code, path in enumerate(table.node.values)]
        # The phase of each block by the stack, scope or operator of the block alone.
        self.own_codes: NDArray[np.int8] = np.where(eager, _phase_codes(by_stack)[table.stack.codes], 0).astype(np.int8)
        self.own_codes = np.where(in_graphs, _phase_codes(by_scope)[table.node.codes], self.own_codes).astype(np.int8)
        by_operator = _phase_codes([_read_operator_phase(name) for name in table.node.values])[table.node.codes]
        self.own_codes = np.where((self.own_codes == 0) & eager, by_operator, self.own_codes).astype(np.int8)
        if table.is_logical:
            self.own_codes = _phase_codes([_BY_TASK.get(name) for name in table.task.values])[table.task.codes]
        self._mark_compiled_optimizers(table, state & ~eager, in_graphs)
        self._mark_unscoped_forward(table, in_graphs & table.kind.rows_in(_GRAPH_OUTPUTS))
        # For the other blocks: the phase of the last known block (guessed), or only if both neighbors agree (sure).
        order = np.argsort(table.start, kind="stable")
        own = self.own_codes[order]
        around = np.zeros(len(own), np.int8)
        compiled = ~table.task.rows_in([EAGER])[order]
        around[order] = _correct_strays(_carry_last_phase(own, (own > 0) & (own != phase_code(Phase.STEP))), compiled)
        self.guessed_codes = around
        self.sure_codes = self._classify_between_sides(table)

    def rows_of(self, *phases: Phase) -> NDArray[np.bool_]:
        """Return a mask of the blocks that their own stack, scope or operator assigns to one of these phases."""
        return np.isin(self.own_codes, [phase_code(phase) for phase in phases])

    def _mark_compiled_optimizers(self, table: Table, state: NDArray[np.bool_], in_graphs: NDArray[np.bool_]) -> None:
        # MindSpore compiles nn.Adam in the dynamic graph, too: such a graph contains nothing but the optimizer.
        by_graph = [_graph_number(name) for name in table.graph.values]
        by_task = [_graph_number(name) for name in table.task.values]
        names = {name: code for code, name in enumerate(sorted({*by_graph, *by_task, ""}))}
        graph = np.array([names[name] for name in by_graph] or [0], np.int32)[table.graph.codes]
        task = np.array([names[name] for name in by_task] or [0], np.int32)[table.task.codes]
        graph = np.where(graph == names[""], task, graph)
        scoped = set(np.unique(graph[in_graphs & (self.own_codes > 0)]).tolist())
        updates = set(np.unique(graph[state]).tolist()) - scoped - {names[""]}
        self.own_codes[in_graphs & np.isin(graph, list(updates))] = phase_code(Phase.UPDATE)

    def _mark_unscoped_forward(self, table: Table, outputs: NDArray[np.bool_]) -> None:
        # A step that is compiled as one function has no cells: only its backward pass has a scope, and the compiler moves a
        # part of that into the forward pass. The other blocks fill memory until the backward pass releases them.
        own, backward, forward = self.own_codes, phase_code(Phase.BACKWARD), phase_code(Phase.FORWARD)
        launches = set(np.unique(table.producer[outputs & (own == backward)]).tolist())
        for launch in launches - set(np.unique(table.producer[outputs & (own == forward)]).tolist()):
            rows = outputs & (table.producer == launch)
            plain = rows & (own == 0)
            for first, top, last in _find_rises(table.start[plain], table.end[plain], table.size[plain]):
                # From the peak on, the backward pass begins where its operators outnumber the others.
                near = table.rows_by_start(rows & (table.start >= top) & (table.start <= last))
                ahead = np.cumsum(np.where(plain[near], 1, -1))
                begin = table.start[near[len(near) - 1 - ahead[::-1].argmax()]]
                rising = rows & (table.start >= first) & (table.start <= begin)
                self.own_codes[rising & np.isin(own, (0, backward))] = forward

    def _classify_between_sides(self, table: Table) -> NDArray[np.int8]:
        # The step's own operators are among those of other phases, so they count as neighbors only in the first pass.
        order = np.argsort(table.start, kind="stable")
        own = self.own_codes[order]
        for telling in (own > 0, (own > 0) & (own != phase_code(Phase.STEP))):
            before, after = _carry_last_phase(own, telling), _carry_last_phase(own[::-1], telling[::-1])[::-1]
            own = np.where((own == 0) & (before == after), before, own)
        codes = np.zeros(len(own), np.int8)
        codes[order] = own
        return codes

    def _read_stack_phase(self, stack: Sequence[Frame]) -> Phase | None:
        # The innermost frame with a phase decides: recomputation runs forward code inside the backward pass.
        called = False
        for frame in reversed(stack):
            function, whose = frame.function, classify_frame(frame)
            if _OPTIMIZER_FILE.search(frame.file):
                return Phase.UPDATE
            if function in _GRAD_FORWARD:
                return Phase.FORWARD
            if function in _GRAD_BACKWARD or (function == "grad" and whose is FrameOrigin.FRAMEWORK):
                return Phase.FORWARD if called else Phase.BACKWARD
            called = called or function in CALLS
        return Phase.FORWARD if called and not self._grad_runs else None


def _carry_last_phase(own: NDArray[np.int8], telling: NDArray[np.bool_]) -> NDArray[np.int8]:
    if not len(own):
        return own
    last = np.maximum.accumulate(np.where(telling, np.arange(len(own)), -1))
    return np.where(last >= 0, own[np.maximum(last, 0)], 0).astype(np.int8)


def _correct_strays(around: NDArray[np.int8], compiled: NDArray[np.bool_]) -> NDArray[np.int8]:
    # A forward pass between two updates, with no backward pass after it, belongs to the update: a compiler pass merges
    # equal operators and keeps the scope of one of them. In MindFormers 1.9's Qwen3 (MindSpore 2.9) an `Add` of AdamW
    # has the scope of `rotary_pos_emb`, at the update's peak.
    update, forward = phase_code(Phase.UPDATE), phase_code(Phase.FORWARD)
    other = around != forward
    before, after = _carry_last_phase(around, other), _carry_last_phase(around[::-1], other[::-1])[::-1]
    return np.where(compiled & ~other & (before == update) & (after == update), update, around).astype(np.int8)


def _find_rises(
    start: NDArray[np.int64], end: NDArray[np.int64], size: NDArray[np.int64]
) -> list[tuple[int, int, int]]:
    # The ticks between which the sum of live blocks rises to at least half its highest value, one rise for each micro-batch:
    # its begin, its peak, and the last tick near the peak, since temporary blocks may have moved the peak.
    ticks, change = np.concatenate([start, end]), np.concatenate([size, -size])
    order = np.argsort(ticks, kind="stable")
    ticks, level = ticks[order], np.cumsum(change[order])
    if not len(level):
        return []
    edges = np.flatnonzero(np.diff(np.concatenate([[0], 2 * level >= level.max(), [0]]).astype(np.int8)))
    spans = edges.reshape(-1, 2).tolist()
    peaks = [low + int(level[low:high].argmax()) for low, high in spans]
    lows = [0, *(high - 1 - int(level[low:high][::-1].argmin()) for low, high in pairwise(peaks))]
    near = [np.flatnonzero(level[low:high] >= level[low:high].max() - _BRIEF * size.max()) for low, high in spans]
    ends = [low + int(found[-1]) for (low, _), found in zip(spans, near, strict=True)]
    return [(int(ticks[a]), int(ticks[b]), int(ticks[c])) for a, b, c in zip(lows, peaks, ends, strict=True)]


def _is_grad_run(stack: Sequence[Frame]) -> bool:
    # Recomputation has its own forward run inside the backward pass.
    for frame in stack:
        if frame.function in _GRAD_BACKWARD:
            return False
        if frame.function in _GRAD_FORWARD:
            return True
    return False


def phase_code(phase: Phase | None) -> int:
    """Return the number that :class:`Phases` uses for a phase."""
    return 0 if phase is None else ORDER.index(phase) + 1


def _phase_codes(phases: Sequence[Phase | None]) -> NDArray[np.int8]:
    return np.array([phase_code(phase) for phase in phases] or [0], np.int8)


def _graph_number(name: str) -> str:
    # `kernel_graph0` and `kernel_graph_0_DataPrepareActor` are the same graph.
    match = _GRAPH.search(name)
    return match[1] if match else ""


def _read_operator_phase(node_name: str) -> Phase | None:
    if _UPDATE_OPERATOR.search(node_name):
        return Phase.UPDATE
    return Phase.BACKWARD if _GRADIENT_OPERATOR.search(node_name) else None


def _read_scope_phase(path: str) -> Phase | None:
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
