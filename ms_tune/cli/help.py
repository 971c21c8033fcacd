"""Define ``ms-tune help``: an overview of the commands, the help of one command, or the explanation of a check."""

from __future__ import annotations

from argparse import Namespace

from ms_tune.cli import COMMANDS, rule
from ms_tune.cli.parser import Parser, fit_to_terminal, list_commands
from ms_tune.errors import ExitCode, UsageError, closest
from ms_tune.report.console import Console, terminal_width, wrap
from ms_tune.text import Language, msg


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = Parser("ms-tune help", language, "help.description", "help.examples")
    parser.option("words", "help.help.words", nargs="*", metavar="COMMAND|CHECK", among=lambda: COMMANDS)
    parser.add_common_arguments(json=False)
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Show the overview, or explain checks; the help of a command is that command's own."""
    if not arguments.words:
        about = "\n".join(wrap(console.text("cli.description"), terminal_width(), prose=True))
        parts = (about, list_commands(console.text), console.text("help.further"))
        console.write_raw(fit_to_terminal("\n\n".join(parts)))
        return ExitCode.OK
    try:
        code: ExitCode = rule.run(rule.build_parser(console.language).parse_args(arguments.words), console)
    except UsageError as error:
        similar = closest(arguments.words[0], COMMANDS)
        hint = msg("cli.usage.similar", similar=similar, hint=error.hint) if similar else error.hint
        raise UsageError(msg("help.unknown", name=arguments.words[0]), hint) from None
    return code
