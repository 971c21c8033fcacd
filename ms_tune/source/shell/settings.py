"""Follow shell commands that set variables or options: assignments, ``export``, ``set``, ``shift``, ``unset``, ``read``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ms_tune.source.shell.expand import Expander
from ms_tune.source.shell.syntax import NAME, Assign, QuotedText, ScriptPlace, Word
from ms_tune.source.shell.values import (
    Argument,
    Piece,
    Pieces,
    Reason,
    Unknown,
    Value,
    array_of,
    plain_value,
    text_of,
    unknown_piece,
)

# Commands that set the variables named in their arguments.
READING = frozenset(("read", "mapfile", "readarray", "getopts", "printf", "let", "wait"))
_ODD = frozenset("ilunA")  # options of `declare` that change how assignments work
_SMALL = re.compile(r"0|[1-9]\d{0,5}")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)


class _Locals(NamedTuple):
    """The local variables of a function call."""

    values: dict[str, Value | None]  # the previous values, by variable
    perhaps: set[str]  # variables that may or may not have been declared
    conditions: int  # number of unknown conditions around the call


class Settings(Expander):
    """Expander that also sets variables, options and positional parameters of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.conditions = 0  # number of unknown conditions around the current command
        self._locals: list[_Locals] = []

    def value_assigned(self, one: Assign) -> Pieces | list[Argument]:
        """Return an assignment's value: one value, or the elements of an array."""
        return self.value(one.value) if isinstance(one.value, Word) else self.arguments(one.value)

    def store(self, one: Assign, value: Pieces | list[Argument]) -> None:
        """Assign to a variable, as the assignment in a command does."""
        old = self.state.variables.get(one.name)
        if one.append and old is None:  # the old value comes from the environment
            several = isinstance(value, list)
            old = plain_value(unknown_piece(Reason.ENVIRONMENT, one.name, one.place, several=several))
        old = old or Value()
        new: Value | None = None
        if one.name in self.state.odd:
            several = isinstance(value, list) or one.index is not None
            new = plain_value(unknown_piece(Reason.EXPANSION, one.name, one.place, several=several))
        elif isinstance(value, list):
            before = old if one.append else Value()
            if isinstance(one.value, tuple) and not any(map(_is_indexed, one.value)):
                new = Value((*before.elements, *array_of(value, before.end).elements), array=True)
        elif old.array or one.index is not None:
            index = self.index(one.index, one.place, old)
            if index is not None and old.uncounted is None:
                known = dict(old.elements)
                known[index] = (*known.get(index, ()), *value) if one.append else value
                new = Value(tuple(sorted(known.items(), key=lambda item: item[0])), array=True)
        else:
            new = plain_value(*(self.bound_value((*old.pieces, *value), one.place) if one.append else value))
        if new is None:
            self.state.spoil(one.name, Reason.EXPANSION, one.place, several=True)
        else:
            self.state.variables[one.name] = new

    # local variables

    def enter_function(self) -> None:
        """Start a function call, to which ``local`` applies from here on."""
        self._locals.append(_Locals({}, set(), self.conditions))

    def leave_function(self, place: ScriptPlace) -> None:
        """End a function call and restore the previous values of its local variables."""
        own = self._locals.pop()
        for name, value in own.values.items():
            self.state.restore(name, value)
        for name in own.perhaps:
            self.state.spoil(name, Reason.CONDITION, place)

    def _keep(self, name: str) -> None:
        own = self._locals[-1]
        if name not in own.values:
            own.values[name] = self.state.variables.get(name)
            own.perhaps.update({name} if self.conditions > own.conditions else ())

    def declare(self, words: Sequence[Argument | Assign]) -> None:
        """Follow ``export``, ``declare``, ``typeset``, ``local`` and ``readonly``."""
        state = self.state
        texts = [word.text or "" for word in words if isinstance(word, Argument)]
        command, flags = texts[0], {flag for text in texts[1:] if text.startswith("-") for flag in text[1:]}
        local = bool(self._locals) and command not in ("export", "readonly") and "g" not in flags
        # All values are expanded before the first is set.
        values = [self.value_assigned(one) if isinstance(one, Assign) else () for one in words]
        for word, value in zip(words[1:], values[1:], strict=True):
            text = word.name if isinstance(word, Assign) else None if word.open else word.text
            if text is None or ("n" in flags and command != "export"):  # unknown, or refers to another variable
                state.forget(Unknown(Reason.EXPANSION, text or command, word.place))
            match = _ASSIGNED.fullmatch(text or "")
            name = match[1] if match else text or ""
            if "f" in flags or not NAME.fullmatch(name):
                state.exported |= {f"{name}()"} if command == "export" and "f" in flags else set()
                continue
            if local:
                self._keep(name)
            state.odd |= {name} if _ODD & flags else set()
            if isinstance(word, Assign):
                self.store(word, value)
            elif match and not match[2] and name not in state.odd:
                state.variables[name] = plain_value(*word.part(match.start(3), match.end(3)).pieces)
            elif match or (_ODD & flags and name in state.variables and not local):
                state.spoil(name, Reason.EXPANSION, word.place, several="A" in flags)
            elif local:
                state.variables[name] = Value()
            state.odd |= {name} if command == "readonly" or "r" in flags else set()
            if command == "export" or "x" in flags:
                state.exported = state.exported - {name} if "n" in flags else state.exported | {name}

    def set_options(self, words: Sequence[Argument], _: ScriptPlace) -> None:
        """Follow ``set -euo pipefail -- words``."""
        at = 1
        while at < len(words):
            text = words[at].text
            if text == "--" or text is None or not text.startswith(("-", "+")):
                self.state.variables["@"] = array_of(words[at + (text == "--") :], 1)
                break
            named = words[at + 1].text if text.endswith("o") and at + 1 < len(words) else ""
            if "e" in text or named == "errexit":
                self.state.stops_at_failure = text[0] == "-"
            at += 1 + text.endswith("o")

    def shift_words(self, words: Sequence[Argument], place: ScriptPlace) -> None:
        """Follow ``shift 2``."""
        text = words[1].text if len(words) > 1 else "1"
        count = int(text) if text is not None and _SMALL.fullmatch(text) else -1
        given = self.state.variables.get("@")
        if given is None or count < 0 or given.between(0, count).uncounted is not None:
            self.state.spoil("@", Reason.ARGUMENT, place, several=True)
        elif count < given.end or not count:
            moved = tuple((number - count, pieces) for number, pieces in given.elements[count:])
            self.state.variables["@"] = Value(moved, array=True)

    def unset_variables(self, words: Sequence[Argument], place: ScriptPlace) -> None:
        """Follow ``unset names``."""
        texts = [word.text for word in words[1:]]
        for text in texts:
            if text is None:
                self.state.forget(Unknown(Reason.EXPANSION, "unset", place))
            elif "-f" in texts:
                self.state.functions.pop(text, None)
            elif NAME.fullmatch(text):
                self.state.variables[text] = Value()
                self.state.exported -= {text}
            elif not text.startswith("-"):  # an array element
                self.state.spoil(text.partition("[")[0], Reason.EXPANSION, place, several=True)

    def read_variables(self, words: Sequence[Argument], place: ScriptPlace, given: Pieces | None) -> None:
        """Follow commands that read, print or calculate into variables: the variables become unknown.

        Only ``IFS=, read -ra names <<< line``, which scripts use to count devices, gives known values.
        """
        command, texts = words[0].text or "", [word.text for word in words[1:]]
        if command in ("printf", "wait") and texts[:1] not in (["-v"], ["-p"]):
            return
        if None in texts and command != "printf":
            self.state.forget(Unknown(Reason.INPUT, command, place))
        several = command in ("mapfile", "readarray") or any(re.fullmatch(r"-\w*a", text or "") for text in texts)
        names = {name for text in texts if text for name in NAME.findall(text)} | ({"MAPFILE"} if several else set())
        for name in names:
            self.state.spoil(name, Reason.INPUT, place, several=several)
        separator = self.state.variables.get("IFS")
        mark = text_of(separator.pieces) if separator is not None else None
        name = texts[-1] if texts[:-1] in (["-ra"], ["-r", "-a"]) else None
        line = (text_of(given or ()) or "").removesuffix("\n")
        known = line and mark and len(mark) == 1 and not mark.isspace() and "\n" not in line and not line.endswith(mark)
        if command == "read" and name and known:
            elements = enumerate((Piece(one, place),) for one in line.split(mark))
            self.state.variables[name] = Value(tuple(elements), array=True)


def _is_indexed(word: Word) -> bool:
    """Return whether an array element has the form ``[key]=value``."""
    first = word.parts[0] if word.parts else None
    return isinstance(first, QuotedText) and not first.quoted and first.text.startswith("[")
