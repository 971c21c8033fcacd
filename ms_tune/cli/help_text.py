"""The two help texts of a command: one screen with examples first, and every option explained, both by what options are about."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Protocol

from ms_tune.report.console import fold, folds, pad, terminal_width, text_width, wrap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH = 100
_EXAMPLE = re.compile(r"( +(?:ms-tune .*?|(?=  )))( {2,})(\S.*)")
_COMMAND = re.compile(r"( +)(ms-tune(?: \S+)*)")
_LEAST, _SET_IN = 24, 6  # columns that a comment beside an example takes at least; how far one below it is set in
# What an option is about, wherever it occurs; what is not named here is the command's own business.
_GROUPS = {
    "job": (
        "config",
        "devices",
        "set",
        "sweep",
        "layers",
        "stages",
        "stage",
        "ranks",
        "python",
        "framework-version",
        "dialect",
    ),
    "device": ("chip", "device-memory", "max-memory", "capacity", "limit", "reserve", "allow-tight", "peak", "real"),
    "run": ("jobs", "engine", "level", "timeout", "seed", "effort", "run-dir", "no-graph", "seconds"),
    "output": (
        *("json", "html", "csv", "format", "verbose", "statistics", "top", "force", "lang", "output", "export-table"),
        *("export-sapp", "perfetto", "perfetto-all", "exit-zero", "fail-on", "help", "help-all", "version"),
    ),
}
_ORDER = ("own", "job", "device", "run", "output")


class ParserTexts(Protocol):
    """A parser whose texts are in one language."""

    prog: str
    description: str | None
    epilog: str | None

    def tr(self, text_id: str, **params: object) -> str:
        """A text in the parser's language."""

    def actions(self) -> list[argparse.Action]:
        """All arguments, in the order in which they were added."""

    def exclusive_groups(self) -> list[argparse._MutuallyExclusiveGroup]:
        """Options that do not go together."""


def short(parser: ParserTexts) -> str:
    """One screen: how it is called, what it does, examples, and the names of its options."""
    columns = min(terminal_width(), _WIDTH)
    places = " ".join(_place(action) for action in parser.actions() if not action.option_strings)
    parts = [f"{parser.tr('cli.title.usage')}{parser.prog} [{parser.tr('cli.title.options')}] {places}".rstrip()]
    parts += [_flowing(parser.description, columns)] if parser.description else []
    parts += [parser.epilog] if parser.epilog else []
    found = _grouped(parser)
    titles = {name: parser.tr(f"cli.group.{name}") for name in found}
    width = max(map(text_width, titles.values()))
    lines = [parser.tr("cli.help.short", program=parser.prog)]
    for name, actions in found.items():
        names = " ".join(f"{_name(action)} ".replace(" ", "\0") for action in actions)
        for number, line in enumerate(wrap(names, columns - width - 4)):
            head = "" if number else titles[name]
            lines.append(f"  {pad(head, width)}  {line.replace(chr(0), ' ')}".rstrip())
    return fitted("\n\n".join([*parts, "\n".join(lines)]) + "\n")


def whole(parser: ParserTexts) -> str:
    """Everything, option by option."""
    formatter = argparse.RawDescriptionHelpFormatter(parser.prog, width=min(terminal_width(), _WIDTH))
    formatter.add_usage(None, parser.actions(), parser.exclusive_groups(), parser.tr("cli.title.usage"))
    formatter.add_text(parser.description)
    places = [action for action in parser.actions() if not action.option_strings]
    if places:
        formatter.start_section(parser.tr("cli.title.arguments"))
        formatter.add_arguments(places)
        formatter.end_section()
    for name, actions in _grouped(parser).items():
        formatter.start_section(parser.tr(f"cli.group.{name}"))
        formatter.add_arguments(actions)
        formatter.end_section()
    formatter.add_text(parser.epilog)
    return fitted(formatter.format_help())


def fitted(text: str) -> str:
    """A help text at the width of the terminal: what an example is for goes on below itself, or on a line of its own.

    Args:
        text: The text, made for 100 columns.
    """
    if not folds():
        return text
    return "\n".join(part for line in text.split("\n") for part in _fitted(line, terminal_width()))


def _fitted(line: str, width: int) -> list[str]:
    example = _EXAMPLE.fullmatch(line)
    alone = _COMMAND.fullmatch(line)
    if text_width(line) > width and alone:
        return _continued(alone[2], len(alone[1]), width)
    if text_width(line) <= width or not example:
        return fold(line, width)
    command, gap, comment = example.groups()
    column = text_width(command + gap)
    if width - column >= _LEAST:
        first, *rest = wrap(comment, width - column, prose=True)
        return [f"{command}{gap}{first}", *(" " * column + part for part in rest)]
    return [command, *(" " * _SET_IN + part for part in wrap(comment, width - _SET_IN, prose=True))]


def _continued(command: str, indent: int, width: int) -> list[str]:
    """A command in lines that a shell reads as one, broken in front of options."""
    parts = wrap(re.sub(r" (?!-)", "\0", command), width - indent - _SET_IN - 2)
    return [
        " " * (indent + (_SET_IN if number else 0))
        + part.replace("\0", " ")
        + (" \\" if number < len(parts) - 1 else "")
        for number, part in enumerate(parts)
    ]


def _flowing(text: str, columns: int) -> str:
    """A text whose lines are broken anew for so many columns; paragraphs with lines set in stay as they are."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        one
        if any(line.startswith(" ") for line in one.splitlines())
        else "\n".join(wrap(_joined(one), columns, prose=True))
        for one in paragraphs
    )


def _joined(paragraph: str) -> str:
    """One line of several: with a blank between words, with none between East Asian letters."""
    first, *rest = paragraph.splitlines()
    for line in rest:
        wide = text_width(first[-1:]) > 1 or text_width(line[:1]) > 1
        first += line if wide else f" {line}"
    return first


def _grouped(parser: ParserTexts) -> Mapping[str, Sequence[argparse.Action]]:
    """The options by what they are about, each as the command has them."""
    group_of = {option: name for name, options in _GROUPS.items() for option in options}
    found: dict[str, list[argparse.Action]] = {name: [] for name in _ORDER}
    for action in parser.actions():
        if action.option_strings and action.help is not argparse.SUPPRESS:
            found[group_of.get(action.option_strings[-1].lstrip("-"), "own")].append(action)
    return {name: actions for name, actions in found.items() if actions}


def _name(action: argparse.Action) -> str:
    """An option with its value, as it is written."""
    name = action.option_strings[-1]
    if action.nargs == 0:
        return name
    value = action.metavar if isinstance(action.metavar, str) else "|".join(map(str, action.choices or ("VALUE",)))
    import textwrap  # noqa: PLC0415 - start-up time

    value = textwrap.shorten(value, 24, placeholder="..")
    return f"{name}{value}" if value.startswith("[=") else f"{name} {value}"


def _place(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    name = f"{name}.." if action.nargs in ("*", "+") else name
    return f"[{name}]" if action.nargs in ("?", "*") else name
