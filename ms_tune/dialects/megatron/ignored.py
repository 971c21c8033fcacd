"""Arguments that are silently ignored or have another effect than their name suggests.

Effects on layers are determined as the frameworks do (:mod:`ms_tune.dialects.megatron.recompute`), for releases with
known rules.
"""

from __future__ import annotations

from collections.abc import Iterator

from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.megatron.commands import find_repeats, read_command, violation_at
from ms_tune.dialects.megatron.placement import ARGUMENTS
from ms_tune.dialects.megatron.read import find_layer_plan
from ms_tune.dialects.megatron.write import canonical
from ms_tune.facts.models import UNKNOWN
from ms_tune.facts.query import order

# A problem is located at the first of these arguments that is given.
_ARGUMENTS_BY_PROBLEM = {
    "full-nothing": ("--recompute-num-layers", "--recompute-granularity"),
    "swap-instead": ("--recompute-granularity",),
    "method-alone": ("--recompute-method",),
    "modules-ignored": ("--recompute-modules",),
    "by-rank-ignored": ("--enable-recompute-layers-per-pp-rank",),
    "frequency-ignored": ("--moe-layer-freq",),
    "looked-up": ("--noop-layers", "--first-k-dense-replace"),
    "numbered": ("--recompute-norm", "--recompute-activation-function"),
    "noop-missed": ("--noop-layers",),
    "layers-built": ("--pipeline-num-transformer-layers", "--num-layer-list", "--num-layers"),
}
_NUMBERS = ("number", "activation_layers", "norm_layers")


def report_problems_by_id(context: CheckContext) -> Iterator[Violation]:
    """Report settings that the frameworks accept although they are probably mistakes.

    The option ``ids`` selects the problems; ``default`` is the one whose message has that name.
    """
    found = find_layer_plan(context.job)
    if found is None:
        return
    _, command = read_command(context)
    for problem in found[1].problems:
        if problem.id not in context.names("ids"):
            continue
        params = {name: str(value) for name, value in problem.message.params.items() if name != "name"}
        names = _ARGUMENTS_BY_PROBLEM.get(problem.id) or (f"--{problem.message.params['name']}-num-layers",)
        if not command.open or any(one.name in names for one in command.items):
            message = "default" if problem.id == context.options["default"] else problem.id
            yield violation_at(command, names, params, message)


def find_numbers_beyond(context: CheckContext) -> Iterator[Violation]:
    """Report layer numbers greater than the number of layers."""
    found = find_layer_plan(context.job)
    if found is None or not found[1].layers:
        return
    _, command = read_command(context)
    inputs = found[0]
    changes = canonical(inputs)
    for field in _NUMBERS:
        reached = changes.get(field)
        if reached:
            yield violation_at(command, (ARGUMENTS[field],), {"number": getattr(inputs, field), "reached": reached})


_NO = ("false", "0", "no", "off", "none")


def find_repeated_arguments(context: CheckContext) -> Iterator[Violation]:
    """Report arguments given twice with different values: the last one wins."""
    source, command = read_command(context)
    for first, one, params in find_repeats(command):
        if one.definitions:
            span = source.span_of(first.values[0] if first.values else first.word)
            related = ((source.span_of(one.values[0]), "again"),)
            yield Violation((one.name,), "default", params, span=span, related_spans=related)


def find_words_for_no(context: CheckContext) -> Iterator[Violation]:
    """Report words such as ``False`` for a type that treats every word as true."""
    source, command = read_command(context)
    for one in command.items:
        if {definition.type for definition in one.definitions} != {"bool"} or one.nargs == 0:
            continue
        for value in one.values[: one.nargs]:
            if value.text is not None and value.text.lower() in _NO:
                yield Violation((one.name,), "default", {"text": value.text}, span=source.span_of(value))


def find_overridden_options(context: CheckContext) -> Iterator[Violation]:
    """Report options that the framework overrides (``settings``: option, first release, first without, value, message)."""
    _, command = read_command(context)
    settings = context.options["settings"]
    for dest, since, until, kept, message in settings if isinstance(settings, list) else []:
        given = command.last(dest)
        does_so = order(since) <= order(command.release) < order(until)
        if given is None or not does_so or command.value(dest) is UNKNOWN:
            continue
        if str(command.value(dest)) != kept and (message != "lengths" or command.is_off("no_pad_to_seq_lengths")):
            yield violation_at(command, (dest,), {"kept": kept}, message)
