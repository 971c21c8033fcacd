"""A program of MindSpeed-MM that a launch script starts, in front of checks: its arguments, and the JSON files that it is given.

Paths stand as they are seen from the folder that the script is started in, mostly the top of the repository: a file counts as
there if it is in the script's folder or in one of those above. Nothing is run.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ms_tune.dialects.megatron.arguments import command_in
from ms_tune.dialects.megatron.commands import LaunchSource, arguments_of
from ms_tune.errors import ConfigError
from ms_tune.source.shell.assignments import assignments
from ms_tune.source.shell.once import launches_in
from ms_tune.source.shell.read import MAX_BYTES, find_above, is_to_be_filled_in
from ms_tune.source.yaml import load_source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ms_tune.dialects.megatron.arguments import GivenArgument
    from ms_tune.source.shell.read import Launch
    from ms_tune.source.shell.values import Argument
    from ms_tune.source.yaml import SourceFile

_FILES = ("--mm-model", "--mm-data", "--mm-tool", "--fsdp2-config-path")
_TRAINER = "fsdp/train/trainer.py"
_ARGUMENTS_OF = "26.1"  # of MindSpeed-LLM, whose Megatron has the options that take no value


class MultimodalSource(LaunchSource):
    """One command of a script that starts a program of MindSpeed-MM."""

    @cached_property
    def variables(self) -> dict[str, str]:
        """The script's own variables that are plain texts, with the last of their values."""
        return {one.one.name: one.text for one in assignments(self.script.text) if one.text is not None}

    def given(self, name: str) -> GivenArgument | None:
        """The last word about an option."""
        return next((one for one in reversed(self.command.given) if one.name == name), None)

    def value_of(self, name: str) -> str | None:
        """The value of an option; None if there is none, or only a run could tell."""
        given = self.given(name)
        return given.values[0].text if given is not None and given.values else None

    def whole(self, name: str, default: int | None = None) -> int | None:
        """The whole number that an option is given, or its default; None if only a run could tell."""
        if self.given(name) is None:
            return None if self.command.open else default
        text = self.value_of(name)
        return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None  # noqa: PLR2004

    def has(self, name: str) -> bool:
        """Whether a switch is written."""
        return self.given(name) is not None

    def files(self) -> Iterator[tuple[str, Argument, Path | None]]:
        """The files that the program is given, each with its option, and where it is (None for one that is nowhere).

        What is to be filled in, and what only a run could tell, is left out.
        """
        named = [(one.name, one.values[0]) for one in self.command.given if one.name in _FILES and one.values]
        program = self.command.launch.program
        if program is not None and (program.text or "").endswith(_TRAINER):
            named += [("config", one) for one in self.command.launch.arguments[:1]]
        for name, word in named:
            text = word.text
            if text and text.endswith((".json", ".yaml", ".yml")) and not is_to_be_filled_in(text):
                yield name, word, find_above(self.path, text)

    def file(self, name: str) -> SourceFile | None:
        """The content of a file that an option names; None if there is none that can be read."""
        path = next((path for option, _, path in self.files() if option == name), None)
        try:
            return load_source(path) if path is not None and path.stat().st_size <= MAX_BYTES else None
        except (ConfigError, OSError):
            return None


def multimodal_commands(path: Path, text: str) -> tuple[MultimodalSource, ...]:
    """The programs of MindSpeed-MM that a script starts, each with its arguments."""
    if "--mm-" not in text and _TRAINER not in text:
        return ()
    found = launches_in(path, text)
    return tuple(
        arguments_of(path, found, number, command_in(launch, _ARGUMENTS_OF), MultimodalSource)
        for number, launch in enumerate(found.launches)
        if _is_multimodal(launch)
    )


def _is_multimodal(launch: Launch) -> bool:
    program = launch.program.text if launch.program is not None else None
    if program is not None and program.endswith(_TRAINER):
        return True
    return any((word.text or "").startswith("--mm-") for word in launch.arguments)
