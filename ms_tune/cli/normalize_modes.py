"""Run the other modes of ``ms-tune normalize-recompute``: launch scripts, SAPP's lists, edits, conversions, comparisons with logs."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from ms_tune.cli.parser import refuse_options
from ms_tune.diagnostics import Diagnostic
from ms_tune.dialects import LayerPlan
from ms_tune.dialects.convert_layers import Converted
from ms_tune.errors import ExitCode, UnsupportedError
from ms_tune.job import Job, ModelFile
from ms_tune.job.script import ScriptJob
from ms_tune.normalize.compare_log import compare_logs
from ms_tune.normalize.convert import convert_job, convert_script, expand_lists, target_of
from ms_tune.normalize.run import choose_layers, exit_code_of, list_warnings, normalize_recompute
from ms_tune.normalize.sapp import convert_sapp, merge_sapp
from ms_tune.normalize.sapp_lists import Sizes, parse_sapp, plan_sapp
from ms_tune.normalize.script import ProgramPlan, normalize_script
from ms_tune.report import normalize_text as report
from ms_tune.report.console import Console
from ms_tune.source import SCRIPTS
from ms_tune.source.atomic_write import write_back
from ms_tune.source.edit_values import spell_value
from ms_tune.source.yaml import MAX_BYTES, SourceFile, decode, load_source, parse_source, read_text
from ms_tune.text import msg


def run(job: Job | None, arguments: Namespace, console: Console) -> ExitCode | LayerPlan:
    """Run the requested mode on a config, or on a script or SAPP's lists; return the plan if it is to be shown as usual."""
    if job is None:
        is_script = arguments.file is not None and arguments.file.suffix in SCRIPTS
        return _run_script(arguments, console) if is_script else _run_sapp(arguments, console)
    if arguments.write or arguments.diff:
        return _write_job(job, arguments, console)
    if arguments.against:
        return _compare_with_logs(job, arguments, console)
    report.write_files(normalize_recompute(job), console)
    return _convert_job(job, arguments, console)


def _write_job(job: Job, arguments: Namespace, console: Console) -> ExitCode:
    problems = normalize_recompute(job).problems
    result = expand_lists(job)
    for path in result.left:
        console.warn(msg("normalize.write-comment", name=".".join(map(str, path))))
    for place, value, file, line in result.elsewhere:
        name = ".".join(map(str, place))
        console.warn(msg("normalize.write-elsewhere", name=name, file=file, line=line, value=spell_value(value)))
    if (result.left or result.elsewhere) and not result.change_count:
        return ExitCode.FINDINGS
    return _write_text(job.original, result.text, result.change_count, problems, arguments, console)


def _compare_with_logs(job: Job, arguments: Namespace, console: Console) -> ExitCode:
    result = compare_logs(job, arguments.against)
    if arguments.json:
        console.write_json(report.comparison_json(result))
    else:
        report.write_files(result.plan, console)
        report.write_comparison(result, console)
    return {"same": ExitCode.OK, "differs": ExitCode.FINDINGS}.get(result.verdict.value, ExitCode.USAGE)


def _run_sapp(arguments: Namespace, console: Console) -> ExitCode | LayerPlan:
    lists = parse_sapp(_read_plan(Path(arguments.from_sapp) if arguments.from_sapp else arguments.file))
    if not arguments.from_sapp or arguments.file is None:
        sizes = Sizes(arguments.layers, arguments.stages, arguments.chunks or 1)
        if not arguments.to:
            return plan_sapp(lists, sizes)
        return _show_conversion(convert_sapp(lists, sizes, target_of(arguments.to)), arguments, console)
    source = load_source(arguments.file)
    sizes_from = ModelFile(arguments.model_config)
    job = Job(source, version=arguments.framework_version, layers=arguments.layers, sizes_from=sizes_from)
    merged = merge_sapp(job, lists)
    if arguments.write or arguments.diff or arguments.to:
        report.write_files(merged.plan, console)
    if arguments.write or arguments.diff:
        return _write_text(source, merged.text, merged.count, merged.plan.problems, arguments, console)
    if arguments.to:
        written = parse_source(merged.text, source.path)
        job = Job(written, version=job.version, layers=job.layers, sizes_from=sizes_from)
        return _convert_job(job, arguments, console)
    return merged.plan


def _read_plan(path: Path) -> str:
    return decode(sys.stdin.buffer.read(MAX_BYTES + 1), path) if str(path) == "-" else read_text(path)


def _write_text(  # noqa: PLR0913, PLR0917 - all parts of a change
    source: SourceFile, text: str, count: int, problems: Sequence[Diagnostic], arguments: Namespace, console: Console
) -> ExitCode:
    if arguments.diff:
        report.write_difference(source.path, source.text, text, console)
        if count:
            return ExitCode.FINDINGS
    elif count and str(source.path) == "-":
        console.write_raw(text.removesuffix("\n"))
    elif count:
        write_back(source.path, source.text, text)
    if not arguments.diff or not count:
        said = "normalize.written" if count else "normalize.already"
        console.note(console.text(said, file=source.path, count=count))
    return exit_code_of(problems)


def _convert_job(job: Job, arguments: Namespace, console: Console) -> ExitCode:
    return _show_conversion(convert_job(job, target_of(arguments.to)), arguments, console)


def _show_conversion(converted: Converted, arguments: Namespace, console: Console) -> ExitCode:
    if arguments.json:
        console.write_json(report.conversion_json(arguments.to, converted))
    else:
        console.write_raw(report.converted_text(arguments.to, converted))
        for problem in list_warnings(converted.problems):
            console.warn(problem.message)
    return exit_code_of(converted.problems)


def _run_script(arguments: Namespace, console: Console) -> ExitCode:
    # Read the script, compute the plan of each program and show it.
    if arguments.as_log or arguments.against:
        raise UnsupportedError(msg("megatron_layers.not-logged"))
    refuse_options(arguments, ("from_sapp", "model_config", "layers", "stages", "chunks"), "megatron_layers.option")
    refuse_options(arguments, ("write", "diff"), "megatron_layers.option", msg("megatron_layers.lint-writes"))
    script = ScriptJob(arguments.file, version=arguments.framework_version)
    if arguments.to:
        return _convert_script(script, arguments, console)
    programs = normalize_script(script, supposing=True)
    if arguments.json:
        console.write_json(report.programs_json(programs))
    else:
        for number, program in enumerate(programs):
            if number:
                console.write("")
            _show_program(program, arguments, console, named=len(programs) > 1)
    return _script_code([one.plan for one in programs])


def _convert_script(script: ScriptJob, arguments: Namespace, console: Console) -> ExitCode:
    found = convert_script(script, target_of(arguments.to))
    jobs = []
    for one in found:
        program, settings = one.program, one.settings
        if settings is None:
            unknown = {"unknown": program.unknown, "argument": program.argument}
            console.warn(msg("megatron_layers.not-converted", program=program.program, line=program.line, **unknown))
        elif arguments.json:
            values = report.conversion_json(arguments.to, settings)
            jobs.append({"program": program.program, "line": program.line, **values})
        else:
            if len(found) > 1:
                console.write(
                    f"# {console.text('megatron_layers.program', line=program.line, program=program.program)}"
                )
            console.write_raw(report.converted_text(arguments.to, settings))
            for problem in list_warnings(settings.problems):
                console.warn(problem.message)
    if arguments.json:
        console.write_json({"version": 1, "jobs": jobs})
    return _script_code([one.settings for one in found])


def _show_program(program: ProgramPlan, arguments: Namespace, console: Console, *, named: bool) -> None:
    if named or program.plan is None:
        console.write(console.text("megatron_layers.program", line=program.line, program=program.program))
    if program.plan is None:
        console.write(console.text("megatron_layers.not-evaluable", unknown=program.unknown, argument=program.argument))
        return
    report.write_files(program.plan, console)
    layers = choose_layers(program.plan, arguments.stage, arguments.layer)
    report.write_plan(program.plan, layers, console, verbose=arguments.verbose, quiet=arguments.quiet)


def _script_code(plans: Sequence[LayerPlan | Converted | None]) -> ExitCode:
    if any(one is None for one in plans):
        return ExitCode.USAGE
    worth = any(list_warnings(one.problems) for one in plans if one is not None)
    return ExitCode.FINDINGS if worth else ExitCode.OK
