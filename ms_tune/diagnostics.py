"""What is said about a job and where: one kind of diagnostic for all engines, places in texts, and fixes."""

from __future__ import annotations

from enum import Enum

from ms_tune.records import Record
from ms_tune.text import Message, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TypeAlias

    from ms_tune.text import Language

KeyPath: TypeAlias = tuple[str | int, ...]


class Location(Record):
    """A stretch of the text: offsets from 0, lines and columns from 1, the end exclusive. All count characters."""

    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int


START = Location(0, 0, 1, 1, 1, 1)  # of what is about a file as a whole


def whole_line(number: int) -> Location:
    """A line of a file that is read once, from its start to its end."""
    return Location(0, 0, number, 1, number + 1, 1)


class TextEdit(Record):
    """Put ``text`` in place of the characters from ``start`` to ``end`` (offsets from 0, the end exclusive)."""

    start: int
    end: int
    text: str


class Severity(str, Enum):
    """How bad a finding is."""

    ERROR = "error"  # the run will fail, or train something else than the config says
    WARNING = "warning"  # it runs, and something in it is not what its author meant
    INFO = "info"  # worth knowing

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


class Category(str, Enum):
    """What kind of trouble a check is about."""

    CORRECTNESS = "correctness"
    IGNORED_SETTING = "ignored-setting"
    PERFORMANCE = "performance"
    MEMORY = "memory"
    DEBUG_LEFT_ON = "debug-left-on"
    DEPRECATED = "deprecated"
    STYLE = "style"


class Family(Record):
    """Checks of one subject, which were one check once: its id begins theirs, and its id and name still mean all of them."""

    id: str  # `MST335`, of which `MST33501` is one
    name: str  # `impossible-experts`


class Related(Record):
    """Another place that a finding is about, and what it has to do with it."""

    location: Location
    message: Message


class Fix(Record):
    """How a finding can be fixed by replacing text."""

    safe: bool  # whether the meaning of the config surely stays what its author wanted
    title: Message  # what is done
    # What it does, in the terms of the file: to values, to a syntax tree, to arguments of a program; nothing for a fix of a comment.
    # The file's source proves that the edits do just this.
    changes: tuple[Any, ...]
    edits: tuple[TextEdit, ...]  # what it does to the text


class Diagnostic(Record):
    """Something that the author of a file should know.

    Args:
        id: ``MST101`` of a check; the name of what layers do otherwise than meant, such as ``offset-repeated``.
        severity: How bad it is.
        message: What is wrong here.
        help: What to do about it.
        name: ``duplicate-key``.
        category: What kind of trouble it is.
        path: The key path that is at fault.
        location: Where to look first.
        related: Other places that matter.
        fix: How it can be fixed, if that was proved to change nothing else.
        unfixable: Why there is no fix although the check has one.
        family: The family that the check is of, if it is of one.
        consequence: What happens in the run, as the text ``consequence.`` and this says it; None for what the linter says of itself and of comments.
        trace: The traceback of a check that crashed; empty for what a check found.
        title: What kind of thing it is, where memory is what it is about.
        bytes: How much memory.
        rank: Whose; None where it is about all ranks, or about a file.
        stack: What allocates the memory: file, line and function of each Python frame, the innermost last.
    """

    id: str
    severity: Severity
    message: Message
    help: Message | None = None
    name: str = ""
    category: Category = Category.CORRECTNESS
    path: KeyPath = ()
    location: Location = START
    related: tuple[Related, ...] = ()
    fix: Fix | None = None
    unfixable: Message | None = None
    family: Family | None = None
    consequence: str | None = None
    trace: str = ""
    title: Message | None = None
    bytes: int = 0
    rank: int | None = None
    stack: tuple[tuple[str, int, str], ...] = ()

    @classmethod
    def note(cls, name: str, message: Message, advice: Message | None = None, location: Location = START) -> Diagnostic:
        """Something that is good to know, by its name."""
        return cls(name, Severity.INFO, message, advice, location=location)

    def sentence(self, language: Language) -> str:
        """What is wrong here and what comes of it, for where there is one line only."""
        if self.consequence is None:
            return self.message.say(language)
        consequence = msg(f"consequence.{self.consequence}")
        return msg("consequence.sentence", message=self.message, consequence=consequence).say(language)


def dotted(path: Iterable[str | int]) -> str:
    """A key path for people: ``parallel.dataset_strategy[0]``."""
    words = ""
    for item in path:
        words += f"[{item}]" if isinstance(item, int) else f".{item}" if words else item
    return words


def last_key(path: Sequence[str | int]) -> str:
    """The end of a key path for people, from its last key on: ``recompute[0]``; nothing for an empty path."""
    start = max((index for index, item in enumerate(path) if isinstance(item, str)), default=0)
    return dotted(path[start:])
