"""Checks of options that say the same twice, or one thing without the other, as ``validate_args`` of Megatron-LM asks them.

Megatron-LM core_v0.12.1, ``megatron/training/arguments.py``: a program stops over each of them before anything is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.launch.options import UNKNOWN
from ms_tune.lint.checks.megatron import command_in
from ms_tune.lint.checks.megatron_sizes import argument, at
from ms_tune.lint.context import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.lint.context import Context

_DATA = (("mock_data",), ("data_path",), ("train_data_path", "valid_data_path", "test_data_path"))
_DECAYS = ("start_weight_decay", "end_weight_decay")


def counted_twice(context: Context) -> Iterator[Violation]:
    """What is given in iterations and in samples, or as a number and as a share (option ``pairs``)."""
    source, command = command_in(context)
    pairs = context.options["pairs"]
    for one, other in pairs if isinstance(pairs, list) else ():
        first, second = command.last(one), command.last(other)
        if first and second and all(command.value(dest) not in (UNKNOWN, None, 0) for dest in (one, other)):
            related = ((source.span_of(second.word), "other"),)
            yield Violation((first.name,), "default", {"other": second.name}, related_spans=related)


def needed(context: Context) -> Iterator[Violation]:
    """Options each of which needs another one (option ``pairs``)."""
    _, command = command_in(context)
    pairs = context.options["pairs"]
    for one, other in pairs if isinstance(pairs, list) else ():
        if command.last(one) and command.value(one) not in (UNKNOWN, None, False) and command.surely_not(other):
            yield at(command, (one,), {"other": argument(other)})


def sources(context: Context) -> Iterator[Violation]:
    """Data come from one place: made up, one set that is split, or a set each for training, validation and test."""
    source, command = command_in(context)
    given = [next((one for dest in kind if (one := command.last(dest)) is not None), None) for kind in _DATA]
    found = [one for one in given if one is not None]
    for other in found[1:]:
        related = ((source.span_of(other.word), "other"),)
        yield Violation((found[0].name,), "default", {"other": other.name}, related_spans=related)


def decay(context: Context) -> Iterator[Violation]:
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
