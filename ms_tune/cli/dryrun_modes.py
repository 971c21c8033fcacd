"""Run the other modes of ``ms-tune dryrun``: a user's command, variants, and a comparison of two runs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ms_tune.cli.device import exit_code
from ms_tune.cli.dryrun_inputs import (
    config_exit_code,
    config_request,
    parse_stages,
    present_report,
    python_of,
    shared_fields,
)
from ms_tune.cli.dryrun_progress import DryrunProgress
from ms_tune.cli.output import write_text_file
from ms_tune.cli.parser import refuse_options
from ms_tune.dryrun.command import run_command, sweep_command
from ms_tune.dryrun.command_result import CommandResult
from ms_tune.dryrun.compare import compare_real, request_like
from ms_tune.dryrun.reading import job_report
from ms_tune.dryrun.request import CommandRequest, OptionSetting, StageChoice
from ms_tune.dryrun.result import DryrunResult
from ms_tune.dryrun.run import dryrun_job, simulate_each
from ms_tune.dryrun.script_check import ScriptCheck, check_script
from ms_tune.dryrun.settings import list_variants
from ms_tune.errors import ConfigError, ExitCode, nearby
from ms_tune.footprint.report import MemoryRequest
from ms_tune.report import dryrun_json, dryrun_modes, dryrun_text
from ms_tune.report.console import Console
from ms_tune.report.memory_html import job_html
from ms_tune.source import SCRIPTS
from ms_tune.source.files import open_bytes
from ms_tune.text import msg

_MOST_RANKS = 12  # ranks on a page: all blocks of four ranks, curves of the others (0.5 MB each)
_MOST_READ = 1024**2  # bytes of a script


def run(arguments: Namespace, console: Console) -> ExitCode | int:
    """Run the requested mode."""
    if arguments.command:
        return _run_command(arguments, console)
    if arguments.compare_real:
        return _compare_real(arguments, console)
    return _sweep_config(arguments, console)


def show_config(result: DryrunResult, arguments: Namespace, console: Console) -> ExitCode:
    """Show the result of a config's simulation."""
    for warning in result.warnings:
        console.warn(warning)
    if present_report(dryrun_json.dryrun_json(result), result.folder, arguments, console):
        dryrun_text.show_dryrun(result, console, verbose=arguments.verbose, quiet=arguments.quiet)
    if arguments.html:
        _write_page(result, arguments.html, console)
    return config_exit_code([result], arguments)


def _write_page(result: DryrunResult | CommandResult, path: Path, console: Console) -> None:
    """Write the HTML page on all stages of a job, or all ranks of a command."""
    if not (result.stages if isinstance(result, DryrunResult) else result.ranks):
        console.warn(msg("dryrun.html.nothing", file=path))
        return
    report = job_report(result, _MOST_RANKS)
    write_text_file(path, job_html(report, console.language), console)
    if report.omitted:
        console.note(console.text("dryrun.html.left-out", shown=len(report.memory.ranks), left_out=report.omitted))


def _compare_real(arguments: Namespace, console: Console) -> ExitCode:
    simulated = arguments.config
    if simulated is None or simulated.suffix in {".yaml", ".yml"}:
        request = request_like(arguments.compare_real, config_request(arguments))
        with DryrunProgress(console) as progress:
            simulated = dryrun_job(request, progress).folder
    terms = MemoryRequest(chip=arguments.chip, device_bytes=arguments.device_memory, reserve_bytes=arguments.reserve)
    comparison = compare_real(simulated, arguments.compare_real, terms)
    if arguments.json:
        console.write_json(dryrun_json.real_json(comparison))
    else:
        dryrun_modes.show_real(comparison, console, quiet=arguments.quiet)
    return exit_code([pair.simulated.verdict for pair in comparison.pairs], arguments)


def _sweep_config(arguments: Namespace, console: Console) -> ExitCode:
    with DryrunProgress(console) as progress:
        result = simulate_each(
            [(one, None) for one in list_variants(config_request(arguments), arguments.sweep)], progress
        )
    if present_report(dryrun_json.variants_json(result), result.folder, arguments, console):
        dryrun_modes.show_variants(result, console, quiet=arguments.quiet)
    if any(variant.error is not None for variant in result.variants):
        return ExitCode.USAGE
    return config_exit_code([variant.result for variant in result.variants if variant.result is not None], arguments)


def _run_command(arguments: Namespace, console: Console) -> ExitCode | int:
    # Return the command's exit code if it is not 0, else whether the allocated memory fits.
    refuse_options(
        arguments, ("config", "compare_real", "model_config", "no_extrapolate", "reference"), "stages.command.options"
    )
    if not CommandRequest(arguments.command).launches:
        refuse_options(arguments, ("stages", "stage", "set", "layers", "sweep"), "stages.command.options")
    _see_that_it_is_no_yaml(arguments.command, console)
    if arguments.sweep:
        return _sweep_command(arguments, console)
    with DryrunProgress(console) as progress:
        result = run_command(_command_request(arguments), progress)
    for problem, where in result.problems:
        console.warn(problem)
        console.note(f"  {console.labelled(console.text('cli.hint'), console.say(where))}")
    for warning in result.warnings:
        console.warn(warning)
    if present_report(dryrun_json.command_json(result), result.folder, arguments, console):
        dryrun_modes.show_command(result, console, verbose=arguments.verbose, quiet=arguments.quiet)
    if arguments.html:
        _write_page(result, arguments.html, console)
    if result.code:
        return result.code
    return exit_code([result.verdict], arguments)


def _sweep_command(arguments: Namespace, console: Console) -> ExitCode:
    refuse_options(arguments, ["html"], "stages.command.options")
    with DryrunProgress(console) as progress:
        result = sweep_command(list_variants(_command_request(arguments), arguments.sweep), progress)
    if present_report(dryrun_json.variants_json(result), result.folder, arguments, console):
        dryrun_modes.show_variants(result, console, quiet=arguments.quiet)
    if any(variant.result is None or variant.result.code for variant in result.variants):
        return ExitCode.USAGE
    return exit_code([variant.result.verdict for variant in result.variants if variant.result], arguments)


def check_command(arguments: Namespace, console: Console) -> ScriptCheck:
    """Check the packages that the command's programs would use, without training or saving anything."""
    _see_that_it_is_no_yaml(arguments.command, console)
    with DryrunProgress(console) as progress:
        return check_script(_command_request(arguments), progress)


def _see_that_it_is_no_yaml(command: Sequence[str], console: Console) -> None:
    # The script must exist before anything is started; warn if it has Windows line ends.
    if len(command) < 2 or command[0] != "bash" or not command[1].endswith(SCRIPTS):  # noqa: PLR2004 - bash and its script
        return
    path = Path(command[1])
    if not path.is_file():
        raise ConfigError(msg("config.not-found"), nearby(path), path=path)
    with open_bytes(path) as file:
        if b"\r\n" in file.read(_MOST_READ):
            console.warn(msg("launch.carriage-returns", file=path))


def _command_request(arguments: Namespace) -> CommandRequest:
    chosen = parse_stages(arguments)
    return CommandRequest(
        command=arguments.command,
        stages=None if chosen is StageChoice.ALL else chosen,
        fewest_layers=arguments.layers == "auto",
        settings=tuple(map(OptionSetting.parse, arguments.set)),
        python=python_of(arguments.python),
        **shared_fields(arguments),
    )
