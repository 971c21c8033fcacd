"""Compute the layer plans of the programs that a launch script starts, and remove their ignored arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.megatron.arguments import ProgramArguments, command_of, without_unset
from ms_tune.dialects.megatron.edit_arguments import ArgumentChange, with_change
from ms_tune.dialects.megatron.placement import DESTINATIONS
from ms_tune.dialects.megatron.read import NotEvaluableError, inputs_of, plan_of
from ms_tune.dialects.megatron.write import canonical, same_layers
from ms_tune.errors import ConfigError, UsageError
from ms_tune.facts.megatron import names_by_dest
from ms_tune.source.edit import EditRefusedError
from ms_tune.source.shell.read import RETURN, Launches, restore_line_ends
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan
    from ms_tune.job.checkout import Checkout
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
        raise no_program_error(path)
    planned = (_plan_program(path, command, script.checkout, supposing=supposing) for command in script.commands)
    return tuple(planned) if RETURN not in script.text else tuple(map(_warn_line_ends, planned))


def no_program_error(path: Path) -> ConfigError:
    """Return the error for a script that starts no MindSpeed-LLM program."""
    return ConfigError(msg("megatron_layers.no-program"), msg("megatron_layers.no-program.hint"), path=path)


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


# Arguments that change the meaning of the recompute settings, which the layer plan does not show.
_USED_OTHERWISE = (
    *("adaptive_memory_optimization", "adaptive_recompute_device_swap", "adaptive_recompute_device_size"),
    *("recompute_module_list", "smart_swap", "swap_layer_input"),
)
_OF_PLACEMENT = ("noop", "layer_list", "unaligned")


@dataclass(frozen=True, slots=True)
class UnchangedArgument:
    """An argument that is kept although it could be written differently."""

    line: int  # the line of the program
    words: str  # the proposed words; only the name of an argument to be removed
    out: bool  # whether the proposal was to remove it
    reason: Message  # why it is kept


@dataclass(frozen=True, slots=True)
class ExpandedScript:
    """A script whose programs get no ignored arguments."""

    original: str  # the original text
    text: str  # the new text
    count: int  # the number of changed arguments
    left: tuple[UnchangedArgument, ...]  # the arguments that are kept, and why
    # The new layer plans of its programs; None for a program whose layers are unknown.
    plans: tuple[LayerPlan | None, ...]

    @property
    def in_windows(self) -> bool:
        """Return whether the script has Windows line ends, which are kept."""
        return RETURN in self.original


def expand_script(job: ScriptJob) -> ExpandedScript:
    """Return the script with ignored arguments removed and excessive values reduced, without writing a file."""
    script, release = job.launches, job.release
    plans = _plan_launches(script, job)
    if all(plan is None for plan in plans):
        _refuse_unknown(job)
    count, left = 0, list[UnchangedArgument]()
    for number, plan in enumerate(plans):
        command = command_of(script.launches[number], release)
        if command is None or plan is None:
            continue
        if len(command.items) > _MOST_ARGUMENTS:
            many = msg("megatron_layers.too-many", count=len(command.items), most=_MOST_ARGUMENTS)
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
    text = restore_line_ends(job.text, script.file.text)
    return ExpandedScript(job.text, text, count, tuple(left), _plan_launches(script, job))


def _plan_launches(script: Launches, job: ScriptJob) -> tuple[LayerPlan | None, ...]:
    """Return the plan of every launch of a changed script; None for other programs and unknown plans."""
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
    if not all(command.is_off(dest) or command.value(dest) == -1 for dest in _USED_OTHERWISE):
        fields = {field: value for field, value in fields.items() if field in _OF_PLACEMENT}
    return {DESTINATIONS[field]: value for field, value in fields.items()}


_EARLIER = object()
_MOST_TWICE = 8  # the script is read again for each
_MOST_ARGUMENTS = 1_000


def _repeated_arguments(command: ProgramArguments) -> Iterator[tuple[str, object]]:
    """Yield each destination that is given several times, once for each occurrence to remove."""
    known = names_by_dest(command.release)
    for dest in DESTINATIONS.values():
        written = sum(one.name in known.get(dest, ()) for one in command.items)
        yield from ((dest, _EARLIER) for _ in range(min(written - 1, _MOST_TWICE)))


def _make_change(script: Launches, release: str, number: int, dest: str, value: object) -> ArgumentChange | None:
    """Return a change for the current text of the script; None if it is already made."""
    command = command_of(script.launches[number], release)
    known = names_by_dest(release).get(dest, ())
    places = [at for at, one in enumerate(command.items) if one.name in known] if command else []
    if command is None or not places:
        return None
    if value is _EARLIER:
        return ArgumentChange(places[0], command.items[places[0]].name, None)
    given = command.items[places[-1]]
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
