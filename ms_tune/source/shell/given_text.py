"""Scripts that stand in a word or are read: ``bash -c "..."``, ``ssh host "..."``, ``bash <<EOF``, ``echo ... | bash``, ``bash file``.

What is unknown in such a text is a variable of the inner script that nobody knows. Options: bash's manual ("Invoking Bash"), OpenSSH's
``ssh(1)``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.facts.launchers import is_wrapper, launcher_named
from ms_tune.facts.query import load
from ms_tune.source.shell.state import ShellState, unknown_piece
from ms_tune.source.shell.values import Argument, File, Piece, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ms_tune.diagnostics import Location
    from ms_tune.source.shell.state import Value
    from ms_tune.source.shell.syntax import HereDocument
    from ms_tune.source.shell.values import Pieces, ScriptPlace

_FACTS = load("bash")["given_text"]
SHELLS = frozenset(_FACTS["shells"])
_WITH_VALUE = frozenset(_FACTS["ssh_with_value"])
_QUOTED = {
    '"': '\\"',
    '\\"': '\\\\\\"',
}  # quotation marks of a here-document, which are none of a shell's, as double quotes have them
_LAUNCHED = re.compile(r"\b(?:msrun|torchrun|deepspeed|accelerate|python[\d.]*)\b[^;|&]*\.py\b")
_HIDDEN = "ms_tune_unknown_"  # and a number: no script has such a variable


class InlineScript(NamedTuple):
    """A script that a shell is given.

    Args:
        text: Its text; what is unknown in it is a variable. None for one that only a run could tell, or that stands in a file.
        state: What it starts with.
        path: The file that it stands in, if it does.
    """

    text: str | None
    state: ShellState
    path: str | None = None


class TextInside(File):
    """A script that was put together in another: all of it stands where that was done."""

    def __init__(self, around: ScriptPlace, text: str) -> None:
        super().__init__(around.file.path, text)
        self._around = around

    def span(self, _start: int, _end: int) -> Location:
        """The span of the words that it was put together from."""
        return self._around.span


def given_to_shell(arguments: Sequence[Argument], state: ShellState, read: Pieces | None) -> InlineScript | None:  # noqa: PLR0911 - a way a line
    """The script that a command is given: as a text, in a file, or to be read; None if it is given none.

    A shell without a script reads one; so does one that ``ssh`` starts, by its name or because nothing is named.

    Args:
        arguments: The command.
        state: What it is given in.
        read: What it is given to read; None where it is given nothing.
    """
    name, words, elsewhere = _shell_of(arguments)
    outer = ShellState() if elsewhere else state
    if name == "ssh":
        behind = _behind(words, _WITH_VALUE)[1:]
        if behind and not (
            _name(behind[0]) in SHELLS and all((word.text or "").startswith("-") for word in behind[1:])
        ):
            return _of_words(behind, ShellState())
    elif name not in SHELLS:
        return None
    else:
        options, behind = _options_of(words)
        if any("c" in option for option in options if not option.startswith("--")):
            inner = _exported(outer)
            inner.positional = tuple(behind[2:])  # the word between is its name
            return _of_words(behind[:1], inner) if behind else None
        reads = any("s" in option for option in options if not option.startswith("--"))
        if behind and not reads:
            inner = _exported(outer)
            inner.positional = tuple(behind[1:])
            return InlineScript(None, inner, None if elsewhere else behind[0].text)
        outer = _exported(outer)
        outer.positional = tuple(behind)
    if read is None:
        return None
    if len(read) == 1 and (path := file_of(read[0])) is not None:
        return InlineScript(None, outer, path)
    return InlineScript(text_given(read, outer), outer)


def shell_word(place: ScriptPlace) -> Argument:
    """The shell that a script names in its first line, or none: bash."""
    return Argument((Piece("bash", place),))


def text_given(pieces: Pieces, state: ShellState) -> str | None:
    """What stands in a file that the script has written, as a script with this state."""
    return _text([Argument(pieces)], state) if any(piece.text for piece in pieces) else None


def starts_unseen(arguments: Sequence[Argument]) -> bool:
    """Whether a launcher stands among the words of a command that is neither a launcher nor followed: ``find -exec``, ``su -c``."""
    name = _name(arguments[0]) if arguments else ""
    if not name or name in _FACTS["not_starting"] or launcher_named(name) is not None or is_wrapper(name):
        return False
    return _LAUNCHED.search(" ".join(word.text or "" for word in arguments[1:])) is not None


def file_of(piece: Piece) -> str | None:
    """The file whose text a piece stands for."""
    unknown = piece.unknown
    return unknown.name if unknown is not None and unknown.reason is Reason.FILE else None


def document_pieces(document: HereDocument, put_in: Callable[[str], Argument | None], place: ScriptPlace) -> Pieces:
    """What a here-document says: this shell puts its variables into one that is not literal, as in double quotes.

    Args:
        document: The document.
        put_in: What becomes of a word in double quotes.
        place: Where the command stands.
    """
    text = document.text
    if text is not None and document.literal:
        return (Piece(text, place),)
    # Quotation marks beside a command in the document may be those of the command.
    if text is not None and not ('"' in text and re.search(r"`|\$[({]", text)):
        word = put_in(re.sub(r'\\\\|\\?"', lambda mark: _QUOTED.get(mark[0], mark[0]), text))
        if word is not None:
            return word.pieces
    return (unknown_piece(Reason.COMMAND, "<<", place),)


def _shell_of(arguments: Sequence[Argument]) -> tuple[str, list[Argument], bool]:
    """The shell (or ``ssh``) that a command starts, the words behind it, and whether it runs where nothing of this one is known."""
    first = arguments[0].text if arguments else None
    behind = 0
    carrier = _name(arguments[0]) if arguments else ""
    if first is not None and (is_wrapper(first) or carrier in (*_FACTS["carriers"], *_FACTS["elsewhere"])):
        behind = next((number for number, word in enumerate(arguments) if _name(word) in (*SHELLS, "ssh")), 0)
    name = _name(arguments[behind]) if arguments else ""
    return name, list(arguments[behind + 1 :]), carrier in _FACTS["elsewhere"] or name == "ssh"


def evaluated(arguments: Sequence[Argument], state: ShellState) -> str | None:
    """What ``eval`` runs, in the shell itself; None if only a run could tell. What is unknown becomes a variable of the state."""
    return _text(arguments, state)


def _name(word: Argument) -> str:
    return (word.text or "").rpartition("/")[2]


def _options_of(words: Sequence[Argument]) -> tuple[list[str], list[Argument]]:
    """The options of a shell, and the words behind them."""
    options: list[str] = []
    at = 0
    while at < len(words) and (words[at].text or "").startswith(("-", "+")):
        option = words[at].text or ""
        at += 1 + (option in _FACTS["shell_with_value"])
        if option in ("-", "--"):
            break
        options.append(option)
    return options, list(words[at:])


def _behind(words: Sequence[Argument], with_value: frozenset[str]) -> list[Argument]:
    """The words behind options."""
    at = 0
    while at < len(words) and (words[at].text or "").startswith("-"):
        at += 2 if (words[at].text or "") in with_value else 1
    return list(words[at:])


def _exported(state: ShellState) -> ShellState:
    """What a shell of its own knows: the variables and functions that programs see."""
    inner = ShellState(variables={name: value for name, value in state.variables.items() if name in state.exported})
    inner.exported, inner.all_unknown = state.exported, state.all_unknown
    inner.functions = {name: value for name, value in state.functions.items() if f"{name}()" in state.exported}
    return inner


def _of_words(words: Sequence[Argument], state: ShellState) -> InlineScript:
    """The words as one text: that is what a shell behind ``-c`` and one at the other end of ``ssh`` gets."""
    known = any(piece.text for word in words for piece in word.pieces)
    return InlineScript(_text(words, state) if known else None, state)


def _text(words: Sequence[Argument], state: ShellState) -> str | None:
    """The words with a blank between; None where an unknown one may be any number of words, or stands in quotes that hide a variable."""
    found: list[str] = []
    hidden: dict[str, Value] = {}
    for word in words:
        if word.open and not any(piece.text for piece in word.pieces):
            return None
        found.append("".join(_letters(piece, hidden) for piece in word.pieces))
    text = " ".join(found)
    if hidden and ("'" in text or "\\" in text):
        return None
    state.variables.update(hidden)
    return text


def _letters(piece: Piece, hidden: dict[str, Value]) -> str:
    if piece.unknown is None:
        return piece.text
    name = f"{_HIDDEN}{len(hidden)}"
    value: Pieces = (piece,)
    hidden[name] = value
    return f"${{{name}}}"
