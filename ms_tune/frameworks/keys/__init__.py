"""The keys that each dialect knows: one table for unknown-key, type and default checks, for schemas and for the docs.

The tables are Python modules, because those are read several times faster than any data file; a module is only read
for the dialect that is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

from ms_tune.frameworks.dialect import Dialect
from ms_tune.texts import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

State: TypeAlias = Literal["live", "dead", "deprecated"]

REQUIRED = "**required**"  # in place of a default

_MODULES = {
    Dialect.MINDFORMERS: ("mindformers", "mindformers_model"),
    Dialect.MINDFORMERS_PYNATIVE: ("pynative",),
    Dialect.MINDSPEED_MS: ("mindspeed_ms", "mindspeed_ms_model"),
}


@dataclass(frozen=True, slots=True)
class Key:
    """One setting.

    Args:
        path: The key path; ``*`` stands for the items of a list.
        types: ``int``, ``float``, ``str``, ``bool``, ``list``, ``dict``, ``null``; empty if anything goes.
        default: What the framework takes where the key is missing; :data:`REQUIRED` if there is no default.
        choices: The values that the framework takes, if they can be listed.
        since: The first framework version that knows the key; None if all do that ms-tune knows.
        until: The last one, likewise.
        text: What the setting is for.
        state: ``dead`` keys are accepted and read by nothing; ``deprecated`` ones are on their way out.
        strict: Whether the framework itself refuses values of other types, or beyond choices and bounds.
        above: The value has to be larger than this.
        least: The value has to be at least this.
        most: The value must not be larger than this.
    """

    path: tuple[str, ...]
    types: tuple[str, ...]
    default: object
    choices: tuple[object, ...]
    since: str | None
    until: str | None
    text: Text
    state: State = "live"
    strict: bool = False
    above: float | None = None
    least: float | None = None
    most: float | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path[-1]


@cache
def tables(dialect: Dialect) -> tuple[Key, ...]:
    """Every key of a dialect, of all its versions."""
    keys: tuple[Key, ...] = ()
    for name in _MODULES[dialect]:
        keys += import_module(f"ms_tune.frameworks.keys.{name}").KEYS
    return keys


def by_section(dialect: Dialect, version: str | None = None) -> Mapping[tuple[str, ...], Mapping[str, Key]]:
    """The keys of each section (``()`` is the top level) that a framework version knows; of all versions for None."""
    sections: dict[tuple[str, ...], dict[str, Key]] = {}
    for key in tables(dialect):
        if version is None or known_in(key, version):
            sections.setdefault(key.path[:-1], {})[key.name] = key
    return sections


@cache
def names(dialect: Dialect, section: tuple[str, ...] = ()) -> frozenset[str]:
    """The names of the keys in one section, of all versions."""
    return frozenset(by_section(dialect).get(section, ()))


def key(  # noqa: PLR0913 - one for each column of the table
    path: str,
    types: str,
    default: object,
    en: str,
    zh: str,
    *,
    choices: Iterable[object] = (),
    since: str | None = None,
    until: str | None = None,
    state: State = "live",
    strict: bool = False,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> Key:
    """A :class:`Key` in short: ``a.b`` for the path, ``int|null`` for the types."""
    parts = tuple(path.split("."))
    kinds = tuple(types.split("|")) if types else ()
    return Key(parts, kinds, default, tuple(choices), since, until, Text(en, zh), state, strict, above, least, most)


def known_in(one: Key, version: str) -> bool:
    """Whether a framework version knows a key."""
    wanted = (*_numbers(version), 0, 0, 0)
    since, until = _numbers(one.since or "0"), _numbers(one.until or "")
    # "until 2.0" takes in all of 2.0.x
    return since <= wanted and (not until or wanted[: len(until)] <= until)


@cache
def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part)
