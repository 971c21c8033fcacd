"""Write the HTML page of a snapshot of PyTorch's allocator: the page of traces, with categories by script line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ms_tune.encode import record_json
from ms_tune.footprint.torch_report import (
    BEFORE,
    NO_FRAMES,
    OTHER_LINES,
    CodeLocation,
    LineChange,
    TorchLives,
    TorchRemedy,
    TorchReport,
)
from ms_tune.readers.memory_block import Frame
from ms_tune.readers.table import NONE, Coded
from ms_tune.report.memory_curve import Lives, split_in_bands
from ms_tune.report.memory_html import (
    CARD,
    POINTS,
    TOP,
    PageBlocks,
    memory_page,
    pack_blocks,
    page_texts,
    select_blocks,
    sum_bands,
)
from ms_tune.report.torch_text import list_figures, list_findings, measure_text, moment_text, proof_lines
from ms_tune.report.words import shorten_location, size_text
from ms_tune.text import Language, Message, Text, lookup, msg

_LINES = (
    (72, 114, 184),
    (233, 159, 76),
    (93, 165, 148),
    (164, 116, 180),
    (122, 180, 84),
    (214, 96, 96),
    (128, 152, 206),
)
_REST_TEXTS = {NO_FRAMES: "snapshot.where.none", BEFORE: "snapshot.where.before", OTHER_LINES: "snapshot.where.other"}
_REST = {OTHER_LINES: (176, 160, 130), NO_FRAMES: (150, 158, 168), BEFORE: (112, 122, 136)}


def snapshot_html(
    lives: TorchLives,
    before: tuple[TorchLives, Sequence[LineChange]] | None,
    language: Language,
    remedies: Sequence[TorchRemedy] = (),
) -> str:
    """Return the page of a snapshot; if compared with another one, with the growth by script line."""
    report = lives.report
    keys = [f"line-{place}" if place < _lines_data(lives) else name for place, name in enumerate(lives.contents)]
    data: dict[str, object] = {
        "contents": keys,
        "colours": {key: _LINES[place] if place < _lines_data(lives) else _REST[key] for place, key in enumerate(keys)},
        "ranks": [_device_data(report, lives, keys, remedies)],
        "worst": 0,
        "findings": [
            record_json(finding, *CARD)
            for finding in list_findings(report, 10)
            if finding.name != "fragments" or finding.bytes
        ],
        "comparison": [_comparison_data(lives, keys, *before)] if before else None,
        "texts": page_texts() | _page_texts(lives, keys, before[0].report if before else None),
    }
    return memory_page(str(report.snapshot.path), data, language)


def _lines_data(lives: TorchLives) -> int:
    return sum(name not in _REST for name in lives.contents)


def _page_texts(lives: TorchLives, keys: Sequence[str], other: TorchReport | None) -> dict[str, Text | Message]:
    report = lives.report
    names = ["footprint", "when", "ticks", "layers", "blocks", "search", "never", "outside", "addresses-hint"]
    names += ["remedies", "remedies-hint"] if report.at_peak else ["remedies", "remedies-hint", "go-peak"]
    found: dict[str, Text | Message] = {name: lookup(f"snapshot.page.{name}") for name in names}
    found |= {"column.layer": lookup("snapshot.page.column.line"), "when.start": moment_text(report, -1)}
    if not report.at_peak:
        now = moment_text(report, report.event)
        found["make-up"] = msg("snapshot.page.make-up", when=now)
        found["held"] = msg("snapshot.page.held", when=now, parts="{parts}")
    if other is not None:
        amounts = {name: f"{{{name}}}" for name in ("before", "after", "change")}
        sides = {"was": measure_text(other), "now": measure_text(report)}
        found["compare-peaks"] = msg("snapshot.page.compare-peaks", **sides, **amounts)
    for key, name in zip(keys, lives.contents, strict=True):
        found[f"content.{key}"] = Text(*[_short_line(name, lives)] * 2) if key != name else lookup(_REST_TEXTS[name])
    return found


def _short_line(line: str, lives: TorchLives) -> str:
    # Only the file name of a script line, if that is unambiguous.
    last = line.rpartition("/")[2]
    return last if sum(name.rpartition("/")[2] == last for name in lives.contents) == 1 else shorten_location(line)


def _device_data(
    report: TorchReport, lives: TorchLives, keys: Sequence[str], remedies: Sequence[TorchRemedy]
) -> dict[str, object]:
    blocks = Lives(lives.start, lives.end, lives.size, lives.content)
    rows = select_blocks(lives.start, lives.end, lives.size, report.event)
    live = lives.live_after(report.event)
    totals = {key: int(lives.size[live & (lives.content == code)].sum()) for code, key in enumerate(keys)}
    return {
        "rank": None,
        "peak_bytes": sum(totals.values()),
        "peak_tick": report.event,
        "footprint_bytes": report.reserved_peak_bytes or 0,
        "limit_bytes": None,
        "verdict": _verdict_data(report),
        "facts": list(_facts_data(report, len(lives.start))),
        "step_ends": report.step_ends,
        "bands": split_in_bands(lives.curve, blocks, keys, POINTS),
        "categories_at_peak": totals,
        "by_layer": [_group_data(place, lives, keys) for place in report.contents[:TOP]],
        "held_at_peak": [  # without a history the peak is unknown
            {"phase": "unknown", "category": key, "bytes": amount}
            for key, amount in sorted(totals.items(), key=lambda item: -item[1])
            if amount and len(report.device.events)
        ],
        "remedies": remedies,
        "blocks": pack_blocks(_blocks_data(report, lives, rows)) if len(rows) else None,
        "block_count": len(rows),
        "counted": len(lives.start),
    }


def _verdict_data(report: TorchReport) -> dict[str, object]:
    # The page shows whether the figures are proved instead of whether the job fits.
    exact = report.refused_because is None
    word = "no-history" if not len(report.device.events) else "exact" if exact else "not-exact"
    kind = "good" if exact else "tight"
    return {"kind": kind, "word": lookup(f"snapshot.page.{word}"), "lines": proof_lines(report)}


def _facts_data(report: TorchReport, blocks: int) -> Iterator[dict[str, object]]:
    for name, amount, when in list_figures(report):
        yield {"value": size_text(amount), "label": lookup(f"snapshot.show.{name}"), "note": when}
    counts = {"steps": len(report.step_ends) or None, "blocks": blocks, "events": len(report.device.events)}
    for name, count in counts.items():
        if count is not None:
            yield {"value": f"{count:,}", "label": lookup(f"snapshot.page.{name}"), "note": None}


def _group_data(place: CodeLocation, lives: TorchLives, keys: Sequence[str]) -> dict[str, object]:
    where = f"{place.where} [{place.category}]" if place.category and place.where else place.where
    key = _line_key(place.where, place.before_recording, lives, keys)
    return {"key": where, "bytes": place.bytes, "count": place.count, "categories": {key: place.bytes}}


def _line_key(where: str, before: bool, lives: TorchLives, keys: Sequence[str]) -> str:  # noqa: FBT001 - as Place has it
    name = where or (BEFORE if before else NO_FRAMES)
    if name in lives.contents:
        return keys[lives.contents.index(name)]
    return OTHER_LINES if OTHER_LINES in keys else keys[0]


def _blocks_data(
    report: TorchReport, lives: TorchLives, rows: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> PageBlocks:
    stacks = report.snapshot.stacks
    kinds = tuple(dict.fromkeys(map(_innermost_function, stacks)))
    known = {name: place for place, name in enumerate(kinds)}
    by_stack = np.array([known[_innermost_function(stack)] for stack in stacks], np.int32)
    none = np.zeros(len(rows), np.int32)
    return PageBlocks(
        start=lives.start[rows],
        end=lives.end[rows],
        last=np.full(len(rows), NONE, np.int64),
        size=lives.size[rows],
        address=lives.address[rows].astype(np.uint64),
        content=lives.content[rows],
        node=Coded(none, ("",)),
        stack=Coded(lives.stack[rows].astype(np.int32), stacks),
        kind=Coded(by_stack[lives.stack[rows]], kinds),
        tensor=Coded(lives.category[rows].astype(np.int32), lives.categories or ("",)),
        names={},
    )


def _innermost_function(stack: tuple[Frame, ...]) -> str:
    return next((frame.function for frame in reversed(stack) if frame.file.endswith(".py")), "")


def _comparison_data(
    lives: TorchLives, keys: Sequence[str], other: TorchLives, changes: Sequence[LineChange]
) -> dict[str, object]:
    blocks = Lives(other.start, other.end, other.size, other.content)

    def key_of(place: CodeLocation | LineChange) -> str:
        return _line_key(place.where, place.before_recording, lives, keys)

    def by_category(report: TorchReport) -> Mapping[str, int]:
        found = dict.fromkeys(keys, 0)
        for place in report.contents:
            found[key_of(place)] += place.bytes
        return found

    was, now = by_category(other.report), by_category(lives.report)
    return {
        "rank": None,
        "was": was,
        "now": now,
        "before_bytes": sum(was.values()),
        "after_bytes": sum(now.values()),
        "curve": sum_bands(split_in_bands(other.curve, blocks, other.contents, POINTS // 4)),
        "changes": [{"operator": "", "category": key_of(one), **one._asdict()} for one in changes[: 5 * TOP]],
    }
