"""``ms-tune dryrun [options] -- COMMAND``: the user's own program in simulation. Its exit code is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli.device import exit_code
from ms_tune.cli.dryrun_html import write_page
from ms_tune.cli.dryrun_inputs import present, python_of, refuse, shared, stages
from ms_tune.cli.dryrun_progress import DryrunProgress
from ms_tune.dryrun.request import CommandRequest, StageChoice
from ms_tune.errors import ConfigError, ExitCode, nearby
from ms_tune.source import SCRIPTS
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from ms_tune.dryrun.script_check import ScriptCheck
    from ms_tune.report.console import Console

_MOST_READ = 1024**2  # bytes of a script
_ABOUT_CONFIGS: dict[str, object] = {
    **dict.fromkeys(("config", "compare_real")),
    "no_extrapolate": False,
    "reference": False,
}


def run(arguments: Namespace, console: Console) -> ExitCode | int:
    """Run the command, then show what its trace tells.

    Returns:
        The command's exit code if it is not 0, else whether what it allocated fits.
    """
    refuse(arguments, _ABOUT_CONFIGS, "stages.command.options")
    if not CommandRequest(arguments.command).launches:
        refuse(
            arguments, {"stages": None, "stage": None, "set": [], "layers": None, "sweep": []}, "stages.command.options"
        )
    _check_script(arguments.command, console)
    if arguments.real:
        refuse(arguments, {"engine": "local"}, "stages.real.simulation-only")
    if arguments.sweep:
        return _sweep(arguments, console)
    from ms_tune.report import dryrun_command  # noqa: PLC0415 - imported late: start-up time

    with DryrunProgress(console) as progress:
        result = api.run_command(_request(arguments), observer=progress)
    for problem, where in result.problems:
        console.warn(problem)
        console.note(f"  {console.labelled(console.text('cli.hint'), console.say(where))}")
    for warning in result.warnings:
        console.warn(warning)
    if present(dryrun_command.to_json(result, console), result.folder, arguments, console):
        dryrun_command.show(result, console)
    if arguments.html:
        write_page(result, arguments.html, console)
    if result.code:
        return result.code
    return exit_code([result.verdict], arguments)


def _sweep(arguments: Namespace, console: Console) -> ExitCode:
    """Run the command once with each value of its programs' options, and compare."""
    from ms_tune.report import dryrun_variants  # noqa: PLC0415 - imported late: start-up time

    refuse(arguments, {"html": None, "real": False}, "stages.command.options")
    with DryrunProgress(console) as progress:
        result = api.sweep_command(_request(arguments), arguments.sweep, observer=progress)
    if present(dryrun_variants.commands_to_json(result, console), result.folder, arguments, console):
        dryrun_variants.show_commands(result, console)
    if any(variant.result is None or variant.result.code for variant in result.variants):
        return ExitCode.USAGE
    return exit_code([variant.result.verdict for variant in result.variants if variant.result], arguments)


def check_script(arguments: Namespace, console: Console) -> ScriptCheck:
    """What the command's programs would find; nothing of it is trained or kept."""
    _check_script(arguments.command, console)
    with DryrunProgress(console) as progress:
        return api.check_script(_request(arguments), observer=progress)


def _check_script(command: Sequence[str], console: Console) -> None:
    """A shell's script has to be there before anything is started; what bash makes of line ends of Windows is told.

    Raises:
        ConfigError: It is not there.
    """
    if len(command) < 2 or command[0] != "bash" or not command[1].endswith(SCRIPTS):  # noqa: PLR2004 - bash and its script
        return
    path = Path(command[1])
    if not path.is_file():
        raise ConfigError(msg("config.not-found"), nearby(path), path=path)
    with path.open("rb") as file:
        if b"\r\n" in file.read(_MOST_READ):
            console.warn(msg("launch.carriage-returns", file=path))


def _request(arguments: Namespace) -> CommandRequest:
    """The request."""
    chosen = stages(arguments)
    return CommandRequest(
        command=arguments.command,
        stages=None if chosen is StageChoice.ALL else chosen,
        fewest_layers=arguments.layers == "auto",
        settings=tuple(map(CommandRequest.parse_setting, arguments.set)),
        python=python_of(arguments.python),
        **shared(arguments),
    )
