"""Checks of a launch script as such: what its shell makes of it before a program's parser sees anything.

What bash does stands in its manual: a variable that is not set is nothing, words that come of it included (3.5.3); ``export``
reaches the programs that are started behind it (4.1).
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.lint.checks.megatron import command_in
from ms_tune.source.shell.state import FROM_OUTSIDE
from ms_tune.source.shell.values import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.dialects.megatron.arguments import ProgramArguments
    from ms_tune.dialects.megatron.commands import LaunchSource
    from ms_tune.source.shell.values import Argument

_SET = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)\+?=", re.MULTILINE)
_APART = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]+=|^[ \t]*([A-Za-z_]\w*)=[ \t]+[\w./]", re.MULTILINE)
_OPTIONS = re.compile(r"^[ \t]*([A-Za-z_]\w*)=[\"(](?:\s|\\\n)*--\w", re.MULTILINE)
_EXPORT = re.compile(r"^[ \t]*export[ \t]+([A-Za-z_]\w*)=[^\n]*", re.MULTILINE)
_COMMENT = re.compile(r"(?m)^[ \t]*#.*$")
_GROUP = re.compile(r"(?:ARG|ARGS|ARGUMENTS|OPTS|OPTIONS)$")
_SIMILAR, _NEARLY = 0.7, 0.9  # of two names: an ending such as ARG for ARGS; a letter of a long one
_DIGITS = "0123456789"  # in which names of several things differ
_LOCAL, _ALL = "local_worker_num", "worker_num"


def unset(context: CheckContext) -> Iterator[Violation]:
    """Variables among the program's arguments that the script sets nowhere, and that are named like a group of arguments."""
    source, command = command_in(context)
    meant = {name for name, _, _, _ in _misspelt(source, command)}
    for name, word in _unknown(command):
        if name not in meant and word.open and _GROUP.search(name) and not _option_of(word, command):
            yield Violation((), params={"name": name}, span=source.span_of(word))


def unset_values(context: CheckContext) -> Iterator[Violation]:
    """Options whose whole value is a variable that the script sets nowhere."""
    source, command = command_in(context)
    meant = {name for name, _, _, _ in _misspelt(source, command)}
    for name, word in _unknown(command):
        option = _option_of(word, command) if word.open else ""
        if option and name not in meant:
            yield Violation((), params={"name": name, "option": option}, span=source.span_of(word))


def not_evaluable(context: CheckContext) -> Iterator[Violation]:
    """Numbers, choices and words that may be options, where only a run could tell: what hangs on them is not checked."""
    source, command = command_in(context)
    found: dict[str, tuple[Argument, str]] = {}
    for one in command.given:
        value = next((word for word in one.values[: one.takes] if word.text is None), None)
        sized = any(row.type in ("int", "float") or row.choices for row in one.definitions)
        if value is not None and sized and value.unknown is not None and value.unknown.reason is not Reason.ENVIRONMENT:
            mark = "$" if value.unknown.reason in (Reason.ARGUMENT, Reason.CONDITION, Reason.LOOP, Reason.INPUT) else ""
            found[one.name] = (value, mark + value.unknown.name)
    for word, _ in command.hidden:
        if word.unknown is not None and word.unknown.reason not in (Reason.ENVIRONMENT, Reason.ARGUMENT):
            found[word.unknown.name] = (word, "")
    if found:
        names = ", ".join(
            f"{name} ({why.splitlines()[0]})" if why.strip() else name for name, (_, why) in found.items()
        )
        yield Violation((), params={"names": names}, span=source.span_of(next(iter(found.values()))[0]))


def _option_of(word: Argument, command: ProgramArguments) -> str:
    """The option whose whole value a word is; nothing if there is none."""
    if len(word.pieces) != 1:
        return ""
    launcher = (f"--{name}" for name, value in command.launch.options.items() if value is word)
    return next((one.name for one in command.given if one.takes == 1 and one.values[:1] == (word,)), next(launcher, ""))


def misspelt(context: CheckContext) -> Iterator[Violation]:
    """Variables of which the script tells that they were meant to be set.

    It has one of a similar name that nobody uses, one of nearly the same name, or sets it with a blank at the sign.
    """
    source, command = command_in(context)
    for name, word, message, similar in _misspelt(source, command):
        yield Violation((), message, {"name": name, "similar": similar}, span=source.span_of(word))


def _misspelt(source: LaunchSource, command: ProgramArguments) -> Iterator[tuple[str, Argument, str, str]]:
    """Each variable with its word, what is wrong, and the name that was perhaps meant."""
    text = _without_comments(source.script.text)
    names = list(dict.fromkeys(_SET.findall(text)))
    unused = [name for name in names if not _is_used(name, text)]
    apart = {name for pair in _APART.findall(text) for name in pair if name}
    for name, word in _unknown(command):
        if name in apart:
            yield name, word, "blank", ""
            continue
        like = [one for one in names if one[:2] == name[:2] and one.rstrip(_DIGITS) != name.rstrip(_DIGITS)]
        idle = [one for one in like if one in unused]
        cases = [one for one in names if one != name and one.lower() == name.lower()]
        similar = cases or get_close_matches(name, idle, 1, _SIMILAR) or get_close_matches(name, like, 1, _NEARLY)
        if similar:
            yield name, word, "default", similar[0]


def _without_comments(text: str) -> str:
    """The text with blanks in place of lines that are comments."""
    return _COMMENT.sub(lambda match: " " * len(match[0]), text)


def _unknown(command: ProgramArguments) -> Iterator[tuple[str, Argument]]:
    """The variables that nothing is known of but their names, each once, with the word that it stands in."""
    seen = set(FROM_OUTSIDE)
    told = (word for word in command.launch.options.values() if word is not None)
    for word in (*command.launch.arguments, *told):
        for piece in word.pieces:
            unknown = piece.unknown
            if unknown is None or unknown.reason is not Reason.ENVIRONMENT or not unknown.name.isidentifier():
                continue
            if unknown.name not in seen:
                seen.add(unknown.name)
                yield unknown.name, word


def _is_used(name: str, text: str) -> bool:
    return re.search(rf"\$\{{?[#!]?{name}\b|\bunset[^\n]*\b{name}\b|\[\[? -v {name}\b", text) is not None


def commands_meant_otherwise(context: CheckContext) -> Iterator[Violation]:
    """What bash runs where a variable was to be set: ``$TP=8``, ``TP =8``, ``TP= 8``, and ``$(A*B)`` for ``$((A*B))``."""
    source, command = command_in(context)
    text = _without_comments(source.script.text)
    known = {name for name, _, message, _ in _misspelt(source, command) if message == "blank"}
    for one in source.launches.others:
        if one.place.file is not source.script:
            continue
        raw = text[one.place.start : one.place.end]
        match = _DOLLAR.match(raw) or _BLANK.match(raw)
        blank = match is not None and not raw.startswith("$")
        ahead = match is not None and match[0].endswith("=")  # of the sign; behind it may stand a command that is meant
        if match is None or match[1] in known or (blank and not ahead and not _is_used(match[1], text)):
            continue
        span = source.script.span(one.place.start, one.place.start + match.end(1))
        yield Violation((), "blank" if blank else "dollar", {"name": match[1]}, span=span)
    for match in _PRODUCT.finditer(text):
        yield Violation((), "product", {"name": match[0]}, span=source.script.span(*match.span()))


_DOLLAR = re.compile(r"\$\{?([A-Za-z_]\w*)\}?=")
_BLANK = re.compile(r"([A-Za-z_]\w*)(?:[ \t]+=|=[ \t]+[\d\"'/$])")
_PRODUCT = re.compile(r"\$\([ \t]*\$?\{?\w+\}?[ \t]*[*][ \t]*\$?\{?\w+\}?[ \t]*\)(?!\))")


def never_given(context: CheckContext) -> Iterator[Violation]:
    """Groups of options that are set and given to nobody."""
    source, _ = command_in(context)
    text = _without_comments(source.script.text)
    if source.launches.read_from or source.launches.unknown:
        return  # they may be used, or set anew, there
    for match in _OPTIONS.finditer(text):
        if not _is_used(match[1], text):
            yield Violation((), "default", {"name": match[1]}, span=source.script.span(match.start(1), match.end(1)))


def exported_late(context: CheckContext) -> Iterator[Violation]:
    """Variables that are exported behind the last program that the script starts."""
    source, _ = command_in(context)
    found = source.launches
    started = [*(one.place for one in found.launches), *(one.place for one in found.others)]
    ends = [place.end for place in started if place.file is found.file]
    if len(ends) < len(started) or found.read_from:
        return
    seen = {name for launch in found.launches for name in launch.environment}
    for match in _EXPORT.finditer(found.file.text, max(ends)):
        if match[1] not in seen:
            yield Violation((), "default", {"name": match[1]}, span=found.file.span(match.start(1), match.end(1)))


def workers(context: CheckContext) -> Iterator[Violation]:
    """All processes of ``msrun`` are a multiple of those of one machine."""
    source, command = command_in(context)
    options = command.launch.options
    if command.launch.launcher.name != "msrun" or not (_LOCAL in options and _ALL in options):
        return
    local, every = (_count(options[name]) for name in (_LOCAL, _ALL))
    word = options[_LOCAL]
    if word is not None and local and every and every % local:
        yield Violation((), "default", {"local": local, "every": every}, span=source.span_of(word))


def _count(word: Argument | None) -> int | None:
    text = word.text if word is not None else None
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else None  # noqa: PLR2004


def around(context: CheckContext) -> Iterator[Violation]:
    """A script that sources itself, or files that source each other: bash goes round until it has no memory left."""
    source, _ = command_in(context)
    text = source.script.text
    own = _ITSELF.search(text)
    if own or any(one.reason is Reason.BOUND and one.name for one in source.launches.unknown):
        match = own or _SOURCES.search(text)
        yield Violation((), span=source.script.span(*(match.span() if match else (0, 0))))


_SOURCES = re.compile(r"^[ \t]*(?:source|\.)[ \t]+\S[^\n]*", re.MULTILINE)
_ITSELF = re.compile(r"^[ \t]*(?:source|\.)[ \t]+\"?\$\{?(?:0|BASH_SOURCE)(?:\[0\])?\}?\"?[ \t]*$", re.MULTILINE)
