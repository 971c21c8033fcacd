"""Define ``ms-tune schema``, which writes a JSON Schema of the configs for editors."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from shlex import quote

from ms_tune.cli.parser import Parser
from ms_tune.encode import json_text
from ms_tune.enums import YAML_DIALECTS, Dialect
from ms_tune.errors import ConfigError, ExitCode, UsageError
from ms_tune.facts.query import release_of
from ms_tune.job.detect import recognise
from ms_tune.lint.schema import schema
from ms_tune.report.console import Console, usage_hint
from ms_tune.source.atomic_write import write_atomically, write_back
from ms_tune.source.edit import same_data
from ms_tune.source.yaml import SourceFile, load_source, parse_source
from ms_tune.text import Language, msg

_PROGRAM = "ms-tune schema"
# yaml-language-server's rule for a modeline (modelineUtil.ts); only comments before the document count.
_MODELINE = re.compile(r"^#[ \t]+(?:yaml-language-server[ \t]*:|\$schema:)[^\r\n]*", re.MULTILINE)
_HEADER = re.compile(r"(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n))*")
_LINE_BREAK = re.compile("\r\n|\r|\n")


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = Parser(_PROGRAM, language, "schema.description", "schema.examples")
    parser.option("--dialect", "schema.help.dialect", choices=[dialect.value for dialect in YAML_DIALECTS])
    parser.option("--framework-version", "schema.help.version", metavar="VERSION")
    parser.file("--install", "schema.help.install")
    parser.file("--output", "schema.help.output")
    parser.add_common_arguments(verdict=False)
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Print or write the schema, or install it for editors."""
    if arguments.install is None:
        if arguments.dialect is None:
            raise UsageError(msg("schema.which"), usage_hint(_PROGRAM))
        made = _make_schema(Dialect(arguments.dialect), arguments.framework_version)
        if arguments.output is None:
            console.write_json(made)
        else:
            write_atomically(arguments.output, _encode_schema(made))
            console.note(console.text("schema.written", file=arguments.output))
        return ExitCode.OK
    source = load_source(arguments.install)
    found = recognise(source.data)
    dialect = Dialect(arguments.dialect) if arguments.dialect else found.dialect
    if dialect is None:
        command = f"{_PROGRAM} --install {quote(str(source.path))}"
        hint = msg("lint.dialect-hint", command=command, dialects="|".join(one.value for one in YAML_DIALECTS))
        raise ConfigError(found.why_not or msg("lint.not-a-config"), hint, path=source.path)
    file = arguments.output or source.path.parent / ".ms-tune" / f"{dialect.value}.schema.json"
    content = _encode_schema(_make_schema(dialect, arguments.framework_version))
    relative = Path(os.path.relpath(file.absolute(), source.path.absolute().parent)).as_posix()
    relative = relative if relative.startswith("../") else f"./{relative}"
    _install_modeline(source, relative, lambda: write_atomically(file, content, parents=True))
    console.note(console.text("schema.installed", file=file, config=source.path))
    return ExitCode.OK


def _make_schema(dialect: Dialect, version: str | None) -> dict[str, object]:
    return schema(dialect, None if version is None else release_of(version, dialect))


def _encode_schema(made: dict[str, object]) -> bytes:
    return (json_text(made, indent=1) + "\n").encode()


def _install_modeline(source: SourceFile, relative: str, write_schema: Callable[[], None]) -> None:
    """Add or replace the modeline at the top of a config and write the schema next to it: both or neither."""
    text = source.text
    line = f"# yaml-language-server: $schema={relative}"
    header = _HEADER.match(text)
    old = _MODELINE.search(text, 0, header.end() if header else 0)
    if old:
        fixed = text[: old.start()] + line + text[old.end() :]
    else:
        found = _LINE_BREAK.search(text)
        fixed = line + (found[0] if found else "\n") + text
    if fixed == text:
        write_schema()
        return
    if not same_data(parse_source(fixed, source.path).data, source.data):
        raise AssertionError(fixed)
    write_back(source.path, text, fixed, write_schema)
