"""The commands of the shell itself that set variables."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ms_tune.facts.query import load
from ms_tune.source.shell.arithmetic import assigned
from ms_tune.source.shell.conditions import holds
from ms_tune.source.shell.state import Array, Unset, unknown_piece, unknown_words
from ms_tune.source.shell.syntax import Assign, QuotedText, Word
from ms_tune.source.shell.values import Argument, Piece, Reason, ScriptPlace, Unknown, text_of
from ms_tune.source.shell.words import NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.source.shell.expand import Expander
    from ms_tune.source.shell.state import ShellState
    from ms_tune.source.shell.values import File, Pieces

_GIVEN = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_SMALL = re.compile(r"0|[1-9]\d{0,5}")
_ODD = frozenset("ilunA")  # options of `declare` that change what an assignment does
# Commands that set the variables that they are given the names of.
READING = frozenset(("read", "mapfile", "readarray", "getopts", "printf", "let", "unset", "wait", "coproc", "select"))
# They change nothing that is followed here.
QUIET = frozenset(load("bash")["quiet"])
# What sets up an environment, and not the variables of a script; it is not read.
_ENVIRONMENT_SCRIPTS = frozenset(load("bash")["environment_scripts"])
_OF_AN_ENVIRONMENT = re.compile(r"(ASCEND|ATB|ASDOPS|HCCL|LCCL|TOOLCHAIN|CONDA|VIRTUAL_ENV)\w*|\w*(PATH|HOME|PRELOAD)")


Given: TypeAlias = "Pieces | list[Argument]"


def given_to(one: Assign, expander: Expander, state: ShellState, file: File) -> Given:
    """What an assignment's value comes to: one value, or the elements of an array."""
    if isinstance(one.value, Word):
        return expander.value(one.value, state, file)
    return expander.fields(one.value, state, file)


def store(one: Assign, value: Given, expander: Expander, state: ShellState, file: File) -> None:
    """Make an assignment."""
    place = ScriptPlace(file, one.start, one.end)
    if one.index is not None and not _SMALL.fullmatch(one.index) and one.name not in state.odd:
        number = expander.number(one.index_parts, state, file, place)
        one = one if number is None else replace(one, index=str(number))
    if one.name in state.odd:
        set_to(state, one.name, (unknown_piece(Reason.EXPANSION, one.name, place),))
    elif isinstance(value, tuple):
        _store_one(one, value, state, place)
    else:
        _store_array(one, value, state, place)
    stored = state.variables.get(one.name)
    if isinstance(stored, tuple):
        state.variables[one.name] = expander.bounded(stored, place)


def set_to(state: ShellState, name: str, value: Pieces | Array | Unset, place: ScriptPlace | None = None) -> None:
    """Give a variable a value."""
    state.variables[name] = value
    if name == "IFS":
        where = place or (value[0].place if isinstance(value, tuple) and value else None)
        state.splits_oddly = Unknown(Reason.EXPANSION, name, where) if where and not isinstance(value, Unset) else None


def _store_one(one: Assign, value: Pieces, state: ShellState, place: ScriptPlace) -> None:
    old = state.variables.get(one.name)
    if one.index is not None or isinstance(old, Array):
        _store_element(
            one, value, old if isinstance(old, Array) else Array(((0, old),) if isinstance(old, tuple) else ()), state
        )
        return
    if one.append:
        before = old if isinstance(old, tuple) else () if old is not None else _from_outside(one.name, place)
        value = (*before, *value)
    set_to(state, one.name, value, place)


def _store_element(one: Assign, value: Pieces, old: Array, state: ShellState) -> None:
    index = one.index or "0"
    if not _SMALL.fullmatch(index) or any(piece.several for _, pieces in old.elements for piece in pieces):
        place = value[0].place if value else None
        several = Piece("", place, unknown=Unknown(Reason.EXPANSION, one.name, place), several=True) if place else None
        state.variables[one.name] = Array(((0, (several,) if several else ()),))
        return
    elements = dict(old.elements)
    elements[int(index)] = (*elements.get(int(index), ()), *value) if one.append else value
    state.variables[one.name] = Array(tuple(sorted(elements.items(), key=lambda item: item[0])))


def _store_array(one: Assign, fields: list[Argument], state: ShellState, place: ScriptPlace) -> None:
    elements: list[tuple[int, Pieces]] = []
    if one.append:
        old = state.variables.get(one.name)
        if isinstance(old, Array):
            elements = list(old.elements)
        elif isinstance(old, tuple):
            elements = [(0, old)]
        elif old is None:
            elements = [(0, _several(Unknown(Reason.ENVIRONMENT, one.name, place)))]
    indexed = isinstance(one.value, tuple) and any(_indexed(word) for word in one.value)
    if indexed:
        elements = [(0, _several(Unknown(Reason.EXPANSION, one.name, place)))]
        fields = []
    number = elements[-1][0] + 1 if elements else 0
    for field in fields:
        elements.append((number, _several(field.unknown) if field.open and field.unknown else field.pieces))
        number += 1
    state.variables[one.name] = Array(tuple(elements))


def _indexed(word: Word) -> bool:
    first = word.parts[0] if word.parts else None
    return isinstance(first, QuotedText) and not first.quoted and first.text.startswith("[")


def _several(unknown: Unknown) -> Pieces:
    return (Piece("", unknown.place, unknown=unknown, several=True),)


def _from_outside(name: str, place: ScriptPlace) -> Pieces:
    return (unknown_piece(Reason.ENVIRONMENT, name, place),)


# The commands


def declare(  # noqa: C901 - an option a line
    words: list[Argument | Assign], expander: Expander, state: ShellState, file: File, local: dict[str, object] | None
) -> None:
    """``export``, ``declare``, ``typeset``, ``local`` and ``readonly``.

    Args:
        words: The command and what stands behind it.
        expander: Puts values in.
        state: What holds before, and then behind it.
        file: Where it stands.
        local: Where the old values of variables go that are the function's own from here on; None outside of functions.
    """
    command = _text(words[0]) or ""
    flags = {flag for text in map(_text, words[1:]) if text and text.startswith("-") for flag in text[1:]}
    own = local if command not in ("export", "readonly") and "g" not in flags else None
    # All values are put in before the first of them is set.
    values = {one.start: given_to(one, expander, state, file) for one in words if isinstance(one, Assign)}
    for word in words[1:]:
        text = _text(word) if isinstance(word, Argument) else word.name
        if text is None or (isinstance(word, Argument) and word.open):
            state.forget(Unknown(Reason.EXPANSION, command, words_place([word], file)))
            continue
        given = _GIVEN.fullmatch(text)
        name = given[1] if given else text
        if not NAME.fullmatch(name):
            continue
        if own is not None:
            own.setdefault(name, state.variables.get(name))
            if not isinstance(word, Assign) and not given:
                state.variables[name] = Unset()
        if "f" in flags:
            state.exported |= {f"{name}()"} if command == "export" else set()
            continue
        if _ODD & flags:
            state.odd |= {name}
        if "n" in flags and command != "export":
            _stands_for(
                name, values.get(word.start) if isinstance(word, Assign) else None, state, words_place([word], file)
            )
        if isinstance(word, Assign):
            store(word, values[word.start], expander, state, file)
        elif given:
            _give(name, word.part(given.start(3), given.end(3)).pieces, state, word.place, append=bool(given[2]))
        elif name in state.odd and name in state.variables and own is None:
            state.variables[name] = (unknown_piece(Reason.EXPANSION, name, words_place(words, file)),)
        _mark(name, command, flags, state)


def _stands_for(name: str, value: Given | None, state: ShellState, place: ScriptPlace) -> None:
    """``declare -n name=other``: what it is given goes to another variable, which nobody knows from here on."""
    other = text_of(value) if isinstance(value, tuple) else None
    state.forget(Unknown(Reason.EXPANSION, name, place))
    if other:
        state.odd |= {other}
        state.variables.setdefault(other, (unknown_piece(Reason.EXPANSION, other, place),))


def _give(name: str, value: Pieces, state: ShellState, place: ScriptPlace, *, append: bool) -> None:
    """An assignment that is a word with something put in: ``export "$NAME=1"``."""
    before = state.variables.get(name)
    if name in state.odd or (append and not isinstance(before, tuple)):
        set_to(state, name, _from_outside(name, place))
    else:
        set_to(state, name, (*before, *value) if append and isinstance(before, tuple) else value)


def _mark(name: str, command: str, flags: set[str], state: ShellState) -> None:
    if command == "readonly" or "r" in flags:
        state.odd |= {name}
    if command == "export" or "x" in flags:
        state.exported = state.exported - {name} if "n" in flags else state.exported | {name}


def words_place(words: Iterable[Argument | Assign], file: File) -> ScriptPlace:
    """Where the first of some words stands."""
    for word in words:
        return ScriptPlace(file, word.start, word.end) if isinstance(word, Assign) else word.place
    return ScriptPlace(file, 0, 0)


def _text(word: Argument | Assign) -> str | None:
    return word.text if isinstance(word, Argument) else None


def change(command: str, words: list[Argument], state: ShellState, place: ScriptPlace) -> bool:
    """Commands that set variables by their names, the positional parameters, or options; whether this is one."""
    texts = [word.text for word in words[1:]]
    if command == "set":
        _set(words[1:], state)
    elif command == "shift":
        count = int(texts[0]) if texts and texts[0] and _SMALL.fullmatch(texts[0]) else 1 if not texts else -1
        given = state.positional
        if given is None or count < 0 or any(one.open for one in given[:count]):
            state.positional = unknown_words(Reason.ARGUMENT, "@", place)
        elif count <= len(given):
            state.positional = given[count:]
    elif command == "unset":
        _unset(texts, state, place)
    elif command in READING:
        _read(command, texts, state, place)
    else:
        return False
    return True


def _set(words: list[Argument], state: ShellState) -> None:
    """``set -euo pipefail -- words``."""
    for number, word in enumerate(words):
        text = word.text
        if text == "--" or text is None or not text.startswith(("-", "+")):
            state.positional = tuple(words[number + (text == "--") :])
            return
        if "e" in text:
            state.stops_at_failure = text[0] == "-"
        if text.endswith("o"):
            option = words[number + 1].text if number + 1 < len(words) else ""
            if option == "errexit":
                state.stops_at_failure = text[0] == "-"
            _set(words[number + 2 :], state)
            return


def _unset(texts: list[str | None], state: ShellState, place: ScriptPlace) -> None:
    functions = "-f" in texts
    for text in texts:
        if text is None:
            state.forget(Unknown(Reason.EXPANSION, "unset", place))
        elif functions:
            state.functions.pop(text, None)
        elif NAME.fullmatch(text):
            set_to(state, text, Unset())
            state.exported -= {text}
        elif not text.startswith("-"):
            name = text.partition("[")[0]
            state.variables[name] = Array(((0, _several(Unknown(Reason.EXPANSION, name, place))),))


def _read(command: str, texts: list[str | None], state: ShellState, place: ScriptPlace) -> None:
    if command == "printf" and (not texts or texts[0] != "-v"):
        return
    names = {text for text in texts if text and NAME.fullmatch(text)}
    if command == "let":
        names = {name for text in texts if text for name in assigned(text)}
    if command in ("mapfile", "readarray") or None in texts:
        names.add("MAPFILE")
    if None in texts and command != "printf":
        state.forget(Unknown(Reason.INPUT, command, place))
    for name in names:
        unknown = Unknown(Reason.INPUT, name, place)
        whole = command in ("mapfile", "readarray") or any(re.fullmatch(r"-\w*a", text or "") for text in texts)
        set_to(state, name, Array(((0, _several(unknown)),)) if whole else (Piece("", place, unknown=unknown),))


def answer(command: str, words: list[Argument]) -> bool | None:
    """Whether ``true``, ``false`` or a test succeeds; None if it cannot be told."""
    if command in ("true", ":"):
        return True
    if command == "false":
        return False
    if any(word.open for word in words):
        return None
    texts = [word.text for word in words[1:]]
    if command == "[":
        return holds(texts[:-1]) if texts and texts[-1] == "]" else None
    return holds(texts)


ANSWERING = frozenset(("true", ":", "false", "[", "test"))


def loads_environment(path: str) -> bool:
    """Whether a file that is sourced sets up an environment: CANN's, Python's, the user's."""
    return path.rpartition("/")[2] in _ENVIRONMENT_SCRIPTS


def environment_loaded(state: ShellState, unknown: Unknown) -> None:
    """What such a file changes: paths, and variables of the toolkits."""
    for name in state.variables:
        if _OF_AN_ENVIRONMENT.fullmatch(name):
            state.variables[name] = (Piece("", unknown.place, unknown=unknown),)
