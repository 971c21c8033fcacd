"""Readers of environment settings. Scripts are read by :mod:`ms_tune.source.shell`; nothing is run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.lint.environment.settings import Assignment, Environment
from ms_tune.lint.environment.variables import FOREIGN, KNOWN
from ms_tune.source.shell.read import assignments, content
from ms_tune.source.yaml_nodes import Document

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENV_LINE = re.compile(
    r"^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(?P<value>[^\r\n]*)", re.MULTILINE
)
_LINE_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")


def read_env_file(path: Path) -> Environment:
    """The settings of a ``.env`` file.

    Raises:
        ConfigError: The file cannot be read.
    """
    return parse_env(content(path), path)


def read_shell(path: Path) -> Environment:
    """The settings of a shell script: exports, plain assignments, and those in front of a command.

    Raises:
        ConfigError: The file cannot be read.
    """
    return parse_shell(content(path), path)


def from_process(variables: Mapping[str, str]) -> Environment:
    """The settings of a process, such as ``os.environ``; variables that say nothing about MindSpore are left alone."""
    text = "".join(f"{name}={variables[name]}\n" for name in sorted((KNOWN | FOREIGN.keys()) & set(variables)))
    return parse_env(text, Path("environment"), raw=True)


def parse_env(text: str, path: Path, *, raw: bool = False) -> Environment:
    """The settings of a text of lines ``NAME=value``; ``raw`` takes quotes and ``#`` as they stand."""
    text = text.removeprefix("\ufeff")
    lines = Document(text, path)
    found = []
    for match in _ENV_LINE.finditer(text):
        start, end = match.span("value")
        words = text[start:end].rstrip()
        if not raw and not words.startswith(("'", '"')):
            words = _LINE_COMMENT.sub("", words).rstrip()
        elif not raw:
            words = words[: words.find(words[0], 1) + 1] or words
        value = words if raw else _unquoted(words)
        key = lines.span(*match.span("name"))
        found.append(Assignment(match["name"], value, key, lines.span(start, start + len(words))))
    return Environment(path, text, tuple(found), None if raw else parse_env)


def parse_shell(text: str, path: Path) -> Environment:
    """The settings of a shell script's text."""
    text = text.removeprefix("\ufeff")
    lines = Document(text, path)
    found = [
        Assignment(
            one.one.name,
            one.text,
            lines.span(one.one.start, one.one.start + len(one.one.name)),
            lines.span(one.one.value_start, one.one.end),
            one.block,
            one.extends,
        )
        for one in assignments(text)
    ]
    return Environment(path, text, tuple(found), parse_shell)


def _unquoted(words: str) -> str:
    """What a shell makes of quotes and backslashes."""
    parts = re.findall(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)|([^'\"\\]+)|(.)", words, re.DOTALL)
    return "".join(
        single or re.sub(r"\\([\"\\$`])", r"\1", double) or escaped or plain
        for single, double, escaped, plain, _ in parts
    )
