"""What each layer does in the programs that a launch script starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.megatron.arguments import command_of, without_unset
from ms_tune.dialects.megatron.detect import release_taking
from ms_tune.dialects.megatron.read import SERVED, NotEvaluableError, plan_of
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.releases import release_for
from ms_tune.job.checkout import find_checkout
from ms_tune.source.shell.line_ends import RETURN
from ms_tune.source.shell.read import content, read_launches
from ms_tune.text import msg

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.dialects.megatron.arguments import ProgramArguments
    from ms_tune.source.shell.read import Launches


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """One program that a script starts."""

    program: str  # its name, as the script has it
    line: int  # where the script starts it
    # What its layers do; None if that depends on what is not known without running the script.
    plan: LayerPlan | None
    argument: str = ""  # the argument whose value is not known
    unknown: str = ""  # what it comes from: a variable, a command


def normalize_script(
    path: Path, text: str | None = None, version: str | None = None, *, supposing: bool = False
) -> tuple[ProgramPlan, ...]:
    """What each layer does in the programs of MindSpeed-LLM that a script starts, in order. Nothing is run.

    Args:
        path: The script.
        text: Its text, if that is known.
        version: The release of MindSpeed-LLM; None for the default.
        supposing: Whether words that come from outside, if at all, are left out where a plan depends on them; a problem of the plan
            says so.

    Raises:
        ConfigError: The script cannot be read or starts no such program, or its arguments are beyond all bounds.
        UnsupportedError: The release is not served.
    """
    written = content(path) if text is None else text
    script = read_launches(path, written)
    release = release_of_scripts(script, version)
    found = [command_of(launch, release) for launch in script.launches]
    commands = [command for command in found if command is not None]
    if not commands:
        raise ConfigError(msg("megatron_layers.no-program"), msg("megatron_layers.no-program.hint"), path=path)
    planned = (_planned(path, command, supposing=supposing) for command in commands)
    return tuple(planned) if RETURN not in written else tuple(map(_in_windows, planned))


def _in_windows(one: ProgramPlan) -> ProgramPlan:
    """What is told of a script whose lines end as in Windows is what is meant, and not what bash makes of it."""
    problem = Diagnostic("carriage-returns", Severity.WARNING, msg("megatron_layers.carriage-returns"))
    return one if one.plan is None else replace(one, plan=one.plan._replace(problems=(*one.plan.problems, problem)))


def release_of_scripts(script: Launches, version: str | None) -> str:
    """The release of MindSpeed-LLM that a script is read for.

    Args:
        script: What the script starts.
        version: The release that was asked for; without one, it is that of the sources in which the script lies, or else the
            one that takes the most of the arguments.

    Raises:
        ConfigError: What it does with layers is not known.
        UnsupportedError: There is none.
    """
    path = script.file.path
    checkout = find_checkout(path)
    if checkout is not None and checkout.own_parser is not None:
        raise ConfigError(msg("megatron_layers.own-parser", parser=checkout.own_parser), path=path)
    if version is None:
        around = checkout.releases_of("MindSpeed-LLM") if checkout else ()
        release = release_taking(script, [one for one in around if one in SERVED] or around or SERVED)
    else:
        release = release_for(Dialect.MEGATRON, version).version
    if release not in SERVED:
        raise ConfigError(msg("megatron_layers.release", release=release, served=", ".join(SERVED)), path=path)
    return release


def _planned(path: Path, command: ProgramArguments, *, supposing: bool) -> ProgramPlan:
    place = command.launch.place
    line = place.span.line
    try:
        plan = plan_of(command)
    except NotEvaluableError as error:
        bare, names = without_unset(command) if supposing else (None, ())
        found = _planned(path, bare, supposing=False) if bare is not None else None
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
