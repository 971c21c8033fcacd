"""Define the result of a migration: the fate of every key, the new file, and the proof."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from ms_tune.enums import Dialect
from ms_tune.text import Message


class Fate(str, Enum):
    """The decision about a key of the source."""

    TRANSLATED = "translated"
    DEFAULT = "default"  # needs no line: the other side has the same default
    NONE = "none"  # has no counterpart
    ASK = "ask"  # only the author can decide


@dataclass(frozen=True, slots=True)
class KeyFate:
    """One key of the source."""

    path: tuple[str | int, ...]  # path of the key
    value: Any
    line: int | None  # line in the source; None for a key of another file (`base_config`)
    fate: Fate  # the decision
    to: tuple[str, ...] = ()  # the new key, if any
    new: Any = None  # the new value
    why: Message | None = None  # reason, cost or question
    blocks: bool = False  # true: because of this key, no equivalent file exists

    @property
    def name(self) -> str:
        """Return the dotted key."""
        return ".".join(map(str, self.path))


@dataclass(frozen=True, slots=True)
class Added:
    """A line of the new file that no source key sets, because the other side's default differs."""

    to: tuple[str, ...]
    value: Any
    why: Message


@dataclass(frozen=True, slots=True)
class MigrationVerdict:
    """One part of the proof."""

    name: str  # `loads`, `lints`, `layers`, `batch`, `fields`, `weights`
    holds: bool | None  # None if it could not be checked
    detail: Message  # the comparison with its figures


@dataclass(frozen=True, slots=True)
class Migration:
    """Result of migrating a config to another dialect."""

    path: Path  # path of the source
    dialect: Dialect
    release: str  # static graph release that the source is read for
    target: str  # dynamic graph release
    entries: tuple[KeyFate, ...]  # every source key in order, each with its fate
    added: tuple[Added, ...] = ()  # other lines of the new file
    text: str = ""  # the new file; empty if refused
    # Parts of the proof; empty if not requested, or without a file.
    proof: tuple[MigrationVerdict, ...] = ()
    original: str = field(default="", repr=False)  # text of the source
    missing: tuple[Message, ...] = ()  # settings missing in the source that any file requires
    # The source merged with the `config.json` named by the user; empty without one.
    merged: str = field(default="", repr=False)

    @property
    def blocking(self) -> tuple[KeyFate, ...]:
        """Return the keys that prevent a migration."""
        return tuple(one for one in self.entries if one.blocks)

    @property
    def questions(self) -> tuple[KeyFate, ...]:
        """Return the keys that need a decision."""
        return tuple(one for one in self.entries if one.fate is Fate.ASK)

    @property
    def refused(self) -> bool:
        """Return whether no file was written."""
        return not self.text

    @property
    def proved(self) -> bool:
        """Return whether layers, batch and weights are proved to be the same, and no part of the proof failed."""
        return self.same and all(one.holds is not False for one in self.proof)

    @property
    def same(self) -> bool:
        """Return whether layers, batch and weights are proved to be the same as in the source."""
        needed = ("lints", "layers", "batch", "weights")
        return bool(self.proof) and all(one.holds for one in self.proof if one.name in needed)

    def count(self, fate: Fate) -> int:
        """Return the number of keys with a fate."""
        return sum(one.fate is fate for one in self.entries)

    @property
    def exit_code(self) -> int:
        """Return 0 if proved, 1 for open decisions or unproved parts, 2 if refused."""
        if self.refused:
            return 2
        return int(bool(self.questions) or (bool(self.proof) and not self.proved))
