"""What a shell offers when the user presses Tab: commands, options and choices, by argcomplete (extra ``completion``)."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ms_tune.cli.parser import Command
    from ms_tune.texts import Language

ASKED = "_ARGCOMPLETE"  # the variable with which a shell asks


def complete(commands: Mapping[str, str], load: Callable[[str], Command], language: Language) -> None:
    """Answer the shell and end the process; without argcomplete there is no answer.

    Args:
        commands: Every command with its module.
        load: Gives a module of commands by its name.
        language: The language of explanations, which some shells show.
    """
    try:
        import argcomplete  # noqa: PLC0415 - only where a shell asks
    except ModuleNotFoundError:
        return
    argcomplete.autocomplete(_parser(commands, load, language, os.environ.get("COMP_LINE", "").split()))


def _parser(
    commands: Mapping[str, str], load: Callable[[str], Command], language: Language, words: list[str]
) -> argparse.ArgumentParser:
    """A parser of the whole command line; of all commands only the one that was typed is imported."""
    parser = argparse.ArgumentParser(prog="ms-tune")
    places = parser.add_subparsers()
    for name, module in commands.items():
        if name not in words[1:]:
            places.add_parser(name)
            continue
        command = load(module)
        inner = getattr(command, "SUBCOMMANDS", {})
        deeper = next((word for word in words[2:] if word in inner), None)
        if deeper is None:
            one = command.build_parser(language)
            places.add_parser(name, parents=[one], add_help=False)
        else:
            below = places.add_parser(name).add_subparsers()
            one = load(inner[deeper][0]).build_parser(language)
            below.add_parser(deeper, parents=[one], add_help=False)
    return parser
