"""Checks of what the parser of MindSpeed-LLM's programs refuses, or takes for something else than it looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.job_parts import per_job
from ms_tune.dialects.megatron.arguments import UNKNOWN, ParserFault, refused
from ms_tune.dialects.megatron.plan import normalize_megatron
from ms_tune.dialects.megatron.read import IN_YAML, SERVED, NotEvaluableError, inputs_of, is_in_yaml
from ms_tune.errors import ConfigError, closest
from ms_tune.facts.megatron import names, pairs, releases_of
from ms_tune.lint.launched import LaunchSource
from ms_tune.source.shell.line_ends import RETURN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.dialects.megatron.arguments import GivenArgument, ProgramArguments, RefusedArgument
    from ms_tune.dialects.megatron.inputs import MegatronInputs
    from ms_tune.job.job import Job
    from ms_tune.source.shell.values import Argument

_SIMILAR = 0.8  # of two names: a letter or a word's ending differs


def command_in(context: CheckContext) -> tuple[LaunchSource, ProgramArguments]:
    """The command that is checked."""
    if not isinstance(context.source, LaunchSource):
        raise TypeError(context.source)
    return context.source, context.source.command


def plan_in(context: CheckContext) -> tuple[MegatronInputs, LayerPlan] | None:
    """The arguments about layers and the plan; None where it is not known, or the parser refuses the arguments already."""
    return _plan_of(context.job)


@per_job
def _plan_of(job: Job) -> tuple[MegatronInputs, LayerPlan] | None:
    command = job.written.command  # type: ignore[attr-defined]  # the source of a command
    if command.release not in SERVED or any(True for _ in refused(command)):
        return None
    for arguments_only in (False, True):
        try:
            inputs = inputs_of(command, arguments_only=arguments_only)
        except NotEvaluableError:
            return None
        except ConfigError:
            continue
        plan = normalize_megatron(inputs)
        if not arguments_only or any(problem.id == "arguments-rejected" for problem in plan.problems):
            return inputs, plan
        return inputs, _of_arguments(command, plan)
    return None


# What is without effect whatever layers are made of.
_BY_ARGUMENTS = ("number-alone", "method-alone", "modules-ignored")


def _of_arguments(command: ProgramArguments, plan: LayerPlan) -> LayerPlan:
    """What a plan tells where it is not known what its layers are made of."""
    told = _BY_ARGUMENTS if command.surely_not("moe_fb_overlap") else ()
    problems = tuple(problem for problem in plan.problems if problem.id in told)
    return plan._replace(layers=(), problems=problems, failure=None)


def unknown(context: CheckContext) -> Iterator[Violation]:
    """Arguments that the release's parser does not know."""
    source, command = command_in(context)
    for one in _of(command, ParserFault.UNKNOWN, ParserFault.UNREGISTERED, ParserFault.FRAMEWORK):
        name = one.name
        if one.fault is ParserFault.UNKNOWN and context.job.checkout and name in context.job.checkout.arguments:
            continue
        span, path = source.span_of(one.word), (name,)
        if one.fault is not ParserFault.UNKNOWN:
            params = {"release": command.release, "framework": ", ".join(one.allowed)}
            yield Violation(path, one.fault.value, params, span=span)
            continue
        elsewhere = releases_of(name)
        similar = closest(name, names(command.release), _SIMILAR)
        if elsewhere:
            params = {"release": command.release, "known": ", ".join(elsewhere)}
            yield Violation(path, "other-release", params, span=span)
        elif similar:
            yield Violation(path, "similar", {"release": command.release, "similar": similar}, span=span)
        else:
            yield Violation(path, "default", {"release": command.release}, span=span)


def values(context: CheckContext) -> Iterator[Violation]:
    """Arguments without the value that they need, and values behind switches."""
    source, command = command_in(context)
    for one in _of(command, ParserFault.MISSING, ParserFault.EXTRA):
        span = source.span_of(one.word)
        if one.fault is ParserFault.MISSING:
            yield Violation((one.name,), span=span)
        else:
            path = (one.name,) if one.name else ()
            yield Violation(path, "extra" if path else "stray", {"word": one.word.text or ""}, span=span)


def types(context: CheckContext) -> Iterator[Violation]:
    """Values that are no number where one is needed."""
    source, command = command_in(context)
    for one in _of(command, ParserFault.NUMBER):
        message = "whole" if one.allowed == ("int",) else "default"
        yield Violation((one.name,), message, {"text": one.word.text or ""}, span=source.span_of(one.word))


def choices(context: CheckContext) -> Iterator[Violation]:
    """Values that are none of the choices."""
    source, command = command_in(context)
    for one in _of(command, ParserFault.CHOICE):
        if context.job.checkout and context.job.checkout.takes_value(one.name, one.word.text or ""):
            continue
        params = {"text": one.word.text or "", "choices": ", ".join(one.allowed)}
        yield Violation((one.name,), "default", params, span=source.span_of(one.word))


def repeated(context: CheckContext) -> Iterator[Violation]:
    """Arguments that stand twice with different values: the last one wins."""
    source, command = command_in(context)
    before: dict[str, GivenArgument] = {}
    for one in command.given:
        first = before.get(one.name)
        before[one.name] = one
        if first is None or not one.values or not one.definitions:
            continue
        old, new = ([value.text for value in given.values] for given in (first, one))
        if old != new and None not in (*old, *new):
            params = {"old": " ".join(map(str, old)), "new": " ".join(map(str, new))}
            span = source.span_of(first.values[0] if first.values else first.word)
            related = ((source.span_of(one.values[0]), "again"),)
            yield Violation((one.name,), "default", params, span=span, related_spans=related)


def truth(context: CheckContext) -> Iterator[Violation]:
    """Words such as ``False`` for a type that takes every word for true."""
    source, command = command_in(context)
    for one, value in _known_values(command):
        if {definition.type for definition in one.definitions} == {"bool"} and (value.text or "").lower() in _NO:
            yield Violation((one.name,), "default", {"text": value.text or ""}, span=source.span_of(value))


def carriage_returns(context: CheckContext) -> Iterator[Violation]:
    """Lines that end as in Windows."""
    source, _ = command_in(context)
    at = source.original.find(RETURN)
    if at >= 0:
        yield Violation((), span=source.script.span(max(at - 1, 0), at))


def in_yaml(context: CheckContext) -> Iterator[Violation]:
    """Arguments in a YAML file, which no program of MindSpeed-LLM takes."""
    source, command = command_in(context)
    given = command.last(IN_YAML)
    if given is not None and is_in_yaml(command) and not any(True for _ in refused(command)):
        yield Violation((given.name,), "default", {"release": command.release}, span=source.span_of(given.word))


def excluded(context: CheckContext) -> Iterator[Violation]:
    """Options that MindSpeed refuses together, or one without the other."""
    source, command = command_in(context)
    for pair in pairs(command.release):
        if not _is_set(command, pair.option):
            continue
        one, other = command.last(pair.option), command.last(pair.other)
        if one is None or (pair.excludes and not _is_set(command, pair.other)):
            continue
        if not pair.excludes and not command.surely_not(pair.other):
            continue
        name = other.name if other else f"--{pair.other.replace('_', '-')}"
        related = ((source.span_of(other.word), "other"),) if other and pair.excludes else ()
        message = "default" if pair.excludes else "needs"
        yield Violation((one.name,), message, {"other": name}, span=source.span_of(one.word), related_spans=related)


def _is_set(command: ProgramArguments, dest: str) -> bool:
    """Whether an argument is written for sure, with a value that counts as one."""
    return command.last(dest) is not None and command.value(dest) not in (UNKNOWN, None, False, 0, "")


_NO = ("false", "0", "no", "off", "none")


def _known_values(command: ProgramArguments) -> Iterator[tuple[GivenArgument, Argument]]:
    """Every value that is read, of arguments that the release knows."""
    for one in command.given:
        if not one.definitions or one.takes == 0:
            continue
        for value in one.values[: one.takes]:
            if value.text is not None:
                yield one, value


def _of(command: ProgramArguments, *faults: ParserFault) -> Iterator[RefusedArgument]:
    return (one for one in refused(command) if one.fault in faults)
