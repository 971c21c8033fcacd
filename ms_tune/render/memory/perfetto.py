"""The trace as Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

One process a rank: counters of the memory in use by content and of the footprint, slices of phases and steps, and the
largest blocks as slices on as many tracks as are needed. A tick is shown as a microsecond, for ticks are an order and no
time.
"""

from __future__ import annotations

import json
from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.render.memory.bands import bands_of
from ms_tune.render.memory.json import phase_name
from ms_tune.trace.memory_block import NEVER_FREED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TextIO

    from ms_tune.memory.result import MemoryReport, RankReport

_BLOCKS = 20_000  # the largest so many
_POINTS = 50_000
_PHASES, _STEPS, _FIRST_BLOCK = 1, 2, 10  # tracks


def write_perfetto(file: TextIO, report: MemoryReport) -> None:
    """Write the ranks as one JSON object, event by event."""
    file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
    first = True
    for number, rank in enumerate(report.ranks):
        for event in _events(rank, rank.rank if rank.rank is not None else number):
            file.write(("" if first else ",\n") + json.dumps(event, ensure_ascii=False))
            first = False
    file.write("\n]}\n")


def _events(rank: RankReport, number: int) -> Iterator[dict[str, object]]:
    process = number + 1  # process 0 is the idle process of the machine
    yield _name("process_name", process, _PHASES, f"rank {number}")
    yield _name("thread_name", process, _PHASES, "phases")
    yield _name("thread_name", process, _STEPS, "steps")
    bands = bands_of(rank, _POINTS)
    for place, tick in enumerate(bands.tick):
        used = {name: values[place] for name, values in bands.used.items()}
        yield {"ph": "C", "name": "memory in use", "pid": process, "tid": _PHASES, "ts": tick, "args": used}
        footprint = {"bytes": bands.footprint[place]}
        yield {"ph": "C", "name": "footprint", "pid": process, "tid": _PHASES, "ts": tick, "args": footprint}
    for span in rank.spans:
        yield _slice((process, _PHASES), phase_name(span.phase), span.start, span.end)
    begin = 0
    for step, end in enumerate(rank.steps.ends):
        yield _slice((process, _STEPS), f"step {step}", begin, end)
        begin = end
    yield from _blocks(rank, process)


def _blocks(rank: RankReport, process: int) -> Iterator[dict[str, object]]:
    """The largest blocks; those that overlap are put on different tracks."""
    table, rows = rank.table, rank.curve.rows
    largest = rows[np.argsort(-table.size[rows], kind="stable")[:_BLOCKS]]
    last = int(rank.curve.tick[-1]) + 1 if len(rank.curve.tick) else 0
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    tracks = 0
    for row in largest[np.argsort(table.start[largest], kind="stable")].tolist():
        start = int(table.start[row])
        end = last if table.end[row] == NEVER_FREED else int(table.end[row])
        while busy and busy[0][0] <= start:
            heappush(free, heappop(busy)[1])
        if free:
            track = heappop(free)
        else:
            track, tracks = tracks, tracks + 1
        heappush(busy, (end, track))
        what = {
            "bytes": int(table.size[row]),
            "holds": rank.content_of(row).value,
            "node": table.node.at(row),
            "tensor": rank.tensor_of(row),
            "address": f"0x{int(table.address[row]):x}",
            "never freed": bool(table.end[row] == NEVER_FREED),
        }
        yield _slice((process, _FIRST_BLOCK + track), rank.operator_of(row) or "?", start, end, what)


def _slice(
    place: tuple[int, int], name: str, start: int, end: int, what: Mapping[str, object] | None = None
) -> dict[str, object]:
    times = {"ts": start, "dur": max(0, end - start)}
    return {"ph": "X", "name": name, "pid": place[0], "tid": place[1], **times, "args": what or {}}


def _name(kind: str, process: int, track: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}
