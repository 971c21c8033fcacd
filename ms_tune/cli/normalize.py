"""Define ``ms-tune normalize-recompute``, which shows the recomputation and swap of each layer of a config."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from ms_tune.cli.parser import Parser
from ms_tune.dialects import PlanIssue
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, ExitCode, UnknownSizesError, UsageError, reason_of
from ms_tune.facts.models import LAYERS, MODEL_CONFIG, names_of
from ms_tune.facts.query import DEFAULT_VERSION
from ms_tune.job import Job, ModelFile
from ms_tune.normalize.run import choose_layers, list_warnings, normalize_recompute
from ms_tune.report import normalize_text as report
from ms_tune.report.console import usage_hint
from ms_tune.source import SCRIPTS
from ms_tune.source.yaml import MAX_BYTES, decode, load_source, parse_source
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator, Sequence

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.dialects import LayerPlan
    from ms_tune.dialects.convert_layers import Converted
    from ms_tune.report.console import Console
    from ms_tune.source.yaml import SourceFile
    from ms_tune.text import Language

_PROGRAM = "ms-tune normalize-recompute"
_MOST_LAYERS = 10_000
# Mutually exclusive output forms.
_FORMS = ("json", "as_log", "write", "diff")
_NOT_AGAINST = ("as_log", "write", "diff", "to", "from_sapp", "stage", "layer")


def build_parser(language: Language) -> Parser:
    """Return the parser of the command."""
    parser = Parser(_PROGRAM, language, "normalize.description", "normalize.examples")
    parser.add_common_arguments()
    parser.flag("--as-log", "normalize.help.as-log")
    parser.flag("--write", "normalize.help.write")
    parser.flag("--diff", "normalize.help.diff")
    dialects = {"choices": ", ".join(Dialect)}
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
def run(arguments: Namespace, console: Console) -> ExitCode:  # noqa: PLR0911 - one for each form of the command
    """Read the config, compute its layer plan and show it."""
    _check_forms(arguments)
    if arguments.file is not None and arguments.file.suffix in SCRIPTS:
        from ms_tune.cli.normalize_script import run_script  # noqa: PLC0415 - start-up time

        return run_script(arguments, console)
    if arguments.from_sapp is not None:
        return _run_sapp(arguments, console)
    path = arguments.file
    source = load_source(path) if str(path) != "-" else _read_stdin(path)
    job = _read_job(source, arguments)
    whole = job.source
    if (arguments.layers, arguments.stages, arguments.chunks) != (None, None, None):
        _check_sizes(whole, arguments)
    if arguments.write or arguments.diff:
        from ms_tune.normalize.expand import expand_lists  # noqa: PLC0415 - not needed to show a plan
        from ms_tune.source.edit_values import spell_value  # noqa: PLC0415 - as above

        result = expand_lists(job)
        problems = normalize_recompute(job).problems
        for path in result.left:
            console.warn(msg("normalize.write-comment", name=".".join(map(str, path))))
        for place, value, file, line in result.elsewhere:
            name = ".".join(map(str, place))
            console.warn(msg("normalize.write-elsewhere", name=name, file=file, line=line, value=spell_value(value)))
        if (result.left or result.elsewhere) and not result.change_count:
            return ExitCode.FINDINGS
        return _write_text(job.original, result.text, result.change_count, problems, arguments, console)
    if arguments.against:
        return _compare_with_logs(job, arguments, console)
    if arguments.to:
        _show_files(normalize_recompute(job), console)
        return _convert_job(job, arguments, console)
    return _show_plan(normalize_recompute(job), arguments, console)


def _read_job(source: SourceFile, arguments: Namespace) -> Job:
    sizes = ModelFile(arguments.model_config)
    return Job(source, version=arguments.framework_version, layers=arguments.layers, sizes_from=sizes)


def _read_stdin(path: Path) -> SourceFile:
    return parse_source(decode(sys.stdin.buffer.read(MAX_BYTES + 1), path), path)


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
    if plan.read_from and not arguments.json:
        _show_files(plan, console)
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
    return _exit_code(plan.problems)


def _check_forms(arguments: Namespace) -> None:
    asked = list(filter(vars(arguments).get, _FORMS))
    if arguments.to:
        if asked in ([], ["json"]):
            return
        asked.insert(0, "to")
    if len(asked) > 1:
        other, argument = [f"--{name.replace('_', '-')}" for name in asked[:2]]
        raise UsageError(msg("cli.usage.not-allowed", argument=argument, other=other), usage_hint(_PROGRAM))
    for name in _NOT_AGAINST if arguments.against else ():
        value = getattr(arguments, name)
        if value is not None and value is not False:
            other = f"--{name.replace('_', '-')}"
            raise UsageError(msg("cli.usage.not-allowed", argument="--against", other=other), usage_hint(_PROGRAM))
    if arguments.file is None and not arguments.from_sapp:
        raise UsageError(msg("cli.usage.required", detail="FILE"), usage_hint(_PROGRAM))
    if arguments.from_sapp is not None:
        _check_sapp(arguments)
    if arguments.layers is not None and arguments.layers > _MOST_LAYERS:
        limits = {"name": "--layers", "minimum": 1, "maximum": _MOST_LAYERS, "value": arguments.layers}
        raise UsageError(msg("normalize.not-a-count", **limits))


def _show_files(plan: LayerPlan, console: Console) -> None:
    for file in plan.read_from:
        console.note(console.text("normalize.read-from", file=file))


def _compare_with_logs(job: Job, arguments: Namespace, console: Console) -> ExitCode:
    from ms_tune.normalize.compare_log import compare_logs  # noqa: PLC0415 - start-up time

    result = compare_logs(job, arguments.against)
    if arguments.json:
        console.write_json(report.comparison_json(result))
    else:
        _show_files(result.plan, console)
        report.write_comparison(result, console)
    return {"same": ExitCode.OK, "differs": ExitCode.FINDINGS}.get(result.verdict.value, ExitCode.USAGE)


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


def _run_sapp(arguments: Namespace, console: Console) -> ExitCode:
    from ms_tune.normalize import sapp, sapp_lists  # noqa: PLC0415 - start-up time

    lists = sapp_lists.parse_sapp(_read_plan(Path(arguments.from_sapp) if arguments.from_sapp else arguments.file))
    if not arguments.from_sapp or arguments.file is None:
        sizes = sapp_lists.Sizes(arguments.layers, arguments.stages, arguments.chunks or 1)
        if not arguments.to:
            return _show_plan(sapp_lists.plan_sapp(lists, sizes), arguments, console)
        from ms_tune.normalize.convert import target_of  # noqa: PLC0415 - as above

        return _show_conversion(sapp.convert_sapp(lists, sizes, target_of(arguments.to)), arguments, console)
    source = load_source(arguments.file)
    job = _read_job(source, arguments)
    merged = sapp.merge_sapp(job, lists)
    if arguments.write or arguments.diff or arguments.to:
        _show_files(merged.plan, console)
    if arguments.write or arguments.diff:
        return _write_text(source, merged.text, merged.count, merged.plan.problems, arguments, console)
    if arguments.to:
        job = _read_job(parse_source(merged.text, source.path), arguments)
        return _convert_job(job, arguments, console)
    return _show_plan(merged.plan, arguments, console)


def _read_plan(path: Path) -> str:
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = reason_of(error)
        raise ConfigError(msg("config.unreadable", reason=reason), path=path) from error


def _write_text(  # noqa: PLR0913, PLR0917 - all parts of a change
    source: SourceFile,
    text: str,
    count: int,
    problems: Sequence[Diagnostic],
    arguments: Namespace,
    console: Console,
) -> ExitCode:
    if arguments.diff:
        report.write_difference(source.path, source.text, text, console)
        if count:
            return ExitCode.FINDINGS
    elif count and str(source.path) == "-":
        console.write_raw(text.removesuffix("\n"))
    elif count:
        from ms_tune.source.atomic_write import write_back  # noqa: PLC0415 - start-up time

        write_back(source.path, source.text, text)
    if not arguments.diff or not count:
        said = "normalize.written" if count else "normalize.already"
        console.note(console.text(said, file=source.path, count=count))
    return _exit_code(problems)


def _convert_job(job: Job, arguments: Namespace, console: Console) -> ExitCode:
    from ms_tune.normalize.convert import convert_job, target_of  # noqa: PLC0415 - start-up time

    return _show_conversion(convert_job(job, target_of(arguments.to)), arguments, console)


def _show_conversion(converted: Converted, arguments: Namespace, console: Console) -> ExitCode:
    if arguments.json:
        console.write_json(report.conversion_json(arguments.to, converted))
    else:
        console.write_raw(report.converted_text(arguments.to, converted))
        for problem in list_warnings(converted.problems):
            console.warn(problem.message)
    return _exit_code(converted.problems)


def _exit_code(problems: Iterable[Diagnostic]) -> ExitCode:
    return ExitCode.FINDINGS if list_warnings(problems) else ExitCode.OK
