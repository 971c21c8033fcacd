"""Reads ``trace_view.json`` of Ascend's profilers, however large: what decides about gaps, and nothing else.

torch_npu (``_ascend_pt``) writes one list in one line, MindSpore (``_ascend_ms``) the same, older ones an object with
``traceEvents``. It is read in blocks of whole events. Kept are the intervals of "Overlap Analysis", collectives, the flows from a launch on
the host to its start on the device, and host events that are long enough to cover a gap.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError
from ms_tune.readers.kept_events import KeptEvents
from ms_tune.readers.plain_pickle import no_collection
from ms_tune.readers.reading import reading
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import TextIO

    from ms_tune.readers.time_line import ProfileEvents

_BLOCK = 1024**2  # characters read at once
_MOST_REST = 64 * 1024**2  # characters of one event
# What may stand between two events that are cut apart, and the whole of it.
_BETWEEN = {"}, {": "}, {", "},{": "},{", "},\n": "},\n{"}


@no_collection()
def read_events(path: Path, on_bytes: Callable[[int], None] = lambda _count: None) -> ProfileEvents:
    """Read a trace.

    Args:
        path: The file.
        on_bytes: Told how many characters more are read.

    Raises:
        TraceError: The file cannot be read, or is no such trace.
    """
    kept = KeptEvents()
    with reading(path), path.open(encoding="utf-8", errors="replace") as file:
        _read_all(file, kept, on_bytes, path)
    if not kept.count and not kept.truncated:
        raise TraceError(msg("trace.profile.empty"), path=path)
    return kept.found()


def _read_all(file: TextIO, kept: KeptEvents, on_bytes: Callable[[int], None], path: Path) -> None:
    """All events, a block of whole ones at a time."""
    rest, begun = "", False
    while chunk := file.read(_BLOCK):
        on_bytes(len(chunk))
        rest += chunk
        if not begun:
            start = _start(rest)
            if start is None:
                if len(rest) > _BLOCK // 4:
                    raise TraceError(msg("trace.profile.not-trace"), path=path)
                continue
            rest, begun = rest[start:], True
        rest = _take(rest, kept)
        if len(rest) > _MOST_REST:
            raise TraceError(msg("trace.profile.long-event"), path=path)
    if not begun:
        if rest.strip():
            raise TraceError(msg("trace.profile.not-trace"), path=path)
        return
    kept.truncated = not _take(rest, kept).lstrip().startswith("]")


def _start(text: str) -> int | None:
    """Where the first event may stand: behind the list's bracket."""
    stripped = text.lstrip()
    if stripped.startswith("["):
        return text.index("[") + 1
    at = text.find('"traceEvents"')
    bracket = text.find("[", at) if stripped.startswith("{") and at > 0 else -1
    return bracket + 1 if bracket >= 0 else None


_DECODER = json.JSONDecoder()


def _take(text: str, kept: KeptEvents) -> str:
    """Take the whole events at the beginning of a text; what is left of it."""
    ends = {mark: text.rfind(mark) for mark in _BETWEEN}
    mark = max(_BETWEEN, key=lambda one: ends[one])
    end = ends[mark] + 1
    if end > 1 and _taken_together(text[:end].lstrip().removeprefix(",").lstrip(), _BETWEEN[mark], kept):
        return text[end:]
    at = 0
    while True:
        while at < len(text) and text[at] in " ,\r\n\t":
            at += 1
        if at >= len(text) or text[at] != "{":
            return text[at:]
        try:
            event, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return text[at:]
        kept.take(event)


def _taken_together(events: str, between: str, kept: KeptEvents) -> bool:
    """Take events at once; False if what looks like an end of one is inside a text, and nothing is taken."""
    if kept.take_together(events, between):
        return True
    try:
        found = json.loads(f"[{events}]")
    except (ValueError, RecursionError):
        return False
    for event in found:
        if isinstance(event, dict):
            kept.take(event)
    return True
