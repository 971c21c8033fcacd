"""What would lower the peak of a snapshot, each by itself: the same curve without what leaked, the same requests under other segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ms_tune.pools.torch_what_if import Cache, outcome_of, with_segments
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.footprint.torch_report import TorchReport
    from ms_tune.text import Message

_LEAST = 1000  # a remedy that frees less than this part of the peak is none


@dataclass(frozen=True, slots=True)
class TorchRemedy:
    """A way to need less."""

    name: str  # how scripts know it
    held: bool  # whether it is about what is held of the device; else about live blocks
    bytes_freed: int  # by how much the peak is lower
    peak_after: int  # the peak that is left, wherever it is then
    # What it is, what it costs.
    title: Message
    price: Message
    how: str  # how it is written


def torch_remedies(report: TorchReport) -> tuple[TorchRemedy, ...]:
    """What lowers a peak, what frees most first; nothing where the replay is not exact."""
    peak, held = report.peak_bytes, report.reserved_peak_bytes
    if peak is None or held is None:
        return ()
    found = [*_without_leaks(report, peak), *_other_segments(report, held)]
    found = [remedy for remedy in found if remedy.bytes_freed * _LEAST >= (held if remedy.held else peak)]
    return tuple(sorted(found, key=lambda remedy: (-remedy.bytes_freed, remedy.title.params.get("where", ""))))


def _without_leaks(report: TorchReport, peak: int) -> list[TorchRemedy]:
    """Of each line that leaks all blocks but the newest are gone once the next one is made."""
    used, found = report.replay.used, []
    for each in report.survivors:
        if not each.leak:
            continue
        gone = np.zeros(len(used), np.int64)
        gone[list(each.events[1:])] = report.replay.sizes[list(each.events[:-1])]
        after = int((used - np.cumsum(gone)).max())
        texts = (msg("snapshot.remedy.leak", where=each.where), msg("snapshot.remedy.leak.price"))
        found.append(_remedy("release-leak", (peak, after), texts, f"del, detach(): {each.where}", held=False))
    return found


def _other_segments(report: TorchReport, held: int) -> list[TorchRemedy]:
    """The other kind of segments, replayed, where fragments made the allocator grow."""
    recorded = report.replay.settings
    if recorded.expandable or not any(cause.fragments for cause in report.causes):
        return []
    after = outcome_of(
        report.recording, with_segments(recorded, expandable=True), Cache.AS_RECORDED, recorded=False
    ).peak_bytes
    how = f"PYTORCH_{'NPU' if recorded.padding else 'CUDA'}_ALLOC_CONF=expandable_segments:True"
    texts = (msg("snapshot.remedy.expandable"), msg("snapshot.remedy.expandable.price"))
    return [_remedy("expandable-segments", (held, after), texts, how, held=True)]


def _remedy(name: str, peaks: tuple[int, int], texts: tuple[Message, Message], how: str, *, held: bool) -> TorchRemedy:
    return TorchRemedy(name, held, peaks[0] - peaks[1], peaks[1], *texts, how)
