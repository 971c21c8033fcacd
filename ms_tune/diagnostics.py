"""Define diagnostics (shared by all engines), locations in files, and fixes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from ms_tune.records import Record
from ms_tune.text import Language, Message, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias


KeyPath: TypeAlias = tuple[str | int, ...]


class Location(Record):
    """A range of characters in a file: offsets from 0, lines and columns from 1, the end exclusive."""

    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int


START = Location(0, 0, 1, 1, 1, 1)  # the location of a diagnostic about a file as a whole


def whole_line(number: int) -> Location:
    """Return the location of one whole line, given by its number."""
    return Location(0, 0, number, 1, number + 1, 1)


class TextEdit(Record):
    """A replacement of the characters from ``start`` to ``end`` (offsets from 0, the end exclusive) by ``text``."""

    start: int
    end: int
    text: str


class Severity(str, Enum):
    """The severity of a finding."""

    ERROR = "error"  # the run will fail, or train with other settings than those of the config
    WARNING = "warning"  # it runs, but not as its author intended
    INFO = "info"  # worth knowing

    @property
    def rank(self) -> int:
        """Return the position in the order of severity; 0 is the worst."""
        return list(Severity).index(self)


class Category(str, Enum):
    """The kind of problem a check looks for."""

    CORRECTNESS = "correctness"
    IGNORED_SETTING = "ignored-setting"
    PERFORMANCE = "performance"
    MEMORY = "memory"
    DEBUG_LEFT_ON = "debug-left-on"
    DEPRECATED = "deprecated"
    STYLE = "style"


class Family(Record):
    """A group of checks that replaced one older check: its id is a prefix of theirs; its id and name still select all of them."""

    id: str  # `MST335`, of which `MST33501` is one
    name: str  # `impossible-experts`


class Related(Record):
    """Another place involved in a finding, and its relation to it."""

    location: Location
    message: Message


class Fix(Record):
    """A fix of a finding: a set of text replacements."""

    safe: bool  # whether the fix surely keeps the meaning that the author intended
    title: Message  # a description of the fix
    # The changes in terms of the file: values, a syntax tree, or arguments of a program; empty for a fix of a comment.
    # The source of the file verifies that the edits make exactly these changes.
    changes: tuple[Any, ...]
    edits: tuple[TextEdit, ...]  # the same changes, as edits of the text


class Diagnostic(Record):
    """A problem or a remark about a file, reported to its author.

    Args:
        id: ``MST101`` for a check; for an unusual layer setting its name, such as ``offset-repeated``.
        severity: How bad it is.
        message: The problem.
        help: What to do about it.
        name: ``duplicate-key``.
        category: The kind of problem.
        path: The key path that is at fault.
        location: Where to look first.
        related: Other places that matter.
        fix: The fix, if it was proved to change nothing else.
        unfixable: Why the check's fix does not apply.
        family: The family of the check, if any.
        consequence: The effect on the run, as the name of a text ``consequence.*``, or None.
        trace: The traceback of a check that crashed; otherwise empty.
        title: A heading; only for diagnostics about memory.
        bytes: The amount of memory.
        rank: The rank concerned; None for all ranks, or for a file.
        stack: The Python stack that allocates the memory: file, line and function of each frame, the innermost last.
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
        """Create a diagnostic of severity ``INFO``."""
        return cls(name, Severity.INFO, message, advice, location=location)

    def sentence(self, language: Language) -> str:
        """Return the message and its consequence as one line."""
        if self.consequence is None:
            return self.message.say(language)
        consequence = msg(f"consequence.{self.consequence}")
        return msg("consequence.sentence", message=self.message, consequence=consequence).say(language)


def dotted(path: Iterable[str | int]) -> str:
    """Format a key path for display: ``parallel.dataset_strategy[0]``."""
    words = ""
    for item in path:
        words += f"[{item}]" if isinstance(item, int) else f".{item}" if words else item
    return words


def last_key(path: Sequence[str | int]) -> str:
    """Format the end of a key path from its last text key on: ``recompute[0]``; empty for an empty path."""
    start = max((index for index, item in enumerate(path) if isinstance(item, str)), default=0)
    return dotted(path[start:])
