"""Define ``ms-tune check``, which summarises a job on one screen."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ms_tune.cli.device import add_device_arguments, device_fields
from ms_tune.cli.parser import Parser
from ms_tune.dryrun.request import DryrunRequest, Setting
from ms_tune.errors import ConfigError, DefectError, ExitCode, ForeignFileError, UsageError, error_of_file
from ms_tune.lint.runner import LintTarget, discover, looks_like_a_config
from ms_tune.lint.settings import settings_for
from ms_tune.report.check import overviews_json, overviews_markdown, write_github, write_overviews
from ms_tune.report.console import Console, usage_hint
from ms_tune.report.lint_formats import name_brought_files, write_failure
from ms_tune.source import SCRIPTS
from ms_tune.source.atomic_write import write_atomically
from ms_tune.source.git import changed_since
from ms_tune.text import Language, msg
from ms_tune.workflows.check.config import OverviewRequest
from ms_tune.workflows.check.result import Overview
from ms_tune.workflows.check.run import check_job

_PROGRAM = "ms-tune check"
_FORMATS = ("text", "github")
_JOBS = (".yaml", ".yml", *SCRIPTS)  # the files of a folder that can describe or start a job


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = Parser(_PROGRAM, language, "check.description", "check.examples")
    parser.option("files", "check.help.file", nargs="*", type=Path, metavar="FILE")
    parser.flag("--dryrun", "check.help.dryrun")
    parser.option("--base", "check.help.base", metavar="COMMIT|FILE")
    parser.option("--devices", "dryrun_help.devices", type=parser.count, metavar="N")
    add_device_arguments(parser)
    parser.option("--set", "dryrun_help.set", action="append", default=[], metavar="PATH=VALUE")
    parser.option("--framework-version", "check.help.version", metavar="VERSION")
    parser.option("--model-config", "sizes.help.model-config", type=Path, metavar="PATH")
    parser.flag("--skip-unknown", "check.help.skip-unknown")
    parser.option("--format", "check.help.format", choices=_FORMATS, default=_FORMATS[0])
    parser.flag("--markdown", "check.help.markdown")
    parser.file("--markdown-file", "check.help.markdown-file")
    parser.add_common_arguments()
    return parser


def run(arguments: Namespace, console: Console) -> int:
    """Show a screen about one file, or a table of several; an unreadable file does not stop the others."""
    screens: list[Overview] = []
    failures: list[ConfigError] = []
    targets, skipped = _find_files(arguments, console), 0
    for target in targets:
        try:
            screens.append(_check_file(target, arguments, console))
        except Exception as raised:
            error = error_of_file(raised, target.path)
            if not isinstance(error, ConfigError):
                raise
            if isinstance(error, DefectError):
                console.note(error.trace)
            elif not target.named and (isinstance(error, ForeignFileError) or not looks_like_a_config(target.path)):
                skipped += 1
                continue
            console.fail(error)
            if arguments.format == "github":
                write_failure(error, _PROGRAM, console)
            failures.append(error)
    folders = [str(one) for one in arguments.files if one.is_dir()]
    if folders and not (screens or failures):
        raise UsageError(msg("check.folder.none", folder=", ".join(folders)))
    if folders and skipped:
        console.note(console.text("check.skipped", count=skipped))
    _show_screens(screens, failures, arguments, console)
    codes = [one.exit_code(allow_tight=arguments.allow_tight) for one in screens]
    return max([*codes, *(one.exit_code for one in failures)], default=ExitCode.OK)


def _find_files(arguments: Namespace, console: Console) -> Sequence[LintTarget]:
    given: list[Path] = arguments.files
    if arguments.base is None or given:
        if not given:
            raise UsageError(msg("check.usage.none"), usage_hint(_PROGRAM))
        if arguments.base is not None and Path(arguments.base).is_file() and len(given) > 1:
            raise UsageError(msg("check.usage.file-base"), usage_hint(_PROGRAM))
        found, _ = discover(list(map(str, given)), None, trusted=not arguments.skip_unknown)
        return [one for one in found if one.named or one.path in given or one.path.suffix in _JOBS]
    changed = changed_since(arguments.base, Path())
    if not changed:
        console.note(console.text("check.base.nothing", revision=arguments.base))
    return [LintTarget(one, named=False) for one in changed]


def _check_file(target: LintTarget, arguments: Namespace, console: Console) -> Overview:
    file = target.path
    request = OverviewRequest(
        job=DryrunRequest(
            devices=arguments.devices,
            **device_fields(arguments),
            settings=tuple(map(Setting.parse, arguments.set)),
            fewest_layers=True,
            model_config=arguments.model_config,
        ),
        framework_version=arguments.framework_version,
        allow_tight=arguments.allow_tight,
        skip_unknown=not target.named,
    )
    if not arguments.dryrun:
        return check_job(file, request, base=arguments.base)
    from ms_tune.cli.dryrun_progress import watch_dryrun  # noqa: PLC0415 - start-up time

    with watch_dryrun("ms-tune check --dryrun", console) as progress:
        return check_job(file, request, base=arguments.base, observer=progress)


def _show_screens(
    screens: Sequence[Overview], failures: Sequence[ConfigError], arguments: Namespace, console: Console
) -> None:
    if arguments.markdown or arguments.markdown_file is not None:
        markdown = overviews_markdown(screens, failures, console)
        if arguments.markdown_file is not None:
            write_atomically(arguments.markdown_file, markdown.encode("utf-8", "replace"))
    if arguments.markdown:
        console.write_raw(markdown.rstrip("\n"))
    elif arguments.json:
        console.write_json(overviews_json(screens, failures, console))
    elif arguments.format == "github":
        write_github(screens, console)
        name_brought_files(_PROGRAM, settings_for(Path.cwd()).baseline, console)
    else:
        write_overviews(screens, console, verbose=arguments.verbose, quiet=arguments.quiet)
