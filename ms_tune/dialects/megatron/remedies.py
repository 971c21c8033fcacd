"""What to write where the frameworks refuse the arguments: the smallest change with which their own rules go through to the end."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from ms_tune.dialects.megatron.inputs import ARGUMENTS
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.dialects.megatron.inputs import MegatronInputs
    from ms_tune.text import Message

# What may be left out, the least first.
_OPTIONAL = (
    *(
        "method",
        "number",
        "norm_layers",
        "activation_layers",
        "layers_of_chunk",
        "chunks",
        "dense",
        "noop",
        "layer_list",
    ),
    *("distributed", "whole_experts", "in_bubble", "in_advance", "swap"),
)
_MOST_DIVISORS = 16


def remedy(inputs: MegatronInputs, plan: Callable[[MegatronInputs], LayerPlan]) -> Message | None:
    """The first change that is enough, in words; None if none of those that are tried is.

    Args:
        inputs: Arguments that the frameworks refuse.
        plan: Their rules.
    """
    changes = remedy_changes(inputs, plan)
    return msg("megatron_layers.write", changes="; ".join(_words(changes))) if changes else None


def remedy_changes(inputs: MegatronInputs, plan: Callable[[MegatronInputs], LayerPlan]) -> Mapping[str, object] | None:
    """The same change as new values of fields; None or False leaves an argument out."""
    for changes in _candidates(inputs):
        if plan(replace(inputs, **changes)).failure is None:  # type: ignore[arg-type]  # fields by name
            return changes
    return None


def _words(changes: Mapping[str, object]) -> Iterator[str]:
    for field, value in changes.items():
        name = ARGUMENTS[field]
        yield f"- {name}" if value in (None, False) else f"{name} {value}"


def _candidates(inputs: MegatronInputs) -> Iterator[Mapping[str, object]]:
    """Changes of one argument, then of two: values that stay close to what is written, then leaving it out."""
    one = list(chain(_values(inputs), _left_out(inputs)))
    yield from one
    if inputs.granularity == "full" and inputs.method is None and inputs.number is None:
        yield {"method": "uniform", "number": 1}


def _values(inputs: MegatronInputs) -> Iterator[Mapping[str, object]]:
    if inputs.granularity == "full":
        yield from ({"method": "block"}, {"number": 1}) if None in (inputs.method, inputs.number) else ()
    if inputs.number is not None:
        share = inputs.layers // inputs.stages // (inputs.chunks or 1)
        share = inputs.layers_of_chunk or share
        fitting = [number for number in range(1, min(share, _MOST_DIVISORS) + 1) if share % number == 0]
        yield from ({"number": number} for number in sorted(fitting, key=lambda one: abs(one - (inputs.number or 0))))
    for field in ("norm_layers", "activation_layers"):
        if getattr(inputs, field) is not None:
            yield {field: min(max(getattr(inputs, field), 0), inputs.layers)}
    if inputs.layers_of_chunk is not None:
        of_stage = inputs.layers // inputs.stages
        fitting = [number for number in range(1, min(of_stage, _MOST_DIVISORS)) if of_stage % number == 0]
        wanted = inputs.layers_of_chunk
        yield from ({"layers_of_chunk": number} for number in sorted(fitting, key=lambda one: abs(one - wanted)))
    if inputs.dense:
        yield {"dense": inputs.layers // inputs.stages - 1}
    if inputs.layer_list:
        base, more = divmod(inputs.layers, inputs.stages)
        yield {"layer_list": ",".join(str(base + (stage < more)) for stage in range(inputs.stages))}


def _left_out(inputs: MegatronInputs) -> Iterator[Mapping[str, object]]:
    for field in _OPTIONAL:
        if getattr(inputs, field) not in (None, False):
            yield {field: False if isinstance(getattr(inputs, field), bool) else None}
