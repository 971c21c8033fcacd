"""Map each setting of MindFormers' static graph to its counterpart in the dynamic graph (``data/migration.json``).

A row applies to a key, or with ``below`` to all keys under it; of several rows for a key, the first whose values match
counts. ``source`` names a file of MindFormers 2.1 that reads the setting, or shows that none does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

from ms_tune.enums import Dialect
from ms_tune.facts.query import ABSENT, at, load, order

FateName: TypeAlias = Literal["translated", "default", "none", "ask"]
UNSET = ABSENT  # the value of `Row.unset` if both graphs have the same default
_ALL_OF_IT = "*"
_AS_WRITTEN = ("why", "source", "below", "least", "number", "invert", "unset", "blocks")  # copied from the data file


@dataclass(frozen=True, slots=True)
class Row:
    """The migration of one setting."""

    path: tuple[str, ...]  # the key of the static graph; for a callback, the key inside it
    fate: FateName  # how the setting is migrated
    to: tuple[str, ...] = ()  # the key of the dynamic graph, if translated
    why: str = ""  # the name of the reason (`migrate.why.NAME`), if not
    source: str = ""  # the file of MindFormers that shows it
    below: bool = False  # whether it applies to all keys under this one
    values: tuple[tuple[Any, Any], ...] = ()  # old and new values
    when: tuple[Any, ...] | None = None  # the values that the row applies to; None for all
    least: int | None = None  # the least number that the row applies to
    number: bool = False  # whether the target needs a number where YAML may read a text (`1e-5`)
    invert: bool = False  # whether true and false are swapped
    # The static graph's default, if the dynamic graph's default differs.
    unset: Any = UNSET
    blocks: bool = False  # whether a config with this setting cannot be migrated
    callback: str = ""  # the type of callback that it applies to

    def fits(self, value: object) -> bool:
        """Return whether the row applies to a value."""
        if self.least is not None and not (type(value) is int and value >= self.least):
            return False
        return self.when is None or any(
            value == one and isinstance(value, bool) is isinstance(one, bool) for one in self.when
        )

    def turned(self, value: Any) -> Any:  # noqa: ANN401 - settings are of all types
        """Return the value converted for the dynamic graph."""
        if self.invert:
            return not value
        if self.number and isinstance(value, str):
            return _number(value)
        return next((new for old, new in self.values if old == value), value)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


_TABLES = {Dialect.MINDFORMERS: "rows", Dialect.MINDSPEED_MS: "mindspeed-ms", Dialect.MEGATRON: "megatron"}


@cache
def rows(release: str, dialect: Dialect = Dialect.MINDFORMERS) -> tuple[Row, ...]:
    """Return a dialect's rows for a release of the dynamic graph, without those of callbacks."""
    found = load("migration")[_TABLES[dialect]]
    return tuple(
        _row(one, tuple(one["from"].split("."))) for one in found if order(one.get("since", "0")) <= order(release)
    )


@cache
def callback_rows() -> tuple[Row, ...]:
    """Return the rows for keys of callbacks; ``*`` is any key."""
    return tuple(_row(one, (one["key"],)) for one in load("migration")["callbacks"])


def _row(one: dict[str, Any], path: tuple[str, ...]) -> Row:
    return Row(
        path=path,
        fate=one.get("fate", "translated"),
        to=tuple(one["to"].split(".")) if "to" in one else (),
        values=tuple((old, new) for old, new in one.get("values", ())),
        when=tuple(one["when"]) if "when" in one else None,
        callback=one.get("type", ""),
        **{name: one[name] for name in _AS_WRITTEN if name in one},
    )


def row_for(
    path: tuple[object, ...], value: object, release: str, dialect: Dialect = Dialect.MINDFORMERS
) -> Row | None:
    """Return the row for a setting: the row of the key, or else that of the innermost section with a row."""
    for length in range(len(path), 0, -1):
        for row in _index(release, dialect).get(path[:length], ()):
            if (length == len(path) or row.below) and row.fits(value):
                return row
    return None


def is_section(path: tuple[object, ...], release: str) -> bool:
    """Return whether a path is a prefix of the path of any row."""
    return any(row.path[: len(path)] == path for row in rows(release))


def callback_row(kind: object, key: str, value: object) -> Row | None:
    """Return the row for a key of a type of callback."""
    for row in callback_rows():
        if row.callback == kind and row.path[0] in (key, _ALL_OF_IT) and row.fits(value):
            return row
    return None


@cache
def _index(release: str, dialect: Dialect) -> dict[tuple[object, ...], tuple[Row, ...]]:
    found: dict[tuple[object, ...], tuple[Row, ...]] = {}
    for row in rows(release, dialect):
        found[row.path] = (*found.get(row.path, ()), row)
    return found


def unset_rows(release: str, dialect: Dialect = Dialect.MINDFORMERS) -> Iterator[Row]:
    """Return the rows of settings whose defaults differ between the two graphs."""
    return (row for row in rows(release, dialect) if row.unset is not UNSET)


@cache
def unread(release: str) -> frozenset[str]:
    """Return the model fields that a release of the dynamic graph accepts, but never reads."""
    found = at(load("migration")["unread"], release)
    return frozenset(() if found is ABSENT else found)
