"""Compute the layer plans of the programs that a launch script starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import LayerPlan
from ms_tune.dialects.megatron.arguments import ProgramArguments, without_unset
from ms_tune.dialects.megatron.read import NotEvaluableError, plan_of
from ms_tune.errors import ConfigError
from ms_tune.job.checkout import Checkout
from ms_tune.source.shell.read import RETURN
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.job.script import ScriptJob


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """One program that a script starts, with its layer plan."""

    program: str  # its name in the script
    line: int  # where the script starts it
    # The layer plan; None if it depends on values that are unknown without running the script.
    plan: LayerPlan | None
    argument: str = ""  # the argument with an unknown value
    unknown: str = ""  # the source of the unknown value: a variable, a command


def normalize_script(script: ScriptJob, *, supposing: bool = False) -> tuple[ProgramPlan, ...]:
    """Return the layer plans of the MindSpeed-LLM programs that a script starts, in order, without running it.

    ``supposing`` leaves out optional words from outside the script if the plan depends on them; a problem of the plan reports it.
    """
    path = script.path
    if not script.commands:
        raise no_program_error(script)
    planned = (_plan_program(path, command, script.checkout, supposing=supposing) for command in script.commands)
    return tuple(planned) if RETURN not in script.text else tuple(map(_warn_line_ends, planned))


def no_program_error(script: ScriptJob) -> ConfigError:
    """Return the error for a script that starts no MindSpeed-LLM program: another one, or one with a config elsewhere."""
    reason = "no-program"
    config = next((job.unknown or job.config.text for job in script.config_jobs), None)
    if config is not None:
        reason = "config-elsewhere"
    message, hint = msg(f"megatron_layers.{reason}", config=config), msg(f"megatron_layers.{reason}.hint")
    return ConfigError(message, hint, path=script.path)


def _warn_line_ends(one: ProgramPlan) -> ProgramPlan:
    """Add a warning that the script has Windows line ends; bash would read it differently from this plan."""
    problem = Diagnostic("carriage-returns", Severity.WARNING, msg("megatron_layers.carriage-returns"))
    return one if one.plan is None else replace(one, plan=one.plan._replace(problems=(*one.plan.problems, problem)))


def _plan_program(path: Path, command: ProgramArguments, checkout: Checkout | None, *, supposing: bool) -> ProgramPlan:
    place = command.launch.place
    line = place.span.line
    try:
        plan = plan_of(command, checkout)
    except NotEvaluableError as error:
        bare, names = without_unset(command) if supposing else (None, ())
        found = _plan_program(path, bare, checkout, supposing=False) if bare is not None else None
        if found is not None and found.plan is not None:
            variables = ", ".join(f"${name}" for name in names)
            problem = Diagnostic("unless-set", Severity.WARNING, msg("megatron_layers.unless-set", names=variables))
            return replace(found, plan=found.plan._replace(problems=(*found.plan.problems, problem)))
        return ProgramPlan(command.launch.name, line, None, error.argument, error.variable)
    except ConfigError as error:
        raise ConfigError(error.message, path=place.file.path, line=line) from error
    files = {piece.place.file.path for one in command.launch.arguments for piece in one.pieces}
    read = tuple(sorted(str(one) for one in files if one != path))
    return ProgramPlan(command.launch.name, line, plan._replace(read_from=read))
