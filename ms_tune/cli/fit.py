"""Define ``ms-tune fit`` and its options. Modules that need NumPy and SciPy are imported when the command runs."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path

from ms_tune.cli.device import add_device_arguments
from ms_tune.cli.output import new_file
from ms_tune.cli.parser import Parser, refuse_options
from ms_tune.dryrun.request import ENGINES
from ms_tune.enums import RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.extras import need
from ms_tune.planning.layouts import DIMENSIONS
from ms_tune.planning.time_scale import parse_step
from ms_tune.report.console import Console, usage_hint
from ms_tune.text import Language, msg, render
from ms_tune.units import parse_size

_EFFORTS = ("quick", "normal", "best")  # of ms_tune.planning.search, which needs scipy
_ONLY_CONFIG = (
    *("model_config", "devices", "device_memory", "chip", "reserve", "allow_tight", "set", "kinds", "jobs", "engine"),
    *("search", "keep", "top", "node_devices", "cluster", "global_batch", "timeout", "no_verify", "write", "diff"),
    "explain",
)
_NODE, _TOP = 8, 3  # of ms_tune.fit.search
_MOST_BANDWIDTH = 2**50  # bytes per second


def build_parser(language: Language) -> Parser:
    """Return the parser of the command."""
    parser = Parser("ms-tune fit", language, "fit.description", "fit.examples")
    _add_config_arguments(parser)
    parser.file("--table", "fit.help.table")
    parser.option("--limit", "fit.help.limit", type=parser.size, metavar="SIZE")
    for name in ("stages", "chunks", "micro-batches"):
        parser.option(f"--{name}", f"fit.help.{name}", type=parser.count, metavar="N")
    parser.option("--order", "fit.help.order", metavar="NAME")
    parser.option("--constant", "fit.help.constant", type=parser.signed_size, metavar="SIZE")
    parser.option("--effort", "fit.help.effort", choices=_EFFORTS, default="normal")
    parser.option("--seed", "fit.help.seed", type=parser.natural, default=1, metavar="N")
    _add_file_arguments(parser)
    parser.add_common_arguments()
    parser.removed_options |= {"--sapp-layers": "fit.sapp-layers-removed", "--export-sapp": "fit.export-sapp-removed"}
    parser.removed_options["--times"] = "fit.times-removed"
    return parser


def _add_config_arguments(parser: Parser) -> None:
    parser.option("config", "fitting.help.config", nargs="?", type=Path, metavar="CONFIG")
    parser.option("--model-config", "sizes.help.model-config", type=Path, metavar="PATH")
    parser.option("--devices", "dryrun_help.devices", type=parser.count, metavar="N")
    add_device_arguments(parser)
    parser.option("--set", "dryrun_help.set", action="append", default=[], metavar="PATH=VALUE")
    kinds = ", ".join(kind.value for kind in RecomputeMode if kind is not RecomputeMode.NONE)
    parser.option("--kinds", "fitting.help.kinds", metavar="KIND,..", params={"kinds": kinds})
    _add_search_arguments(parser)
    parser.flag("--explain", "fitting.help.explain")
    parser.flag("--no-verify", "fitting.help.no-verify")
    parser.flag("--write", "fitting.help.write")
    parser.flag("--diff", "fitting.help.diff")
    parser.option("--jobs", "dryrun_help.jobs", type=parser.count, metavar="N")
    parser.option("--engine", "dryrun_help.engine", choices=ENGINES)
    parser.option("--timeout", "dryrun_help.timeout", type=parser.count, metavar="SECONDS")


def _add_search_arguments(parser: Parser) -> None:
    names = ",".join(DIMENSIONS)
    parser.option("--search", "layouts.help.search", nargs="?", const="all", metavar="DIM,..", params={"names": names})
    parser.option("--global-batch", "layouts.help.global-batch", type=parser.count, metavar="N")
    parser.option("--keep", "layouts.help.keep", metavar="DIM=N,..")
    parser.option("--top", "layouts.help.top", type=parser.natural, metavar="N", params={"count": _TOP})
    node = {"count": _NODE}
    parser.option("--node-devices", "layouts.help.node-devices", type=parser.count, metavar="N", params=node)


def _add_file_arguments(parser: Parser) -> None:
    parser.file("--cluster", "seconds.help.cluster")
    parser.option(
        "--calibrate, --measured", "fit.help.calibrate", type=_step_type(parser.language), metavar="step=TIME|LOG"
    )
    parser.option(
        "--swap-bandwidth", "fit.help.swap-bandwidth", type=_bandwidth_type(parser.language), metavar="SIZE/s"
    )
    parser.file("--html", "fit.help.html")
    parser.file("--export-table", "fit.help.export-table")
    parser.flag("--force", "memory.help.force")


def _step_type(language: Language) -> Callable[[str], float | Path]:
    def convert(text: str) -> float | Path:
        if not text.startswith("step=") and Path(text).exists():
            return Path(text)
        try:
            return parse_step(text)
        except ValueError:
            raise ArgumentTypeError(render(msg("fit.usage.calibrate", value=text), language)) from None

    return convert


def _bandwidth_type(language: Language) -> Callable[[str], int]:
    def convert(text: str) -> int:
        size, slash, second = text.partition("/")
        try:
            bandwidth = parse_size(size) if slash and second.strip() == "s" else 0
        except (ValueError, OverflowError):
            bandwidth = 0
        if not 0 < bandwidth <= _MOST_BANDWIDTH:
            raise ArgumentTypeError(render(msg("fit.usage.bandwidth", value=text), language))
        return bandwidth

    return convert


def run(arguments: Namespace, console: Console) -> int:
    """Reject invalid combinations of options, then find, show and write a plan."""
    for module in ("numpy", "scipy"):
        need("ms-tune fit", "fit", module)
    for path in (arguments.html, arguments.export_table):
        new_file(path, force=arguments.force)
    from ms_tune.cli import fit_run  # noqa: PLC0415 - it needs SciPy

    if arguments.config is not None:
        # A config already determines these values.
        names = ("table", "limit", "stages", "micro_batches", "order", "chunks", "constant")
        refuse_options(arguments, names, "cli.usage.not-allowed", usage_hint("ms-tune fit"), other="CONFIG")
        return fit_run.run_config(arguments, console)
    if arguments.table is None:
        raise UsageError(msg("cli.usage.required", detail="CONFIG, --table"), usage_hint("ms-tune fit"))
    refuse_options(arguments, _ONLY_CONFIG, "fitting.only-config")
    return fit_run.run_table(arguments, console)
