"""The trace as a memory snapshot of PyTorch's allocator, which pytorch.org/memory_viz opens.

The format is that of ``torch.cuda.memory._snapshot()`` (torch 2.x, ``torch/csrc/cuda/Module.cpp``). The viewer unpickles by
itself and knows protocol 2 to 4 only, plain containers, and no classes. Blocks become ``alloc``, ``free_requested`` and
``free_completed`` events in the order of ticks; the stretches of addresses of the pool become segments. Frames are
innermost first there; in graph mode, whose Python stacks tell nothing, the scope path takes their place.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.readers.memory_block import NEVER_FREED

if TYPE_CHECKING:
    from typing import BinaryIO

    from ms_tune.footprint.result import RankReport

    Record = dict[str, object]

_PROTOCOL = 4
_NO_SCOPE = ["Default"]  # of some operators of the dynamic graph


def write_snapshot(file: BinaryIO, rank: RankReport) -> None:
    """Write one rank."""
    pickle.dump(snapshot_of(rank), file, protocol=_PROTOCOL)


def snapshot_of(rank: RankReport) -> dict[str, list[object]]:
    """The snapshot as plain containers."""
    frames = _Frames(rank)
    return {"segments": _segments(rank, frames), "device_traces": [_events(rank, frames)]}


class _Frames:
    """The frames of rows; equal ones are one list, which the pickle writes once."""

    def __init__(self, rank: RankReport) -> None:
        self._rank = rank
        self._known: dict[tuple[int, int, int], list[Record]] = {}

    def of(self, row: int) -> list[Record]:
        """The frames of a row, innermost first; the first one is the operator."""
        table = self._rank.table
        content = int(self._rank.contents.codes[row])
        key = (int(table.node.codes[row]), int(table.stack.codes[row]), content)
        if key not in self._known:
            name = self._rank.operator_of(row) or table.kind.at(row) or "?"
            top: Record = {"name": f"{name} ({self._rank.content_of(row).value})", "filename": "", "line": 0}
            scope = table.node.at(row).split("/")[:-1]
            if scope and scope != _NO_SCOPE:
                rest: list[Record] = [{"name": part, "filename": "", "line": 0} for part in reversed(scope)]
            else:
                rest = [
                    {"name": frame.function, "filename": frame.file, "line": frame.line}
                    for frame in reversed(table.stack.at(row))
                ]
            self._known[key] = [top, *rest]
        return self._known[key]


def _events(rank: RankReport, frames: _Frames) -> list[object]:
    table = rank.table
    # The viewer looks for the segment of every block, and there is none for one that has no address or no size.
    rows = rank.curve.rows[(table.address[rank.curve.rows] > 0) & (table.size[rank.curve.rows] > 0)]
    freed = rows[table.end[rows] != NEVER_FREED]
    tick = np.concatenate([table.end[freed], table.start[rows]])
    row = np.concatenate([freed, rows])
    released = np.arange(len(row)) < len(freed)
    order = np.argsort(tick, kind="stable")
    found: list[object] = []
    for at in order.tolist():
        actions = ("free_requested", "free_completed") if released[at] else ("alloc",)
        found += [_event(action, rank, int(row[at]), int(tick[at]), frames) for action in actions]
    return found


def _event(action: str, rank: RankReport, row: int, tick: int, frames: _Frames) -> Record:
    table = rank.table
    return {
        "action": action,
        "addr": int(table.address[row]),
        "size": int(table.size[row]),
        "stream": max(0, int(table.stream[row])),
        "time_us": tick,
        "frames": frames.of(row),
    }


def _segments(rank: RankReport, frames: _Frames) -> list[object]:
    """The address space after the last tick."""
    table = rank.table
    found: list[object] = []
    for segment in rank.final_map().segments:
        blocks: list[Record] = [
            {
                "address": int(table.address[row]),
                "size": int(table.size[row]),
                "requested_size": int(table.size[row]),
                "state": "active_allocated",
                "frames": frames.of(row),
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
