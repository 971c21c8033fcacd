"""Scripts that stand in a word or a here-document: ``bash -c "..."``, ``eval "..."``, ``ssh host "..."``, ``bash <<EOF``.

What is unknown in such a word is a variable of the inner script that nobody knows. Options: bash's manual ("Invoking Bash"), OpenSSH's
``ssh(1)``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.frameworks.data import load
from ms_tune.frameworks.launchers import is_wrapper
from ms_tune.launch.state import State
from ms_tune.launch.values import File

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ms_tune.config.source import Span
    from ms_tune.launch.state import Value
    from ms_tune.launch.syntax import HereDocument
    from ms_tune.launch.values import Argument, Piece, Pieces, Place

_FACTS = load("bash")["given_text"]
_SHELLS = frozenset(_FACTS["shells"])
_WITH_VALUE = frozenset(_FACTS["ssh_with_value"])
_QUOTED = {
    '"': '\\"',
    '\\"': '\\\\\\"',
}  # quotation marks of a here-document, which are none of a shell's, as double quotes have them
_HIDDEN = "ms_tune_unknown_"  # and a number: no script has such a variable


class Given(NamedTuple):
    """A script in a word or a here-document.

    Args:
        text: Its text; what is unknown in it is a variable. None for one that only a run could tell.
        state: What it starts with.
    """

    text: str | None
    state: State


class TextInside(File):
    """A script that was put together in another: all of it stands where that was done."""

    def __init__(self, around: Place, text: str) -> None:
        super().__init__(around.file.path, text)
        self._around = around

    def span(self, _start: int, _end: int) -> Span:
        """The span of the words that it was put together from."""
        return self._around.span


def given_text(arguments: Sequence[Argument], state: State) -> Given | None:
    """The script that a command is given as a text; None if it is given none, or one that only a run could tell."""
    name, words, elsewhere = _shell_of(arguments)
    if name in _SHELLS:
        return _of_shell(words, State() if elsewhere else state)
    return _of_ssh(words) if name == "ssh" else None


def given_to_read(
    arguments: Sequence[Argument], state: State, document: HereDocument, put_in: Callable[[str], Argument | None]
) -> Given | None:
    """The script that a command reads from a here-document; None if it reads none, or takes it for something else.

    A shell without a script reads one; so does one that ``ssh`` starts, by its name or because nothing is named.

    Args:
        arguments: The command.
        state: What it is given in.
        document: The document.
        put_in: What becomes of a word in double quotes: this shell puts its variables into a document that is not literal.
    """
    name, words, elsewhere = _shell_of(arguments)
    if name == "ssh":
        given = _of_ssh(words)
        name, *options = given.text.split() if given is not None and given.text else ["sh"]
    else:
        options = [word.text or "" for word in words]
    plain = all(option.startswith("-") and "c" not in option for option in options)
    if name.rpartition("/")[2] not in _SHELLS or not plain or document.text is None:
        return None
    inner = State() if elsewhere else _exported(state)
    if document.literal:
        return Given(document.text, inner)
    if '"' in document.text and re.search(r"`|\$[({]", document.text):
        return Given(None, inner)  # these quotation marks may be those of a command in it
    word = put_in(re.sub(r'\\\\|\\?"', lambda mark: _QUOTED.get(mark[0], mark[0]), document.text))
    return Given(_text([word], inner) if word is not None else None, inner)


def _shell_of(arguments: Sequence[Argument]) -> tuple[str, list[Argument], bool]:
    """The shell (or ``ssh``) that a command starts, the words behind it, and whether it runs where nothing of this one is known."""
    first = arguments[0].text if arguments else None
    behind = 0
    carrier = _name(arguments[0]) if arguments else ""
    if first is not None and (is_wrapper(first) or carrier in (*_FACTS["carriers"], *_FACTS["elsewhere"])):
        behind = next((number for number, word in enumerate(arguments) if _name(word) in (*_SHELLS, "ssh")), 0)
    name = _name(arguments[behind]) if arguments else ""
    return name, list(arguments[behind + 1 :]), carrier in _FACTS["elsewhere"] or name == "ssh"


def evaluated(arguments: Sequence[Argument], state: State) -> str | None:
    """What ``eval`` runs, in the shell itself; None if only a run could tell. What is unknown becomes a variable of the state."""
    return _text(arguments, state)


def _name(word: Argument) -> str:
    return (word.text or "").rpartition("/")[2]


def _of_shell(words: list[Argument], state: State) -> Given | None:
    """``bash -x -c TEXT NAME ARGUMENTS``: it sees what is exported, and its own arguments."""
    at = 0
    while at < len(words) and (words[at].text or "").startswith("-"):
        option = words[at].text or ""
        at += 1 + (option in _FACTS["shell_with_value"])
        if not option.startswith("--") and "c" in option:
            break
    else:
        return None
    inner = _exported(state)
    inner.positional = tuple(words[at + 2 :])
    text = _text(words[at : at + 1], inner)
    return Given(text, inner) if text else None


def _exported(state: State) -> State:
    """What a shell of its own knows: the variables that programs see."""
    inner = State(variables={name: value for name, value in state.variables.items() if name in state.exported})
    inner.exported, inner.all_unknown = state.exported, state.all_unknown
    return inner


def _of_ssh(words: list[Argument]) -> Given | None:
    """``ssh -p 22 HOST WORDS``: the words are one text there, and nothing of this shell's is known."""
    at = 0
    while at < len(words) and (words[at].text or "").startswith("-"):
        at += 2 if (words[at].text or "") in _WITH_VALUE else 1
    inner = State()
    text = _text(words[at + 1 :], inner)
    return Given(text, inner) if text else None


def _text(words: Sequence[Argument], state: State) -> str | None:
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
