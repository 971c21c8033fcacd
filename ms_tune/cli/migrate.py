"""Define ``ms-tune migrate``, which converts a static-graph config to the dynamic graph."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.cli.dryrun_progress import watch_dryrun
from ms_tune.cli.output import new_file
from ms_tune.cli.parser import Parser
from ms_tune.dryrun.request import DryrunRequest, StageChoice
from ms_tune.errors import UsageError
from ms_tune.report import migrate as report
from ms_tune.report.console import Console
from ms_tune.source.atomic_write import write_atomically
from ms_tune.text import Language, msg
from ms_tune.workflows.migrate.result import Migration
from ms_tune.workflows.migrate.run import migrate_config

if TYPE_CHECKING:
    from ms_tune.workflows.migrate.memory import BothSides


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = Parser("ms-tune migrate", language, "migrate.description", "migrate.examples")
    parser.option("file", "migrate.help.file", type=Path, metavar="FILE")
    parser.option("--to", "migrate.help.to", default="mindformers-pynative", metavar="DIALECT[@RELEASE]")
    parser.option("--write", "migrate.help.write", type=Path, metavar="NEW")
    parser.flag("--force", "migrate.help.force")
    parser.flag("--diff", "migrate.help.diff")
    parser.flag("--all", "migrate.help.all")
    parser.flag("--no-check", "migrate.help.no-check")
    parser.flag("--dryrun", "migrate.help.dryrun")
    parser.option("--stages", "migrate.help.stages", metavar="WHICH")
    parser.option("--devices", "dryrun_help.devices", type=parser.count, metavar="N")
    parser.option("--framework-version", "migrate.help.version", metavar="VERSION")
    parser.option("--model-config", "migrate.help.model-config", type=Path, metavar="PATH")
    parser.add_common_arguments()
    return parser


def run(arguments: Namespace, console: Console) -> int:
    """Migrate one config, report the result for each key, and write the new file if requested."""
    new_file(arguments.write, force=arguments.force)
    found = migrate_config(
        arguments.file,
        arguments.to,
        framework_version=arguments.framework_version,
        model_config=arguments.model_config,
        check=not arguments.no_check,
        language=console.language,
    )
    if arguments.write is not None and not found.refused:
        write_atomically(arguments.write, found.text.encode(), parents=True)
        console.note(console.text("memory.written", file=arguments.write))
    sides = _simulate_both(found, arguments, console) if arguments.dryrun and not found.refused else None
    _show_migration(found, sides, arguments, console)
    return found.exit_code


def _simulate_both(found: Migration, arguments: Namespace, console: Console) -> BothSides:
    progress = watch_dryrun("ms-tune migrate --dryrun", console)
    from ms_tune.workflows.migrate.memory import simulate_both  # noqa: PLC0415 - it needs NumPy

    words = (arguments.stages or StageChoice.ALL.value).split(",")
    try:
        stages = StageChoice(words[0]) if len(words) == 1 and not words[0].isdigit() else tuple(map(int, words))
    except ValueError:
        raise UsageError(msg("migrate.usage.stages", given=arguments.stages)) from None
    request = DryrunRequest(fewest_layers=True, stages=stages, devices=arguments.devices)
    with progress:
        return simulate_both(found, request, progress)


def _show_migration(found: Migration, sides: BothSides | None, arguments: Namespace, console: Console) -> None:
    if arguments.json:
        console.write_json(report.migration_json(found, sides))
        return
    if arguments.diff and not found.refused:
        report.write_diff(found, arguments.write, console)
        return
    if arguments.quiet:
        report.write_verdict(found, console)
        return
    verbose = arguments.verbose or arguments.all
    report.write_migration(found, console, verbose=verbose, everything=arguments.all)
    if sides is not None:
        report.write_memory(sides, console, verbose=verbose)
    elif arguments.write is None and not found.refused and verbose:
        console.write("")
        console.write_raw(found.text.rstrip("\n"))
    if not found.refused:
        text_id = "migrate.next.decide" if found.questions else "migrate.next"
        if arguments.write is None:
            text_id = "migrate.next.write"
        console.write_section(text_id, file=arguments.write or found.path)
