"""Read why a run ran out of memory from its logs: which ranks failed, the request, the figures, the cause, and the remedies.

``facts/data/out_of_memory.json`` has the words. Logs may be those of several ranks in one file, one file per rank, a folder,
and packed with gzip. Only lines with one of the words are looked at, so that a gigabyte takes seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import BinaryIO, cast

from ms_tune.errors import TraceError
from ms_tune.facts.oom import (
    Match,
    Remedy,
    choose_remedies,
    find_job,
    find_phase,
    is_inference,
    list_words,
    match_failure,
    match_figures,
    read_form,
)
from ms_tune.readers.lines import UTF_16, decode_line, find_logs, open_log, parse_rank, read_line_blocks, split_prefix
from ms_tune.readers.runtime_log import PoolState, StatisticsLines, read_runtime_log, take_pool
from ms_tune.readers.tracker_tables import load_polars
from ms_tune.records import Record
from ms_tune.text import msg
from ms_tune.units import GIB, MIB

_LINES_OF_MESSAGE = 8  # a message may be wrapped, or have one figure per line
_LINES_TO_FRAME = 60  # between the innermost frame and the message, in a log without prefixes
_MOST_FRAMES = 256
_MOST_FAILURES = 4096
_PART_OF_LINE = 16 * 1024  # characters
_MOST_SHOWN = 300  # characters of the message
_HEAD = 2 * 1024**2  # bytes of a log in which the job's framework and settings are looked for
_TAIL = 4 * 1024**2  # bytes of a log in which another error is looked for
_MOST_HEADS = 8  # logs
_OTHERS = 4 * GIB  # more than the contexts and buffers of one process; on small devices more than half of the device
_FULL = 0.97  # of the device
_TORN = 4  # no fragmentation leaves so many times the request free without a piece of its size
_WORDS = (
    'file "',
    "file /",
    "traceback (most",
    "rankid:",
    "memory size:",
    "peak memory usage",
    "mem pool info",
    "dynamic memory pool",
)
_FRAME = re.compile(
    r'File (?:\\?"(?P<file>[^"\\]{1,1000})\\?", line |(?P<path>[/~][^\s:"]{1,500}):)(?P<line>\d{1,9})(?:, in (?:\w{1,99}\.)?(?P<name>\w{1,99}))?'
)
_LAUNCHERS = r"/bin/(?:torchrun|accelerate|deepspeed|llamafactory-cli|swift|msrun|vllm|ray)\b"
_LIBRARY = re.compile(rf"(?:site|dist)-packages/|/lib/python3|^<|{_LAUNCHERS}")
_CORE = re.compile(
    rf"(?:site|dist)-packages/(?:torch|torch_npu|mindspore|ray|concurrent)/|/lib/python3[^/]*/(?!site-|dist-)|^<|{_LAUNCHERS}"
)
_CALLED = re.compile(r"\b(?:torch|torch_npu|F|functional|ops|mint)\.(?:[a-z]\w{0,40}\.){0,4}([a-z]\w{0,60})\(")
_RANK_ID = re.compile(r"\bRankID:(\d{1,6})\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[-T ]\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?")
_FAMILIES = ("mindspore", "torch_npu", "torch")
_BELOW = ("driver", "hccl", "cuda")  # the layers from which frameworks allocate


class Cause(str, Enum):
    """Why an allocation failed."""

    NOT_MEMORY = "not-memory"  # another resource, or a size that is not one
    HOST = "host"  # memory of the host
    WORKSPACE = "workspace"  # scratch memory of a kernel
    TOO_LARGE = "too-large"  # more than half of the device in one piece
    OTHERS = "others"  # other processes, or buffers outside the framework, use the device
    FULL = "full"
    REFUSED = "refused"  # although the device has far more free memory
    FRAGMENTATION = "fragmentation"
    SHORTAGE = "shortage"
    UNKNOWN = "unknown"


class MemoryFailure(Record):
    """The failed allocation of one rank, with None for unknown values."""

    framework: str  # whose message it is: `mindspore`, `torch`, `torch_npu`, `hccl`, `driver`, `ray` ...
    line: int  # the line of the log
    wanted_bytes: int | None  # requested bytes
    limit_bytes: int | None  # memory of the device, or the limit of MindSpore's pool
    free_bytes: int | None  # free bytes of the device
    used_bytes: int | None  # bytes in use by tensors; if the host's memory ran out, in use there
    held_bytes: int | None  # bytes that the framework reserved, used or not
    operator: str  # the operator, or the resource, that requested them
    where: str  # `file:line` of the innermost frame of the script, else of a library above the framework
    rank: int | None = None
    process: str = ""  # the process that wrote the line, such as `WorkerDict pid=4926`
    device: int | None = None  # its number in the message
    path: Path | None = None  # the log
    time: str = ""  # as written in the line
    text: str = ""  # the message, cut
    said_cause: Cause | None = None  # the cause that the words report
    allowed_bytes: int | None = None  # limit that the user set by a fraction of the device
    waiting_bytes: int = 0  # in use until an event; MindSpore only
    outside_at_start_bytes: int | None = None  # in use by others when the process started
    all_free: bool = False  # whether nothing cached could have served the request
    is_guess: bool = False  # whether the words only suggest a failed allocation

    @property
    def label(self) -> str:
        """Return the name of the rank: its number, its process or its device; empty if unknown."""
        if self.rank is not None:
            return str(self.rank)
        return self.process or (f"device {self.device}" if self.device is not None else "")

    @property
    def outside_bytes(self) -> int | None:
        """Return the bytes of the device in use outside the framework; None if unknown."""
        if self.limit_bytes is None or self.free_bytes is None or self.held_bytes is None or self._is_of_pool:
            return self.outside_at_start_bytes
        return max(0, self.limit_bytes - self.free_bytes - self.held_bytes)

    @property
    def _is_of_pool(self) -> bool:
        # The limit is the pool's, not the device's.
        return self.framework == "mindspore"

    @property
    def available_bytes(self) -> int | None:
        """Return the free and cached bytes that were available to the request in any number of pieces; None if unknown."""
        free, used, held = self.free_bytes, self.used_bytes, self.held_bytes
        if free is not None and self.all_free:
            return free
        if used is not None and held is not None and free is not None:
            if self.allowed_bytes is not None:
                free = max(0, min(free, self.allowed_bytes - held))
            return free + max(0, held - used)
        if self._is_of_pool and self.limit_bytes is not None and used is not None:
            return max(0, self.limit_bytes - used - self.waiting_bytes)
        return None

    @property
    def used_share(self) -> float | None:
        """Return the share of the device, or of the pool's limit, in use by tensors; None if unknown."""
        return self.used_bytes / self.limit_bytes if self.used_bytes is not None and self.limit_bytes else None

    @property
    def cause(self) -> Cause:
        """Return the first cause that matches; figures of others are shown as well."""
        if self.said_cause is not None:
            return self.said_cause
        wanted, outside, available = self.wanted_bytes, self.outside_bytes, self.available_bytes
        limit = self.allowed_bytes or self.limit_bytes or 0
        if wanted is not None and limit and wanted * 2 > limit:
            return Cause.TOO_LARGE
        if outside is not None and not self.allowed_bytes and (outside > _OTHERS or (limit and outside * 2 > limit)):
            return Cause.OTHERS
        if self.used_share is not None and self.used_share > _FULL:
            return Cause.FULL
        if wanted is None or available is None:
            return Cause.UNKNOWN
        # Tensors and what is outside the framework may fill the device together.
        is_refused = not self.allowed_bytes and (self.free_bytes or 0) > _TORN * wanted
        torn = Cause.REFUSED if is_refused else Cause.FRAGMENTATION
        torn = Cause.FULL if available < (1 - _FULL) * limit else torn
        return torn if available >= wanted else Cause.SHORTAGE

    @property
    def short_bytes(self) -> int | None:
        """Return the missing bytes, assuming no fragmentation; None if unknown, or if it is not device memory."""
        if self.cause in (Cause.HOST, Cause.NOT_MEMORY) or self.wanted_bytes is None or self.available_bytes is None:
            return None
        return max(0, self.wanted_bytes - self.available_bytes)


class FailureReport(Record):
    """All failed allocations of a run: one per rank, the first one first."""

    failures: tuple[MemoryFailure, ...]
    job: str  # the framework of the job, such as `mindformers` or `verl`
    is_inference: bool
    is_ordered: bool  # whether it is known which rank failed first
    phase: str  # `loading`, `saving` or `evaluation`; empty if it trained or if unknown
    family: str  # `mindspore`, `torch_npu` or `torch`, on which the job is based; empty if unknown
    remedies: tuple[Remedy, ...]  # for the first failure, those that are set already included

    @property
    def first(self) -> MemoryFailure:
        """Return the first failure."""
        return self.failures[0]


@dataclass(slots=True)
class _Found:
    """A failed allocation, completed by later lines."""

    line: int
    text: str
    match: Match
    frames: tuple[str, ...]
    time: str
    rank_id: int | None
    said: str = ""  # the line of the message

    @property
    def priority(self) -> int:
        form = self.match.form
        return 0 if form.is_guess else 1 if form.framework in _BELOW or form.cause == Cause.HOST else 2

    def complete(self, match: Match) -> None:
        """Add figures of another line about the same request."""
        mine, theirs = self.match.sizes, match.sizes
        if "wanted" not in mine or theirs.get("wanted", mine["wanted"]) == mine["wanted"]:
            for name, size in theirs.items():
                mine.setdefault(name, size)
        for name, label in match.labels.items():
            self.match.labels.setdefault(name, label)


@dataclass(slots=True)
class _Stream:
    """The relevant content that one rank or process wrote to a log."""

    label: tuple[int | None, str]
    failures: dict[str, _Found] = field(default_factory=dict)  # by the device in the message
    last: _Found | None = None
    frames: list[str] = field(default_factory=list)  # of the traceback that was begun last
    frame_line: int = 0
    waits_for_frames: bool = False
    rank_id: int | None = None
    rank_line: int = 0
    code: str = ""  # the lines before
    statistics: StatisticsLines = field(default_factory=StatisticsLines)
    pools: dict[str, PoolState] = field(default_factory=dict)

    def take(self, number: int, text: str) -> None:
        """Process a line without its prefix."""
        if "raceback (most" in text:
            self.waits_for_frames = self.waits_for_frames and not (self.last is not None and bool(self.last.frames))
            self.frames.clear()
        if "File " in text:
            for frame in _FRAME.finditer(text):
                self._add_frame(number, f"{frame['file'] or frame['path']}:{frame['line']}\n{frame['name'] or ''}")
        if "emory" not in text and (self.frame_line == number or "raceback (most" in text):
            return  # else it is a whole traceback with its message, in a log of one object a line
        if "RankID:" in text and (found := _RANK_ID.search(text)):
            self.rank_id, self.rank_line = int(found[1]), number
        match = match_failure(text)
        if self.last is not None and number <= self.last.line + _LINES_OF_MESSAGE:
            match = self._continue(text, match)
        if match is not None:
            self._add_failure(number, text, match)
        elif self.last is not None and (more := match_figures(text)) is not None:
            self.last.complete(more)
        elif (more := match_figures(text)) is not None and "total" in more.sizes:
            self.failures.setdefault("", _Found(0, "", more, (), "", None))
        self.statistics.take(text)
        take_pool(text, self.pools)

    def _add_frame(self, number: int, place: str) -> None:
        if len(self.frames) < _MOST_FRAMES:
            self.frames.append(place)
        self.frame_line = number
        if self.waits_for_frames and self.last is not None:
            self.last.frames = tuple(self.frames)

    def _continue(self, text: str, match: Match | None) -> Match | None:
        # Return the failure that a line reports by itself; None if it continues the last message.
        last = self.last
        if last is None or (match is not None and not match.form.is_guess):
            return match
        joined = f"{last.text} {text.strip(' #>|')}"
        if last.match.form.is_guess:
            whole = match_failure(joined)
            if whole is not None and not whole.form.is_guess:
                last.text, last.match = joined, whole
                return None
        elif last.match.form.parts and (whole := read_form(last.match.form, joined)) is not None:
            last.text = joined
            last.complete(whole)
        return match

    def _add_failure(self, number: int, text: str, match: Match) -> None:
        near = self.label != (None, "") or number - self.frame_line <= _LINES_TO_FRAME
        frames = tuple(self.frames) if near else ()
        time = _TIME.search(text)
        rank_id = self.rank_id if number - self.rank_line <= _LINES_OF_MESSAGE else None
        if "operator" not in match.labels and (called := _CALLED.search(self.code)):
            match.labels["operator"] = called[1]
        new = _Found(number, text[match.start :], match, frames, time[0] if time else "", rank_id, text)
        sub = ""
        if self.label == (None, ""):
            sub = match.labels.get("device") or match.labels.get("rank") or ("" if rank_id is None else str(rank_id))
        old = self.failures.get(sub) or (self.last if not sub else None)
        if old is not None and old.line and old.priority >= new.priority:
            old.complete(match)
            return
        if old is not None:
            new.match.sizes.update({**old.match.sizes, **match.sizes} if old.priority else match.sizes)
            new.frames = new.frames or old.frames
            self.failures = {name: one for name, one in self.failures.items() if one is not old}
        elif len(self.failures) >= _MOST_FAILURES:
            return
        self.failures[sub] = self.last = new
        self.waits_for_frames = not frames

    def list_failures(self, path: Path, file_rank: int | None) -> Iterator[MemoryFailure]:
        """Yield the failures, completed by MindSpore's statistics."""
        start = self.failures.get("")
        outside = start.match.sizes if start is not None and not start.line else {}
        for found in self.failures.values():
            if found.line:
                yield self._make_failure(found, path, file_rank, outside)

    def _make_failure(self, found: _Found, path: Path, file_rank: int | None, start: dict[str, int]) -> MemoryFailure:
        form, sizes, labels = found.match.form, {**start, **found.match.sizes}, found.match.labels
        if form.framework == "mindspore":
            self._complete_from_statistics(sizes)
        used, held = sizes.get("used"), sizes.get("held")
        if held is None and used is not None and "cached" in sizes:
            held = used + sizes["cached"]
        rank = next((one for one in (self.label[0], file_rank, found.rank_id) if one is not None), None)
        if rank is None and "rank" in labels:
            rank = int(labels["rank"])
        return MemoryFailure(
            form.framework,
            found.line,
            sizes.get("wanted"),
            sizes.get("limit"),
            sizes.get("free"),
            used,
            held,
            labels.get("operator", ""),
            _choose_frame(found.frames),
            rank,
            self.label[1],
            int(labels["device"]) if "device" in labels else None,
            path,
            found.time,
            found.text[:_MOST_SHOWN].strip(),
            Cause(form.cause) if form.cause else None,
            sizes.get("allowed"),
            sizes.get("event", 0),
            sizes["total"] - sizes["unused"] if "total" in sizes and "unused" in sizes else None,
            form.all_free,
            form.is_guess,
        )

    def _complete_from_statistics(self, sizes: dict[str, int]) -> None:
        last = self.statistics.last
        if last is not None and "limit" not in sizes:
            sizes["limit"] = last.used_mib * MIB
        if self.pools:
            sizes.setdefault("used", sum(pool.used_mib for pool in self.pools.values()) * MIB)
            sizes.setdefault("held", sum(pool.total_mib for pool in self.pools.values()) * MIB)
        elif last is not None and "used" not in sizes:
            sizes["used"], sizes["held"] = last.peak_mib * MIB, last.footprint_mib * MIB
        if "held" in sizes and "limit" in sizes:
            sizes.setdefault("free", max(0, sizes["limit"] - sizes["held"]))


def _choose_frame(frames: Sequence[str]) -> str:
    # A frame is `file:line`, and the function in a second line.
    own = [frame for frame in frames if not _LIBRARY.search(frame)]
    return next(reversed(own or [frame for frame in frames if not _CORE.search(frame)]), "").partition("\n")[0]


def _read_log(path: Path, *, with_head: bool) -> tuple[list[MemoryFailure], list[str], list[str]]:
    # Return the failures of all streams of a log, its other statements about the job, and the frames of the failures.
    streams: dict[tuple[int | None, str], _Stream] = {}
    evidence: list[str] = []
    with open_log(path) as file:
        open_until = 0  # the last line that may continue a message
        for number, line, code in _find_candidates(file, evidence if with_head else None):
            if code is None and number > open_until:
                continue
            for piece in line.split("\r") if "\r" in line else (line,):
                short = piece if len(piece) <= 2 * _PART_OF_LINE else piece[:_PART_OF_LINE] + piece[-_PART_OF_LINE:]
                rank, process, text = split_prefix(short)
                label = (rank, "" if rank is not None else process)
                if label in streams or len(streams) < _MOST_FAILURES:
                    stream = streams.setdefault(label, _Stream(label))
                    stream.code = code or ""
                    stream.take(number, text)
                    if stream.last is not None and stream.last.line == number:
                        open_until = number + _LINES_OF_MESSAGE
    found = [one for stream in streams.values() for one in stream.failures.values()]
    frames = [frame for one in found for frame in (*one.frames, one.said)]
    evidence.extend((*frames, *(one.text for one in found)))
    rank = parse_rank(path)
    failures = chain.from_iterable(stream.list_failures(path, rank) for stream in streams.values())
    return sorted(failures, key=lambda failure: failure.line), evidence, frames


def _find_candidates(file: BinaryIO, evidence: list[str] | None) -> Iterator[tuple[int, str, str | None]]:
    # Yield the lines with one of the words, each with both lines before it (maybe of code), and those that may continue it.
    done = rest = 0
    for body, first in read_line_blocks(file):
        text = decode_line(body)
        if evidence is not None and done < _HEAD:
            evidence.append(text)
        done += len(body)
        low = text.lower()
        if not rest and not _find_rows([low]):
            continue
        lines, hits, begin = text.split("\n"), _find_rows(low.split("\n")), 0
        for hit in (*hits, len(lines)):
            for row in range(begin, min(rest, hit, len(lines))):
                yield first + row, lines[row], None
            if hit < len(lines):
                yield first + hit, lines[hit], "\n".join(lines[max(hit - 2, 0) : hit])
                begin, rest = hit + 1, hit + 1 + _LINES_OF_MESSAGE
        rest = max(0, rest - len(lines) + 1)


def _find_rows(lines: Sequence[str]) -> list[int]:
    # Return the places of the texts with one of the words, and with one of those that must be there, too.
    words = list_words()
    words = {**words, (): (*words[()], *_WORDS)}
    polars = load_polars()
    if polars is None:
        whole = "\n".join(lines)
        met = [(also, [word for word in some if word in whole]) for also, some in words.items()]
        return [
            at
            for at, line in enumerate(lines)
            if any(_has(line, some) and (not also or _has(line, also)) for also, some in met)
        ]
    texts = polars.Series(lines)
    found = texts.str.contains_any(list(words.pop(())))  # polars before 1.30 takes no tuples
    for also, some in words.items():
        found |= texts.str.contains_any(list(some)) & texts.str.contains_any(list(also))
    return cast("list[int]", found.arg_true().to_list())


def _has(line: str, words: Sequence[str]) -> bool:
    return any(word in line for word in words)


def read_memory_failures(paths: Sequence[Path]) -> FailureReport:
    """Read logs and folders of logs. Raises TraceError: a file is unreadable, or none contains a failed allocation."""
    failures: list[MemoryFailure] = []
    evidence: list[str] = []
    frames: list[str] = []
    files = [file for path in paths for file in find_logs(path)]
    for place, file in enumerate(files):
        found = _read_log(file, with_head=place < _MOST_HEADS)
        failures.extend(found[0])
        evidence.extend(found[1])
        frames.extend(found[2])
    failures = _drop_repeated(failures)
    if not failures:
        raise _explain_nothing(files)
    is_ordered = len({failure.path for failure in failures}) == 1 or all(failure.time for failure in failures)
    if len({failure.path for failure in failures}) > 1 and is_ordered:
        failures.sort(key=lambda failure: re.sub(r"[-T ,:.]", "", failure.time))
    return _make_report(failures, evidence, frames, is_ordered=is_ordered)


def _drop_repeated(failures: Sequence[MemoryFailure]) -> list[MemoryFailure]:
    # A guess is the consequence of a failure that is certain; launchers and Ray repeat the messages of their workers.
    certain = [failure for failure in failures if not failure.is_guess] or list(failures)
    kept: dict[int, MemoryFailure] = {}
    for place, failure in sorted(enumerate(certain), key=lambda pair: (pair[1].rank is None, not pair[1].process)):
        name = failure.process.partition(" ")[0]
        repeats = (
            at
            for at, one in kept.items()
            if one.path == failure.path
            and failure.rank is None
            and (one.rank is not None or one.process.partition(" ")[0] != name or not failure.process)
            and (one[2:7] == failure[2:7] or failure.framework in (*_BELOW, "ray"))
            and (one.device == failure.device or failure.device is None)
        )
        at = next(repeats, None)
        if at is None:
            kept[place] = failure
        elif kept[at].framework in _BELOW and kept[at].wanted_bytes is None:
            kept[at] = kept[at]._replace(wanted_bytes=failure.wanted_bytes)
    return [kept[place] for place in sorted(kept)]


def _make_report(
    failures: Sequence[MemoryFailure], evidence: Sequence[str], frames: Sequence[str], *, is_ordered: bool
) -> FailureReport:
    first, said = failures[0], "\n".join(evidence)
    job, low = find_job(said), said.lower()
    is_cuda = first.framework in ("torch", "cuda") or (
        not re.search("npu|ascend", low) and ("cuda" in low or first.framework == "vllm")
    )
    family = first.framework if first.framework in _FAMILIES else ""
    if not family and (job or is_cuda):
        family = "mindspore" if job in ("mindformers", "mindspore") else "torch" if is_cuda else "torch_npu"
    if not job or job in _FAMILIES:
        job = first.framework if first.framework in ("vllm", "sglang") else family
    keys = [
        key for key in (job, family, "hip" if "hip out of memory" in low else "", "cuda" if is_cuda else "npu") if key
    ]
    causes = [first.cause.value]
    if first.framework in _BELOW and first.cause is Cause.UNKNOWN:
        causes.append("outside-pool")
    inference, phase = is_inference(job, frames), find_phase("\n".join(frames))
    remedies = choose_remedies(causes, keys, said, training=not inference, phase=phase)
    return FailureReport(tuple(failures), job, inference, is_ordered, phase, family, remedies)


def _explain_nothing(files: Sequence[Path]) -> TraceError:
    # Only one log: the user expected a failure in it.
    path = files[0]
    with open_log(path) as file:
        head = file.read(2)
    if len(files) == 1 and not head:
        return TraceError(msg("oom.nothing.empty"), msg("oom.nothing.empty.hint"), path=path)
    if head in UTF_16:
        return TraceError(msg("trace.log.utf-16"), msg("trace.log.utf-16.hint", file=quote(str(path))), path=path)
    error = read_runtime_log(path, _TAIL).last_error if len(files) == 1 else None
    if error is not None:
        error = error.strip().splitlines()[0][:_MOST_SHOWN]
        return TraceError(msg("oom.nothing.error", error=error), msg("oom.nothing.hint"), path=path)
    return TraceError(msg("oom.nothing"), msg("oom.nothing.hint"), path=path)
