"""Derive the trace of a whole stage from the traces of two runs with fewer layers, so that it is analysed like any other.

The requests of the additional layers are repeated (:mod:`ms_tune.pools.repeat_layers`) and replayed in the run's own pool,
which gives their addresses and the footprint. Every other column comes from the row of the larger run that a row repeats:
ticks move with their stretch of the step, and layer numbers continue.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ms_tune.enums import MemoryCategory
from ms_tune.errors import TraceError
from ms_tune.footprint.category import Contents
from ms_tune.footprint.curve import compute_curve
from ms_tune.footprint.judgement import VerdictTerms
from ms_tune.footprint.layers import find_operator, search_layer_name
from ms_tune.pools.pool import Replay, replay_workload
from ms_tune.pools.repeat_layers import RepeatedWorkload, repeat_layers
from ms_tune.pools.settings import infer_settings, make_pool
from ms_tune.pools.workload import Workload, free_order_variants, split_by_pool
from ms_tune.readers.folder import RankFiles, find_trace
from ms_tune.readers.memory_block import NEVER_FREED, parse_users
from ms_tune.readers.scopes import SCOPE_LAYER
from ms_tune.readers.table import HOST_POOL, NONE, Coded, Table
from ms_tune.readers.tensors import ITEM_BYTES, TensorType, TrackerGraph, read_tensor_list, read_tracker_graph
from ms_tune.readers.tracker_tables import read_block_table

ALIKE = 0.001  # share of a footprint; orders whose footprints differ by less count as one
_PAIR = 2
_NUMBER = re.compile(r"\d+")
_LAST_NUMBER = re.compile(r"-(?:op)?\d+$")


@dataclass(frozen=True, slots=True, eq=False)
class StageReplay:
    """The requests of a whole stage, replayed in the pool of its larger run."""

    repeated: RepeatedWorkload
    rows: Sequence[int]  # the larger run's row of each of its requests
    work: Workload  # the requests, freed in the order of the runs, or in that with the largest footprint
    replay: Replay  # the replay of `work`
    footprints: tuple[int, ...]  # of all orders that were replayed, that of the runs first


def replay_stage(
    small: tuple[Table, Contents], large: tuple[Table, Contents], layers: int, repeats: int
) -> StageReplay | None:
    """Return the larger run with its additional layers repeated; None if the runs or their pool cannot be reproduced.

    ``layers`` is the number of layers of the smaller run. Several orders are replayed if those of the runs differ.
    """
    runs = [_pool_requests(*run) for run in (small, large)]
    if runs[0] is None or runs[1] is None:
        return None
    (_, fewer, _, names), (pool, more, rows, other_names) = runs[0], runs[1]
    whole = repeat_layers(fewer, more, (names, other_names), layers, repeats)
    if whole is None:
        return None
    inferred = infer_settings(more, pool)
    if inferred.mismatches.total:
        return None
    orders = [whole.work, *(free_order_variants(whole.work) if whole.moved else ())]
    replays = [replay_workload(order, make_pool(inferred.settings, older=inferred.older)) for order in orders]
    footprints = tuple(replay.actual_peak for replay in replays)
    worst = 0 if max(footprints) - min(footprints) <= ALIKE * max(footprints) else footprints.index(max(footprints))
    return StageReplay(whole, rows, orders[worst], replays[worst], footprints)


def _pool_requests(table: Table, contents: Contents) -> tuple[str, Workload, list[int], list[Hashable]] | None:
    # Blocks have the same name in all layers: operator and scope, the code that called it, the tensor; without numbers.
    pools = split_by_pool(table)
    pools.pop(HOST_POOL, None)
    if len(pools) != 1:
        return None
    ((name, (work, rows)),) = pools.items()
    nodes = [_NUMBER.sub("", f"{table.node.value_at(row)} {find_operator(table, row)}") for row in rows]
    tensors = [_NUMBER.sub("", contents.listed[row][1]) if row in contents.listed else "" for row in rows]
    stacks = [table.stack.value_at(row) for row in rows]
    return name, work, rows, list(zip(nodes, stacks, tensors, strict=True))


class HostUse(NamedTuple):
    """The blocks of a trace in the pool of host memory."""

    rows: int
    peak_bytes: int
    moved_bytes: int  # during the whole trace


def measure_host_use(everything: Table) -> HostUse:
    """Return the blocks of a trace, recorded or derived, in the pool of host memory."""
    host = ~everything.on_device()
    peak = compute_curve(everything.select_rows(host)).peak_bytes if host.any() else 0
    return HostUse(int(host.sum()), peak, int(everything.size[host].sum()))


class BlockTrace(NamedTuple):
    """The trace of one rank: as recorded, or derived."""

    table: Table  # the blocks on the device
    contents: Contents
    graph: TrackerGraph | None
    host: HostUse


def derive_stage_trace(terms: VerdictTerms, sample: BlockTrace, *, with_graph: bool) -> BlockTrace | None:
    """Return the trace of the whole stage of a sample; None if ``dryrun`` could not replay it, or its larger run is missing."""
    record = terms.record
    if record is None or terms.folder is None or not record.replayed or len(record.stage_runs) != _PAIR:
        return None
    fewer, more = record.stage_runs
    try:
        (files,) = find_trace(terms.folder / more.folder).ranks
        large = read_block_trace(files, with_graph=with_graph)
    except TraceError:
        return None
    runs = (sample.table, sample.contents), (large.table, large.contents)
    stage = replay_stage(*runs, fewer.layers, -int(fewer.weight))
    if stage is None or len(stage.rows) != len(large.table):  # the larger run has blocks outside the pool
        return None
    host = [one + int(more.weight) * (other - one) for one, other in zip(sample.host, large.host, strict=True)]
    return build_stage_trace(stage, large)._replace(host=HostUse(*host))


def read_block_trace(files: RankFiles, *, with_graph: bool) -> BlockTrace:
    """Read the trace of one rank. Raises TraceError: a file is unreadable."""
    everything = read_block_table(files.blocks)
    table = everything.select_rows(everything.on_device())
    contents = Contents(table, read_tensor_list(files.tensors) if files.tensors else None)
    graph = read_tracker_graph(files.graph) if files.graph and with_graph else None
    return BlockTrace(table, contents, graph, measure_host_use(everything))


def build_stage_trace(stage: StageReplay, run: BlockTrace) -> BlockTrace:
    """Return the trace of the whole stage from that of its larger run."""
    large = run.table
    source = np.array([stage.rows[origin.block] for origin in stage.repeated.origins], np.int64)
    start = np.array([request.start for request in stage.work.requests], np.int64)
    end = np.array([NEVER_FREED if one.end is None else one.end for one in stage.work.requests], np.int64)
    moved = _MovedTicks(stage, large, source, start, end)
    coded: dict[str, Any] = {
        name: Coded(column.codes[source], column.values)
        for name, column in ((name, getattr(large, name)) for name in ("pool", "kind", "task", "graph", "stack"))
    }
    table = replace(
        large,
        line=np.arange(len(source), dtype=np.int64),
        start=start,
        end=end,
        address=np.array(stage.replay.addresses, np.uint64),
        stream=large.stream[source],
        size=np.array([request.size for request in stage.work.requests], np.int64),
        used_after=np.array(stage.replay.used, np.int64),
        footprint_after=np.array(stage.replay.actual, np.int64),
        producer=np.where(large.producer[source] == NONE, NONE, large.producer[source] + start - large.start[source]),
        first_user=moved.first_users(),
        last_user=moved.last_user,
        persistent=large.persistent[source],
        small=large.small[source],
        node=_number_layers(large.node, source, large.start, start),
        users=moved.user_texts(),
        **coded,
    )
    listed = _repeat_names(run.contents.listed, source, large.start, start)
    graph = _repeat_tensors(run.graph, large, table, source)
    return BlockTrace(table, Contents(table, None, listed), graph, run.host)


def _repeat_tensors(
    graph: TrackerGraph | None, large: Table, table: Table, source: NDArray[np.int64]
) -> TrackerGraph | None:
    if graph is None:
        return None
    grown = table.size - large.size[source]
    lives = zip(table.start.tolist(), large.start[source].tolist(), grown.tolist(), strict=True)
    tensors = {tick: _grow_tensor(graph.tensors[old], more) for tick, old, more in lives if old in graph.tensors}
    return replace(graph, tensors={tick: tensor for tick, tensor in tensors.items() if tensor is not None})


def _grow_tensor(tensor: TensorType, more: int) -> TensorType | None:
    # Return the type of a block that grew with the layers, such as a flat buffer; None if its shape is unknown.
    item = ITEM_BYTES.get(tensor.dtype)
    if not more or len(tensor.shape) != 1 or tensor.bytes is None or item is None:
        return None if more else tensor
    return TensorType(tensor.dtype, (tensor.shape[0] + more // item,), tensor.bytes + more)


class _MovedTicks:
    """The ticks at which blocks of the extrapolated run are used, in whichever copy of a stretch that is."""

    def __init__(
        self,
        stage: StageReplay,
        large: Table,
        source: NDArray[np.int64],
        start: NDArray[np.int64],
        end: NDArray[np.int64],
    ) -> None:
        origins = stage.repeated.origins
        self._clock, self._large, self._source, self._start = stage.repeated.clock, large, source, start
        self._stretch = np.array([origin.stretch for origin in origins], np.int64)
        self._copy = np.array([origin.copy for origin in origins], np.int64)
        self._freed_in = np.array([origin.freed_in for origin in origins], np.int64)
        self._freed_copy = np.array([origin.freed_copy for origin in origins], np.int64)
        # Blocks are used like the block of the larger run that is freed in their place.
        freed_like = [stage.rows[one.freed_like if one.freed_like >= 0 else one.block] for one in origins]
        self._alike, self._end = np.array(freed_like, np.int64), end
        moved = self._move_near_end(large.last_user, np.where(self._stretch >= 0, self._copy, self._clock.copies - 1))
        self.last_user = np.where(moved == NONE, NONE, np.clip(moved, start, end))

    def _move_near_end(self, users: NDArray[np.int64], otherwise: NDArray[np.int64]) -> NDArray[np.int64]:
        # Uses shortly before the release, in its stretch or in the layer before it, keep their distance from it.
        ticks, before_end = users[self._alike], self._large.end[self._alike] - users[self._alike]
        near = (self._freed_in >= 0) & (before_end < np.append(self._clock.lengths, 0)[self._freed_in])
        found = np.where(near, self._end - before_end, self._move(ticks, otherwise))
        return np.where(ticks == NONE, NONE, found)

    def _move(self, ticks: NDArray[np.int64], otherwise: NDArray[np.int64]) -> NDArray[np.int64]:
        # In the stretch that frees or allocates the block: that copy of it; else the given one.
        stretch = self._clock.find_stretches(ticks)
        copy = np.where(stretch == self._stretch, self._copy, otherwise)
        copy = np.where(stretch == self._freed_in, self._freed_copy, copy)
        return self._clock.move_ticks(ticks, stretch, copy)

    def first_users(self) -> NDArray[np.int64]:
        ticks = self._large.first_user[self._source]
        after_start = ticks - self._large.start[self._source]
        # The output of a layer is read by the next one, which is the next copy, except for the last.
        near = after_start < np.append(self._clock.lengths, 0)[self._stretch]
        own = self._clock.find_stretches(ticks) == self._stretch
        inner = (self._stretch >= 0) & (own | (near & (self._copy < self._clock.copies - 1)))
        moved = self._move_near_end(self._large.first_user, np.zeros(len(ticks), np.int64))
        found = np.where(inner, self._start + after_start, moved)
        found = np.where(self.last_user == NONE, found, np.minimum(found, self.last_user))
        return np.where(ticks == NONE, NONE, np.maximum(found, self._start))

    def user_texts(self) -> dict[int, str]:
        # A block of a repeated stretch is used in its own copy of it; others in all copies of the stretches that use them.
        found = {}
        texts = {row: np.array(parse_users(text), np.int64) for row, text in self._large.users.items()}
        for row, before in enumerate(self._source.tolist()):
            if (ticks := texts.get(before)) is None:
                continue
            stretch = self._clock.find_stretches(ticks)
            copies = np.where(stretch < 0, 1, np.where(stretch == self._stretch[row], 1, self._clock.copies))
            at = np.repeat(np.arange(len(ticks)), copies)
            copy = np.arange(len(at)) - np.repeat(np.cumsum(copies) - copies, copies)
            copy = np.where(stretch[at] == self._stretch[row], self._copy[row], copy)
            moved = self._clock.move_ticks(ticks[at], stretch[at], np.where(stretch[at] < 0, 0, copy))
            found[row] = "{" + "-".join(map(str, np.unique(moved).tolist())) + "}"
        return found


def _number_layers(
    node: Coded[str], source: NDArray[np.int64], before: NDArray[np.int64], start: NDArray[np.int64]
) -> Coded[str]:
    names = [node.values[code] for code in node.codes.tolist()]
    found = _continue_numbers(dict(enumerate(names)), source, before, start)
    codes: dict[str, int] = {}
    numbered = [codes.setdefault(name, len(codes)) for name in (found[row] for row in range(len(source)))]
    return Coded(np.array(numbered, np.int32), tuple(codes))


def _repeat_names(
    listed: Mapping[int, tuple[MemoryCategory, str]],
    source: NDArray[np.int64],
    before: NDArray[np.int64],
    start: NDArray[np.int64],
) -> dict[int, tuple[MemoryCategory, str]]:
    names = _continue_numbers({row: name for row, (_, name) in listed.items()}, source, before, start)
    return {row: (listed[int(source[row])][0], name) for row, name in names.items()}


class _Pass(NamedTuple):
    """Consecutive blocks of the larger run that repeat one allocation for a series of layers with rising or falling numbers."""

    rows: list[int]
    numbers: list[int]


def _continue_numbers(
    names: Mapping[int, str], source: NDArray[np.int64], before: NDArray[np.int64], start: NDArray[np.int64]
) -> dict[int, str]:
    # Return the names of the rows that repeat a row with a name. The numbers of layers continue in each pass through them:
    # upwards in the forward pass, and down to the same last number in the backward pass.
    parts = {row: _split_number(name) for row, name in names.items()}
    by_template: dict[tuple[str, str], list[int]] = {}
    for row in sorted(parts, key=lambda row: int(before[row])):
        if (found := parts[row]) is not None:
            by_template.setdefault((found[0], _LAST_NUMBER.sub("", found[2])), []).append(row)
    passes = [one for rows in by_template.values() for one in _cut_passes(rows, parts)]
    pass_of = {row: place for place, one in enumerate(passes) for row in one.rows}
    repeated: dict[int, list[int]] = {}
    renamed: dict[int, str] = {}
    for row in np.argsort(start, kind="stable").tolist():
        origin = int(source[row])
        if origin in names:
            renamed[row] = names[origin]
            if origin in pass_of:
                repeated.setdefault(pass_of[origin], []).append(row)
    for place, rows in repeated.items():
        for row, number in zip(rows, _numbers_of_pass(passes[place], len(rows)), strict=False):
            prefix, _, suffix = parts[int(source[row])] or ("", 0, "")
            renamed[row] = f"{prefix}{number}{suffix}"
    return renamed


def _split_number(name: str) -> tuple[str, int, str] | None:
    match = SCOPE_LAYER.search(name) or search_layer_name(name)
    return (name[: match.start(2)], int(match[2]), name[match.end(2) :]) if match else None


def _cut_passes(rows: Sequence[int], parts: Mapping[int, tuple[str, int, str] | None]) -> Iterable[_Pass]:
    now, rises = _Pass([], []), 0
    for row in rows:
        number = (parts[row] or ("", 0, ""))[1]
        step = number - now.numbers[-1] if now.numbers else 0
        if step * rises < 0:
            yield now
            now, rises, step = _Pass([], []), 0, 0
        rises = rises or step
        now.rows.append(row)
        now.numbers.append(number)
    yield now


def _numbers_of_pass(one: _Pass, count: int) -> list[int]:
    # Return the numbers of `count` blocks; none if they stay the same. All layers share a scope that has one number.
    layers = len(set(one.numbers))
    each, rest = divmod(len(one.numbers), layers)
    if layers == 1 or rest or count % each or count == len(one.numbers):
        return []
    first, last, more = one.numbers[0], one.numbers[-1], count // each
    numbers = range(first, first + more) if first < last else range(last + more - 1, last - 1, -1)
    return [number for number in numbers for _ in range(each)]
