"""Where each setting of the static graph went in the dynamic graph of MindFormers (``data/migration.json``).

A row is for a key, or with ``below`` for all keys under it; where several are for one key, the first whose values fit
counts. It names the file of MindFormers 2.1 (below ``mindformers/``) that reads the setting there, or shows that nothing does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ms_tune.enums import Dialect
from ms_tune.facts.query import ABSENT, at, load, order

if TYPE_CHECKING:
    from collections.abc import Iterator

FateName: TypeAlias = Literal["translated", "default", "none", "ask"]
UNSET = ABSENT  # a row that has nothing to say of a config without its key
_ALL_OF_IT = "*"
_AS_WRITTEN = ("why", "source", "below", "least", "number", "invert", "unset", "blocks")  # fields that rows have, too


@dataclass(frozen=True, slots=True)
class Row:
    """What became of a setting."""

    path: tuple[str, ...]  # the key of the static graph; of a callback, the key inside it
    fate: FateName  # what became of it
    to: tuple[str, ...] = ()  # the key of the dynamic graph, if it was translated
    why: str = ""  # the name of the reason (`migrate.why.NAME`), if it was not
    source: str = ""  # the file of MindFormers that shows it
    below: bool = False  # whether it is for all keys under this one
    values: tuple[tuple[Any, Any], ...] = ()  # values and what they are called there
    when: tuple[Any, ...] | None = None  # the values that the row is for; None for all
    least: int | None = None  # the least number that the row is for
    number: bool = False  # whether the target wants a number where YAML may read a text (`1e-5`)
    invert: bool = False  # whether yes means no there
    # What the static graph takes where the key is missing, if the dynamic graph takes something else.
    unset: Any = UNSET
    blocks: bool = False  # whether there can be no file with it
    callback: str = ""  # the type of callback that it is for

    def fits(self, value: object) -> bool:
        """Whether the row is for a value."""
        if self.least is not None and not (type(value) is int and value >= self.least):
            return False
        return self.when is None or any(
            value == one and isinstance(value, bool) is isinstance(one, bool) for one in self.when
        )

    def turned(self, value: Any) -> Any:  # noqa: ANN401 - settings are of all types
        """The value in the target's word for it."""
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
    """The rows of a dialect that hold in a release of the dynamic graph, without those of callbacks."""
    found = load("migration")[_TABLES[dialect]]
    return tuple(
        _row(one, tuple(one["from"].split("."))) for one in found if order(one.get("since", "0")) <= order(release)
    )


@cache
def callback_rows() -> tuple[Row, ...]:
    """The rows of callbacks' keys; ``*`` is any key."""
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
    """The row for a setting: of its own key first, then of those around it, the innermost first."""
    for length in range(len(path), 0, -1):
        for row in _index(release, dialect).get(path[:length], ()):
            if (length == len(path) or row.below) and row.fits(value):
                return row
    return None


def is_section(path: tuple[object, ...], release: str) -> bool:
    """Whether a key is one of a section that rows are about."""
    return any(row.path[: len(path)] == path for row in rows(release))


def callback_row(kind: object, key: str, value: object) -> Row | None:
    """The row for a key of a callback of a type."""
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
    """The rows of settings that the two graphs have different defaults for."""
    return (row for row in rows(release, dialect) if row.unset is not UNSET)


@cache
def unread(release: str) -> frozenset[str]:
    """The fields of a model that a release of the dynamic graph takes, and that no line of its code asks for."""
    found = at(load("migration")["unread"], release)
    return frozenset(() if found is ABSENT else found)
