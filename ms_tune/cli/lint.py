"""Define ``ms-tune lint``, which checks configs against the checklists."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from ms_tune.cli.parser import Parser
from ms_tune.diagnostics import Severity
from ms_tune.encode import json_text
from ms_tune.enums import CHECKED_DIALECTS, Dialect
from ms_tune.errors import ExitCode, UsageError
from ms_tune.facts.query import default_release, release_of
from ms_tune.lint.baseline import write_baseline
from ms_tune.lint.result import LintReport, LintRequest
from ms_tune.lint.runner import STDIN, lint_files
from ms_tune.lint.settings import PROFILES, Selection
from ms_tune.report import lint_formats
from ms_tune.report.console import Console, usage_hint
from ms_tune.report.lint_text import write_diff, write_lint
from ms_tune.source.yaml import MAX_BYTES
from ms_tune.text import Language, Message, msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

    from ms_tune.cli.output import ProgressLine

_PROGRAM = "ms-tune lint"
FORMATS = ("text", "concise", "json", "sarif", "github", "gitlab", "junit")
_SAFE, _UNSAFE = "safe", "unsafe"
_MANY = 48  # files from which progress is shown
_SKIPPED = 5  # skipped files that are named if there is nothing else


class _LintParser(Parser):
    """Parser in which ``--fix`` and ``--diff`` need no value; argparse would use the next file as the value."""

    def parse_args(self, args: Sequence[str] | None = None, namespace: None = None) -> Namespace:  # type: ignore[override]
        words = sys.argv[1:] if args is None else list(args)
        end = words.index("--") if "--" in words else len(words)
        words[:end] = [f"{word}={_SAFE}" if word in ("--fix", "--diff") else word for word in words[:end]]
        return super().parse_args(words, namespace)

    def format_help_all(self) -> str:
        """Return the full help text, with the optional values of ``--fix`` and ``--diff`` in their required form."""
        aligned = re.sub(r"--(fix|diff) (\[=unsafe\])(?=  )", r"--\1\2 ", super().format_help_all())
        return re.sub(r"--(fix|diff) \[", r"--\1[", aligned)


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = _LintParser(_PROGRAM, language, "lint.description", "lint.examples")
    parser.option("files", "lint.help.file", nargs="*", metavar="FILE")
    # The files and how to read them.
    parser.option("--dialect", "lint.help.dialect", choices=[dialect.value for dialect in CHECKED_DIALECTS])
    version = partial(parser.check, release_of)
    defaults = {"versions": ", ".join([f"{dialect.value} {default_release(dialect)}" for dialect in Dialect])}
    parser.option("--framework-version", "lint.help.version", metavar="VERSION", type=version, params=defaults)
    parser.option("--model-config", "sizes.help.model-config", metavar="PATH", type=Path)
    parser.option("--stdin-filename", "lint.help.stdin-filename", metavar="NAME", type=Path)
    parser.flag("--skip-unknown", "lint.help.skip-unknown")
    parser.flag("--env-from-process", "lint.help.env-from-process")
    for name in ("fix", "diff"):
        parser.option(f"--{name}", f"lint.help.{name}", choices=[_SAFE, _UNSAFE], metavar=f"[={_UNSAFE}]")
    parser.option("--jobs", "lint.help.jobs", metavar="N", type=parser.count)
    # The selection of checks.
    for name in ("select", "ignore"):
        text_id = f"lint.help.{name}"
        parser.option(f"--{name}", text_id, metavar="CHECK,...", type=_split_names, action="extend", default=[])
    parser.option("--profile", "lint.help.profile", choices=PROFILES)
    parser.file("--checklist", "lint.help.checklist", action="append", default=[])
    settings = parser.add_mutually_exclusive_group()
    parser.file("--config", "lint.help.config", into=settings)
    parser.flag("--no-config", "lint.help.no-config", into=settings)
    parser.file("--baseline", "lint.help.baseline")
    parser.flag("--write-baseline", "lint.help.write-baseline")
    # The output and the exit code.
    parser.option("--format", "lint.help.format", choices=FORMATS)
    parser.flag("--statistics", "lint.help.statistics")
    parser.option("--fail-on", "lint.help.fail-on", choices=[severity.value for severity in Severity])
    parser.flag("--exit-zero", "lint.help.exit-zero")
    parser.add_common_arguments()
    return parser


def _split_names(words: str) -> list[str]:
    return [name.strip() for name in words.split(",") if name.strip()]


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Check every file and return the exit code; an unreadable file does not stop the others."""
    request = _read_request(arguments)
    with _TreeProgress(console) as progress:
        report = lint_files(*arguments.files, request=request, on_progress=progress.show)
    _write_notes(report, arguments, console)
    if arguments.format == "github":
        lint_formats.name_brought_files(_PROGRAM, arguments.baseline or report.settings.baseline, console)
    if arguments.write_baseline:
        code = _write_baseline(report, arguments, console)
    elif arguments.diff is not None:
        code = ExitCode.FINDINGS if write_diff(report, console) else ExitCode.OK
    else:
        code = _write_report(report, arguments, console)
    for trace in report.traces:
        console.note(trace)
    return ExitCode.INTERNAL if report.traces else ExitCode.USAGE if report.errors else code


class _TreeProgress(ExitStack):
    """A line of progress, once there are many files."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._line: ProgressLine | None = None

    def show(self, done: int, total: int) -> None:
        """Show how many files are read."""
        if total < _MANY:
            return
        if self._line is None:
            from ms_tune.cli.output import LONG, ProgressLine  # noqa: PLC0415 - start-up time

            self._line = self.enter_context(ProgressLine(self._console, LONG))
        self._line.show(msg("lint.progress", done=done, total=total), done / total)


def _read_request(arguments: Namespace) -> LintRequest:
    """Return the request; without files, the current folder is checked."""
    if not arguments.files and not arguments.env_from_process:
        arguments.files = ["."]
    has_stdin = str(STDIN) in arguments.files
    if arguments.stdin_filename is not None and not has_stdin:
        raise UsageError(msg("lint.stdin-filename.unused"), usage_hint(_PROGRAM))
    clashes = [
        ("--json", "--format", arguments.json and arguments.format not in (None, "json")),
        ("--diff", "--json", arguments.diff and (arguments.json or arguments.format not in (None, "text"))),
        ("--fix", "-", arguments.fix and not arguments.diff and has_stdin),
        ("--write-baseline", "--fix", arguments.write_baseline and (arguments.fix or arguments.diff)),
    ]
    for option, other, clash in clashes:
        if clash:
            raise UsageError(msg("cli.usage.not-allowed", option=option, other=other), usage_hint(_PROGRAM))
    fixes = {arguments.fix, arguments.diff} - {None}
    select, ignore = tuple(arguments.select) or None, tuple(arguments.ignore)
    return LintRequest(
        dialect=Dialect(arguments.dialect) if arguments.dialect else None,
        framework_version=arguments.framework_version,
        selection=Selection(select=select, ignore=ignore, profile=arguments.profile),
        checklists=tuple(arguments.checklist),
        settings=arguments.config or not arguments.no_config,
        baseline=not arguments.write_baseline and (arguments.baseline or True),
        fix=None if not fixes else "unsafe" if _UNSAFE in fixes else "safe",
        write=arguments.fix is not None and arguments.diff is None,
        skip_unknown=arguments.skip_unknown,
        environment=arguments.env_from_process,
        stdin=sys.stdin.buffer.read(MAX_BYTES + 1) if has_stdin else None,
        stdin_filename=arguments.stdin_filename,
        processes=arguments.jobs,
        model_config=arguments.model_config,
    )


def _write_baseline(report: LintReport, arguments: Namespace, console: Console) -> ExitCode:
    file: Path | None = arguments.baseline or report.settings.baseline
    if file is None:
        raise UsageError(msg("lint.baseline.which"), usage_hint(_PROGRAM))
    count = write_baseline(file, ((one.path, one.text, one.findings) for one in report.files))
    console.note(console.text("lint.baseline.written", count=count, file=file))
    return ExitCode.OK


def _write_notes(report: LintReport, arguments: Namespace, console: Console) -> None:
    """Show errors and notes in addition to the report."""
    for error in report.errors:
        console.fail(error)
    _warn_once(report, console)
    with_others = [file for file in report.files if file.read_from]
    for file in with_others if len(with_others) == 1 or arguments.verbose else ():
        for other in file.read_from:
            console.note(console.text("lint.read-from", file=file.path, other=other))
    if len(with_others) > 1 and not arguments.verbose:
        console.note(console.text("lint.read-from.several", count=len(with_others)))
    nothing = not report.files and not report.errors
    for skipped in report.skipped if arguments.verbose else report.skipped[: _SKIPPED * nothing]:
        console.note(console.text("lint.skipped", file=skipped.path, reason=console.say(skipped.reason)))
    if nothing:
        console.warn(msg("lint.nothing", skipped=len(report.skipped)))


def _warn_once(report: LintReport, console: Console) -> None:
    # A note about a release or a repository is repeated for each of its files.
    alike: dict[tuple[str, str], list[Message]] = {}
    for note in (note for file in report.files for note in file.notes):
        rest = {name: value for name, value in note.params.items() if name != "file"}
        found = alike.setdefault((note.id, str(rest)), [])
        if note not in found:
            found.append(note)
    for first, *others in alike.values():
        console.warn(first)
        if others:
            console.note(f"  {console.text('lint.same-note', count=len(others))}")


def _write_report(report: LintReport, arguments: Namespace, console: Console) -> ExitCode:
    """Write the report in the requested format; return the exit code."""
    chosen = "json" if arguments.json else arguments.format or "text"
    if chosen in ("text", "concise"):
        concise = chosen == "concise"
        write_lint(report, console, concise=concise, statistics=arguments.statistics, quiet=arguments.quiet)
    else:
        _write_for_program(chosen, report, arguments, console)
    if not report.files and not arguments.skip_unknown:
        return ExitCode.USAGE
    least = Severity(arguments.fail_on) if arguments.fail_on else report.settings.fail_on or Severity.WARNING
    return ExitCode.FINDINGS if report.reaches(least) and not arguments.exit_zero else ExitCode.OK


def _write_for_program(chosen: str, report: LintReport, arguments: Namespace, console: Console) -> None:
    if chosen == "json":
        console.write_json(lint_formats.lint_json(report, statistics=arguments.statistics))
    elif chosen == "sarif":
        from ms_tune.lint.rules import all_rules  # noqa: PLC0415 - the texts of all checks

        rules = all_rules([*report.settings.checklists, *arguments.checklist])
        console.write_json(lint_formats.lint_sarif(report, console.language, {rule.id: rule for rule in rules}))
    elif chosen == "github":
        lint_formats.write_github(report, console)
    elif chosen == "gitlab":
        console.write_raw(json_text(lint_formats.lint_gitlab(report, console.language), indent=2))
    else:
        console.write_raw(lint_formats.lint_junit(report, console))
