"""Open the files of all readers, report why one is unreadable, and read large text files in parts of whole lines.

Memory is bounded. For logs: find the rank or process that wrote a line (launchers, Ray, containers and some loggers
write it before the line), and the few lines that contain some words, as fast as searching bytes.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, count, repeat
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from ms_tune.errors import TraceError, nearby, reason_of
from ms_tune.records import Record
from ms_tune.source.files import open_bytes, read_bytes
from ms_tune.text import Message, msg

Progress = Callable[[int], None]
PART = 32 * 1024**2  # bytes; smaller parts are slower, larger ones need memory
LONGEST_LINE = 16 * 1024**2  # bytes; the longest real lines, of weights in long runs, have some hundred kilobytes
_LONGEST_SHORT = 64 * 1024  # bytes per line of a table that people or small programs write
_LOOK_AHEAD = 64 * 1024  # bytes


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert errors of opening, reading or listing a file within a ``with`` block to TraceError."""
    try:
        yield
    except FileNotFoundError:
        raise TraceError(msg("trace.folder.absent"), nearby(path), path=path) from None
    except OSError as error:
        hint = msg("trace.unreadable.hint") if isinstance(error, PermissionError) else None
        raise TraceError(msg("trace.unreadable", detail=reason_of(error)), hint, path=path) from error
    except (EOFError, zlib.error) as error:  # of a packed file
        raise TraceError(msg("trace.unreadable", detail=str(error)), path=path) from error


def read_json(path: Path, most: int, too_long: Message, text: str) -> object:
    """Read a JSON file of at most ``most`` bytes; ``text`` is the id of the error message if it is not valid JSON."""
    with reading(path):
        content = read_bytes(path, most)
    if len(content) > most:
        raise TraceError(too_long, path=path)
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        raise TraceError(msg(text, detail=error.msg), path=path, line=error.lineno, column=error.colno) from error
    except (ValueError, RecursionError) as error:  # a number with too many digits, not UTF-8, nested too deeply
        raise TraceError(msg(text, detail=type(error).__name__), path=path) from error


def iterate_short_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number (from 1) and the text of each line of a file with short lines; blank lines are left out."""
    with reading(path), open_bytes(path) as file:
        for number in count(1):
            raw = file.readline(_LONGEST_SHORT)
            if len(raw) == _LONGEST_SHORT:
                raise TraceError(msg("placement.long-line"), path=path, line=number)
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise TraceError(msg("placement.not-text"), path=path, line=number) from None
            if line.strip():
                yield number, line
            elif not raw:
                return


class FilePart(Record):
    """Some consecutive lines of a file."""

    first: int  # number of the first line, from 1
    data: bytes | None  # the lines; None for one line that is longer than `LONGEST_LINE`
    height: int  # number of lines
    complete: bool  # whether the last line had a line feed

    def lines(self) -> Iterator[tuple[int, str | None, bool]]:
        """Yield number, text (None if too long) and completeness of every line that is not blank."""
        if self.data is None:
            yield self.first, None, True
            return
        lines = self.data.split(b"\n")
        last = self.first + self.height - 1
        for number, raw in enumerate(lines, start=self.first):
            if raw.strip():
                text = raw.rstrip(b"\r\n").decode("utf-8", errors="replace")
                yield number, text, self.complete or number != last


def iterate_lines(file: BinaryIO) -> Iterator[tuple[int, str | None, bool]]:
    """Yield number, text (None if too long) and completeness of every line that is not blank."""
    number = 0
    while raw := file.readline(LONGEST_LINE):
        number += 1
        complete = raw.endswith(b"\n")
        if not complete and len(raw) == LONGEST_LINE:
            _skip_line(file)
            yield number, None, True
        elif raw.strip():
            yield number, raw.rstrip(b"\r\n").decode("utf-8", errors="replace"), complete


def iterate_table_lines(file: TextIO) -> Iterator[str]:
    """Yield the lines of a table, long ones in parts, because csv would read a line of gigabytes at once."""
    return iter(partial(file.readline, LONGEST_LINE), "")


def no_progress(_: int) -> None:
    """Ignore the progress."""


class ByteCounter:
    """Counter of the bytes read from some files, which reports them with the total."""

    def __init__(self, total: int, on_bytes: Callable[[int, int], None]) -> None:
        self._done, self._total, self._on_bytes = 0, total, on_bytes

    def add(self, count: int) -> None:
        """Add the bytes that were read."""
        self._done += count
        self._on_bytes(min(self._done, self._total), self._total)


def iterate_parts(file: BinaryIO, first: int, on_bytes: Progress) -> Iterator[FilePart]:
    """Yield the rest of a file, from the start of line ``first``, in parts; ``on_bytes`` gets the bytes of each."""
    number = first
    while data := file.read(_whole_lines(file)):
        rest = b""
        if not data.endswith(b"\n"):
            rest = file.readline(LONGEST_LINE)
            data += rest
        on_bytes(len(data))
        last = b""
        if not data.endswith(b"\n"):
            data, mark, last = data.rpartition(b"\n")
            data += mark
        height = data.count(b"\n")
        if height:
            yield FilePart(number, data, height, complete=True)
            number += height
        if last and len(rest) < LONGEST_LINE:
            yield FilePart(number, last, 1, complete=False)
        elif last:
            yield FilePart(number, None, 1, complete=True)
            number += 1
            on_bytes(_skip_line(file))


def _whole_lines(file: BinaryIO) -> int:
    # Return how many bytes to read so that they end with a line, as far as a short look ahead shows; it saves a copy.
    begin = file.tell()
    file.seek(begin + PART)
    ahead = file.read(_LOOK_AHEAD)
    file.seek(begin)
    return PART + ahead.find(b"\n") + 1


def _skip_line(file: BinaryIO) -> int:
    count = 0
    while rest := file.readline(PART):
        count += len(rest)
        if rest.endswith(b"\n"):
            break
    return count


_MAX_LOGS = 4096
GZIP = b"\x1f\x8b"  # a packed file's first two bytes
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # a text's first two bytes
_LOGS = ("worker_*.log", "rank_*/info.log", "rank_*/log.txt", "*.log")
_RANK_IN_NAME = re.compile(r"(?:worker|rank)_(\d{1,6})")
_ANSI = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]|\[(?:\d\d?(?:;\d{1,3}){0,4})m"
)  # also those that lost the escape character when pasted
RANK_PREFIX = re.compile(
    r"\s*(?:\[rank(\d{1,6})\]: ?|\[(?:default)?(\d{1,6})\]:|(\d{1,6}): |\[\d{1,6},(\d{1,6})\]<\w{1,8}>:|(?:\S{1,400}/)?worker_(\d{1,6})\.log[:|]"
    r"|(?:\[\d{8} [\d:]{8}\])?\[rank-(\d{1,6})/\d{1,6}\]|\[Rank (\d{1,6}) \| Local Rank \d{1,6}\])"
)
# Ray's and vLLM's processes, Docker Compose, Kubernetes, Determined, journald, the kernel.
_PROCESS_PREFIX = re.compile(
    r"(?:\s*\(?(?P<process>[A-Za-z][\w.:-]{0,80}(?: rank=(?P<rank>\d{1,6}))?(?: [TDPE]P\d{1,6}\w{0,20})? pid=\d{1,10}"
    r"|pid=\d{1,10})(?:, [a-z_]{1,20}=[^,)]{1,80}){0,4}\) ?|\((?:raylet|autoscaler)[^)]{0,80}\) ?|\[Stage-\d{1,3}\] "
    r"|[A-Za-z][\w.-]{0,60}[-_]\d{1,6}\s{1,40}\| |\[pod/[\w.-]{1,100}/[\w.-]{1,100}\] |[0-9a-f]{8} \|\| "
    r"|\[?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)\]? (?:std(?:out|err) [FP] )?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,60} [\w./-]{1,60}(?:\[\d{1,10}\])?: |\[ {0,6}\d{1,9}\.\d{6}\] )"
)
_MAX_PREFIXES = 4  # of one line
_LONGEST_SHOWN = 64 * 1024  # bytes; the rest is left out
_BLOCK = 1024**2  # bytes per read; more would not fit into a processor's cache
_SAMPLE = 64 * 1024  # bytes at the start of a block that decide whether many lines have a word
_MANY = 1024  # bytes per line with a word, below which all lines are checked one by one
_MAX_LINE = 1024**2  # bytes; the rest counts as another line


@contextmanager
def open_log(path: Path) -> Iterator[BinaryIO]:
    """Open a log, or a pipe, which gzip may have packed; errors as in :func:`reading`."""
    with reading(path), open_bytes(path) as file:
        packed = file.peek(2)[:2] == GZIP
        yield cast("BinaryIO", gzip.GzipFile(fileobj=file)) if packed else file


def find_logs(path: Path) -> list[Path]:
    """Return the logs in a folder, packed or not, of the first kind found: of msrun, MindFormers, ``ms-tune dryrun``, or any."""
    if not path.is_dir():
        return [path]
    for pattern in _LOGS:
        files = chain(path.glob(pattern), path.glob(f"{pattern}.gz"))
        found = sorted(files, key=lambda file: (parse_rank(file) or 0, str(file)))
        if len(found) > _MAX_LOGS:
            raise TraceError(msg("trace.log.too-many", count=len(found), limit=_MAX_LOGS), path=path)
        if found:
            return found
    raise TraceError(msg("trace.log.none"), msg("trace.log.none.hint"), path=path)


def has_logs(folder: Path) -> bool:
    """Return whether :func:`find_logs` finds a log in a folder, packed or not."""
    return any(any(folder.glob(f"{pattern}{end}")) for pattern in _LOGS for end in ("", ".gz"))


def parse_rank(path: Path) -> int | None:
    """Return the rank in the name of a log or of its folder; None if neither has one."""
    found = _RANK_IN_NAME.search(path.name) or _RANK_IN_NAME.search(path.parent.name)
    return int(found[1]) if found else None


def split_rank(line: str) -> tuple[int | None, str]:
    """Return the rank that is written before a line (None if it is not) and the line without prefixes and colors."""
    rank, _, text = split_prefix(line)
    return rank, text


def split_prefix(line: str) -> tuple[int | None, str, str]:
    """Return the rank and the process that are written before a line, and the line without them and without colors."""
    if "\x1b" in line or "[0m" in line:
        line = _ANSI.sub("", line)
    rank, process, start = locate_prefix(line)
    return int(line[slice(*rank)]) if rank else None, process, line[start:] if start else line


def locate_prefix(line: str) -> tuple[tuple[int, int] | None, str, int]:
    """Return the place of the rank and the process that are written before a line without colors, and where they end."""
    rank, process, start = None, "", 0
    for _ in range(_MAX_PREFIXES):
        if rank is None and (found := RANK_PREFIX.match(line, start)):
            rank = next(span for span in map(found.span, range(1, RANK_PREFIX.groups + 1)) if span[0] >= 0)
        elif found := _PROCESS_PREFIX.match(line, start):
            process = found["process"] or process
            rank = found.span("rank") if found["rank"] else rank
        else:
            break
        start = found.end()
    return rank, process, start


def iterate_log_lines(file: BinaryIO) -> Iterator[str]:
    """Yield the lines as text, without colors and ranks, cut to a bounded length."""
    labelled: bool | None = None  # srun puts a bare number before every line: the first line decides
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
    """Yield the file in blocks of whole lines, each with the number of its first line, from 1.

    Zero bytes before the text are left out: a log that is cut while its program writes on (``copytruncate``) begins with
    as many as were cut.
    """
    number = 1
    while body := file.read(_BLOCK):
        if not body.strip(b"\0"):
            continue
        if not body.endswith(b"\n"):
            body += file.readline(_MAX_LINE)
        body = body.lstrip(b"\0")
        yield body, number
        number += body.count(b"\n")


def find_lines(body: bytes, number: int, needles: Sequence[bytes]) -> Iterator[tuple[int, str, bool]]:
    """Yield the lines with one of the words: their numbers, their texts, and whether they have an end."""
    for line_number, line, whole in find_likely_lines(body, number, needles):
        if any(needle in line for needle in needles):
            yield line_number, decode_line(line), whole


def find_likely_lines(body: bytes, number: int, needles: Sequence[bytes]) -> Iterable[tuple[int, bytes, bool]]:
    """Yield lines as bytes like :func:`find_lines`, possibly also others: all lines if many contain a word."""
    found = _find_words(body[:_SAMPLE], needles, _SAMPLE // _MANY)
    if found is not None and len(body) > _SAMPLE:
        found = _find_words(body, needles, len(body) // _MANY)
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


def _find_words(body: bytes, needles: Sequence[bytes], most: int) -> list[int] | None:
    # Return the positions of the words, in order, at least one per line; None if one has more matches than `most`.
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


def decode_line(line: bytes) -> str:
    """Decode a line as text; invalid bytes are replaced."""
    return line.decode("utf-8", errors="replace").rstrip("\r")
