"""What is said about a job and where: one kind of diagnostic for all engines, places in texts, and fixes."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ms_tune.text import Language, lookup

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ms_tune.text import Message, Text

KeyPath: TypeAlias = tuple[str | int, ...]


class Location(NamedTuple):
    """A stretch of the text: offsets from 0, lines and columns from 1, the end exclusive. All count characters."""

    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int


class TextEdit(NamedTuple):
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


class Consequence(str, Enum):
    """What happens in the run if a finding is left as it is; its sentence is the text ``consequence.`` and its value."""

    STOPS_READING = "stops-reading"
    STOPS_STARTING = "stops-starting"
    STOPS_BUILDING = "stops-building"
    STOPS_COMPILING = "stops-compiling"
    STOPS_BEFORE_STEP = "stops-before-step"
    STOPS_IN_FIRST_STEP = "stops-in-first-step"
    STOPS_AT_LINE = "stops-at-line"
    STOPS_LATER = "stops-later"
    STOPS_OR_TRAINS_LESS = "stops-or-trains-less"
    STOPS_OR_NO_EFFECT = "stops-or-no-effect"
    STOPS_LATER_RELEASE = "stops-later-release"
    HANGS = "hangs"
    NO_EFFECT = "no-effect"
    OTHER_VALUE = "other-value"
    OTHER_TRAINING = "other-training"
    MORE_MEMORY = "more-memory"
    SLOWER = "slower"
    SLOWER_AND_FILES = "slower-and-files"
    NOT_REPEATABLE = "not-repeatable"
    NOTHING_TRAINED = "nothing-trained"
    NOTHING_RECORDED = "nothing-recorded"
    MISLEADING_RECORD = "misleading-record"
    PARTS_OF_THE_COMMAND = "parts-of-the-command"
    SAME_RUN = "same-run"
    NOT_MEASURED = "not-measured"
    NOT_CHECKED = "not-checked"

    @property
    def text(self) -> Text:
        """The sentence."""
        return lookup(f"consequence.{self.value}")


class Family(NamedTuple):
    """Checks of one subject, which were one check once: its id begins theirs, and its id and name still mean all of them."""

    id: str  # `MST335`, of which `MST33501` is one
    name: str  # `impossible-experts`


class Wording(NamedTuple):
    """A text of a checklist with its parameters: what :class:`~ms_tune.text.Message` is for the built-in texts."""

    text: Text
    params: Mapping[str, str]

    def __str__(self) -> str:
        return self.say(Language.EN)

    def say(self, language: Language) -> str:
        """The sentence in a language."""
        template = self.text.en if language is Language.EN else self.text.zh
        return template.format_map(self.params)


class Related(NamedTuple):
    """Another place that a finding is about, and what it has to do with it."""

    span: Location
    message: Wording


class Fix(NamedTuple):
    """How a finding can be fixed by replacing text."""

    safe: bool  # whether the meaning of the config surely stays what its author wanted
    title: Message  # what is done
    # What it does, in the terms of the file: to values, to a syntax tree, to arguments of a program; nothing for a fix of a comment.
    # The file's source proves that the edits do just this.
    changes: tuple[Any, ...]
    edits: tuple[TextEdit, ...]  # what it does to the text


class Finding(NamedTuple):
    """One violated check.

    Args:
        id: ``MST101``.
        name: ``duplicate-key``.
        severity: How bad it is.
        category: What kind of trouble it is.
        path: The key path that is at fault.
        span: Where to look first.
        message: What is wrong here.
        help: What to do about it.
        related: Other places that matter.
        fix: How it can be fixed, if that was proved to change nothing else.
        unfixable: Why there is no fix although the check has one.
        family: The family that the check is of, if it is of one.
        consequence: What happens in the run; None for what the linter says of itself and of comments.
        trace: The traceback of a check that crashed; empty for what a check found.
    """

    id: str
    name: str
    severity: Severity
    category: Category
    path: KeyPath
    span: Location
    message: Wording
    help: Wording | None = None
    related: tuple[Related, ...] = ()
    fix: Fix | None = None
    unfixable: Message | None = None
    family: Family | None = None
    consequence: Consequence | None = None
    trace: str = ""

    def sentence(self, language: Language) -> str:
        """What is wrong here and what comes of it, for where there is one line only."""
        message = self.message.say(language)
        if self.consequence is None:
            return message
        params = {"message": message, "consequence": Wording(self.consequence.text, {}).say(language)}
        return Wording(lookup("consequence.sentence"), params).say(language)


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
