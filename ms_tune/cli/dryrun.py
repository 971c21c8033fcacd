"""``ms-tune dryrun``: does it fit?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ms_tune import api
from ms_tune.cli.device import add_device_arguments, exit_code
from ms_tune.cli.dryrun_inputs import parse_stages, present_report, python_of, refuse_options, shared_fields
from ms_tune.cli.dryrun_progress import DryrunProgress
from ms_tune.cli.output import new_file, written
from ms_tune.cli.parser import Parser
from ms_tune.dryrun.environment import LEVELS
from ms_tune.dryrun.request import ENGINES, CommandRequest, DryrunRequest, Setting, StageChoice
from ms_tune.dryrun.result import DryrunResult
from ms_tune.errors import ConfigError, ExitCode, UsageError, nearby, reason_of
from ms_tune.extras import need
from ms_tune.footprint.request import MemoryRequest
from ms_tune.source import SCRIPTS
from ms_tune.source.atomic_write import write_atomically
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping, Sequence

    from ms_tune.dryrun.command_result import CommandResult
    from ms_tune.dryrun.script_check import ScriptCheck
    from ms_tune.report.console import Console
    from ms_tune.text import Language

_SIMULATION_ONLY: Mapping[str, object] = {
    "stages": None,
    "stage": None,
    "ranks": None,
    "level": 1,
    "jobs": None,
    "sweep": [],
    "engine": "local",
}


class _DryrunParser(Parser):
    """Leaves what follows ``--`` alone: it is the user's own command."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - as argparse types it
        arguments: Sequence[str] = args or ()
        end = arguments.index("--") if "--" in arguments else len(arguments)
        parsed = super().parse_args(arguments[:end], namespace)
        parsed.command = tuple(arguments[end + 1 :])
        if parsed.config is not None and parsed.config.suffix in SCRIPTS:
            parsed.command = ("bash", str(parsed.config), *parsed.command)
            parsed.config = None
            return parsed
        if end < len(arguments) and not parsed.command:
            self.error("the following arguments are required: COMMAND")
        return parsed


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = _DryrunParser("ms-tune dryrun", language, "dryrun_help.description", "dryrun_help.examples")
    parser.option("config", "dryrun_help.config", nargs="?", type=Path, metavar="CONFIG")
    parser.option("--layers", "dryrun_help.layers", type=_layers_type(parser), metavar="N|auto|all")
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
    parser.file("--report", "dryrun.both.help")
    parser.option("--run-dir", "dryrun_help.run-dir", type=Path, metavar="DIR")
    parser.option("--timeout", "dryrun_help.timeout", type=parser.count, default=3600, metavar="SECONDS")
    parser.file("--html", "dryrun_help.html")
    parser.flag("--force", "dryrun_help.force")
    parser.flag("--real", "dryrun_help.real")
    parser.option("--python", "dryrun_help.python", metavar="PATH")
    parser.option("--compare-real", "dryrun_help.compare-real", type=Path, metavar="RUN")
    parser.flag("--check", "dryrun_help.check")
    parser.add_common_arguments()
    parser.epilog = f"  {parser.tr('dryrun_help.command')}\n\n{parser.epilog}"
    return parser


def _layers_type(parser: Parser) -> Callable[[str], int | str]:
    """An argparse type: a number of layers, or one of two words."""
    return lambda text: text if text in ("auto", "all") else parser.count(text)


def run(arguments: Namespace, console: Console) -> ExitCode | int:
    """Simulate, show, judge."""
    if arguments.check:
        return _check_machine(arguments, console)
    need("ms-tune dryrun", "dryrun", "numpy")
    check_page(arguments)
    if arguments.command:
        return _run_command(arguments, console)
    refuse_options(arguments, {"python": None}, "launch.python.config")
    if arguments.real:
        refuse_options(arguments, _SIMULATION_ONLY, "stages.real.simulation-only")
    if arguments.compare_real:
        return _compare_real(arguments, console)
    if arguments.report:
        return _compare_frameworks(arguments, console)
    if arguments.sweep:
        return _sweep_config(arguments, console)
    return _simulate(arguments, console)


def _simulate(arguments: Namespace, console: Console) -> ExitCode:
    with DryrunProgress(console, _load_pages) as progress:
        result = api.dryrun(request=_config_request(arguments), observer=progress)
    from ms_tune.report import dryrun_json, dryrun_text  # noqa: PLC0415 - imported late: start-up time

    for warning in result.warnings:
        console.warn(warning)
    if present_report(dryrun_json.dryrun_json(result, console), result.folder, arguments, console):
        dryrun_text.show_dryrun(result, console)
    if arguments.html:
        write_page(result, arguments.html, console)
    return _exit_code([result], arguments)


def _load_pages() -> None:
    """Load what shows a result while there is time, which is when the processes run: numpy alone takes a tenth of a second."""
    from ms_tune.report import dryrun_json as json  # noqa: F401, PLC0415 - imported late: start-up time


def _compare_frameworks(arguments: Namespace, console: Console) -> ExitCode:
    """The config's own framework and the reference beside each other, in a file that can be sent in."""
    from ms_tune.report import dryrun_compare  # noqa: PLC0415 - imported late: start-up time

    refuse_options(
        arguments, {"sweep": [], "real": False, "reference": False, "html": None, "level": 1}, "dryrun.both.alone"
    )
    new_file(arguments.report, force=arguments.force)
    with DryrunProgress(console) as progress:
        found = api.dryrun_both(request=_config_request(arguments), observer=progress)
    text = dryrun_compare.both_text(found, console)
    write_atomically(arguments.report, text.encode(), parents=True)
    if arguments.json:
        console.write_json(dryrun_compare.both_json(found))
    else:
        console.write_whole(text.rstrip("\n"))
    console.note(console.text("dryrun.both.written", file=arguments.report))
    return ExitCode.OK if found.real.stages and found.reference.stages else ExitCode.USAGE


def _compare_real(arguments: Namespace, console: Console) -> ExitCode:
    """A finished simulated run, or one that is made for it, beside a real one."""
    from ms_tune.report import dryrun_compare  # noqa: PLC0415 - imported late: start-up time

    simulated = arguments.config
    if simulated is None or simulated.suffix in {".yaml", ".yml"}:
        request = api.request_like(arguments.compare_real, _config_request(arguments))
        with DryrunProgress(console) as progress:
            simulated = api.dryrun(request=request, observer=progress).folder
    terms = MemoryRequest(chip=arguments.chip, device_bytes=arguments.device_memory, reserve_bytes=arguments.reserve)
    if api.is_log(arguments.compare_real):
        logged = api.compare_log(simulated, arguments.compare_real, request=terms)
        if arguments.json:
            console.write_json(dryrun_compare.log_json(logged, console))
        else:
            dryrun_compare.show_log(logged, console)
        return exit_code([pair.simulated.verdict for pair in logged.pairs], arguments)
    comparison = api.compare_real(simulated, arguments.compare_real, request=terms)
    if arguments.json:
        console.write_json(dryrun_compare.real_json(comparison, console))
    else:
        dryrun_compare.show_real(comparison, console)
    return exit_code([rank.simulated.verdict for rank in comparison.ranks], arguments)


def _sweep_config(arguments: Namespace, console: Console) -> ExitCode:
    from ms_tune.report import dryrun_compare  # noqa: PLC0415 - imported late: start-up time

    with DryrunProgress(console) as progress:
        result = api.sweep(_config_request(arguments), arguments.sweep, observer=progress)
    if present_report(dryrun_compare.variants_json(result, console), result.folder, arguments, console):
        dryrun_compare.show_variants(result, console)
    if any(variant.error is not None for variant in result.variants):
        return ExitCode.USAGE
    return _exit_code([variant.result for variant in result.variants if variant.result is not None], arguments)


def _exit_code(results: Sequence[DryrunResult], arguments: Namespace) -> ExitCode:
    """What was compiled only was not asked for a verdict."""
    return exit_code([result.verdict for result in results if result.stages], arguments)


def _config_request(arguments: Namespace) -> DryrunRequest:
    return DryrunRequest(
        config=arguments.config,
        fewest_layers=_wants_fewest_layers(arguments),
        stages=parse_stages(arguments),
        extrapolate=not arguments.no_extrapolate,
        settings=tuple(map(Setting.parse, arguments.set)),
        reference=arguments.reference,
        **shared_fields(arguments),
    )


def _wants_fewest_layers(arguments: Namespace) -> bool:
    """Whether ms-tune chooses the layers: unless the user does, and where a figure of the whole model is asked for."""
    whole = arguments.no_extrapolate or arguments.real or not arguments.level or arguments.compare_real
    return bool(arguments.layers == "auto" or (arguments.layers is None and not whole))


def _check_machine(arguments: Namespace, console: Console) -> ExitCode:
    from ms_tune.report import dryrun_check  # noqa: PLC0415 - imported late: start-up time

    check = api.check_machine(python_of(arguments.python))
    script = _check_script(arguments, console) if arguments.command and not check.problem else None
    if arguments.json:
        own = {"script": dryrun_check.script_json(script, console)} if script is not None else {}
        console.write_json({**dryrun_check.machine_json(check, console), **own})
    else:
        dryrun_check.show_machine(check, console)
        if script is not None:
            dryrun_check.show_script(script, console)
    return ExitCode.USAGE if check.problem or (script is not None and script.problems) else ExitCode.OK


_MOST_READ = 1024**2  # bytes of a script
_ABOUT_CONFIGS: dict[str, object] = {
    **dict.fromkeys(("config", "compare_real")),
    "no_extrapolate": False,
    "reference": False,
}


def _run_command(arguments: Namespace, console: Console) -> ExitCode | int:
    """Run the command, then show what its trace tells.

    Returns:
        The command's exit code if it is not 0, else whether what it allocated fits.
    """
    refuse_options(arguments, _ABOUT_CONFIGS, "stages.command.options")
    if not CommandRequest(arguments.command).launches:
        refuse_options(
            arguments, {"stages": None, "stage": None, "set": [], "layers": None, "sweep": []}, "stages.command.options"
        )
    _see_that_it_is_no_yaml(arguments.command, console)
    if arguments.real:
        refuse_options(arguments, {"engine": "local"}, "stages.real.simulation-only")
    if arguments.sweep:
        return _sweep_command(arguments, console)
    from ms_tune.report import dryrun_command  # noqa: PLC0415 - imported late: start-up time

    with DryrunProgress(console) as progress:
        result = api.run_command(_command_request(arguments), observer=progress)
    for problem, where in result.problems:
        console.warn(problem)
        console.note(f"  {console.labelled(console.text('cli.hint'), console.say(where))}")
    for warning in result.warnings:
        console.warn(warning)
    if present_report(dryrun_command.command_json(result, console), result.folder, arguments, console):
        dryrun_command.show_command(result, console)
    if arguments.html:
        write_page(result, arguments.html, console)
    if result.code:
        return result.code
    return exit_code([result.verdict], arguments)


def _sweep_command(arguments: Namespace, console: Console) -> ExitCode:
    """Run the command once with each value of its programs' options, and compare."""
    from ms_tune.report import dryrun_compare  # noqa: PLC0415 - imported late: start-up time

    refuse_options(arguments, {"html": None, "real": False}, "stages.command.options")
    with DryrunProgress(console) as progress:
        result = api.sweep_command(_command_request(arguments), arguments.sweep, observer=progress)
    if present_report(dryrun_compare.command_variants_json(result, console), result.folder, arguments, console):
        dryrun_compare.show_command_variants(result, console)
    if any(variant.result is None or variant.result.code for variant in result.variants):
        return ExitCode.USAGE
    return exit_code([variant.result.verdict for variant in result.variants if variant.result], arguments)


def _check_script(arguments: Namespace, console: Console) -> ScriptCheck:
    """What the command's programs would find; nothing of it is trained or kept."""
    _see_that_it_is_no_yaml(arguments.command, console)
    with DryrunProgress(console) as progress:
        return api.check_script(_command_request(arguments), observer=progress)


def _see_that_it_is_no_yaml(command: Sequence[str], console: Console) -> None:
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


def _command_request(arguments: Namespace) -> CommandRequest:
    chosen = parse_stages(arguments)
    return CommandRequest(
        command=arguments.command,
        stages=None if chosen is StageChoice.ALL else chosen,
        fewest_layers=arguments.layers == "auto",
        settings=tuple(map(CommandRequest.parse_setting, arguments.set)),
        python=python_of(arguments.python),
        **shared_fields(arguments),
    )


# The page keeps all blocks of four ranks and the curves of the others: half a megabyte each.
_MOST_RANKS = 12
_ABOUT_SEVERAL_RUNS = ("sweep", "compare_real")


def check_page(arguments: Namespace) -> None:
    """Tell before the long work begins what would be in the way of a page at its end.

    Raises:
        UsageError: The page would be about more than one run, is there already, or its folder cannot be written.
        MissingExtraError: A package that makes pages is not installed.
    """
    path: Path | None = arguments.html
    if path is None:
        return
    for name in _ABOUT_SEVERAL_RUNS:
        if getattr(arguments, name):
            raise UsageError(msg("dryrun.html.one-run", option=f"--{name.replace('_', '-')}"), msg("dryrun.html.hint"))
    new_file(path, force=arguments.force)
    need("ms-tune dryrun --html", "dryrun,report", "jinja2")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        detail = msg("memory.unwritable", detail=reason_of(error))
        raise UsageError(msg("cli.usage.value", argument=str(path), detail=detail)) from error


def write_page(result: DryrunResult | CommandResult, path: Path, console: Console) -> None:
    """The page about all stages of a job, or all ranks of a command."""
    if not (result.stages if isinstance(result, DryrunResult) else result.ranks):
        console.warn(msg("dryrun.html.nothing", file=path))
        return
    from ms_tune.report.dryrun_html import report_html  # noqa: PLC0415 - imported late: start-up time

    report = api.job_report(result, most=_MOST_RANKS)
    with written(path, console) as part:
        part.write_text(report_html(report, console.language), encoding="utf-8")
    if report.left_out:
        console.note(console.text("dryrun.html.left-out", shown=len(report.memory.ranks), left_out=report.left_out))
