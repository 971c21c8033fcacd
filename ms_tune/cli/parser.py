"""An argparse parser that speaks the user's language and raises :class:`UsageError` instead of exiting."""

from __future__ import annotations

import argparse
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ms_tune.cli.help_text import short, whole
from ms_tune.errors import MsTuneError, UsageError, closest
from ms_tune.report.console import usage_hint
from ms_tune.text import Language, Message, msg, render

if TYPE_CHECKING:
    from argparse import _MutuallyExclusiveGroup as Group
    from collections.abc import Callable, Iterable, Mapping


_FILES = (".yaml", ".yml", ".sh", ".py", ".log")  # what people name where a command is missing
_UNRECOGNIZED = "cli.usage.unrecognized"
# argparse words its complaints itself, in English; each pattern names the text that says the same in both languages.
_WHOLE = re.compile("0*[0-9]{1,18}", re.ASCII)  # with many more digits Python itself refuses, in words of its own
_COMPLAINTS = (
    (r"the following arguments are required: (?P<detail>.*)", "cli.usage.required"),
    (r"unrecognized arguments: (?P<detail>.*)", _UNRECOGNIZED),
    (
        r"argument (?P<argument>.*?): invalid choice: '?(?P<value>.*?)'? \(choose from (?P<choices>.*)\)",
        "cli.usage.choice",
    ),
    (r"argument (?P<argument>.*?): expected (?:one|at least one) argument", "cli.usage.expected-one"),
    (r"argument (?P<argument>.*?): not allowed with argument (?P<other>.*)", "cli.usage.not-allowed"),
    (r"argument (?P<argument>.*?): (?P<detail>.*)", "cli.usage.value"),
    (r"(?P<detail>.*)", "cli.usage.other"),
)


class UnknownArgumentError(UsageError):
    """A command does not have an argument."""


class _HelpAll(argparse.Action):
    """``--help-all``."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, Parser)  # noqa: S101 - it is added by no other
        parser._print_message(parser.format_help_all(), sys.stdout)  # noqa: SLF001 - as argparse's own help does
        parser.exit()


class Parser(argparse.ArgumentParser):
    """An argument parser whose help and complaints are in one language.

    Args:
        prog: How the user called the program or command.
        language: The language of help and complaints.
        description: The text for the top of the help.
        epilog: The text for its end, examples, if there is one.
    """

    def __init__(self, prog: str, language: Language, description: str, epilog: str | None = None) -> None:
        self.language = language
        self.before_examples = ""  # what the help says in front of them
        self._about = description, epilog
        self._helps: list[tuple[argparse.Action, Message]] = []
        # Help is laid out in ``help_text``; argparse's own formatter, made at every option, would look for a terminal each time.
        formatter = partial(argparse.HelpFormatter, width=80)
        super().__init__(prog=prog, formatter_class=formatter, add_help=False, allow_abbrev=False)
        self.option("-h, --help", "cli.help.help", action="help")
        self.option("--help-all", "cli.help.help-all", action=_HelpAll, nargs=0)

    def tr(self, text_id: str, **params: object) -> str:
        """A text in the parser's language."""
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
        """An argument with its text.

        Args:
            name: Its name; ``-h, --help`` for both.
            text_id: What the help says of it; nobody looks for that text before the help is shown.
            into: The group of options that do not go together, if it is one of them.
            among: What Tab offers in the shell, where that is no list of choices.
            params: The parameters of the text.
            how: What ``add_argument`` takes.
        """
        action = (into or self).add_argument(*name.split(", "), **how)
        self._helps.append((action, Message(text_id, params or {})))
        if among is not None:
            vars(action)["completer"] = lambda **_: among()  # asked for by argcomplete

    def flag(self, name: str, text_id: str, /, **how: Any) -> None:  # noqa: ANN401 - as above
        """An option that takes no value."""
        self.option(name, text_id, action="store_true", **how)

    def file(self, name: str, text_id: str, /, **how: Any) -> None:  # noqa: ANN401 - as above
        """An option that takes a file."""
        self.option(name, text_id, type=Path, metavar="FILE", **how)

    def add_common_arguments(self, *, json: bool = True) -> None:
        """Options that every command takes."""
        self.option("--lang", "cli.help.lang", choices=[language.value for language in Language])
        if json:
            self.flag("--json", "cli.help.json")

    def size(self, text: str) -> int:
        """An argparse type: ``64GB`` to bytes."""
        from ms_tune.units import parse_size  # noqa: PLC0415 - start-up time

        try:
            return parse_size(text)
        except ValueError:
            raise argparse.ArgumentTypeError(self.tr("cli.usage.size", value=text)) from None

    def count(self, text: str) -> int:
        """An argparse type: a whole number from 1 up."""
        number = _number(text)
        if not number:
            raise argparse.ArgumentTypeError(self.tr("cli.usage.positive-int", value=text))
        return number

    def natural(self, text: str) -> int:
        """An argparse type: a whole number from 0 up."""
        number = _number(text)
        if number is None:
            raise argparse.ArgumentTypeError(self.tr("cli.usage.natural", value=text))
        return number

    def actions(self) -> list[argparse.Action]:
        """All arguments, in the order in which they were added."""
        return self._actions

    def exclusive_groups(self) -> list[Group]:
        """Options that do not go together."""
        return self._mutually_exclusive_groups

    def write_texts(self) -> None:
        """Put the texts of the help in their places."""
        description, epilog = self._about
        self.description = self.tr(description)
        self.epilog = f"{self.before_examples}{self.tr(epilog)}" if epilog else None
        for action, message in self._helps:
            action.help = render(message, self.language)

    def format_help(self) -> str:
        """One screen, with examples; ``--help-all`` explains every option."""
        self.write_texts()
        return short(self)

    def format_help_all(self) -> str:
        """Every option with its explanation."""
        self.write_texts()
        return whole(self)

    def error(self, message: str) -> NoReturn:
        """Raise argparse's complaint as a :class:`UsageError` in words of both languages."""
        for pattern, text_id in _COMPLAINTS:
            match = re.fullmatch(pattern, message, re.DOTALL)
            if match:
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
        """What was meant by a misspelt option or choice; an empty text if nothing is like it."""
        if text_id == "cli.usage.choice":
            return closest(complaint["value"], re.findall(r"[^\s,']+", complaint["choices"]))
        if text_id == _UNRECOGNIZED:
            word = complaint["detail"].split()[0].partition("=")[0]
            known = {name.removeprefix("--"): name for name in self._option_string_actions if name.startswith("--")}
            return known.get(closest(word.lstrip("-"), known), "") if word.startswith("-") else ""
        return ""


def _number(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None


def share_argument(language: Language) -> Callable[[str], float]:
    """An argparse type: a number above 0 and below 1."""

    def convert(text: str) -> float:
        try:
            share = float(text)
        except ValueError:
            share = 0.0
        if not 0 < share < 1:
            raise argparse.ArgumentTypeError(render(msg("cli.usage.share", value=text), language))
        return share

    return convert


def checked_argument(language: Language, check: Callable[[str], object]) -> Callable[[str], str]:
    """An argparse type: a text that ``check`` takes without an error."""

    def convert(text: str) -> str:
        try:
            check(text)
        except MsTuneError as error:
            raise argparse.ArgumentTypeError(render(error.message, language)) from None
        return text

    return convert


def language_from_arguments(arguments: Iterable[str], default: Language) -> Language:
    """The language that ``--lang`` asks for, needed before there is a parser to parse it."""
    previous, found = "", default
    for argument in arguments:
        if argument == "--":
            break
        for language in Language:
            if argument == f"--lang={language.value}" or (previous == "--lang" and argument == language.value):
                found = language
        previous = argument
    return found
