"""Read the trace of STAlloc (``trace/mem_log_dev0.txt``), which records the allocations of a training with PyTorch.

The grammar is that of STAlloc's own reader (``Synthesizer/trace_parser.py``)::

    Iteration Index : 0 | end
    micro-batch : F | B | W
    NAME->CLASS Layer : F-start | F-end | B-start | B-end
    1 POINTER SIZE STREAM      (an allocation)
    0 POINTER SIZE STREAM      (a release)

Time is the index of the allocation or release. Allocations before iteration 0 belong to iteration ``head``, those
after ``end`` to ``tail``. A phase is the number of earlier micro-batches of its letter, and the letter: ``0F``, ``1F``.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from ms_tune.errors import TraceError
from ms_tune.readers.lines import iterate_short_lines
from ms_tune.text import Message, msg

HEAD = -1  # the iteration before the first
_EVENT = re.compile(r"([01]) (0x[0-9a-fA-F]{1,16}|0) ([0-9]{1,15}) (0x[0-9a-fA-F]{1,16}|0)")
_ITERATION = re.compile(r"Iteration Index : ([0-9]{1,9}|end)")
_MICRO_BATCH = re.compile(r"micro-batch : ([FBW])")
_LAYER = re.compile(r"(\S+)->(\S+) Layer : ([FB])-(start|end)")
_MOST_EVENTS = 20_000_000
_SHOWN = 60


class LogBlock(NamedTuple):
    """One allocation."""

    size: int  # requested bytes
    # Indices of the allocation and the release; None for a block that is never released.
    start: int
    end: int | None
    # Iterations of the allocation and the release; `HEAD` before the first, `MemLog.tail` after the last, and None for
    # a block that is never released.
    iteration: int
    end_iteration: int | None
    # The phase, such as `0F`; `init` before the first micro-batch of an iteration.
    phase: str
    end_phase: str
    layer: str  # the innermost layer that was running; empty outside the layers


class MemLog(NamedTuple):
    """The contents of a trace."""

    blocks: tuple[LogBlock, ...]  # in order of allocation
    iterations: int  # number of iterations
    micro_batches: int  # number of forward micro-batches in the longest iteration
    layers: tuple[str, ...]  # names of all layers, in order of appearance
    events: int  # allocations and releases
    tail: int  # the number of the iteration after the last


def read_memlog(path: Path) -> MemLog:
    """Read a trace. Raises TraceError: the file is unreadable, or a line is invalid (with its number)."""
    return _MemlogReader(path).read()


class _MemlogReader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._line = 0
        self._iteration, self._numbers = HEAD, [HEAD]
        self._ended = False
        self._turns = Counter[str]()
        self._phase = "init"
        self._most_forward = 0
        self._running: list[str] = []
        self._layers: dict[str, None] = {}
        self._events = 0
        self._live: dict[str, int] = {}
        self._blocks: list[LogBlock] = []

    def read(self) -> MemLog:
        for number, line in iterate_short_lines(self._path):
            self._line = number
            text = line.strip()
            if event := _EVENT.fullmatch(text):
                self._read_event(*event.group(1, 2, 3))
            elif found := _ITERATION.fullmatch(text):
                self._begin_iteration(found.group(1))
            elif found := _MICRO_BATCH.fullmatch(text):
                turn = self._turns[found[1]]
                self._turns[found[1]] += 1
                self._phase = f"{turn}{found[1]}"
                self._most_forward = max(self._most_forward, self._turns["F"])
            elif found := _LAYER.fullmatch(text):
                self._read_layer(found.group(1), found.group(4))
            else:
                raise self._make_error(msg("memlog.line", text=text[:_SHOWN]))
        if not self._events:
            raise TraceError(msg("memlog.empty"), path=self._path)
        return MemLog(
            blocks=tuple(self._blocks),
            iterations=len(self._numbers) - 1,
            micro_batches=self._most_forward,
            layers=tuple(self._layers),
            events=self._events,
            tail=max(self._numbers) + 1,
        )

    def _make_error(self, message: Message) -> TraceError:
        return TraceError(message, path=self._path, line=self._line)

    def _read_event(self, kind: str, pointer: str, size_text: str) -> None:
        size, time = int(size_text), self._events
        self._events += 1
        if self._events > _MOST_EVENTS:
            raise self._make_error(msg("placement.too-large"))
        if pointer in {"0", "0x0"}:
            return  # nothing was requested
        if kind == "1":
            if pointer in self._live:
                raise self._make_error(msg("memlog.live", pointer=pointer))
            self._live[pointer] = len(self._blocks)
            layer = self._running[-1] if self._running else ""
            self._blocks.append(LogBlock(size, time, None, self._iteration, None, self._phase, "", layer))
            return
        if pointer not in self._live:
            raise self._make_error(msg("memlog.unknown", pointer=pointer))
        number = self._live.pop(pointer)
        block = self._blocks[number]
        if block.size != size:
            raise self._make_error(msg("memlog.size", pointer=pointer, allocated=block.size, released=size))
        self._blocks[number] = block._replace(end=time, end_iteration=self._iteration, end_phase=self._phase)

    def _begin_iteration(self, text: str) -> None:
        if self._ended:
            raise self._make_error(msg("memlog.after-end"))
        if text == "end":
            self._ended = True
            self._iteration = max(self._numbers) + 1
        elif int(text) <= self._iteration:
            raise self._make_error(msg("memlog.order", number=int(text), last=self._iteration))
        else:
            self._iteration = int(text)
            self._numbers.append(self._iteration)
        self._turns, self._phase = Counter(), "init"

    def _read_layer(self, name: str, edge: str) -> None:
        self._layers.setdefault(name)
        if edge == "start":
            self._running.append(name)
        elif name in self._running:
            self._running.remove(name)
        else:
            raise self._make_error(msg("memlog.layer", name=name[:_SHOWN]))
