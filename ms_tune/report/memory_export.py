"""Export traces and snapshots to other programs: Perfetto, PyTorch's memory viewer, spreadsheets."""

from __future__ import annotations

import csv
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain, pairwise
from typing import BinaryIO, TextIO

import numpy as np
from numpy.typing import NDArray

from ms_tune.encode import json_text
from ms_tune.footprint.breakdown import PeakBreakdown
from ms_tune.footprint.result import MemoryReport, RankReport
from ms_tune.footprint.torch_report import TorchLives
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.report.memory_curve import Bands, Lives, bands_of, split_in_bands
from ms_tune.report.memory_json import phase_name

Record = dict[str, object]

_BLOCKS = 20_000  # number of blocks, largest first
_POINTS = 50_000
_PHASES, _STEPS, _FIRST_BLOCK = 1, 2, 10  # track numbers
_CURVES, _CAUSES = 1, 2  # track numbers
_NO_SCOPE = ["Default"]  # scope of some operators of the dynamic graph
COLUMNS = (
    *("rank", "category", "bytes", "start", "end", "last_use", "operator", "where", "layer", "parameter", "tensor"),
    *("address", "stream", "type", "stack"),
)


def write_perfetto(file: TextIO, report: MemoryReport) -> None:
    """Write the ranks as Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

    One process per rank: counters of the memory in use by category and of the footprint, slices for phases and steps,
    and the largest blocks as slices on as many tracks as needed. A tick is shown as a microsecond, because ticks give
    an order, not a time.
    """
    ranks = enumerate(report.ranks)
    write_events(
        file,
        chain.from_iterable(_rank_events(rank, number if rank.rank is None else rank.rank) for number, rank in ranks),
    )


def write_events(file: TextIO, events: Iterable[Mapping[str, object]]) -> None:
    """Write events as one JSON object."""
    file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
    file.writelines((",\n" if number else "") + json_text(event) for number, event in enumerate(events))
    file.write("\n]}\n")


def _rank_events(rank: RankReport, number: int) -> Iterator[dict[str, object]]:
    process = number + 1  # 0 is the machine's idle process
    yield name_of("process_name", process, _PHASES, f"rank {number}")
    yield name_of("thread_name", process, _PHASES, "phases")
    yield name_of("thread_name", process, _STEPS, "steps")
    bands = bands_of(rank, _POINTS)
    yield from counter_events(process, bands, "footprint")
    for span in rank.spans:
        yield slice_of((process, _PHASES), phase_name(span.phase), span.start, span.end)
    yield from _step_slices((process, _STEPS), rank.steps.ends)
    table, rows = rank.table, rank.curve.rows
    largest = rows[largest_blocks(table.start[rows], table.size[rows])]
    tracks = _Tracks(process, int(rank.curve.tick[-1]) + 1 if len(rank.curve.tick) else 0)
    for row in largest.tolist():
        what = {
            "bytes": int(table.size[row]),
            "holds": rank.content_of(row).value,
            "node": table.node.value_at(row),
            "tensor": rank.tensor_of(row),
            "address": f"0x{int(table.address[row]):x}",
        }
        yield tracks.slice_block(rank.operator_of(row) or "?", int(table.start[row]), int(table.end[row]), what)


def _step_slices(place: tuple[int, int], ends: Sequence[int]) -> Iterator[dict[str, object]]:
    for step, (begin, end) in enumerate(pairwise((0, *ends))):
        yield slice_of(place, f"step {step}", begin, end)


def counter_events(process: int, bands: Bands, held: str) -> Iterator[dict[str, object]]:
    """Yield counters: the memory in use by category, and the reserved memory under the given name."""
    for place, tick in enumerate(bands.tick):
        used = {name: values[place] for name, values in bands.used.items()}
        yield {"ph": "C", "name": "memory in use", "pid": process, "tid": _PHASES, "ts": tick, "args": used}
        footprint = {"bytes": bands.footprint[place]}
        yield {"ph": "C", "name": held, "pid": process, "tid": _PHASES, "ts": tick, "args": footprint}


def largest_blocks(start: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of the largest blocks, in the order of allocation."""
    largest = np.argsort(-size, kind="stable")[:_BLOCKS]
    return np.asarray(largest[np.argsort(start[largest], kind="stable")], np.int64)


class _Tracks:
    """Assignment of block slices to tracks, in order of their start; overlapping slices get different tracks."""

    def __init__(self, process: int, last: int) -> None:
        self._process, self._last = process, last  # end of blocks that are never freed
        self._busy: list[tuple[int, int]] = []
        self._free: list[int] = []
        self._count = 0

    def slice_block(self, name: str, start: int, freed: int, what: Mapping[str, object]) -> dict[str, object]:
        end = self._last if freed == NEVER_FREED else freed
        while self._busy and self._busy[0][0] <= start:
            heappush(self._free, heappop(self._busy)[1])
        if self._free:
            track = heappop(self._free)
        else:
            track, self._count = self._count, self._count + 1
        heappush(self._busy, (end, track))
        place = (self._process, _FIRST_BLOCK + track)
        return slice_of(place, name, start, end, {**what, "never freed": freed == NEVER_FREED})


def slice_of(
    place: tuple[int, int], name: str, start: int, end: int, what: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return an event for a slice on a process's track."""
    times = {"ts": start, "dur": max(0, end - start)}
    return {"ph": "X", "name": name, "pid": place[0], "tid": place[1], **times, "args": what or {}}


def name_of(kind: str, process: int, track: int, name: str) -> dict[str, object]:
    """Return an event that names a process or a track."""
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}


def write_torch_perfetto(file: TextIO, lives: TorchLives) -> None:
    """Write a snapshot of PyTorch's allocator as trace events: counters by script line, largest blocks, growths.

    An event's index is shown as a microsecond, because snapshots of torch_npu have no times.
    """
    write_events(file, _torch_events(lives))


def _torch_events(lives: TorchLives) -> Iterator[dict[str, object]]:
    report = lives.report
    process = report.device.number + 1  # 0 is the machine's idle process
    yield name_of("process_name", process, _CURVES, f"device {report.device.number}")
    yield name_of("thread_name", process, _CAUSES, "taken from the device")
    drawn = split_in_bands(
        lives.curve, Lives(lives.start, lives.end, lives.size, lives.content), lives.contents, _POINTS
    )
    yield from counter_events(process, drawn, "reserved")
    for cause in report.causes:
        grown = {
            "taken": cause.taken_bytes,
            "wanted": cause.wanted_bytes,
            "free": cause.free_bytes,
            "largest hole": cause.largest_free_bytes,
        }
        name = "though enough was free" if cause.fragments else "more was needed"
        yield slice_of((process, _CAUSES), name, cause.event, cause.event + 1, grown)
    yield from _step_slices((process, _CURVES), report.step_ends)
    tracks, stacks = _Tracks(process, len(report.device.events)), report.snapshot.stacks
    for row in largest_blocks(lives.start, lives.size).tolist():
        stack, line = stacks[int(lives.stack[row])], lives.lines[int(lives.stack[row])]
        what = {
            "bytes": int(lives.size[row]),
            "line": line,
            "category": lives.categories[int(lives.category[row])],
            "address": f"0x{int(lives.address[row]):x}",
            "stack": [f"{frame.file}:{frame.line} {frame.function}" for frame in stack[-8:]],
        }
        yield tracks.slice_block(line or "?", int(lives.start[row]), int(lives.end[row]), what)


def write_snapshot(file: BinaryIO, rank: RankReport) -> None:
    """Write one rank as a memory snapshot of PyTorch's allocator, which pytorch.org/memory_viz opens.

    The format is that of ``torch.cuda.memory._snapshot()`` (torch 2.x, ``torch/csrc/cuda/Module.cpp``). The viewer's
    own unpickler supports only protocols 2 to 4, plain containers and no classes. Blocks become ``alloc``,
    ``free_requested`` and ``free_completed`` events in the order of ticks; the pool's address ranges become segments.
    Frames are innermost first; in graph mode, where Python stacks are meaningless, the scope path replaces them.
    """
    pickle.dump(snapshot_of(rank), file, protocol=4)


def snapshot_of(rank: RankReport) -> dict[str, list[object]]:
    """Return the snapshot as plain containers."""
    frames = _Frames(rank)
    return {"segments": _snapshot_segments(rank, frames), "device_traces": [_snapshot_events(rank, frames)]}


class _Frames:
    """Frames of table rows; equal ones share a list, which the pickle writes once."""

    def __init__(self, rank: RankReport) -> None:
        self._rank = rank
        self._known: dict[tuple[int, int, int], list[Record]] = {}

    def frames_of(self, row: int) -> list[Record]:
        # The frames of a row, innermost first; the first one is the operator.
        table = self._rank.table
        content = int(self._rank.contents.codes[row])
        key = (int(table.node.codes[row]), int(table.stack.codes[row]), content)
        if key not in self._known:
            name = self._rank.operator_of(row) or table.kind.value_at(row) or "?"
            top: Record = {"name": f"{name} ({self._rank.content_of(row).value})", "filename": "", "line": 0}
            scope = table.node.value_at(row).split("/")[:-1]
            if scope and scope != _NO_SCOPE:
                rest: list[Record] = [{"name": part, "filename": "", "line": 0} for part in reversed(scope)]
            else:
                rest = [
                    {"name": frame.function, "filename": frame.file, "line": frame.line}
                    for frame in reversed(table.stack.value_at(row))
                ]
            self._known[key] = [top, *rest]
        return self._known[key]


def _snapshot_events(rank: RankReport, frames: _Frames) -> list[object]:
    table = rank.table
    # The viewer needs a segment for every block; blocks without an address or a size have none.
    rows = rank.curve.rows[(table.address[rank.curve.rows] > 0) & (table.size[rank.curve.rows] > 0)]
    freed = rows[table.end[rows] != NEVER_FREED]
    tick = np.concatenate([table.end[freed], table.start[rows]])
    row = np.concatenate([freed, rows])
    released = np.arange(len(row)) < len(freed)
    order = np.argsort(tick, kind="stable")
    found: list[object] = []
    for at in order.tolist():
        actions = ("free_requested", "free_completed") if released[at] else ("alloc",)
        found += [_snapshot_event(action, rank, int(row[at]), int(tick[at]), frames) for action in actions]
    return found


def _snapshot_event(action: str, rank: RankReport, row: int, tick: int, frames: _Frames) -> Record:
    table = rank.table
    return {
        "action": action,
        "addr": int(table.address[row]),
        "size": int(table.size[row]),
        "stream": max(0, int(table.stream[row])),
        "time_us": tick,
        "frames": frames.frames_of(row),
    }


def _snapshot_segments(rank: RankReport, frames: _Frames) -> list[object]:
    table = rank.table
    found: list[object] = []
    for segment in rank.final_map().segments:
        blocks: list[Record] = [
            {
                "address": int(table.address[row]),
                "size": int(table.size[row]),
                "requested_size": int(table.size[row]),
                "state": "active_allocated",
                "frames": frames.frames_of(row),
            }
            for row in segment.rows
        ]
        blocks += [
            {"address": hole.address, "size": hole.bytes, "requested_size": 0, "state": "inactive", "frames": []}
            for hole in segment.holes
        ]
        blocks.sort(key=lambda block: int(str(block["address"])))
        found.append(
            {
                "device": 0,
                "address": segment.address,
                "total_size": segment.bytes,
                "allocated_size": segment.used,
                "active_size": segment.used,
                "requested_size": segment.used,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": [],
                "blocks": blocks,
            }
        )
    return found


def write_blocks(file: TextIO, rank: RankReport, parts: PeakBreakdown, *, header: bool) -> None:
    """Write one CSV row per block, largest holders first; a missing end or last use stays empty."""
    writer = csv.writer(file, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    table = rank.table
    for holder in parts.holders:
        for row in holder.rows:
            end, last = int(table.end[row]), int(table.last_user[row])
            stack = ";".join(f"{frame.file}:{frame.line}:{frame.function}" for frame in table.stack.value_at(row))
            cells = (
                *("" if rank.rank is None else rank.rank, holder.category.value, int(table.size[row])),
                *(int(table.start[row]), "" if end == NEVER_FREED else end, last if last >= 0 else ""),
                *(holder.operator, holder.where, rank.layer_of(row), rank.contents.names.get(row, "")),
                *(rank.tensor_of(row), f"0x{int(table.address[row]):x}", int(table.stream[row])),
                *(table.kind.value_at(row), stack),
            )
            writer.writerow(_defuse_formula(cell) for cell in cells)


def _defuse_formula(cell: object) -> object:
    # Prefix text that a spreadsheet would treat as a formula with an apostrophe.
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell
