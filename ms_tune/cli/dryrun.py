"""Define ``ms-tune dryrun``: simulate a config, or run one of the other modes in ``dryrun_modes``."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ms_tune.cli.device import add_device_arguments
from ms_tune.cli.dryrun_inputs import config_request, python_of
from ms_tune.cli.dryrun_progress import DryrunProgress
from ms_tune.cli.output import new_file
from ms_tune.cli.parser import Parser, refuse_options
from ms_tune.dryrun.environment import LEVELS
from ms_tune.dryrun.machine import check_machine
from ms_tune.dryrun.request import ENGINES
from ms_tune.dryrun.result import DryrunResult
from ms_tune.dryrun.run import dryrun_job
from ms_tune.errors import ExitCode, UsageError, reason_of
from ms_tune.extras import need
from ms_tune.report import dryrun_check
from ms_tune.report.console import Console
from ms_tune.source import SCRIPTS
from ms_tune.text import Language, msg


class _DryrunParser(Parser):
    """A parser that leaves the user's command after ``--`` unparsed."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - as argparse types it
        arguments: Sequence[str] = args or ()
        end = arguments.index("--") if "--" in arguments else len(arguments)
        parsed = super().parse_args(arguments[:end], namespace)
        parsed.command = tuple(arguments[end + 1 :])
        if parsed.config is not None and parsed.config.suffix in (*SCRIPTS, ".py"):
            program = "python" if parsed.config.suffix == ".py" else "bash"
            parsed.command = (program, str(parsed.config), *parsed.command)
            parsed.config = None
            return parsed
        if end < len(arguments) and not parsed.command:
            self.error("the following arguments are required: COMMAND")
        return parsed


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = _DryrunParser("ms-tune dryrun", language, "dryrun_help.description", "dryrun_help.examples")
    parser.option("config", "dryrun_help.config", nargs="?", type=Path, metavar="CONFIG")
    parser.option("--model-config", "sizes.help.model-config", type=Path, metavar="PATH")

    def layers(text: str) -> int | str:
        return text if text in ("auto", "all") else parser.count(text)

    parser.option("--layers", "dryrun_help.layers", type=layers, metavar="N|auto|all")
    parser.flag("--no-extrapolate", "dryrun_help.no-extrapolate")
    which = parser.add_mutually_exclusive_group()
    parser.option("--stages", "dryrun_help.stages", metavar="all|worst|K,..", into=which)
    parser.option("--stage", "dryrun_help.stage", type=parser.natural, action="append", metavar="K", into=which)
    parser.option("--ranks", "dryrun_help.ranks", metavar="R,..", into=which)
    parser.option("--devices", "dryrun_help.devices", type=parser.count, metavar="N")
    add_device_arguments(parser)
    parser.option("--set", "dryrun_help.set", action="append", default=[], metavar="PATH=VALUE")
    parser.option("--sweep", "dryrun_help.sweep", action="append", default=[], metavar="PATH=A,B,..")
    parser.option("--level", "dryrun_help.level", type=int, choices=LEVELS, default=1)
    parser.option("--jobs", "dryrun_help.jobs", type=parser.count, metavar="N")
    parser.option("--engine", "dryrun_help.engine", choices=ENGINES, default=ENGINES[0])
    parser.flag("--reference", "reference.help")
    parser.removed_options |= {"--report": "dryrun.report-removed", "--real": "dryrun.real-removed"}
    parser.option("--run-dir", "dryrun_help.run-dir", type=Path, metavar="DIR")
    parser.option("--timeout", "dryrun_help.timeout", type=parser.count, default=3600, metavar="SECONDS")
    parser.file("--html", "dryrun_help.html")
    parser.flag("--force", "dryrun_help.force")
    parser.option("--python", "dryrun_help.python", metavar="PATH")
    parser.option("--compare-real", "dryrun_help.compare-real", type=Path, metavar="RUN")
    parser.flag("--check", "dryrun_help.check")
    parser.add_common_arguments()
    parser.before_examples = f"  {parser.tr('dryrun_help.command')}\n\n"
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode | int:
    """Simulate the config or run another mode, show the result and return the exit code."""
    if arguments.check:
        return _check_machine(arguments, console)
    need("ms-tune dryrun", "dryrun", "numpy")
    _check_page(arguments)
    beside_one_config = arguments.command or arguments.compare_real or arguments.sweep
    if not arguments.command:
        refuse_options(arguments, ["python"], "launch.python.config")
    result = None if beside_one_config else _simulate(arguments, console)
    from ms_tune.cli import dryrun_modes  # noqa: PLC0415 - it needs NumPy, which is loaded while the processes run

    return (
        dryrun_modes.run(arguments, console) if result is None else dryrun_modes.show_config(result, arguments, console)
    )


def _simulate(arguments: Namespace, console: Console) -> DryrunResult:
    with DryrunProgress(console) as progress:
        return dryrun_job(config_request(arguments), progress)


def _check_machine(arguments: Namespace, console: Console) -> ExitCode:
    check = check_machine(python_of(arguments.python))
    script = None
    if arguments.command and not check.problem:
        need("ms-tune dryrun", "dryrun", "numpy")
        from ms_tune.cli.dryrun_modes import check_command  # noqa: PLC0415 - it needs NumPy

        script = check_command(arguments, console)
    if arguments.json:
        own = {"script": dryrun_check.script_json(script)} if script is not None else {}
        console.write_json({**dryrun_check.machine_json(check), **own})
    else:
        dryrun_check.show_machine(check, console, quiet=arguments.quiet)
        if script is not None:
            dryrun_check.show_script(script, console, quiet=arguments.quiet)
    return ExitCode.USAGE if check.problem or (script is not None and script.problems) else ExitCode.OK


def _check_page(arguments: Namespace) -> None:
    # Report problems with the page's path before the long work begins.
    path: Path | None = arguments.html
    if path is None:
        return
    refuse_options(arguments, ("sweep", "compare_real"), "dryrun.html.one-run", msg("dryrun.html.hint"))
    new_file(path, force=arguments.force)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        detail = msg("memory.unwritable", detail=reason_of(error))
        raise UsageError(msg("cli.usage.value", argument=str(path), detail=detail)) from error
