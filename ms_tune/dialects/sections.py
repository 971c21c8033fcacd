"""A section of a config, read with types checked."""

from __future__ import annotations

from ms_tune.errors import ConfigError
from ms_tune.facts.keys import key_at
from ms_tune.facts.models import names_of
from ms_tune.facts.query import REQUIRED
from ms_tune.records import Record
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any, TypeVar

    from ms_tune.enums import Dialect
    from ms_tune.source.yaml import SourceFile

    _Value = TypeVar("_Value", int, str, bool)


class Section:
    """One section of the config, read with types checked: the framework's own validators are as strict."""

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
        """The value of a key, of the default's type (an int if there is no default)."""
        value = self._values.get(key)
        if value is None:
            if default is None:
                raise ConfigError(msg("model.missing-key", key=f"{self.name}.{key}"), path=self.path)
            return default
        wanted = int if default is None else type(default)
        # bool is a subclass of int; the framework rejects it where an int is wanted, and so does this.
        if type(value) is not wanted:
            raise ConfigError(
                msg("model.wrong-type", key=f"{self.name}.{key}", wanted=wanted.__name__, value=repr(value)),
                path=self.path,
            )
        if wanted is int and isinstance(value, int) and value <= 0:
            raise ConfigError(msg("model.not-positive", key=f"{self.name}.{key}", value=value), path=self.path)
        return value  # type: ignore[return-value] # checked just above, in a way that mypy cannot follow

    def known(self, key: str) -> Any:  # noqa: ANN401 - settings are of all types
        """The value of a key, or what the framework takes where it is not written; see :meth:`get`."""
        default = key_at(self.dialect, self.name, key).default
        return self.get(key, None if default == REQUIRED else default)  # type: ignore[type-var] # as the table has it

    def raw(self, key: str) -> object:
        """The value of a key as the parser gave it."""
        return self._values.get(key)

    def first(self, name: str, default: _Value | None) -> _Value:
        """The value of a model's field, under whichever of its names the config has it; see :meth:`get`."""
        return self.get(next((key for key in names_of(name) if self.raw(key) is not None), name), default)

    def count(self, name: str, default: int = 0) -> int:
        """A whole number from zero up, under whichever name the config has it."""
        key = next((key for key in names_of(name) if self.raw(key) is not None), name)
        value = default if self.raw(key) is None else self.raw(key)
        if type(value) is not int or value < 0:
            raise ConfigError(
                msg("model.wrong-type", key=f"{self.name}.{key}", wanted="int ≥ 0", value=repr(value)), path=self.path
            )
        return value

    def one_of(self, key: str, choices: Sequence[str], default: str) -> str:
        """A value that must be one of some."""
        value = self.get(key, default)
        if value not in choices:
            raise ConfigError(
                msg("model.not-one-of", key=f"{self.name}.{key}", value=repr(value), choices=", ".join(choices)),
                path=self.path,
            )
        return value


_MOST = 10**9  # of any size that is multiplied


def read_size(section: Mapping[object, object], name: str) -> int | None:
    """A whole number above zero; None if it is none, or beyond all bounds."""
    value = section.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST else None


def section_of(source: SourceFile, name: str) -> dict[Any, Any]:
    """A section of a config, empty where it has none."""
    value = source.data.get(name)
    return value if isinstance(value, dict) else {}


class JobSplit(Record):
    """How the config of a job cuts it, as its trainer reads it; None is not known."""

    cards: int | None
    batch: int | None  # samples of a step
    micro_batches: int | None
