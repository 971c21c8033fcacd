"""The lines of logs, of however many bytes: where they are, which rank wrote them, and those that hold one of some words.

``torchrun``, ``srun``, ``mpirun``, ``tail`` and some loggers put the rank before a line. The few lines that hold one of some words are
found at the speed of a search for bytes.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib.util import find_spec
from itertools import chain, count, repeat
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

_MAX_LOGS = 4096
_RANK_IN_NAME = re.compile(r"(?:worker|rank)_(\d{1,6})")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RANK_PREFIX = re.compile(
    r"\s*(?:\[rank(\d{1,6})\]: ?|\[(?:default)?(\d{1,6})\]:|(\d{1,6}): |\[\d{1,6},(\d{1,6})\]<\w{1,8}>:|(?:\S{1,400}/)?worker_(\d{1,6})\.log[:|]"
    r"|(?:\[\d{8} [\d:]{8}\])?\[rank-(\d{1,6})/\d{1,6}\]|\[Rank (\d{1,6}) \| Local Rank \d{1,6}\])"
)
_LONGEST_SHOWN = 64 * 1024  # bytes; what is beyond is left out
_BLOCK = 1024**2  # bytes read at once; more do not stay in a processor's cache
_SAMPLE = 64 * 1024  # bytes at the beginning of a block, that tell whether lines with a word are many
_MANY = 1024  # bytes a line with a word, below which all lines are looked at one by one
_FOUR = 4
_FACTOR = 2654435761  # Knuth's multiplicative hashing
_MAX_LINE = 1024**2  # bytes; what is beyond is a line of its own


def find_logs(path: Path) -> list[Path]:
    """The logs of a folder, of the first kind that is there: of msrun, of MindFormers, of ``ms-tune dryrun``, any.

    Raises:
        TraceError: There is none, or far too many.
    """
    if not path.is_dir():
        return [path]
    for pattern in ("worker_*.log", "rank_*/info.log", "rank_*/log.txt", "*.log"):
        found = sorted(path.glob(pattern), key=lambda file: (parse_rank(file) or 0, str(file)))
        if len(found) > _MAX_LOGS:
            raise TraceError(msg("trace.log.too-many", count=len(found), limit=_MAX_LOGS), path=path)
        if found:
            return found
    raise TraceError(msg("trace.log.none"), msg("trace.log.none.hint"), path=path)


def parse_rank(path: Path) -> int | None:
    """The rank that a log's name, or its folder's, tells."""
    found = _RANK_IN_NAME.search(path.name) or _RANK_IN_NAME.search(path.parent.name)
    return int(found[1]) if found else None


def split_rank(line: str) -> tuple[int | None, str]:
    """The rank that stands before a line, if one does, and the line without colours."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    found = RANK_PREFIX.match(line)
    if found is None:
        return None, line
    return int(next(part for part in found.groups() if part)), line[found.end() :]


def iterate_log_lines(file: BinaryIO) -> Iterator[str]:
    """The lines as text, without colours and ranks, cut to a bounded length."""
    labelled: bool | None = None  # srun puts a bare number before every line: one before the first line tells
    while raw := file.readline(_LONGEST_SHOWN):
        end = raw
        while len(end) == _LONGEST_SHOWN and not end.endswith(b"\n"):
            end = file.readline(_LONGEST_SHOWN)
        text = raw.decode("utf-8", errors="replace")
        rank, rest = split_rank(text)
        bare = rank is not None and text.lstrip()[:1].isdigit()
        labelled = bare if labelled is None else labelled
        yield (text if bare and not labelled else rest).rstrip()


def read_line_blocks(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """The file in blocks of whole lines, each with the number of its first line, from 1."""
    number = 1
    while body := file.read(_BLOCK):
        if not body.endswith(b"\n"):
            body += file.readline(_MAX_LINE)
        yield body, number
        number += body.count(b"\n")


def find_lines(body: bytes, number: int, needles: Sequence[bytes]) -> Iterator[tuple[int, str, bool]]:
    """The lines with one of the words, of seven bytes or more: their numbers, their texts, and whether they have an end."""
    for line_number, line, whole in find_likely_lines(body, number, needles):
        if any(needle in line for needle in needles):
            yield line_number, decode_line(line), whole


def find_likely_lines(body: bytes, number: int, needles: Sequence[bytes]) -> Iterable[tuple[int, bytes, bool]]:
    """As for :func:`lines_with`, the lines as they are, and perhaps others: all of them where those with a word are many."""
    most = len(body) // _MANY
    search = _find_words_fast if len(body) >= _BLOCK // 2 and _numpy_is_here() else _find_words
    found = search(body[:_SAMPLE], tuple(needles), _SAMPLE // _MANY)
    if found is not None and len(body) > _SAMPLE:
        found = search(body, tuple(needles), most)
    return _split_all_lines(body, number) if found is None else _cut_lines_around(body, number, found)


def _cut_lines_around(body: bytes, number: int, found: Sequence[int]) -> Iterator[tuple[int, bytes, bool]]:
    done = end = 0
    for at in found:
        if at < end:
            continue
        start = body.rfind(b"\n", 0, at) + 1
        number += body.count(b"\n", done, start)
        done, end = start, body.find(b"\n", at)
        end = len(body) if end < 0 else end
        yield number, body[start : min(end, start + _MAX_LINE)], end < len(body)


def _split_all_lines(body: bytes, number: int) -> Iterable[tuple[int, bytes, bool]]:
    lines = body.split(b"\n")
    last = lines.pop()
    if max(map(len, lines), default=0) > _MAX_LINE:
        lines = [line[:_MAX_LINE] for line in lines]
    ends = [(number + len(lines), last[:_MAX_LINE], False)] if last else []
    return chain(zip(count(number), lines, repeat(object=True)), ends)


def _find_words(body: bytes, needles: tuple[bytes, ...], most: int) -> list[int] | None:
    """Where the words are, in order, one of a line at least; None if there are more of one than that."""
    found: list[int] = []
    for needle in needles:
        more, at = 0, body.find(needle)
        while at >= 0:
            found.append(at)
            more += 1
            if more > most:
                return None
            end = body.find(b"\n", at)
            at = body.find(needle, end) if end >= 0 else -1
    return sorted(found)


def _find_words_fast(body: bytes, needles: tuple[bytes, ...], most: int) -> list[int] | None:
    """The same with numpy, several times as fast: one look at each four bytes that begin at a multiple of four.

    Wherever it is, a word of seven bytes or more covers such four bytes. Their product's upper half says whether they can be of a word.
    """
    import numpy as np  # noqa: PLC0415 - takes longer than a short log, and a base install has none

    factor, shift = np.uint32(_FACTOR), np.uint32(16)
    known = _index_words(needles)
    wanted = np.zeros(2**16, np.bool_)
    wanted[(np.fromiter(known, np.uint32) * factor) >> shift] = True
    fours = np.frombuffer(body, np.uint32, len(body) // _FOUR)
    maybe = wanted.take((fours * factor) >> shift).nonzero()[0]
    found = []
    for place, four in zip(maybe.tolist(), fours[maybe].tolist(), strict=True):
        for word, offset in known.get(four, ()):
            at = place * _FOUR - offset
            if at >= 0 and body.startswith(word, at):
                found.append(at)
        if len(found) > most:
            return None
    return sorted(found)


@cache
def _index_words(words: tuple[bytes, ...]) -> dict[int, list[tuple[bytes, int]]]:
    """Four bytes, as a number, to the words that they may be part of, with their offsets: one for each place modulo four."""
    known: dict[int, list[tuple[bytes, int]]] = {}
    for word in words:
        for first in range(_FOUR):
            offsets = range(first, len(word) - _FOUR + 1, _FOUR)
            _, offset = max((_count_marks(word[at : at + _FOUR]), at) for at in offsets)
            known.setdefault(int.from_bytes(word[offset : offset + _FOUR], sys.byteorder), []).append((word, offset))
    return known


def _count_marks(four: bytes) -> int:
    """How unlike other text it is, by its marks: ``time`` is in many words, ``tep_`` is not."""
    return sum(0 if mark.isalpha() else 1 if mark.isspace() else 2 for mark in four.decode("latin-1"))


@cache
def _numpy_is_here() -> bool:
    return find_spec("numpy") is not None


def decode_line(line: bytes) -> str:
    """A line as text, whatever its bytes are."""
    return line.decode("utf-8", errors="replace").rstrip("\r")
