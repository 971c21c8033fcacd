"""Arguments that the parser of MindSpeed-LLM's programs refuses, and values that stop a program before anything is built.

Megatron-LM core_r0.8.0 and core_v0.12.1: ``megatron/training/arguments.py``, ``megatron/core/datasets/blended_megatron_dataset_config.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from math import fsum

from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.megatron.arguments import OF_VALUES, ParserFault, RefusedArgument, refused
from ms_tune.dialects.megatron.commands import FULL_SCRIPT, read_command, spell_argument, violation_at
from ms_tune.dialects.megatron.placement import ARGUMENTS, IN_YAML
from ms_tune.dialects.megatron.read import find_layer_plan, is_in_yaml
from ms_tune.dialects.megatron.write import remedy_changes
from ms_tune.errors import closest
from ms_tune.facts.megatron import names, releases_of

_LETTERS = 3  # by which similar names may differ at one place
_SIMILAR = 0.8  # similarity of two names that differ in a letter or an ending
_DATA = (("mock_data",), ("data_path",), ("train_data_path", "valid_data_path", "test_data_path"))
_SHARES = 3  # training, validation and test


def find_unknown_arguments(context: CheckContext) -> Iterator[Violation]:
    """Report arguments that the release's parser does not know."""
    source, command = read_command(context)
    for one in _refused_for(context, ParserFault.UNKNOWN, ParserFault.UNREGISTERED, ParserFault.FRAMEWORK):
        name = one.name
        span, path = source.span_of(one.word), (name,)
        checkout = context.job.checkout
        is_certain = checkout is None or checkout.is_parser_known
        if one.fault is not ParserFault.UNKNOWN:
            params = {"release": command.release, "framework": ", ".join(one.allowed)}
            yield Violation(path, one.fault.value, params, span=span, is_certain=is_certain)
            continue
        elsewhere = releases_of(name)
        known = names(command.release).union(checkout.arguments if checkout is not None else ())
        similar = closest(name, known, _SIMILAR)
        if elsewhere:
            params = {"release": command.release, "known": ", ".join(elsewhere)}
            yield Violation(path, "other-release", params, span=span, is_certain=is_certain)
        elif similar and _is_near(name, similar):
            params = {"release": command.release, "similar": similar}
            yield Violation(path, "similar", params, span=span, is_certain=is_certain)
        else:
            yield Violation(path, "default", {"release": command.release}, span=span, is_certain=is_certain)


def _count_equal(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _is_near(name: str, other: str) -> bool:
    """Return whether names differ in a few letters or in whole words that one of them lacks, not in different words."""
    start = _count_equal(name, other)
    end = _count_equal(name[start:][::-1], other[start:][::-1])
    rests = (name[start : len(name) - end], other[start : len(other) - end])
    return "" in rests or max(map(len, rests)) <= _LETTERS


def find_parser_faults(context: CheckContext) -> Iterator[Violation]:
    """Report values that the parser rejects: too few or too many, not a number, not a choice (option ``faults``)."""
    source, _ = read_command(context)
    for one in _refused_for(context, *map(ParserFault, sorted(context.names("faults")))):
        message = "default"
        if one.fault is ParserFault.NUMBER and one.allowed == ("int",):
            message = "whole"
        elif one.fault is ParserFault.EXTRA:
            message = "extra" if one.name else "stray"
        params = {"text": one.word.text or "", "choices": ", ".join(one.allowed)}
        checkout = context.job.checkout
        is_known = one.fault not in OF_VALUES or checkout is None or checkout.is_parser_known
        path = (one.name,) if one.name else ()
        yield Violation(path, message, params, span=source.span_of(one.word), is_certain=is_known)


def _refused_for(context: CheckContext, *faults: ParserFault) -> Iterator[RefusedArgument]:
    _, command = read_command(context)
    return (one for one in refused(command, context.job.checkout) if one.fault in faults)


def find_yaml_arguments(context: CheckContext) -> Iterator[Violation]:
    """Report arguments in a YAML file, which no program of MindSpeed-LLM accepts."""
    source, command = read_command(context)
    given = command.last(IN_YAML)
    if given is not None and is_in_yaml(command) and not any(True for _ in refused(command, context.job.checkout)):
        yield Violation((given.name,), "default", {"release": command.release}, span=source.span_of(given.word))


def find_missing_arguments(context: CheckContext) -> Iterator[Violation]:
    """Report missing required arguments (option ``required``: each with its alternatives) and a missing tokenizer name."""
    source, command = read_command(context)
    rows = context.options["required"]
    if len(command.items) < FULL_SCRIPT or not all(map(command.is_off, ("use_checkpoint_args", "yaml_cfg"))):
        return
    if any(True for _ in refused(command, context.job.checkout)):
        return  # a misspelt argument may be the missing one
    wanted = [list(map(str, row)) for row in rows] if isinstance(rows, list) else []
    if command.value("tokenizer_type") == "PretrainedFromHF":
        wanted.append(["tokenizer_name_or_path"])
    place = command.launch.program or command.items[0].word
    for row in wanted:
        if all(map(command.is_off, row)) and not any(map(command.last, row)):
            yield Violation((), "default", {"name": spell_argument(row[0])}, span=source.span_of(place))


def find_bad_split(context: CheckContext) -> Iterator[Violation]:
    """Report a ``split`` that is not one to three shares with a positive sum; other characters are ignored."""
    _, command = read_command(context)
    text = command.value("split")
    if not isinstance(text, str) or not command.last("split"):
        return
    found = re.findall(r"[.0-9]+", text)
    try:
        shares = [float(one) for one in found]
    except ValueError:
        yield violation_at(command, ("split",), {"text": text})
        return
    if len(shares) > _SHARES or not fsum(shares):
        yield violation_at(command, ("split",), {"text": text})


def find_several_sources(context: CheckContext) -> Iterator[Violation]:
    """Report more than one data source: mock data, one split set, or separate training, validation and test sets."""
    source, command = read_command(context)
    given = [next((one for dest in kind if (one := command.last(dest)) is not None), None) for kind in _DATA]
    found = [one for one in given if one is not None]
    for other in found[1:]:
        related = ((source.span_of(other.word), "other"),)
        yield Violation((found[0].name,), "default", {"other": other.name}, related_spans=related)


def find_out_of_range(context: CheckContext) -> Iterator[Violation]:
    """Report numbers below a minimum (``least``), and shares outside [0, 1) (``shares``)."""
    _, command = read_command(context)
    least, shares = context.options["least"], context.names("shares")
    for dest, low in (least if isinstance(least, dict) else {}).items():
        number = command.value(dest)
        if isinstance(number, int | float) and number < low and command.last(dest):
            yield violation_at(command, (dest,), {"number": number, "least": low})
    for dest in sorted(shares):
        share = command.value(dest)
        if isinstance(share, float) and not 0 <= share < 1 and command.last(dest):
            yield violation_at(command, (dest,), {"number": share}, "share")


def find_refused_layers(context: CheckContext) -> Iterator[Violation]:
    """Report that the frameworks refuse the layer arguments, unless other checks (named in an option) report the reason."""
    found = find_layer_plan(context.job)
    if found is None or found[1].failure is None or context.refused(*context.names("beside")):
        return
    inputs, failure = found[0], found[1].failure
    error = f"{failure.exception}: {failure.text}" if failure.text else failure.exception
    changes = remedy_changes(inputs) or {}
    _, command = read_command(context)
    yield violation_at(command, [*(ARGUMENTS[field] for field in changes), "--num-layers"], {"error": error})
