"""What a shell offers when the user presses Tab: commands, options and choices, by argcomplete (extra ``completion``)."""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.cli.parser import Command
    from ms_tune.texts import Language

ASKED = "_ARGCOMPLETE"  # the variable with which a shell asks


def complete(commands: Mapping[str, str], language: Language) -> None:
    """Answer the shell and end the process; without argcomplete there is no answer.

    Args:
        commands: Every command with its module.
        language: The language of explanations, which some shells show.
    """
    try:
        import argcomplete  # noqa: PLC0415 - only where a shell asks
    except ModuleNotFoundError:
        return
    argcomplete.autocomplete(_parser(commands, language, os.environ.get("COMP_LINE", "").split()))


def _parser(commands: Mapping[str, str], language: Language, words: list[str]) -> argparse.ArgumentParser:
    """A parser of the whole command line; of all commands only the one that was typed is imported."""
    parser = argparse.ArgumentParser(prog="ms-tune")
    places = parser.add_subparsers()
    for name, module in commands.items():
        if name not in words[1:]:
            places.add_parser(name)
            continue
        command = import_module(f"ms_tune.cli.{module}")
        inner = getattr(command, "SUBCOMMANDS", {})
        deeper = next((word for word in words[2:] if word in inner), None)
        if deeper is None:
            one = cast("Command", command).build_parser(language)
            places.add_parser(name, parents=[one], add_help=False)
        else:
            below = places.add_parser(name).add_subparsers()
            one = cast("Command", import_module(f"ms_tune.cli.{inner[deeper][0]}")).build_parser(language)
            below.add_parser(deeper, parents=[one], add_help=False)
    return parser
