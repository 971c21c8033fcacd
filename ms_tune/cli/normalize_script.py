"""Run ``ms-tune normalize-recompute`` on a launch script: the layers of the programs that it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.errors import ExitCode, UnsupportedError, UsageError
from ms_tune.job.script import ScriptJob
from ms_tune.normalize.convert import convert_script, target_of
from ms_tune.normalize.run import choose_layers, list_warnings
from ms_tune.normalize.script import expand_script, normalize_script
from ms_tune.report import normalize_text as report
from ms_tune.source.atomic_write import write_back
from ms_tune.text import msg

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from ms_tune.dialects import LayerPlan
    from ms_tune.dialects.convert_layers import Converted
    from ms_tune.normalize.script import ProgramPlan
    from ms_tune.report.console import Console

_NOT_HERE = ("from_sapp", "model_config", "layers", "stages", "chunks")


def run_script(arguments: Namespace, console: Console) -> ExitCode:
    """Read the script, compute the plan of each program and show it."""
    if arguments.as_log or arguments.against:
        raise UnsupportedError(msg("megatron_layers.not-logged"))
    for name in _NOT_HERE:
        if getattr(arguments, name) not in (None, False):
            raise UsageError(msg("megatron_layers.option", option=f"--{name.replace('_', '-')}"))
    script = ScriptJob(arguments.file, version=arguments.framework_version)
    if arguments.write or arguments.diff:
        return _write_script(script, arguments, console)
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
    return _exit_code([one.plan for one in programs])


def _write_script(script: ScriptJob, arguments: Namespace, console: Console) -> ExitCode:
    path, found = script.path, expand_script(script)
    for one in found.left:
        text = "megatron_layers.left-out" if one.out else "megatron_layers.left"
        console.warn(msg(text, line=one.line, words=one.words, reason=one.reason))
    if found.in_windows:
        console.warn(msg("megatron_layers.carriage-returns"))
    if arguments.diff:
        report.write_difference(path, found.original, found.text, console)
    elif found.count:
        write_back(path, found.original, found.text)
        console.note(console.text("megatron_layers.written", file=path, count=found.count))
    if not found.count and not found.left:
        console.note(console.text("megatron_layers.already", file=path))
    if found.left or (arguments.diff and found.count):
        return ExitCode.FINDINGS
    return _exit_code([plan for plan in found.plans if plan is not None])


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
    return _exit_code([one.settings for one in found])


def _show_program(program: ProgramPlan, arguments: Namespace, console: Console, *, named: bool) -> None:
    if named or program.plan is None:
        console.write(console.text("megatron_layers.program", line=program.line, program=program.program))
    if program.plan is None:
        console.write(console.text("megatron_layers.not-evaluable", unknown=program.unknown, argument=program.argument))
        return
    for file in program.plan.read_from:
        console.note(console.text("normalize.read-from", file=file))
    layers = choose_layers(program.plan, arguments.stage, arguments.layer)
    report.write_plan(program.plan, layers, console, verbose=arguments.verbose, quiet=arguments.quiet)


def _exit_code(plans: Sequence[LayerPlan | Converted | None]) -> ExitCode:
    if any(one is None for one in plans):
        return ExitCode.USAGE
    worth = any(list_warnings(one.problems) for one in plans if one is not None)
    return ExitCode.FINDINGS if worth else ExitCode.OK
