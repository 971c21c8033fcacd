"""Access to one section of a config, with types checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.keys import key_at
from ms_tune.facts.models import names_of
from ms_tune.facts.query import REQUIRED
from ms_tune.records import Any, Record
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypeGuard, TypeVar

    _Value = TypeVar("_Value", int, str, bool)


class Section:
    """One section of a config, with types checked as strictly as the framework's own validators do."""

    def __init__(self, data: Mapping[str, object], name: str, path: Path, dialect: Dialect) -> None:
        section = data.get(name)
        self.dialect = dialect
        self.name = name
        self.path = path
        self._values: Mapping[object, object] = {}
        if isinstance(section, dict):
            self._values = section
        elif section is not None:
            raise ConfigError(msg("model.section-not-a-mapping", key=name), path=path)

    def get(self, key: str, default: _Value | None) -> _Value:
        """Return the value of a key; it must have the default's type (int if the default is None)."""
        value = self._values.get(key)
        if value is None:
            if default is None:
                raise ConfigError(msg("model.missing-key", key=f"{self.name}.{key}"), path=self.path)
            return default
        wanted = int if default is None else type(default)
        # bool is a subclass of int; like the framework, reject it where an int is required.
        if type(value) is not wanted:
            raise ConfigError(
                msg("model.wrong-type", key=f"{self.name}.{key}", wanted=wanted.__name__, value=repr(value)),
                path=self.path,
            )
        if wanted is int and isinstance(value, int) and value <= 0:
            raise ConfigError(msg("model.not-positive", key=f"{self.name}.{key}", value=value), path=self.path)
        return value  # type: ignore[return-value] # checked just above, in a way that mypy cannot follow

    def value(self, key: str) -> Any:  # noqa: ANN401 - settings are of all types
        """Return the value of a key or the framework's default; see :meth:`get`."""
        default = key_at(self.dialect, self.name, key).default
        return self.get(key, None if default == REQUIRED else default)  # type: ignore[type-var] # as the table has it

    def raw(self, key: str) -> object:
        """Return the value of a key as parsed."""
        return self._values.get(key)

    def first(self, name: str, default: _Value | None) -> _Value:
        """Return the value of a model's field under any of its names; see :meth:`get`."""
        return self.get(next((key for key in names_of(name) if self.raw(key) is not None), name), default)

    def count(self, name: str, default: int = 0) -> int:
        """Return a whole number >= 0, under any of its names."""
        key = next((key for key in names_of(name) if self.raw(key) is not None), name)
        value = default if self.raw(key) is None else self.raw(key)
        if type(value) is not int or value < 0:
            raise ConfigError(
                msg("model.wrong-type", key=f"{self.name}.{key}", wanted="int ≥ 0", value=repr(value)), path=self.path
            )
        return value

    def get_choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """Return a value that must be one of the choices."""
        value = self.get(key, default)
        if value not in choices:
            raise ConfigError(
                msg("model.not-one-of", key=f"{self.name}.{key}", value=repr(value), choices=", ".join(choices)),
                path=self.path,
            )
        return value


_MOST = 10**9  # upper bound for any size that is multiplied


def is_count(value: object) -> TypeGuard[int]:
    """Return whether a value is a positive whole number."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def read_size(section: Mapping[object, object], name: str) -> int | None:
    """Return a positive whole number; None if it is missing, something else or too large."""
    value = section.get(name)
    return value if is_count(value) and value < _MOST else None


def find_section(values: Mapping[str, Any], name: str) -> dict[Any, Any]:
    """Return a section; empty if it is missing or no mapping."""
    found = values.get(name)
    return found if isinstance(found, dict) else {}


class JobSplit(Record):
    """The parallel split of a job, as its trainer reads it; None where unknown."""

    cards: int | None
    batch: int | None  # samples per step
    micro_batches: int | None
    setting: str = "micro_batch_num"  # the setting to raise for more micro-batches
