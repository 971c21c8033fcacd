"""Define an argparse parser with bilingual texts that raises :class:`UsageError` and has a short and a full help.

The short help is one screen with examples first, the full help explains every option; both group options by topic.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ms_tune.cli import COMMANDS, TASKS
from ms_tune.errors import MsTuneError, UsageError, closest
from ms_tune.records import Any, NoReturn
from ms_tune.report.console import fold, folds, pad, terminal_width, text_width, usage_hint, wrap
from ms_tune.text import Language, Message, msg, render
from ms_tune.units import parse_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import _MutuallyExclusiveGroup as Group


_FILES = (".yaml", ".yml", ".sh", ".py", ".log")  # suffixes that suggest a file given without a command
_UNRECOGNIZED = "cli.usage.unrecognized"
# argparse has English messages only; map each pattern to the bilingual text with the same meaning.
_NUMBER = "0*[0-9]{1,18}"  # Python rejects numbers with many more digits with its own message
_COMPLAINTS = (
    (r"the following arguments are required: (?P<detail>.*)", "cli.usage.required"),
    (r"unrecognized arguments: (?P<detail>.*)", _UNRECOGNIZED),
    (
        r"argument (?P<argument>.*?): invalid choice: '?(?P<value>.*?)'? \(choose from (?P<choices>.*)\)",
        "cli.usage.choice",
    ),
    (r"argument (?P<argument>.*?): expected (?:one|at least one) argument", "cli.usage.expected-one"),
    (r"argument (?P<option>.*?): not allowed with argument (?P<other>.*)", "cli.usage.not-allowed"),
    (r"argument (?P<argument>.*?): (?P<detail>.*)", "cli.usage.value"),
    (r"(?P<detail>.*)", "cli.usage.other"),
)

_WIDTH = 100
_EXAMPLE = r"( +(?:ms-tune .*?|(?=  )))( {2,})(\S.*)"
_COMMAND = r"( +)(ms-tune(?: \S+)*)"
_LONGEST = 24  # characters of an option's value in the short help
_LEAST, _SET_IN = 24, 6  # minimum columns of a comment next to an example; indentation of continued lines
# The topic of an option, in all commands; other options belong to the command itself.
_GROUPS = {
    "job": (
        *("config", "devices", "set", "sweep", "layers", "stages", "stage", "ranks", "python"),
        *("framework-version", "dialect"),
    ),
    "device": ("chip", "device-memory", "max-memory", "capacity", "limit", "reserve", "allow-tight", "peak", "real"),
    "run": ("jobs", "engine", "level", "timeout", "seed", "effort", "run-dir", "no-graph", "seconds"),
    "output": (
        *("json", "html", "csv", "format", "verbose", "quiet", "statistics", "top", "force", "lang", "output"),
        *("export-table", "export-sapp", "perfetto", "perfetto-all", "exit-zero", "fail-on", "help", "help-all"),
        "version",
    ),
}


argparse._ = str  # type: ignore[attr-defined]  # never translated, because the messages above are in English


class UnknownArgumentError(UsageError):
    """Error raised for an argument that a command does not have."""


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, Parser)  # noqa: S101 - only added by Parser
        parser._print_message(parser.format_help_all(), sys.stdout)  # noqa: SLF001 - as argparse's own help does
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Argument parser with help and error messages in one language."""

    def __init__(self, prog: str, language: Language, description: str, epilog: str | None = None) -> None:
        self.language = language
        self.before_examples = ""  # help text before the examples
        self.removed_options: dict[str, str] = {}  # with the text ID of the replacement
        self._about = description, epilog
        self._helps: list[tuple[argparse.Action, Message]] = []
        # argparse creates a formatter per option, which would look up the terminal size each time: use a fixed width.
        formatter = partial(argparse.HelpFormatter, width=80)
        super().__init__(prog=prog, formatter_class=formatter, add_help=False, allow_abbrev=False)
        self.option("-h, --help", "cli.help.help", action="help")
        self.option("--help-all", "cli.help.help-all", action=_HelpAll, nargs=0)

    def tr(self, text_id: str, **params: object) -> str:
        """Return a text in the parser's language."""
        return render(Message(text_id, params), self.language)

    def option(
        self,
        name: str,
        text_id: str,
        /,
        *,
        into: Group | None = None,
        among: Callable[[], Iterable[str]] | None = None,
        params: Mapping[str, object] | None = None,
        **how: Any,  # noqa: ANN401 - as argparse
    ) -> None:
        """Add an argument with its help text.

        Args:
            name: The option, or both forms (``-h, --help``).
            text_id: The help text, looked up only when the help is shown.
            into: The group of mutually exclusive options, if any.
            among: Values for shell completion, if the option has no list of choices.
            params: The parameters of the text.
            how: Arguments of ``add_argument``.
        """
        action = (into or self).add_argument(*name.split(", "), **how)
        self._helps.append((action, Message(text_id, params or {})))
        if among is not None:
            vars(action)["completer"] = lambda **_: among()  # called by argcomplete

    def flag(self, name: str, text_id: str, /, **how: Any) -> None:  # noqa: ANN401 - as above
        """Add an option without a value."""
        self.option(name, text_id, action="store_true", **how)

    def file(self, name: str, text_id: str, /, **how: Any) -> None:  # noqa: ANN401 - as above
        """Add an option with a file as its value."""
        self.option(name, text_id, type=Path, metavar="FILE", **how)

    def add_common_arguments(self, *, json: bool = True, verdict: bool = True) -> None:
        """Add the options of every command: ``--json`` only for one with a result, ``-v`` and ``-q`` only for one with a verdict."""
        self.option("--lang", "cli.help.lang", choices=[language.value for language in Language])
        if json:
            self.flag("--json", "cli.help.json")
        if json and verdict:
            length = self.add_mutually_exclusive_group()
            self.flag("-v, --verbose", "cli.help.verbose", into=length)
            self.flag("-q, --quiet", "cli.help.quiet", into=length)

    def size(self, text: str) -> int:
        """Parse a size such as ``64GB`` to bytes (an argparse type)."""
        try:
            return parse_size(text)
        except ValueError:
            raise argparse.ArgumentTypeError(self.tr("cli.usage.size", value=text)) from None

    def signed_size(self, text: str) -> int:
        """Parse a size that may be negative (an argparse type)."""
        return -self.size(text[1:]) if text.startswith("-") else self.size(text)

    def count(self, text: str) -> int:
        """Parse a positive integer (an argparse type)."""
        number = _number(text)
        if not number:
            raise argparse.ArgumentTypeError(self.tr("cli.usage.positive-int", value=text))
        return number

    def natural(self, text: str) -> int:
        """Parse an integer >= 0 (an argparse type)."""
        number = _number(text)
        if number is None:
            raise argparse.ArgumentTypeError(self.tr("cli.usage.natural", value=text))
        return number

    def share(self, text: str) -> float:
        """Parse a number between 0 and 1 (an argparse type)."""
        return self._number_below(1, text, "cli.usage.share")

    def positive(self, text: str) -> float:
        """Parse a positive number (an argparse type)."""
        return self._number_below(float("inf"), text, "metrics.positive")

    def _number_below(self, limit: float, text: str, text_id: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = 0.0
        if not 0 < number < limit:
            raise argparse.ArgumentTypeError(self.tr(text_id, value=text))
        return number

    def check(self, refuse: Callable[[str], object], text: str) -> str:
        """Return the text if a function accepts it, else report the function's error (an argparse type with ``partial``)."""
        try:
            refuse(text)
        except MsTuneError as error:
            raise argparse.ArgumentTypeError(render(error.message, self.language)) from None
        return text

    def actions(self) -> list[argparse.Action]:
        """Return all arguments, in the order in which they were added."""
        return self._actions

    def exclusive_groups(self) -> list[Group]:
        """Return the groups of mutually exclusive options."""
        return self._mutually_exclusive_groups

    def write_texts(self) -> None:
        """Fill in the help texts."""
        description, epilog = self._about
        self.description = self.tr(description)
        self.epilog = f"{self.before_examples}{self.tr(epilog)}" if epilog else None
        for action, message in self._helps:
            action.help = render(message, self.language)

    def format_help(self) -> str:
        """Return the short help with examples; ``--help-all`` explains every option."""
        self.write_texts()
        return _short_help(self)

    def format_help_all(self) -> str:
        """Return the help with every option explained."""
        self.write_texts()
        return _whole_help(self)

    def error(self, message: str) -> NoReturn:
        """Raise argparse's error as a :class:`UsageError` with a bilingual message."""
        for pattern, text_id in _COMPLAINTS:
            match = re.fullmatch(pattern, message, re.DOTALL)
            if match:
                option = match.groupdict().get("detail", "").partition(" ")[0].partition("=")[0]
                if text_id == _UNRECOGNIZED and option in self.removed_options:
                    raise UsageError(msg("cli.usage.removed", option=option), msg(self.removed_options[option]))
                hint, similar = usage_hint(self.prog), self._similar(text_id, match.groupdict())
                word = match.groupdict().get("value", "")
                if text_id == "cli.usage.choice" and not similar and Path(word).suffix in _FILES:
                    hint = msg("cli.usage.file", file=word)
                if similar:
                    hint = msg("cli.usage.similar", similar=similar, hint=hint)
                kind = UnknownArgumentError if text_id == _UNRECOGNIZED else UsageError
                raise kind(msg(text_id, **match.groupdict()), hint)
        raise AssertionError(message)

    def _similar(self, text_id: str, complaint: Mapping[str, str]) -> str:
        """Return the option or choice most similar to a misspelt one; an empty string if nothing is similar."""
        if text_id == "cli.usage.choice":
            return closest(complaint["value"], re.findall(r"[^\s,']+", complaint["choices"]))
        if text_id == _UNRECOGNIZED:
            word = complaint["detail"].split()[0].partition("=")[0]
            known = {name.removeprefix("--"): name for name in self._option_string_actions if name.startswith("--")}
            return known.get(closest(word.lstrip("-"), known), "") if word.startswith("-") else ""
        return ""


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(_NUMBER, text) else None


def language_from_arguments(arguments: Iterable[str], default: Language) -> Language:
    """Return the language of ``--lang``, which is needed before a parser exists."""
    previous, found = "", default
    for argument in arguments:
        if argument == "--":
            break
        for language in Language:
            if argument == f"--lang={language.value}" or (previous == "--lang" and argument == language.value):
                found = language
        previous = argument
    return found


def refuse_options(
    arguments: argparse.Namespace, names: Iterable[str], text_id: str, hint: Message | None = None, **params: object
) -> None:
    """Raise :class:`UsageError` if an option was given that does not apply here; ``params`` are further ones of the text."""
    values = ((name, getattr(arguments, name, None)) for name in names)
    given = [f"--{name.replace('_', '-')}" for name, value in values if value not in (None, []) and value is not False]
    if given:
        raise UsageError(msg(text_id, option=given[0], options=", ".join(given), **params), hint)


def _short_help(parser: Parser) -> str:
    columns = min(terminal_width(), _WIDTH)
    places = " ".join(_place(action) for action in parser.actions() if not action.option_strings)
    parts = [f"{parser.tr('cli.title.usage')}{parser.prog} [{parser.tr('cli.title.options')}] {places}".rstrip()]
    parts += [_wrap_again(parser.description, columns)] if parser.description else []
    parts += [parser.epilog] if parser.epilog else []
    found = _group_options(parser)
    titles = {name: parser.tr(f"cli.group.{name}") for name in found}
    width = max(map(text_width, titles.values()))
    lines = [parser.tr("cli.help.short", program=parser.prog)]
    for name, actions in found.items():
        names = " ".join(f"{_name(action)} ".replace(" ", "\0") for action in actions)
        for number, line in enumerate(wrap(names, columns - width - 4)):
            head = "" if number else titles[name]
            lines.append(f"  {pad(head, width)}  {line.replace(chr(0), ' ')}".rstrip())
    return fit_to_terminal("\n\n".join([*parts, "\n".join(lines)]) + "\n")


def _whole_help(parser: Parser) -> str:
    formatter = argparse.RawDescriptionHelpFormatter(parser.prog, width=min(terminal_width(), _WIDTH))
    formatter.add_usage(None, parser.actions(), parser.exclusive_groups(), parser.tr("cli.title.usage"))
    formatter.add_text(parser.description)
    places = [action for action in parser.actions() if not action.option_strings]
    if places:
        formatter.start_section(parser.tr("cli.title.arguments"))
        formatter.add_arguments(places)
        formatter.end_section()
    for name, actions in _group_options(parser).items():
        formatter.start_section(parser.tr(f"cli.group.{name}"))
        formatter.add_arguments(actions)
        formatter.end_section()
    formatter.add_text(parser.epilog)
    return fit_to_terminal(formatter.format_help())


def list_commands(tr: Callable[..., str]) -> str:
    """Return the commands by task, with a line about each; ``tr`` returns the text with an ID."""
    parts = []
    for task, names in TASKS.items():
        lines = [f"  {name:<22}{tr(f'{COMMANDS[name]}.summary')}" for name in names]
        parts.append("\n".join([tr("cli.labelled", label=tr(f"cli.task.{task}"), text="").rstrip(), *lines]))
    return "\n\n".join(parts)


def fit_to_terminal(text: str) -> str:
    """Wrap a help text to the terminal's width; comments of examples continue below themselves or on their own line."""
    if not folds():
        return text
    return "\n".join(part for line in text.split("\n") for part in _fit_line(line, terminal_width()))


def _fit_line(line: str, width: int) -> list[str]:
    example = re.fullmatch(_EXAMPLE, line)
    alone = re.fullmatch(_COMMAND, line)
    if text_width(line) > width and alone:
        return _break_command(alone[2], len(alone[1]), width)
    if text_width(line) <= width or not example:
        return fold(line, width)
    command, gap, comment = example.groups()
    column = text_width(command + gap)
    if width - column >= _LEAST:
        first, *rest = wrap(comment, width - column, prose=True)
        return [f"{command}{gap}{first}", *(" " * column + part for part in rest)]
    return [command, *(" " * _SET_IN + part for part in wrap(comment, width - _SET_IN, prose=True))]


def _break_command(command: str, indent: int, width: int) -> list[str]:
    """Break a command before options, into lines joined by backslashes."""
    parts = wrap(re.sub(r" (?!-)", "\0", command), width - indent - _SET_IN - 2)
    return [
        " " * (indent + (_SET_IN if number else 0))
        + part.replace("\0", " ")
        + (" \\" if number < len(parts) - 1 else "")
        for number, part in enumerate(parts)
    ]


def _wrap_again(text: str, columns: int) -> str:
    """Wrap a text again to a number of columns; paragraphs with indented lines stay unchanged."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        one
        if any(line.startswith(" ") for line in one.splitlines())
        else "\n".join(wrap(_join_lines(one), columns, prose=True))
        for one in paragraphs
    )


def _join_lines(paragraph: str) -> str:
    """Join lines, with a blank in between except next to East Asian characters."""
    first, *rest = paragraph.splitlines()
    for line in rest:
        wide = text_width(first[-1:]) > 1 or text_width(line[:1]) > 1
        first += line if wide else f" {line}"
    return first


def _group_options(parser: Parser) -> Mapping[str, Sequence[argparse.Action]]:
    group_of = {option: name for name, options in _GROUPS.items() for option in options}
    found: dict[str, list[argparse.Action]] = {name: [] for name in ("own", "job", "device", "run", "output")}
    for action in parser.actions():
        if action.option_strings and action.help is not argparse.SUPPRESS:
            found[group_of.get(action.option_strings[-1].lstrip("-"), "own")].append(action)
    return {name: actions for name, actions in found.items() if actions}


def _name(action: argparse.Action) -> str:
    name = action.option_strings[-1]
    if action.nargs == 0:
        return name
    value = action.metavar if isinstance(action.metavar, str) else "|".join(map(str, action.choices or ("VALUE",)))
    value = value if len(value) <= _LONGEST else "..."
    return f"{name}{value}" if value.startswith("[=") else f"{name} {value}"


def _place(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    name = f"{name}..." if action.nargs in ("*", "+") else name
    return f"[{name}]" if action.nargs in ("?", "*") else name
