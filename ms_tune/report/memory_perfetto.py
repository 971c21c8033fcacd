"""The trace as Chrome trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

One process a rank: counters of the memory in use by content and of the footprint, slices of phases and steps, and the
largest blocks as slices on as many tracks as are needed. A tick is shown as a microsecond, for ticks are an order and no
time.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.encode import json_text
from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.report.memory_bands import bands_of
from ms_tune.report.memory_json import phase_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import TextIO

    from numpy.typing import NDArray

    from ms_tune.footprint.result import MemoryReport, RankReport
    from ms_tune.report.memory_bands import Bands

_BLOCKS = 20_000  # the largest so many
_POINTS = 50_000
_PHASES, _STEPS, _FIRST_BLOCK = 1, 2, 10  # tracks


def write_perfetto(file: TextIO, report: MemoryReport) -> None:
    """Write the ranks as one JSON object, event by event."""
    ranks = enumerate(report.ranks)
    write_events(
        file, chain.from_iterable(_events(rank, number if rank.rank is None else rank.rank) for number, rank in ranks)
    )


def write_events(file: TextIO, events: Iterable[Mapping[str, object]]) -> None:
    """Write events as one JSON object."""
    file.write('{"displayTimeUnit":"ns","traceEvents":[\n')
    file.writelines((",\n" if number else "") + json_text(event) for number, event in enumerate(events))
    file.write("\n]}\n")


def _events(rank: RankReport, number: int) -> Iterator[dict[str, object]]:
    process = number + 1  # process 0 is the idle process of the machine
    yield name_of("process_name", process, _PHASES, f"rank {number}")
    yield name_of("thread_name", process, _PHASES, "phases")
    yield name_of("thread_name", process, _STEPS, "steps")
    bands = bands_of(rank, _POINTS)
    yield from counters(process, bands, "footprint")
    for span in rank.spans:
        yield slice_of((process, _PHASES), phase_name(span.phase), span.start, span.end)
    begin = 0
    for step, end in enumerate(rank.steps.ends):
        yield slice_of((process, _STEPS), f"step {step}", begin, end)
        begin = end
    yield from _blocks(rank, process)


def counters(process: int, bands: Bands, held: str) -> Iterator[dict[str, object]]:
    """The memory in use by content, and what is held, by its name."""
    for place, tick in enumerate(bands.tick):
        used = {name: values[place] for name, values in bands.used.items()}
        yield {"ph": "C", "name": "memory in use", "pid": process, "tid": _PHASES, "ts": tick, "args": used}
        footprint = {"bytes": bands.footprint[place]}
        yield {"ph": "C", "name": held, "pid": process, "tid": _PHASES, "ts": tick, "args": footprint}


def _blocks(rank: RankReport, process: int) -> Iterator[dict[str, object]]:
    table, rows = rank.table, rank.curve.rows
    largest = rows[largest_blocks(table.start[rows], table.size[rows])]
    last = int(rank.curve.tick[-1]) + 1 if len(rank.curve.tick) else 0
    tracks = Tracks()
    for row in largest.tolist():
        start = int(table.start[row])
        end = last if table.end[row] == NEVER_FREED else int(table.end[row])
        what = {
            "bytes": int(table.size[row]),
            "holds": rank.content_of(row).value,
            "node": table.node.at(row),
            "tensor": rank.tensor_of(row),
            "address": f"0x{int(table.address[row]):x}",
            "never freed": bool(table.end[row] == NEVER_FREED),
        }
        yield slice_of((process, tracks.of(start, end)), rank.operator_of(row) or "?", start, end, what)


def largest_blocks(start: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of the largest blocks, in the order in which they are allocated."""
    largest = np.argsort(-size, kind="stable")[:_BLOCKS]
    return np.asarray(largest[np.argsort(start[largest], kind="stable")], np.int64)


class Tracks:
    """Tracks for slices that come in the order of their begin: those that overlap get different ones."""

    def __init__(self) -> None:
        self._busy: list[tuple[int, int]] = []
        self._free: list[int] = []
        self._count = 0

    def of(self, start: int, end: int) -> int:
        """The track of the next slice."""
        while self._busy and self._busy[0][0] <= start:
            heappush(self._free, heappop(self._busy)[1])
        if self._free:
            track = heappop(self._free)
        else:
            track, self._count = self._count, self._count + 1
        heappush(self._busy, (end, track))
        return _FIRST_BLOCK + track


def slice_of(
    place: tuple[int, int], name: str, start: int, end: int, what: Mapping[str, object] | None = None
) -> dict[str, object]:
    """A slice at a place: process and track."""
    times = {"ts": start, "dur": max(0, end - start)}
    return {"ph": "X", "name": name, "pid": place[0], "tid": place[1], **times, "args": what or {}}


def name_of(kind: str, process: int, track: int, name: str) -> dict[str, object]:
    """What a process or a track is called."""
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}
