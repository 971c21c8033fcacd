"""What each layer does in the programs that a launch script starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.megatron.arguments import command_of, without_unset
from ms_tune.dialects.megatron.edit_arguments import ArgumentChange, with_change
from ms_tune.dialects.megatron.placement import DESTINATIONS
from ms_tune.dialects.megatron.read import NotEvaluableError, inputs_of, plan_of
from ms_tune.dialects.megatron.write import canonical, same_layers
from ms_tune.errors import ConfigError, UsageError
from ms_tune.facts.megatron import names_by_dest
from ms_tune.source.edit import EditRefusedError
from ms_tune.source.shell.read import RETURN, as_written
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import NoReturn

    from ms_tune.dialects import LayerPlan
    from ms_tune.dialects.megatron.arguments import ProgramArguments
    from ms_tune.job.checkout import Checkout
    from ms_tune.job.script import ScriptJob
    from ms_tune.source.shell.read import Launches
    from ms_tune.text import Message


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """One program that a script starts."""

    program: str  # its name, as the script has it
    line: int  # where the script starts it
    # What its layers do; None if that depends on what is not known without running the script.
    plan: LayerPlan | None
    argument: str = ""  # the argument whose value is not known
    unknown: str = ""  # what it comes from: a variable, a command


def normalize_script(script: ScriptJob, *, supposing: bool = False) -> tuple[ProgramPlan, ...]:
    """What each layer does in the programs of MindSpeed-LLM that a script starts, in order. Nothing is run.

    Args:
        script: The script.
        supposing: Whether words that come from outside, if at all, are left out where a plan depends on them; a problem of the plan
            says so.

    Raises:
        ConfigError: The script cannot be read or starts no such program, or its arguments are beyond all bounds.
        UnsupportedError: The release is not served.
    """
    path = script.path
    if not script.commands:
        raise no_program_error(path)
    planned = (_plan_program(path, command, script.checkout, supposing=supposing) for command in script.commands)
    return tuple(planned) if RETURN not in script.text else tuple(map(_tell_line_ends, planned))


def no_program_error(path: Path) -> ConfigError:
    """What is raised where a script starts no program of MindSpeed-LLM."""
    return ConfigError(msg("megatron_layers.no-program"), msg("megatron_layers.no-program.hint"), path=path)


def _tell_line_ends(one: ProgramPlan) -> ProgramPlan:
    """What is told of a script whose lines end as in Windows is what is meant, and not what bash makes of it."""
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


# What takes the settings of recomputation for something that is not seen in the layers.
_USED_OTHERWISE = (
    *("adaptive_memory_optimization", "adaptive_recompute_device_swap", "adaptive_recompute_device_size"),
    *("recompute_module_list", "smart_swap", "swap_layer_input"),
)
_OF_PLACEMENT = ("noop", "layer_list", "unaligned")


@dataclass(frozen=True, slots=True)
class UnchangedArgument:
    """An argument that stays although it could be written otherwise."""

    line: int  # the line of the program
    words: str  # what was to be written; the name alone of what was to be left out
    out: bool  # whether it was to be left out
    reason: Message  # why it stays


@dataclass(frozen=True, slots=True)
class ExpandedScript:
    """A script whose programs are given nothing that is ignored."""

    original: str  # the text as it was read
    text: str  # the whole text
    count: int  # how many arguments were changed
    left: tuple[UnchangedArgument, ...]  # the arguments that stay, and why
    # What the layers of its programs do then; None for a program whose layers are not known.
    plans: tuple[LayerPlan | None, ...]

    @property
    def in_windows(self) -> bool:
        """Whether lines end as in Windows; they stay so."""
        return RETURN in self.original


def expand_script(job: ScriptJob) -> ExpandedScript:
    """The script with what is ignored left out and what reaches too far cut to what it reaches. No file is written.

    Args:
        job: The script.

    Raises:
        ConfigError: The script cannot be read or starts no such program, or its arguments are beyond all bounds.
        UsageError: The frameworks refuse the arguments of a program.
        UnsupportedError: The release is not served.
    """
    script, release = job.launches, job.release
    plans = _plan_launches(script, job)
    if all(plan is None for plan in plans):
        _refuse_unknown(job)
    count, left = 0, list[UnchangedArgument]()
    for number, plan in enumerate(plans):
        command = command_of(script.launches[number], release)
        if command is None or plan is None:
            continue
        if len(command.given) > _MOST_ARGUMENTS:
            many = msg("megatron_layers.too-many", count=len(command.given), most=_MOST_ARGUMENTS)
            raise ConfigError(many, path=job.path, line=command.launch.place.span.line)
        wanted = _canonical_values(command)
        for dest, value in chain(_repeated_arguments(command), wanted.items()):
            change = _make_change(script, release, number, dest, value)
            if change is None:
                continue
            try:
                again = with_change(script, release, number, change)
                _prove_same(again, job, plans)
            except EditRefusedError as refusal:
                line = command.launch.place.span.line
                left.append(UnchangedArgument(line, change.words, change.values is None, refusal.message))
            else:
                script, count = again, count + 1
    text = as_written(job.text, script.file.text)
    return ExpandedScript(job.text, text, count, tuple(left), _plan_launches(script, job))


def _plan_launches(script: Launches, job: ScriptJob) -> tuple[LayerPlan | None, ...]:
    """The plan of every launch of a script, as it stands after some changes; None for other programs, and where it cannot be known."""
    found: list[LayerPlan | None] = []
    for launch in script.launches:
        command = command_of(launch, job.release)
        found.append(None)
        if command is None:
            continue
        try:
            plan = plan_of(command, job.checkout)
        except NotEvaluableError:
            continue
        if plan.failure is not None:
            problem = plan.problems[0]
            text = msg("megatron_layers.not-written", line=launch.place.span.line, what=problem.message)
            raise UsageError(text, problem.help)
        found[-1] = plan
    return tuple(found)


def _refuse_unknown(script: ScriptJob) -> NoReturn:
    for command in script.commands:
        try:
            inputs_of(command)
        except NotEvaluableError as error:
            text = msg("megatron_layers.not-evaluable", unknown=error.variable, argument=error.argument)
            raise ConfigError(text, path=script.path, line=command.launch.place.span.line) from error
    raise no_program_error(script.path)


def _canonical_values(command: ProgramArguments) -> Mapping[str, object]:
    fields = canonical(inputs_of(command))
    if not all(command.surely_not(dest) or command.value(dest) == -1 for dest in _USED_OTHERWISE):
        fields = {field: value for field, value in fields.items() if field in _OF_PLACEMENT}
    return {DESTINATIONS[field]: value for field, value in fields.items()}


_EARLIER = object()
_MOST_TWICE = 8  # the script is read anew for each
_MOST_ARGUMENTS = 1_000


def _repeated_arguments(command: ProgramArguments) -> Iterator[tuple[str, object]]:
    """The destinations that are written more than once, as often as one of them is to go."""
    known = names_by_dest(command.release)
    for dest in DESTINATIONS.values():
        written = sum(one.name in known.get(dest, ()) for one in command.given)
        yield from ((dest, _EARLIER) for _ in range(min(written - 1, _MOST_TWICE)))


def _make_change(script: Launches, release: str, number: int, dest: str, value: object) -> ArgumentChange | None:
    """The change as the script stands now; None if it is made already."""
    command = command_of(script.launches[number], release)
    known = names_by_dest(release).get(dest, ())
    places = [at for at, one in enumerate(command.given) if one.name in known] if command else []
    if command is None or not places:
        return None
    if value is _EARLIER:
        return ArgumentChange(places[0], command.given[places[0]].name, None)
    given = command.given[places[-1]]
    if value is None or value is False:
        return ArgumentChange(places[-1], given.name, None)
    texts = tuple(map(str, value)) if isinstance(value, tuple) else (str(value),)
    return ArgumentChange(places[-1], given.name, texts) if texts != tuple(one.text for one in given.values) else None


def _prove_same(script: Launches, job: ScriptJob, plans: tuple[LayerPlan | None, ...]) -> None:
    again: list[LayerPlan | None]
    try:
        again = list(_plan_launches(script, job))
    except (ConfigError, UsageError):
        again = []
    same = [
        one is other or (one and other and same_layers(one, other)) for one, other in zip(plans, again, strict=False)
    ]
    if len(again) != len(plans) or not all(same):
        raise EditRefusedError(msg("edits.script.other-layers"))
