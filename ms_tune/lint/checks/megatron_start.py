"""Checks of how a launch script starts a program: what its launcher is told, and what never gets to the program.

The launchers' options are those of :mod:`ms_tune.facts.launchers`. As argparse of CPython 3.10 to 3.14 has it, a name may be cut
short to one that only one option begins with. What bash does stands in its manual (4.1 ``export``, 3.1.2.1 backslashes).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.lint.checks.megatron import command_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.source.shell.read import Launch
    from ms_tune.source.shell.values import Argument

_PORTS = 65535
_APART = re.compile(r"^[ \t]*export[ \t]+([A-Za-z_]\w*)[ \t]+=", re.MULTILINE)
_COMMENT = re.compile(r"(?m)^[ \t]*#.*$")
_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1[^\n]*\n.*?^\t*\2$", re.MULTILINE | re.DOTALL)


def option_unknown(context: CheckContext) -> Iterator[Violation]:
    """Options that the launcher does not have: it stops over them."""
    source, command = command_in(context)
    launch = command.launch
    for word, written, similar in launch.unknown_options() if launch.launcher.counts else ():
        span = source.span_of(word) if word is not None else None
        params = {"launcher": launch.launcher.name, "name": written, "similar": similar}
        yield Violation((), "similar" if similar else "default", params, span=span)


def machine(context: CheckContext) -> Iterator[Violation]:
    """The machine's number is below the number of machines; ``msrun`` leaves it out of account where there is one only."""
    source, command = command_in(context)
    options, launcher = command.launch.options, command.launch.launcher
    word = options.get("node_rank")
    number = _number(word)
    machines = _machines(command.launch)
    if word is None or number is None or machines is None or number < machines:
        return
    if launcher.name != "msrun" or machines > 1:
        yield Violation((), "default", {"number": number, "machines": machines}, span=source.span_of(word))


def _machines(launch: Launch) -> int | None:
    options = launch.options
    if launch.launcher.name == "msrun":
        every, local = _number(options.get("worker_num")), _number(options.get("local_worker_num"))
        return every // local if every and local and every % local == 0 else None
    return _number(options.get("nnodes")) if launch.launcher.counts else None


def port(context: CheckContext) -> Iterator[Violation]:
    """A port is a number up to 65535."""
    source, command = command_in(context)
    word = command.launch.options.get("master_port")
    number = _number(word)
    if word is not None and number is not None and number > _PORTS and command.launch.launcher.counts:
        yield Violation((), "default", {"number": number}, span=source.span_of(word))


def cut_off(context: CheckContext) -> Iterator[Violation]:
    """Lines of options that bash takes for a command of their own, because the line before does not go on."""
    source, _ = command_in(context)
    for one in source.launches.others:
        text = one.words[0].text if one.words else None
        if text and text.startswith("--") and one.place.file is source.script:
            yield Violation((), "default", {"name": text.partition("=")[0]}, span=source.span_of(one.words[0]))


def exported_apart(context: CheckContext) -> Iterator[Violation]:
    """``export NAME = value``: three names for bash, of which one cannot be one."""
    source, _ = command_in(context)
    text = _DOCUMENT.sub(_blanks, _COMMENT.sub(_blanks, source.script.text))
    for match in _APART.finditer(text):
        yield Violation((), "default", {"name": match[1]}, span=source.script.span(match.start(1), match.end(1)))


def _blanks(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _number(word: Argument | None) -> int | None:
    text = word.text if word is not None else None
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else None  # noqa: PLR2004 - no port is as long
