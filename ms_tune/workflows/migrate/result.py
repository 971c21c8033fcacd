"""What a migration found: the fate of every key, the new file, the proof."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.enums import Dialect
    from ms_tune.text import Message


class Fate(str, Enum):
    """What became of a key."""

    TRANSLATED = "translated"
    DEFAULT = "default"  # it needs no line: the other side does the same without
    NONE = "none"  # the other side has nothing like it
    ASK = "ask"  # only its author can say


@dataclass(frozen=True, slots=True)
class KeyFate:
    """One key of the source."""

    path: tuple[str | int, ...]  # the key
    value: Any
    line: int | None  # its line in the source; None for a key of another file (`base_config`)
    fate: Fate  # what became of it
    to: tuple[str, ...] = ()  # the key of the new file that it went to, if it did
    new: Any = None  # the value there
    why: Message | None = None  # the reason, or what it costs, or the question
    blocks: bool = False  # whether there can be no file that does the same because of it

    @property
    def name(self) -> str:
        """The key as it is spoken of."""
        return ".".join(map(str, self.path))


@dataclass(frozen=True, slots=True)
class Added:
    """A line of the new file that no key of the source says: the other side's default is another one."""

    to: tuple[str, ...]
    value: Any
    why: Message


@dataclass(frozen=True, slots=True)
class MigrationVerdict:
    """One part of the proof."""

    name: str  # `loads`, `lints`, `layers`, `batch`, `fields`, `weights`
    holds: bool | None  # whether it does; None where it could not be asked
    detail: Message  # what was compared, with its figures


@dataclass(frozen=True, slots=True)
class Migration:
    """A config of another dialect."""

    path: Path  # the source
    dialect: Dialect
    release: str  # the release of the static graph that it is read for
    target: str  # the release of the dynamic graph
    entries: tuple[KeyFate, ...]  # every key of the source, in its order, each with its one fate
    added: tuple[Added, ...] = ()  # what else stands in the new file
    text: str = ""  # the new file; empty if it was refused
    # What was proved of it; empty if that was not asked for, or there is no file.
    proof: tuple[MigrationVerdict, ...] = ()
    original: str = field(default="", repr=False)  # the text of the source
    missing: tuple[Message, ...] = ()  # what the source does not say, and no file can be written without
    # The source with the sizes of a `config.json` that its user named; empty where none was.
    merged: str = field(default="", repr=False)

    @property
    def blocking(self) -> tuple[KeyFate, ...]:
        """The keys that stand in the way."""
        return tuple(one for one in self.entries if one.blocks)

    @property
    def questions(self) -> tuple[KeyFate, ...]:
        """The keys that need a decision."""
        return tuple(one for one in self.entries if one.fate is Fate.ASK)

    @property
    def refused(self) -> bool:
        """Whether there is no file."""
        return not self.text

    @property
    def proved(self) -> bool:
        """Whether every part of the proof that could be asked holds, and the layers and weights could be."""
        return self.same and all(one.holds is not False for one in self.proof)

    @property
    def same(self) -> bool:
        """Whether layers, batch and weights are proved to be those of the source."""
        needed = ("lints", "layers", "batch", "weights")
        return bool(self.proof) and all(one.holds for one in self.proof if one.name in needed)

    def count(self, fate: Fate) -> int:
        """How many keys had a fate."""
        return sum(one.fate is fate for one in self.entries)

    @property
    def exit_code(self) -> int:
        """0 proved, 1 a decision is open or something was not proved, 2 refused."""
        if self.refused:
            return 2
        return int(bool(self.questions) or (bool(self.proof) and not self.proved))
