"""A program that a launch script starts, in front of checks: its arguments are the keys, as they hold in the end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ms_tune.config.spans import EditRefusedError
from ms_tune.config.yaml_nodes import Document, Entry, Node
from ms_tune.launch.options import Command, command_of
from ms_tune.launch.read import read_launches
from ms_tune.lint.code_source import CodeSource
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import NoReturn

    from ms_tune.config.source import Span
    from ms_tune.launch.values import Argument, File
    from ms_tune.lint.checklist import FixRule
    from ms_tune.lint.context import Violation
    from ms_tune.lint.finding import Fix

# What only stands in scripts around MindSpore, and what only stands in those around PyTorch.
_MINDSPORE = re.compile(r"mindspore|msadapter|mindformer|\bmsrun\b|\bMS_[A-Z]", re.IGNORECASE)
_PYTORCH = re.compile(
    r"\btorchrun\b|\btorch\.distributed\b|\bdeepspeed\b|\baccelerate\b|\b(?:PY)?TORCH_[A-Z]|torch_npu"
)
_COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)


@dataclass(frozen=True)
class LaunchSource(CodeSource):
    """One command of a script.

    Args:
        command: What its program is given.
        script: The script's own file: places in others are shown where the command stands.
    """

    command: Command = field(repr=False, compare=False)
    script: File = field(repr=False, compare=False)

    def span_of(self, word: Argument) -> Span:
        """Where a word stands in the script; the command if it stands in another file."""
        place = word.place if word.place.file is self.script else self.command.launch.place
        return self.script.span(place.start, place.end) if place.file is self.script else self.script.span(0, 0)

    def again(self, text: str) -> LaunchSource:
        """Not done: what is found in arguments has no fix yet."""
        return self._refuse(text)

    def fix(self, rule: FixRule, violation: Violation) -> Fix:
        """Not done, as above."""
        return self._refuse(rule, violation)

    def proves(self, fixes: Sequence[Fix]) -> bool:
        """Nothing is fixed, so nothing is proved."""
        return not fixes

    def quoted(self) -> list[tuple[int, int]]:
        """A comment of a script is one wherever it stands."""
        return []

    def _refuse(self, *_: object) -> NoReturn:
        raise EditRefusedError(msg("edits.not-here"))


def is_pytorch(path: Path, text: str) -> bool:
    """Whether a script starts PyTorch programs and nothing in it is about MindSpore."""
    words = _COMMENT.sub("", text)
    if _MINDSPORE.search(words) or not _PYTORCH.search(words):
        return False
    return bool(read_launches(path, text.removeprefix("\ufeff")).launches)


def commands_in(path: Path, text: str, release: str) -> tuple[LaunchSource, ...]:
    """The programs of MindSpeed-LLM that a script starts, each with its arguments.

    Args:
        path: The script.
        text: Its text.
        release: The release of MindSpeed-LLM whose parser reads the arguments.
    """
    found = read_launches(path, text.removeprefix("\ufeff"))
    commands = (command_of(launch, release) for launch in found.launches)
    return tuple(_source(path, found.file, command) for command in commands if command is not None)


def _source(path: Path, script: File, command: Command) -> LaunchSource:
    lines = Document(script.text, path)
    source = LaunchSource(path, script.text, {}, (), Node(lines.span(0, 0), {}, None, 1, 1, []), command, script)
    entries: dict[str | int, Entry] = {}
    data: dict[str, object] = {}
    for one in command.given:
        spans = [source.span_of(value) for value in one.values]
        span = spans[0] if spans else source.span_of(one.word)
        entries[one.name] = Entry(source.span_of(one.word), Node(span, {}, None, 1, 1, []), None)
        data[one.name] = [value.text for value in one.values] or None
    place = command.launch.place
    start, end = (place.start, place.end) if place.file is script else (0, 0)
    root = Node(lines.span(start, end), entries, None, 1 + len(entries), 2, [])
    return LaunchSource(path, script.text, data, (), root, command, script)
