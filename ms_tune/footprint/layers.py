"""Find the operator, script line and model layer of a block, and the runs of the layers of a static graph.

A layer runs once per micro-batch and step. Numbers in scope paths distinguish layers (``layers-CellList/3-Block``),
unless ``lazy_inline`` shares one graph between them: then each operator of the one numbered scope appears once per
layer, and the first of them begins the next layer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ms_tune.footprint.category import STATE_PREFIXES, Contents, is_collective, parse_operator
from ms_tune.footprint.phases import CALLS, EAGER, FrameOrigin, Phase, classify_frame, phase_code
from ms_tune.readers.memory_block import Frame, parse_users
from ms_tune.readers.scopes import SCOPE_LAYER, ScopePass, find_pass, mask_layer_number
from ms_tune.readers.table import Table

PARAMETER = "Parameter"  # the "operator" of a named parameter of a graph
_USUAL_LAYER = re.compile(r"(?:^|\.)(layers?|blocks?|h)\.(\d+)\.")  # preferred: chunks and copies have numbers, too
_NAME_LAYER = re.compile(r"(?:^|\.)(\w+)\.(\d+)\.")
_WRAPPERS = re.compile(r"^(?:Gradients|Default|recompute_Default|recompute_\w+|Grad_\w+)$")
_CELL = re.compile(r"^(\w+)-\w+$")


def is_parameter(table: Table, row: int) -> bool:
    """Return whether the row's node name is the name of a parameter."""
    return table.kind.value_at(row) == "Weight" and table.task.value_at(row) != EAGER


def find_operator(table: Table, row: int) -> str:
    """Return the operator that allocated the block; ``Parameter`` for a parameter of a graph; empty if unknown."""
    return PARAMETER if is_parameter(table, row) else parse_operator(table.node.value_at(row))


def find_location(table: Table, row: int) -> str:
    """Return ``file:line`` of the script; in graph mode the scope path or parameter name, layer number masked."""
    node = table.node.value_at(row)
    if is_parameter(table, row):
        return mask_layer_number(node)
    scope = node.rpartition("/")[0]
    if scope and table.task.value_at(row) != EAGER:
        return mask_layer_number(scope)
    return find_script_line(table.stack.value_at(row)) or (table.graph.value_at(row) if table.is_logical else "")


@lru_cache(maxsize=65536)
def find_script_line(stack: tuple[Frame, ...]) -> str:
    """Return ``file:line`` of the most relevant frame of a stack; empty if there is not one."""
    frame = _find_user_frame(stack)
    return f"{frame.file}:{frame.line}" if frame else ""


def find_layer(table: Table, row: int, name: str | None) -> str:
    """Return the model layer of a block, such as ``layers.27`` or ``embedding``; empty if unknown."""
    if name is not None:
        return parse_layer_name(name)
    if table.is_logical:
        return parse_layer_name(f"{table.graph.value_at(row)}.")
    return "" if table.task.value_at(row) == EAGER else parse_layer_scope(table.node.value_at(row))


def strip_state_prefix(name: str) -> str:
    """Return the parameter of a gradient buffer or optimizer state; a parameter's own name is unchanged."""
    prefix, _, rest = name.partition(".")
    return rest if rest and prefix in STATE_PREFIXES else name


def search_layer_name(name: str) -> re.Match[str] | None:
    """Return the match of the layer in a parameter's name: its list and its number; None if not found."""
    return _USUAL_LAYER.search(name) or _NAME_LAYER.search(name)


def parse_layer_name(name: str) -> str:
    """Return the layer of a parameter: ``layers.3`` of ``adam_m.decoder.layers.3.mlp.weight``."""
    name = strip_state_prefix(name)
    match = search_layer_name(name)
    if match:
        return f"{match[1]}.{match[2]}"
    parts = name.split(".")
    return parts[-2] if len(parts) > 1 else name


@lru_cache(maxsize=262144)
def parse_layer_scope(path: str) -> str:
    """Return the layer of an operator: ``layers.3`` of ``Default/net-Net/layers-CellList/3-Block/Add-op0``.

    Outside the layers it is the innermost cell. Operators of compiler passes have no scope; for them it is empty.
    """
    match = SCOPE_LAYER.search(path)
    if match:
        return f"{match[1]}.{match[2]}"
    cells = [part for part in path.split("/")[:-1] if not _WRAPPERS.match(part)]
    found = _CELL.match(cells[-1]) if cells else None
    return found[1] if found else ""


def _find_user_frame(stack: Sequence[Frame]) -> Frame | None:
    # Prefer the innermost frame of the user's code, then of a model library (if user code only starts the forward
    # pass), then of MindSpore.
    called = next((i for i, frame in enumerate(stack) if frame.function in CALLS), 0)
    for frames in (stack[called:], stack):
        for whose in (FrameOrigin.USER, FrameOrigin.LIBRARY):
            for frame in reversed(frames):
                if classify_frame(frame) is whose:
                    return frame
    return next((frame for frame in reversed(stack) if classify_frame(frame) is FrameOrigin.FRAMEWORK), None)


KINDS = ("Kernel", "SomasOutput")
_BRINGS = "Default/TensorMove-"
_PART = 3  # a piece with less than 1/3 of the blocks of its layer's longest piece is a misplaced operator


@dataclass(frozen=True, slots=True, eq=False)
class ScopedLayer:
    """One run of the forward pass of one layer."""

    # Blocks that it allocates and that recomputation would allocate again, by time; without its output.
    rows: NDArray[np.int64]
    # Ticks of its first allocation, and of its output, which is its last allocation.
    begin: int
    end: int


def find_scoped_layers(table: Table, contents: Contents) -> list[ScopedLayer]:
    """Return the runs of all layers by time; empty if no scope is numbered.

    Recomputation does not repeat casts of weights to another format, so they are left out, unless the layers share one
    graph (two-stage runs of MindFormers 1.9 on MindSpore 2.9).
    """
    phases = contents.phases
    forward = np.where(phases.own_codes > 0, phases.own_codes, phases.guessed_codes) == phase_code(Phase.FORWARD)
    forward &= ~table.task.rows_in([EAGER]) & table.kind.rows_in(KINDS) & ~_find_second_runs(table, contents)
    rows = table.rows_by_start(forward)
    found = _cut_layers(table, rows[~find_weight_casts(table)[rows]])
    return _cut_layers(table, rows) if share_graph(table, found) else found


def _find_second_runs(table: Table, contents: Contents) -> NDArray[np.bool_]:
    recomputed = table.node.rows_matching(lambda path: find_pass(path) is ScopePass.RECOMPUTE)
    order = np.argsort(table.start, kind="stable")
    own = np.where(recomputed, 0, contents.phases.own_codes)[order]
    before = np.maximum.accumulate(np.where(own > 0, np.arange(len(own)), 0))
    found = np.zeros(len(table), np.bool_)
    found[order] = own[before] == phase_code(Phase.BACKWARD)
    return recomputed & found


def share_graph(table: Table, layers: list[ScopedLayer]) -> bool:
    """Return whether ``lazy_inline`` shares one graph between all layers, by the operators that copy weights into it."""
    brings = table.node.rows_matching(lambda path: path.startswith(_BRINGS))
    return any(brings[layer.rows].any() for layer in layers)


def _cut_layers(table: Table, rows: NDArray[np.int64]) -> list[ScopedLayer]:
    label, shared, bare = _label_by_scopes(table, rows)
    runs = list(_find_runs(table, rows, label))
    followers = [first for first, _ in runs[1:]] + [len(rows)] * bool(runs)
    found, free = [], 0
    for (first, last), following in zip(runs, followers, strict=True):
        end = last  # the layer's output may come from an operator with the scope of another layer
        while end + 1 < following and (shared[end + 1] or bare[end + 1]):
            end += 1
        while end > last and bare[end]:
            end -= 1
        begin = first
        while begin > free and bare[begin - 1]:
            begin -= 1
        own = rows[begin:end][(label >= 0)[begin:end] | shared[begin:end] | bare[begin:end]]
        found.append(ScopedLayer(own, int(table.start[rows[begin]]), int(table.start[rows[end]])))
        free = end + 1
    return found


def _label_by_scopes(
    table: Table, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    # For each block: a number for its layer, or -1; whether all layers share its scope; whether it has no scope.
    # MindSpore compiles the code of a class once, so operators directly in it share the first layer's scope.
    nodes = np.unique(table.node.codes[rows]).tolist()
    names = {node: table.node.values[node] for node in nodes}
    found = {node: parse_layer_scope(path) for node, path in names.items()}
    layers = {node: layer if layer.rpartition(".")[2].isdigit() else "" for node, layer in found.items()}
    in_list = Counter(layer.rpartition(".")[0] for layer in set(layers.values()))
    paths = {node: path.rpartition("-")[0] for node, path in names.items()}
    often = Counter(paths.values())
    alike = Counter(mask_layer_number(path) for path in set(paths.values()))
    label, shared, bare = np.full(len(table.node.values) + 1, -1), *np.zeros((2, len(table.node.values) + 1), np.bool_)
    known: dict[str, int] = {}
    for node in nodes:
        layer = layers[node]
        alone = alike[mask_layer_number(paths[node])] == 1
        shared[node] = bool(layer) and alone and 1 < in_list[layer.rpartition(".")[0]] <= often[paths[node]]
        bare[node] = names[node].count("/") == 1 and not is_collective(names[node])
        if layer and not shared[node]:
            label[node] = known.setdefault(layer, len(known))
    codes = table.node.codes[rows]
    return label[codes], shared[codes], bare[codes]


def find_weight_casts(table: Table) -> NDArray[np.bool_]:
    """Return which blocks are weights cast to another format; they do not depend on the layer's input."""
    casts = table.node.rows_matching(lambda path: parse_operator(path) == "Cast")
    weights = np.flatnonzero(table.kind.rows_in(["Weight"]))
    used = [np.array(parse_users(table.users[row]), np.int64) for row in weights.tolist() if row in table.users]
    return np.asarray(casts & np.isin(table.start, np.concatenate(used)) if used else np.zeros(len(table), np.bool_))


def _find_runs(table: Table, rows: NDArray[np.int64], label: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    places = np.flatnonzero(label >= 0)
    counts = Counter[int]()
    pieces = _split_by_label(label, places)
    for piece in pieces:
        counts[int(label[piece[0]])] = max(counts[int(label[piece[0]])], len(piece))
    kept = [piece for piece in pieces if len(piece) * _PART >= counts[int(label[piece[0]])]]
    for piece in _split_by_label(label, np.concatenate(kept)) if kept else ():
        begins = _find_run_starts(table, rows[piece])
        for begin, end in zip(begins, [*begins[1:], len(piece)], strict=True):
            if end - begin > 1:
                yield int(piece[begin]), int(piece[end - 1])


def _split_by_label(label: NDArray[np.int64], places: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return np.split(places, np.flatnonzero(np.diff(label[places])) + 1) if len(places) else []


def _find_run_starts(table: Table, rows: NDArray[np.int64]) -> list[int]:
    # Cut at the operator that appears once in each run.
    nodes = table.node.codes[rows]
    first = np.flatnonzero(np.append(True, nodes[1:] != nodes[:-1]))  # outputs of one operator are adjacent
    paths = {code: table.node.values[code].rpartition("-")[0] for code in np.unique(nodes).tolist()}
    path = [paths[code] for code in nodes[first].tolist()]
    times = Counter(path)
    often = Counter(times.values())
    once = min(often, key=lambda each: (-often[each], each))
    if once == 1:
        return [0]
    beginner = next(each for each in path if times[each] == once)
    found = [int(place) for place, each in zip(first.tolist(), path, strict=True) if each == beginner]
    return [0, *found[1:]]
