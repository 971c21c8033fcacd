"""Define ``ms-tune normalize-recompute``, which shows the recomputation and swap of each layer of a config."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from ms_tune.cli.parser import Parser, refuse_options
from ms_tune.dialects import LayerPlan, PlanIssue
from ms_tune.enums import WITH_LAYERS
from ms_tune.errors import ExitCode, UnknownSizesError, UsageError
from ms_tune.facts.models import LAYERS, MODEL_CONFIG, names_of
from ms_tune.facts.query import DEFAULT_VERSION
from ms_tune.job import Job, ModelFile
from ms_tune.normalize.run import choose_layers, exit_code_of, list_warnings, normalize_recompute
from ms_tune.report import normalize_text as report
from ms_tune.report.console import Console, usage_hint
from ms_tune.source import SCRIPTS
from ms_tune.source.yaml import MAX_BYTES, SourceFile, decode, load_source, parse_source
from ms_tune.text import Language, msg

_PROGRAM = "ms-tune normalize-recompute"
_MOST_LAYERS = 10_000
# Mutually exclusive output forms.
_MODES = ("write", "diff", "against", "to")  # of `normalize_modes`
_NOT_AGAINST = ("as_log", "write", "diff", "to", "from_sapp", "stage", "layer")


def build_parser(language: Language) -> Parser:
    """Return the parser of the command."""
    parser = Parser(_PROGRAM, language, "normalize.description", "normalize.examples")
    parser.add_common_arguments()
    parser.flag("--as-log", "normalize.help.as-log")
    parser.flag("--write", "normalize.help.write")
    parser.flag("--diff", "normalize.help.diff")
    dialects = {"choices": ", ".join(WITH_LAYERS)}
    parser.option("--to", "normalize.help.to", metavar="DIALECT[@RELEASE]", params=dialects)
    parser.option("--from-sapp", "normalize.help.from-sapp", metavar="PLAN", nargs="?", const="")
    parser.option("--against", "against.help", metavar="LOG", type=Path, action="append", default=[])
    parser.option("--stage", "normalize.help.stage", metavar="K", type=parser.natural)
    parser.option("--layer", "normalize.help.layer", metavar="N", type=parser.natural)
    parser.option("--model-config", "sizes.help.model-config", metavar="PATH", type=Path)
    parser.option("--layers", "normalize.help.layers", metavar="N", type=parser.count)
    parser.option("--stages", "normalize.help.stages", metavar="N", type=parser.count)
    parser.option("--chunks", "normalize.help.chunks", metavar="N", type=parser.count)
    default = {"default": DEFAULT_VERSION}
    parser.option("--framework-version", "normalize.help.version", metavar="VERSION", params=default)
    # Required except with --from-sapp PLAN; argparse cannot express this.
    parser.option("file", "normalize.help.file", metavar="FILE", type=Path, nargs="?")
    return parser


@contextmanager
def _hint_at_layers() -> Iterator[None]:
    try:
        yield
    except UnknownSizesError as error:
        error.hint = msg("normalize.give-layers")  # this command only needs their number
        raise


@_hint_at_layers()
def run(arguments: Namespace, console: Console) -> ExitCode:
    """Read the config, compute its layer plan and show it."""
    _check_forms(arguments)
    is_script = arguments.file is not None and arguments.file.suffix in SCRIPTS
    job = None if is_script or arguments.from_sapp is not None else _load_job(arguments)
    if job is not None and not any(map(vars(arguments).get, _MODES)):
        return _show_plan(normalize_recompute(job), arguments, console)
    from ms_tune.cli import normalize_modes  # noqa: PLC0415 - shells and all dialects are much to import

    plan = normalize_modes.run(job, arguments, console)
    return plan if isinstance(plan, ExitCode) else _show_plan(plan, arguments, console)


def _load_job(arguments: Namespace) -> Job:
    path, sizes = arguments.file, ModelFile(arguments.model_config)
    if str(path) != "-":
        source = load_source(path)
    else:
        source = parse_source(decode(sys.stdin.buffer.read(MAX_BYTES + 1), path), path)
    job = Job(source, version=arguments.framework_version, layers=arguments.layers, sizes_from=sizes)
    whole = job.source
    if (arguments.layers, arguments.stages, arguments.chunks) != (None, None, None):
        _check_sizes(whole, arguments)
    return job


def _check_sizes(whole: SourceFile, arguments: Namespace) -> None:
    """Raise an error if sizes on the command line contradict the config."""
    sizes = (
        ("--layers", arguments.layers, names_of(LAYERS)),
        ("--stages", arguments.stages, ("pipeline_stage", "pipeline_parallel", "pipeline_model_parallel_size")),
        ("--chunks", arguments.chunks, (*names_of("pp_interleave_num"), "pipeline_parallel_interleave_num")),
    )
    sections = ("model", "model_config"), ("model",), ("model_config",), ("parallel_config",), ("parallelism",)
    for option, asked, names in sizes:
        for section, name in product(sections, names) if asked is not None else ():
            written, key = whole.get((*section, name)), ".".join((*section, name))
            if written is None and whole.model_config and section == ("model", "model_config"):
                written, key = whole.model_config.get(name), f"{MODEL_CONFIG}: {name}"
            if isinstance(written, int) and written != asked:
                text = msg("normalize.contradicts", option=option, asked=asked, key=key, written=written)
                raise UsageError(text, usage_hint(_PROGRAM))


def _show_plan(plan: LayerPlan, arguments: Namespace, console: Console) -> ExitCode:
    layers = choose_layers(plan, arguments.stage, arguments.layer)
    if not arguments.json:
        report.write_files(plan, console)
    if arguments.json:
        console.write_json(report.plan_json(plan, layers))
    elif arguments.as_log:
        console.write_raw(report.log_text(plan))
        for problem in list_warnings(plan.problems):
            console.warn(problem.message)
        for problem in plan.problems:
            if problem.id == PlanIssue.AS_WRITTEN:
                console.note(console.say(problem.message))
    else:
        report.write_plan(plan, layers, console, verbose=arguments.verbose, quiet=arguments.quiet)
    return exit_code_of(plan.problems)


def _check_forms(arguments: Namespace) -> None:
    asked = list(filter(vars(arguments).get, ("json", "as_log", "write", "diff")))
    if arguments.to:
        if asked in ([], ["json"]):
            return
        asked.insert(0, "to")
    if len(asked) > 1:
        other, option = [f"--{name.replace('_', '-')}" for name in asked[:2]]
        raise UsageError(msg("cli.usage.not-allowed", option=option, other=other), usage_hint(_PROGRAM))
    if arguments.against:
        refuse_options(arguments, _NOT_AGAINST, "cli.usage.not-allowed", usage_hint(_PROGRAM), other="--against")
    if arguments.file is None and not arguments.from_sapp:
        raise UsageError(msg("cli.usage.required", detail="FILE"), usage_hint(_PROGRAM))
    if arguments.from_sapp is not None:
        _check_sapp(arguments)
    if arguments.layers is not None and arguments.layers > _MOST_LAYERS:
        limits = {"name": "--layers", "minimum": 1, "maximum": _MOST_LAYERS, "value": arguments.layers}
        raise UsageError(msg("normalize.not-a-count", **limits))


def _check_sapp(arguments: Namespace) -> None:
    """Raise an error if neither a config nor the command line sets the sizes for SAPP's lists."""
    merging = bool(arguments.from_sapp) and arguments.file is not None
    if not merging and (arguments.write or arguments.diff):
        other = "--write" if arguments.write else "--diff"
        raise UsageError(msg("normalize.sapp-no-config", option=other), usage_hint(_PROGRAM))
    if not merging and None in (arguments.layers, arguments.stages):
        raise UsageError(msg("normalize.sapp-sizes"), usage_hint(_PROGRAM))
    if not merging and arguments.model_config is not None:
        raise UsageError(msg("normalize.sapp-no-config", option="--model-config"), usage_hint(_PROGRAM))
    if merging and (arguments.stages, arguments.chunks) != (None, None):
        other = "--stages" if arguments.stages is not None else "--chunks"
        raise UsageError(msg("normalize.sapp-own-sizes", option=other), usage_hint(_PROGRAM))
