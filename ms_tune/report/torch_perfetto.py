"""A snapshot of PyTorch's allocator as Chrome trace events: counters by line of the script, the largest blocks, growths.

The place of an event is shown as a microsecond: snapshots of torch_npu have no times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.readers.memory_block import NEVER_FREED
from ms_tune.report.memory_bands import Lives, bands
from ms_tune.report.memory_perfetto import Tracks, counters, largest_blocks, name_of, slice_of, write_events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from ms_tune.footprint.torch_lives import TorchLives

_POINTS = 50_000
_CURVES, _CAUSES = 1, 2  # tracks


def write_perfetto(file: TextIO, lives: TorchLives) -> None:
    """Write the device as one JSON object, event by event."""
    write_events(file, _events(lives))


def _events(lives: TorchLives) -> Iterator[dict[str, object]]:
    report = lives.report
    process = report.device.number + 1  # process 0 is the idle process of the machine
    yield name_of("process_name", process, _CURVES, f"device {report.device.number}")
    yield name_of("thread_name", process, _CAUSES, "taken from the device")
    drawn = bands(lives.curve, Lives(lives.start, lives.end, lives.size, lives.content), lives.contents, _POINTS)
    yield from counters(process, drawn, "held of the device")
    for cause in report.causes:
        grown = {"taken": cause.taken, "wanted": cause.wanted, "free": cause.free, "largest hole": cause.largest}
        name = "though enough was free" if cause.fragments else "more was needed"
        yield slice_of((process, _CAUSES), name, cause.event, cause.event + 1, grown)
    begin = 0
    for step, end in enumerate(report.step_ends):
        yield slice_of((process, _CURVES), f"step {step}", begin, end)
        begin = end
    tracks, stacks = Tracks(), report.snapshot.stacks
    last = len(report.device.events)
    for row in largest_blocks(lives.start, lives.size).tolist():
        start, freed = int(lives.start[row]), int(lives.end[row])
        end = last if freed == NEVER_FREED else freed
        stack, line = stacks[int(lives.stack[row])], lives.lines[int(lives.stack[row])]
        what = {
            "bytes": int(lives.size[row]),
            "line": line,
            "category": lives.categories[int(lives.category[row])],
            "address": f"0x{int(lives.address[row]):x}",
            "stack": [f"{frame.file}:{frame.line} {frame.function}" for frame in stack[-8:]],
            "never freed": freed == NEVER_FREED,
        }
        yield slice_of((process, tracks.of(start, end)), line or "?", start, end, what)
