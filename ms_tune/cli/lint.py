"""``ms-tune lint``: check configs against the checklists."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.cli.parser import Parser
from ms_tune.config.dialects.recognise import Dialect, recognise
from ms_tune.config.source import load_source
from ms_tune.errors import ConfigError, ExitCode
from ms_tune.lint.checklist import built_in, load_checklist
from ms_tune.lint.engine import lint
from ms_tune.lint.finding import Severity
from ms_tune.lint.report import FileReport, Report
from ms_tune.lint.versions import DEFAULT_VERSIONS, VERSION
from ms_tune.texts import Language, msg, render

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ms_tune.config.source import SourceFile
    from ms_tune.lint.checklist import Check
    from ms_tune.render.console import Console


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser(
        prog="ms-tune lint", language=language, description=msg("lint.description"), epilog=msg("lint.examples")
    )
    parser.add_argument("files", nargs="+", metavar="FILE", type=Path, help=parser.tr("lint.help.file"))
    parser.add_argument(
        "--dialect", choices=[dialect.value for dialect in Dialect], help=parser.tr("lint.help.dialect")
    )
    parser.add_argument(
        "--framework-version",
        metavar="VERSION",
        type=_version_argument(language),
        help=parser.tr(
            "lint.help.version",
            versions=", ".join(f"{dialect.value} {version}" for dialect, version in DEFAULT_VERSIONS.items()),
        ),
    )
    parser.add_argument(
        "--checklist", metavar="FILE", type=Path, action="append", default=[], help=parser.tr("lint.help.checklist")
    )
    parser.add_argument(
        "--fail-on",
        choices=[severity.value for severity in Severity],
        default=Severity.WARNING.value,
        help=parser.tr("lint.help.fail-on"),
    )
    parser.add_common_arguments()
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Check every file; a file that cannot be read does not keep the others from being checked."""
    own = [check for path in arguments.checklist for check in load_checklist(path)]
    files = []
    unreadable = 0
    for path in arguments.files:
        try:
            files.append(_check(path, own, arguments, console))
        except ConfigError as error:
            console.fail(error)
            unreadable += 1
    report = Report(tuple(files), unreadable)
    if arguments.json:
        from ms_tune.render.lint_json import lint_json  # noqa: PLC0415 - one renderer is needed, not both

        console.write_json(lint_json(report, console.language))
    else:
        from ms_tune.render.lint_text import write_lint  # noqa: PLC0415 - as above

        write_lint(report, console)
    if unreadable:
        return ExitCode.USAGE
    return ExitCode.FINDINGS if report.reaches(Severity(arguments.fail_on)) else ExitCode.OK


def _check(path: Path, own: list[Check], arguments: Namespace, console: Console) -> FileReport:
    source = load_source(path)
    dialect = Dialect(arguments.dialect) if arguments.dialect else _recognise(source, console)
    if "base_config" in source.data:
        console.warn(msg("lint.base-config", file=path))
    version = arguments.framework_version or DEFAULT_VERSIONS[dialect]
    return FileReport(source, dialect, version, lint(source, dialect, (*built_in(dialect), *own), version))


def _recognise(source: SourceFile, console: Console) -> Dialect:
    """The dialect that the keys speak for.

    Raises:
        ConfigError: They speak for none, or for several.
    """
    found = recognise(source.data)
    if found.dialect is None:
        raise ConfigError(
            msg("lint.ambiguous" if found.evidence else "lint.not-a-config"),
            msg("lint.dialect-hint", dialects="|".join(dialect.value for dialect in Dialect)),
            path=source.path,
        )
    if not found.confident:
        console.warn(msg("lint.unsure", file=source.path, dialect=found.dialect.value))
    return found.dialect


def _version_argument(language: Language) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if not VERSION.fullmatch(text):
            raise ArgumentTypeError(render(msg("lint.version", value=text), language))
        return text

    return convert
