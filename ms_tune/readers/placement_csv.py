"""Reads placement problems as CSV files of minimalloc's kind: ``id,lower,upper,size``, one block a row.

Columns are found by their names, as in minimalloc's ``src/converter.cc``: ``begin`` and ``start`` mean ``lower``, ``end``
means ``upper`` but is inclusive, ``buffer`` and ``buffer_id`` mean ``id``. ``alignment`` is optional; ``hint`` and
``offset`` are ignored. ``gaps`` is refused, because then a block would not live all the time between its ticks.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.errors import TraceError
from ms_tune.readers.reading import reading
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TextIO

_ALIASES = {"begin": "lower", "start": "lower", "buffer": "id", "buffer_id": "id"}
_NUMBERS = ("lower", "upper", "size", "alignment")
_MOST = {"lower": 2**62, "upper": 2**62, "size": 2**50, "alignment": 2**40}
_MOST_TOTAL = 2**61
_MOST_ROWS = 5_000_000
_MOST_LINE = 1 << 16
_MOST_DIGITS = 20
_HEADER_BYTES = 4096


class PlacementRow(NamedTuple):
    """One block: lives in ``[lower, upper)``; bytes; its address is a multiple of the alignment."""

    id: str
    lower: int
    upper: int
    size: int
    alignment: int


def is_placement_csv(path: Path) -> bool:
    """Whether the first line of a file names the columns of a placement problem."""
    try:
        with path.open("rb") as file:
            first = file.readline(_HEADER_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return False
    names = _columns(first)
    return {"lower", "size"} <= names.keys() and bool({"upper", "end"} & names.keys())


def read_placement_csv(path: Path) -> list[PlacementRow]:
    """The blocks of a placement problem.

    Raises:
        TraceError: The file cannot be read, or a row is broken; with its line.
    """
    try:
        with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
            return list(_rows(path, file))
    except UnicodeDecodeError as error:
        raise TraceError(msg("placement.not-text"), path=path) from error


def capacity_in_name(path: Path) -> int | None:
    """The capacity that a name such as ``A.1048576.csv`` states, as those of minimalloc's benchmarks do."""
    parts = path.name.split(".")
    if len(parts) == 3 and parts[1].isascii() and parts[1].isdigit() and len(parts[1]) < _MOST_DIGITS:  # noqa: PLR2004
        return int(parts[1]) or None
    return None


def _columns(header: str) -> dict[str, int]:
    names = [name.strip().strip('"').lower() for name in header.strip().split(",")]
    return {_ALIASES.get(name, name): position for position, name in enumerate(names)}


def _lines(path: Path, file: TextIO) -> Iterator[tuple[int, str]]:
    number = 0
    while line := file.readline(_MOST_LINE):
        number += 1
        if len(line) == _MOST_LINE:
            raise TraceError(msg("placement.long-line"), path=path, line=number)
        if line.strip():
            yield number, line


def _rows(path: Path, file: TextIO) -> Iterator[PlacementRow]:
    lines = _lines(path, file)
    _, header = next(lines, (1, ""))
    columns = _columns(header)
    missing = [name for name in ("lower", "size") if name not in columns]
    missing += [] if {"upper", "end"} & columns.keys() else ["upper"]
    if missing:
        raise TraceError(msg("placement.columns", columns=", ".join(missing)), path=path, line=1)
    seen: set[str] = set()
    total = 0
    for number, line in lines:
        fields = _fields(path, number, line) if '"' in line else line.rstrip("\r\n").split(",")
        row = _row(path, number, fields, columns, str(len(seen)))
        total += row.size
        if row.id in seen:
            raise TraceError(msg("placement.twice", id=row.id), path=path, line=number)
        if total > _MOST_TOTAL or len(seen) >= _MOST_ROWS:
            raise TraceError(msg("placement.too-large"), path=path, line=number)
        seen.add(row.id)
        yield row
    if not seen:
        raise TraceError(msg("placement.no-rows"), path=path)


def _fields(path: Path, number: int, line: str) -> list[str]:
    """The fields of a line with quotes."""
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise TraceError(msg("placement.row", detail=str(error)), path=path, line=number) from error


def _row(path: Path, line: int, fields: list[str], columns: dict[str, int], position: str) -> PlacementRow:
    if len(fields) != max(columns.values()) + 1:
        raise TraceError(
            msg("placement.fields", found=len(fields), wanted=max(columns.values()) + 1), path=path, line=line
        )
    texts = {name: fields[at].strip() for name, at in columns.items()}
    if texts.get("gaps"):
        raise TraceError(msg("placement.gaps"), path=path, line=line)
    inclusive = "upper" not in texts
    texts.setdefault("upper", texts.get("end", ""))
    texts["alignment"] = texts.get("alignment") or "1"
    values = {name: _number(path, line, name, texts[name]) for name in _NUMBERS}
    upper = values["upper"] + inclusive
    if values["lower"] >= upper:
        raise TraceError(msg("placement.life", lower=values["lower"], upper=upper), path=path, line=line)
    if values["alignment"] < 1:
        raise TraceError(msg("placement.alignment"), path=path, line=line)
    return PlacementRow(texts.get("id", position), values["lower"], upper, values["size"], values["alignment"])


def _number(path: Path, line: int, name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS) or int(text) > _MOST[name]:
        raise TraceError(msg("placement.number", column=name, text=text[:40], most=_MOST[name]), path=path, line=line)
    return int(text)
