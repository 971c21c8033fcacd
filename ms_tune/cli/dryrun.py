"""``ms-tune dryrun``: does it fit?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ms_tune import api
from ms_tune.cli import dryrun_command
from ms_tune.cli.device import add_device_arguments, exit_code
from ms_tune.cli.dryrun_html import check_page, write_page
from ms_tune.cli.dryrun_inputs import present, python_of, refuse, shared, stages
from ms_tune.cli.dryrun_progress import DryrunProgress
from ms_tune.cli.output import new_file
from ms_tune.cli.parser import Parser
from ms_tune.dryrun.environment import LEVELS
from ms_tune.dryrun.request import ENGINES, DryrunRequest, Setting
from ms_tune.errors import ExitCode
from ms_tune.extras import need
from ms_tune.footprint.request import MemoryRequest
from ms_tune.source import SCRIPTS
from ms_tune.source.atomic_write import write_atomically

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Mapping, Sequence

    from ms_tune.dryrun.result import DryrunResult
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
    parser.option("--layers", "dryrun_help.layers", type=_layers(parser), metavar="N|auto|all")
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


def _layers(parser: Parser) -> Callable[[str], int | str]:
    """An argparse type: a number of layers, or one of two words."""
    return lambda text: text if text in ("auto", "all") else parser.count(text)


def run(arguments: Namespace, console: Console) -> ExitCode | int:
    """Simulate, show, judge."""
    if arguments.check:
        return _check(arguments, console)
    need("ms-tune dryrun", "dryrun", "numpy")
    check_page(arguments)
    if arguments.command:
        return dryrun_command.run(arguments, console)
    refuse(arguments, {"python": None}, "launch.python.config")
    if arguments.real:
        refuse(arguments, _SIMULATION_ONLY, "stages.real.simulation-only")
    if arguments.compare_real:
        return _compare(arguments, console)
    if arguments.report:
        return _both(arguments, console)
    if arguments.sweep:
        return _sweep(arguments, console)
    return _simulate(arguments, console)


def _simulate(arguments: Namespace, console: Console) -> ExitCode:
    with DryrunProgress(console, _load_pages) as progress:
        result = api.dryrun(request=_request(arguments), observer=progress)
    from ms_tune.report import dryrun_json, dryrun_text  # noqa: PLC0415 - imported late: start-up time

    for warning in result.warnings:
        console.warn(warning)
    if present(dryrun_json.to_json(result, console), result.folder, arguments, console):
        dryrun_text.show(result, console)
    if arguments.html:
        write_page(result, arguments.html, console)
    return _code([result], arguments)


def _load_pages() -> None:
    """Load what shows a result while there is time, which is when the processes run: numpy alone takes a tenth of a second."""
    from ms_tune.report import dryrun_json as json  # noqa: F401, PLC0415 - imported late: start-up time


def _both(arguments: Namespace, console: Console) -> ExitCode:
    """The config's own framework and the reference beside each other, in a file that can be sent in."""
    from ms_tune.report import dryrun_both  # noqa: PLC0415 - imported late: start-up time

    refuse(arguments, {"sweep": [], "real": False, "reference": False, "html": None, "level": 1}, "dryrun.both.alone")
    new_file(arguments.report, force=arguments.force)
    with DryrunProgress(console) as progress:
        found = api.dryrun_both(request=_request(arguments), observer=progress)
    text = dryrun_both.to_text(found, console)
    write_atomically(arguments.report, text.encode(), parents=True)
    if arguments.json:
        console.write_json(dryrun_both.to_json(found))
    else:
        console.write_whole(text.rstrip("\n"))
    console.note(console.text("dryrun.both.written", file=arguments.report))
    return ExitCode.OK if found.real.stages and found.reference.stages else ExitCode.USAGE


def _compare(arguments: Namespace, console: Console) -> ExitCode:
    """A finished simulated run, or one that is made for it, beside a real one."""
    from ms_tune.report import dryrun_compare, dryrun_compare_log  # noqa: PLC0415 - imported late: start-up time

    simulated = arguments.config
    if simulated is None or simulated.suffix in {".yaml", ".yml"}:
        request = api.request_like(arguments.compare_real, _request(arguments))
        with DryrunProgress(console) as progress:
            simulated = api.dryrun(request=request, observer=progress).folder
    terms = MemoryRequest(chip=arguments.chip, device_bytes=arguments.device_memory, reserve_bytes=arguments.reserve)
    if api.is_log(arguments.compare_real):
        logged = api.compare_log(simulated, arguments.compare_real, request=terms)
        if arguments.json:
            console.write_json(dryrun_compare_log.to_json(logged, console))
        else:
            dryrun_compare_log.show(logged, console)
        return exit_code([pair.simulated.verdict for pair in logged.pairs], arguments)
    comparison = api.compare_real(simulated, arguments.compare_real, request=terms)
    if arguments.json:
        console.write_json(dryrun_compare.to_json(comparison, console))
    else:
        dryrun_compare.show(comparison, console)
    return exit_code([rank.simulated.verdict for rank in comparison.ranks], arguments)


def _sweep(arguments: Namespace, console: Console) -> ExitCode:
    """Run every variant and compare."""
    from ms_tune.report import dryrun_variants  # noqa: PLC0415 - imported late: start-up time

    with DryrunProgress(console) as progress:
        result = api.sweep(_request(arguments), arguments.sweep, observer=progress)
    if present(dryrun_variants.to_json(result, console), result.folder, arguments, console):
        dryrun_variants.show(result, console)
    if any(variant.error is not None for variant in result.variants):
        return ExitCode.USAGE
    return _code([variant.result for variant in result.variants if variant.result is not None], arguments)


def _code(results: Sequence[DryrunResult], arguments: Namespace) -> ExitCode:
    """What was compiled only was not asked for a verdict."""
    return exit_code([result.verdict for result in results if result.stages], arguments)


def _request(arguments: Namespace) -> DryrunRequest:
    return DryrunRequest(
        config=arguments.config,
        fewest_layers=_fewest(arguments),
        stages=stages(arguments),
        extrapolate=not arguments.no_extrapolate,
        settings=tuple(map(Setting.parse, arguments.set)),
        reference=arguments.reference,
        **shared(arguments),
    )


def _fewest(arguments: Namespace) -> bool:
    """Whether ms-tune chooses the layers: unless the user does, and where a figure of the whole model is asked for."""
    whole = arguments.no_extrapolate or arguments.real or not arguments.level or arguments.compare_real
    return bool(arguments.layers == "auto" or (arguments.layers is None and not whole))


def _check(arguments: Namespace, console: Console) -> ExitCode:
    from ms_tune.report import dryrun_check, dryrun_script_check  # noqa: PLC0415 - imported late: start-up time

    check = api.check_machine(python_of(arguments.python))
    script = dryrun_command.check_script(arguments, console) if arguments.command and not check.problem else None
    if arguments.json:
        own = {"script": dryrun_script_check.to_json(script, console)} if script is not None else {}
        console.write_json({**dryrun_check.to_json(check, console), **own})
    else:
        dryrun_check.show(check, console)
        if script is not None:
            dryrun_script_check.show(script, console)
    return ExitCode.USAGE if check.problem or (script is not None and script.problems) else ExitCode.OK
