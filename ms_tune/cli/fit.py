"""``ms-tune fit``: the cheapest placement and recompute plan that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune import api
from ms_tune.cli import fit_config
from ms_tune.cli.dryrun_inputs import refuse_options
from ms_tune.cli.fit_config import (
    INTERRUPTED,
    ONLY_CONFIG,
    add_config_arguments,
    add_file_arguments,
    clock_of,
    new_files,
    write_tables,
)
from ms_tune.cli.native_output import without_native_output
from ms_tune.cli.output import ProgressLine, written
from ms_tune.cli.parser import Parser
from ms_tune.errors import ExitCode, UsageError
from ms_tune.extras import need
from ms_tune.report.console import usage_hint
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace

    from ms_tune.planning.request import FitRequest
    from ms_tune.planning.sapp import SappPipeline
    from ms_tune.planning.search import SearchProgress
    from ms_tune.report.console import Console
    from ms_tune.text import Language

_EFFORTS = ("quick", "normal", "best")  # of ms_tune.planning.search, which needs scipy
_PIPELINE = ("stages", "micro_batches", "order")
_ONLY_SAPP = (*_PIPELINE, "chunks", "constant")
_MOST = {"stages": 1024, "chunks": 64, "micro_batches": 100_000}


def build_parser(language: Language) -> Parser:
    """The command's own parser."""
    parser = Parser("ms-tune fit", language, "fit.description", "fit.examples")
    add_config_arguments(parser)
    source = parser.add_mutually_exclusive_group()
    parser.file("--table", "fit.help.table", into=source)
    parser.file("--sapp-layers", "fit.help.sapp-layers", into=source)
    parser.option("--limit", "fit.help.limit", type=parser.size, metavar="SIZE")
    for name in ("stages", "chunks", "micro-batches"):
        parser.option(f"--{name}", f"fit.help.{name}", type=parser.count, metavar="N")
    parser.option("--order", "fit.help.order", metavar="NAME")
    parser.option("--constant", "fit.help.constant", type=parser.size, metavar="SIZE")
    parser.option("--effort", "fit.help.effort", choices=_EFFORTS, default="normal")
    parser.option("--seed", "fit.help.seed", type=parser.natural, default=1, metavar="N")
    add_file_arguments(parser)
    parser.add_common_arguments()
    return parser


def run(arguments: Namespace, console: Console) -> int:
    """Read, plan, show."""
    for module in ("numpy", "scipy"):
        need("ms-tune fit", "fit", module)
    new_files(arguments)
    if arguments.config is not None:
        _check_alone(arguments)
        return fit_config.run(arguments, console)
    if arguments.table is None and arguments.sapp_layers is None:
        raise UsageError(msg("cli.usage.required", detail="CONFIG, --table, --sapp-layers"), usage_hint("ms-tune fit"))
    refuse_options(arguments, ONLY_CONFIG, "fitting.only-config")
    request = _table_request(arguments)
    from ms_tune.report import fit_html, fit_json, fit_text  # noqa: PLC0415 - imported late: start-up time

    progress = _FitProgress(console)
    with progress, without_native_output():
        report = api.fit(arguments.table or arguments.sapp_layers, request=request, on_progress=progress.tell)
    parts = fit_text.fit_page(report, console)
    if arguments.html:
        with written(arguments.html, console) as part:
            source = arguments.table or arguments.sapp_layers
            part.write_text(fit_html.plan_page(parts, [source], console), encoding="utf-8")
    write_tables(report.table, arguments, console)
    if arguments.json:
        console.write_json(fit_json.fit_report_json(report, console.language))
    else:
        fit_text.show_report(parts, console)
    if report.stopped:
        return INTERRUPTED
    return ExitCode.FINDINGS if report.planned is None else ExitCode.OK


def _check_alone(arguments: Namespace) -> None:
    """A config says by itself what a table would."""
    for name in ("table", "sapp_layers", "limit", *_ONLY_SAPP):
        if getattr(arguments, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(msg("cli.usage.not-allowed", argument=option, other="CONFIG"), usage_hint("ms-tune fit"))


class _FitProgress(ProgressLine):
    """How far the search is."""

    def tell(self, progress: SearchProgress) -> None:
        """Show it."""
        figures = {"time": _shorten_figure(progress.time), "bound": _shorten_figure(progress.bound)}
        self.show(msg("fit.progress", part=msg(f"fit.progress.{progress.part}"), **figures), progress.done)


def _shorten_figure(number: float | None) -> str:
    return "-" if number is None else f"{number:,.6g}"


def _table_request(arguments: Namespace) -> FitRequest:
    from ms_tune.planning.request import FitRequest  # noqa: PLC0415 - imported late: it needs scipy
    from ms_tune.planning.search import Effort  # noqa: PLC0415 - as above

    if arguments.seed >= 2**63:
        raise UsageError(msg("cli.usage.natural", value=arguments.seed))
    sapp = _sapp_pipeline(arguments) if arguments.sapp_layers else None
    if sapp is None:
        given = [name for name in _ONLY_SAPP if getattr(arguments, name) is not None]
        if given:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise UsageError(msg("fit.only-sapp", options=options), msg("fit.only-sapp.hint"))
    limit = arguments.limit if sapp is None else None
    return FitRequest(
        Effort(arguments.effort), arguments.seed, limit, sapp, clock_of(arguments), arguments.swap_bandwidth
    )


def _sapp_pipeline(arguments: Namespace) -> SappPipeline:
    from ms_tune.planning.sapp import SappPipeline  # noqa: PLC0415 - imported late: start-up time
    from ms_tune.planning.schedule import Schedule  # noqa: PLC0415 - as above

    missing = [name for name in (*_PIPELINE, "limit") if getattr(arguments, name) is None]
    if missing:
        raise UsageError(msg("fit.sapp-needs", options=", ".join(f"--{name.replace('_', '-')}" for name in missing)))
    known = [schedule.value for schedule in Schedule]
    if arguments.order not in known:
        choices = {"argument": "--order", "value": arguments.order, "choices": ", ".join(known)}
        raise UsageError(msg("cli.usage.choice", **choices))
    for name, most in _MOST.items():
        if (getattr(arguments, name) or 1) > most:
            raise UsageError(msg("fit.too-many", option=f"--{name.replace('_', '-')}", most=most))
    return SappPipeline(
        stages=arguments.stages,
        chunks=arguments.chunks or 1,
        micro_batches=arguments.micro_batches,
        limit_bytes=arguments.limit,
        order=Schedule(arguments.order),
        constant_bytes=arguments.constant,
    )
