"""Checks of options that say the same twice, or one thing without the other, as ``validate_args`` of Megatron-LM asks them.

Megatron-LM core_v0.12.1, ``megatron/training/arguments.py``; MindSpeed-LLM and MindSpeed 2.2 to 26.1, ``features_manager``: a program
stops over each of them before anything is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.megatron.arguments import UNKNOWN
from ms_tune.facts.query import order
from ms_tune.lint.checks.megatron import command_in
from ms_tune.lint.checks.megatron_sizes import argument, at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.dialects.megatron.arguments import ProgramArguments

_DATA = (("mock_data",), ("data_path",), ("train_data_path", "valid_data_path", "test_data_path"))
_DECAYS = ("start_weight_decay", "end_weight_decay")


def refused_together(context: CheckContext) -> Iterator[Violation]:
    """Options that exclude each other."""
    source, command = command_in(context)
    for one, other in _pairs(context):
        first, second = (command.last(_dests(term)[0]) for term in (one, other))
        if first is None or not _holds(command, one) or not _holds(command, other):
            continue
        related = ((source.span_of(second.word), "other"),) if second is not None else ()
        yield Violation((first.name,), "default", {"other": _written(other)}, related_spans=related)


def needed(context: CheckContext) -> Iterator[Violation]:
    """Options each of which needs another one."""
    _, command = command_in(context)
    for one, other in _pairs(context):
        if command.last(_dests(one)[0]) and _holds(command, one) and _fails(command, other):
            yield at(command, (_dests(one)[0],), {"other": _written(other)})


def set_anew(context: CheckContext) -> Iterator[Violation]:
    """Options that are set to one value in any case: each with the first release that does so, the first that does not, the value."""
    _, command = command_in(context)
    settings = context.options["settings"]
    for dest, since, until, kept, message in settings if isinstance(settings, list) else []:
        given = command.last(dest)
        does_so = order(since) <= order(command.release) < order(until)
        if given is None or not does_so or command.value(dest) is UNKNOWN:
            continue
        if str(command.value(dest)) != kept and (message != "lengths" or command.surely_not("no_pad_to_seq_lengths")):
            yield at(command, (dest,), {"kept": kept}, message)


def preference_tuning(context: CheckContext) -> Iterator[Violation]:
    """Stages that exchange four samples for each of a micro-batch, and make room for one (seen in a simulated run of 2.3)."""
    _, command = command_in(context)
    stages = command.value("pipeline_model_parallel_size")
    # Packed samples make lengths differ, too, with ring attention.
    one_length = command.surely_not("no_pad_to_seq_lengths") and command.surely_not("reset_attention_mask")
    if command.value("stage") == "dpo" and isinstance(stages, int) and stages > 1 and one_length:
        yield at(command, ("stage",), {"stages": stages})


def _pairs(context: CheckContext) -> list[tuple[str, str]]:
    """What the option ``pairs`` holds: terms as :func:`_holds` reads them."""
    pairs = context.options["pairs"]
    return [(one, other) for one, other in pairs] if isinstance(pairs, list) else []


def _holds(command: ProgramArguments, term: str) -> bool:
    """Whether a term holds for sure: ``dest`` is given, ``dest=value`` is the value in the end, ``a+b`` are both."""
    for part in term.split("+"):
        dest, equals, value = part.partition("=")
        found = command.value(dest)
        if (found != value) if equals else (not command.last(dest) or found in (UNKNOWN, None, False, 0)):
            return False
    return True


def _fails(command: ProgramArguments, term: str) -> bool:
    """Whether a term of one option does not hold, for sure."""
    dest, equals, value = term.partition("=")
    return command.value(dest) not in (UNKNOWN, value) if equals else command.surely_not(dest)


def _dests(term: str) -> list[str]:
    return [part.partition("=")[0] for part in term.split("+")]


def _written(term: str) -> str:
    dest, _, value = term.partition("=")
    return f"{argument(dest)} {value}".strip()


def sources(context: CheckContext) -> Iterator[Violation]:
    """Data come from one place: made up, one set that is split, or a set each for training, validation and test."""
    source, command = command_in(context)
    given = [next((one for dest in kind if (one := command.last(dest)) is not None), None) for kind in _DATA]
    found = [one for one in given if one is not None]
    for other in found[1:]:
        related = ((source.span_of(other.word), "other"),)
        yield Violation((found[0].name,), "default", {"other": other.name}, related_spans=related)


def decay(context: CheckContext) -> Iterator[Violation]:
    """A weight decay that changes has a start and an end; one that is constant has none."""
    _, command = command_in(context)
    style = command.value("weight_decay_incr_style")
    if style == "constant":
        for dest in _DECAYS:
            if command.last(dest):
                yield at(command, (dest,), {}, "constant")
    elif style in ("linear", "cosine"):
        for dest in _DECAYS:
            if command.surely_not(dest):
                yield at(command, ("weight_decay_incr_style",), {"other": argument(dest), "style": style})
