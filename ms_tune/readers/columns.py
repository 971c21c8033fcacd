"""Splits the lines of a large comma-separated file with polars, if polars is installed.

The tracker's files are not what CSV readers expect: nothing is quoted and names may hold commas. So only lines that are
beyond doubt are split here: a part of a file is handed back unless every line in it has exactly one comma for every
column. The readers of single rows do the rest, more slowly; they are also what runs without polars.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from numpy.typing import NDArray

    from ms_tune.readers.reading import FilePart

# Lines that are read one by one sooner than polars is imported: 7,200 take 0.33 s of processor time with all that
# dryrun then does with them, and 0.50 s with polars (0.2 s of it the import).
_FEW = 10_000
_NO_MARKS = bytes(set(range(256)) - set(b",\n"))
NATURAL = r"^[0-9]{1,18}$"  # fits a 64-bit integer without a look at its value
NATURAL_OR_NONE = r"^[0-9]{0,18}$"
_HEXADECIMAL = 16


@dataclass(frozen=True, slots=True)
class TableCell:
    """Where a number stands in a line."""

    column: str  # in which column
    pattern: str | None = None  # in which group of this pattern, if not the whole cell
    base: int = 10  # 10, or 16 for a number after `0x`


@cache
def load_polars() -> ModuleType | None:
    """The module, or None where it is not installed."""
    try:
        return import_module("polars")
    except ImportError:
        return None


class Columns:
    """Cells of lines, by column. What is asked for together is computed together, on all processors.

    Attributes:
        height: How many lines.
    """

    def __init__(self, frame: Any) -> None:  # noqa: ANN401 - a polars.DataFrame: polars is optional
        self._frame = frame
        self.height: int = frame.height

    def rows_matching(self, patterns: Mapping[str, str]) -> NDArray[np.bool_]:
        """Which lines match the patterns of all these columns; an empty cell is an empty text."""
        pl = _loaded_polars()
        tests = [pl.col(column).fill_null("").str.contains(pattern) for column, pattern in patterns.items()]
        return np.asarray(self._frame.select(pl.all_horizontal(tests)).to_series().to_numpy(), np.bool_)

    def read_numbers(self, wanted: Mapping[str, TableCell], none: int) -> dict[str, NDArray[np.int64]]:
        """Numbers in cells, by name; ``none`` for cells that hold no number."""
        pl = _loaded_polars()
        expressions = []
        for name, cell in wanted.items():
            text = pl.col(cell.column)
            if cell.pattern is not None:
                text = text.str.extract(cell.pattern)
            if cell.base == _HEXADECIMAL:
                number = text.str.slice(2).str.to_integer(base=cell.base, strict=False)
            else:
                number = text.cast(pl.Int64, strict=False)
            expressions.append(number.fill_null(none).alias(name))
        found = self._frame.select(expressions)
        return {name: np.asarray(found[name].to_numpy(), np.int64) for name in wanted}

    def read_codes(self, code: Mapping[str, Callable[[str], int]]) -> dict[str, NDArray[np.int32]]:
        """Cells as codes, by column; each column's function is asked once for each different text."""
        pl = _loaded_polars()
        cells = self._frame.select([pl.col(column).fill_null("") for column in code])
        uniques = cells.select([pl.col(column).unique(maintain_order=True).implode() for column in code])
        expressions = []
        for column, number in code.items():
            different = uniques[column][0]
            numbers = pl.Series([number(text) for text in different.to_list()], dtype=pl.Int32)
            expressions.append(pl.col(column).replace_strict(different, numbers, return_dtype=pl.Int32))
        found = cells.select(expressions)
        return {column: np.asarray(found[column].to_numpy(), np.int32) for column in code}

    def read_texts(self, column: str, rows: NDArray[np.int64]) -> list[str]:
        """The cells of some rows."""
        found: list[str] = self._frame[column].gather(rows).fill_null("").to_list()
        return found

    def keep_rows(self, good: NDArray[np.bool_]) -> Columns:
        """The lines that are good."""
        pl = _loaded_polars()
        return self if good.all() else Columns(self._frame.filter(pl.Series(good)))


def _loaded_polars() -> Any:  # noqa: ANN401 - as above
    return load_polars()


def split_lines(part: FilePart, names: Sequence[str], wanted: Sequence[str]) -> Columns | None:
    """The wanted columns of some lines, each of which ends with a comma; None if any line is out of the ordinary, or there are few."""
    if part.height < _FEW and "polars" not in sys.modules:
        return None
    pl, data = load_polars(), part.data
    if pl is None or data is None or not part.complete or b"\r" in data:
        return None
    # polars takes lines that are too short, and looks at no more than the columns that it is to read.
    if data.translate(None, _NO_MARKS) != (b"," * len(names) + b"\n") * part.height:
        return None
    if not data.isascii():
        data = data.decode("utf-8", errors="replace").encode()
    columns = [*names, "_"]
    places = [columns.index(name) for name in (*wanted, "_")]
    schema = dict.fromkeys(columns, pl.String)
    try:
        frame = pl.read_csv(data, has_header=False, quote_char=None, schema=schema, columns=places)
    except (pl.exceptions.PolarsError, UnicodeError):
        return None
    if frame.height != part.height or frame["_"].null_count() != part.height:
        return None
    return Columns(frame)
