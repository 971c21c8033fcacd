"""``ms-tune dryrun [options] -- COMMAND``: the user's own program in simulation. Its exit code is kept."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli.device import exit_code
from ms_tune.cli.dryrun_html import write_page
from ms_tune.cli.dryrun_inputs import keep_report, numbers, refuse
from ms_tune.cli.dryrun_progress import DryrunProgress
from ms_tune.dryrun.request import CommandRequest
from ms_tune.errors import ExitCode

if TYPE_CHECKING:
    from argparse import Namespace

    from ms_tune.render.console import Console

_ABOUT_CONFIGS: dict[str, object] = {
    **dict.fromkeys(("config", "layers", "stages", "stage", "compare_real")),
    "no_extrapolate": False,
    "reference": False,
    "set": [],
    "sweep": [],
}


def run(arguments: Namespace, console: Console) -> ExitCode | int:
    """Run the command, then show what its trace tells.

    Returns:
        The command's exit code if it is not 0, else whether what it allocated fits.
    """
    refuse(arguments, _ABOUT_CONFIGS, "stages.command.options")
    if arguments.real:
        refuse(arguments, {"engine": "local"}, "stages.real.simulation-only")
    from ms_tune.render.dryrun import command as dryrun_command  # noqa: PLC0415 - imported late: start-up time

    with DryrunProgress(console) as progress:
        result = api.run_command(_request(arguments), observer=progress)
    for problem, where in result.problems:
        console.warn(problem)
        console.note(f"  {console.text('cli.hint')}: {console.say(where)}")
    for warning in result.warnings:
        console.warn(warning)
    report = dryrun_command.to_json(result, console)
    keep_report(result.folder, report)
    if arguments.json:
        console.write_json(report)
    else:
        dryrun_command.show(result, console)
    if arguments.html:
        write_page(result, arguments.html, console)
    if result.code:
        return result.code
    return exit_code([rank.verdict for rank in result.ranks], arguments) if result.ranks else ExitCode.USAGE


def _request(arguments: Namespace) -> CommandRequest:
    """The request; size of the job and rank may also come from the variables that MindSpore reads them from."""
    devices = arguments.devices or _from_environment("RANK_SIZE") or 1
    ranks = numbers("--ranks", arguments.ranks) if arguments.ranks else (_from_environment("RANK_ID") or 0,)
    return CommandRequest(
        command=arguments.command,
        ranks=ranks,
        devices=devices,
        device_bytes=arguments.device_memory,
        chip=arguments.chip,
        reserve_bytes=arguments.reserve or 0,
        run_folder=arguments.run_dir,
        timeout=arguments.timeout,
        level=arguments.level,
        jobs=arguments.jobs,
        engine=arguments.engine,
        real=arguments.real,
    )


def _from_environment(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
