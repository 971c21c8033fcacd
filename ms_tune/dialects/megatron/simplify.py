"""The arguments that say the same and nothing else: what is ignored is left out, numbers that reach too far are what they reach.

A form is taken only where the rules, asked again, give every layer the same place and the same parts to recompute. What is not
seen in the layers (swapping, what a schedule decides while it runs) leaves the arguments as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.dialects.megatron.layouts import parse_noop, parse_table
from ms_tune.dialects.megatron.plan import normalize_megatron

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ms_tune.dialects.layer_plan import LayerPlan
    from ms_tune.dialects.megatron.inputs import MegatronInputs

# Settings that may turn out to do nothing, in the order in which they are tried: what needs another one comes behind it.
_MAY_BE_IDLE: Mapping[str, object] = {
    "granularity": None,
    "activations": False,
    "method": None,
    "modules": None,
    "by_rank": False,
    "activation": False,
    "norm": False,
}
_NUMBERS = ("number", "activation_layers", "norm_layers")


def canonical(inputs: MegatronInputs) -> Mapping[str, object]:
    """New values of fields, in the order in which they can be written one by one; None or False leaves an argument out.

    Every layer is the same after each of them. Nothing for arguments that the frameworks refuse.
    """
    plan = normalize_megatron(inputs)
    if plan.failure is not None:
        return {}
    found: dict[str, object] = {}
    for field, value in _of_placement(inputs):
        inputs = _tried(inputs, field, value, plan, found)
    if inputs.swap or inputs.in_bubble or inputs.in_advance:
        return found
    for field, nothing in _MAY_BE_IDLE.items():
        spelled_out = field == "modules" and (inputs.activations or inputs.granularity == "selective")
        if getattr(inputs, field) not in (None, False) and not spelled_out:
            inputs = _tried(inputs, field, nothing, plan, found)
    if inputs.modules is not None:
        for module in inputs.modules:
            rest = tuple(one for one in inputs.modules or () if one != module)
            inputs = _tried(inputs, "modules", rest, plan, found) if rest else inputs
    for field in _NUMBERS:
        inputs = _clamped(inputs, field, plan, found)
    return found


def same_layers(one: LayerPlan, other: LayerPlan) -> bool:
    """Whether two plans put every layer at the same place and recompute the same of it."""
    return other.failure is None and (one.placement, one.layers) == (other.placement, other.layers)


def _tried(
    inputs: MegatronInputs, field: str, value: object, plan: LayerPlan, found: dict[str, object]
) -> MegatronInputs:
    """The arguments with a change, if every layer stays what it is; without it otherwise."""
    changed: MegatronInputs = replace(inputs, **{field: value})  # type: ignore[arg-type]  # a field by its name
    if changed == inputs or not same_layers(plan, normalize_megatron(changed)):
        return inputs
    found[field] = value
    return changed


def _of_placement(inputs: MegatronInputs) -> Iterator[tuple[str, object]]:
    if inputs.noop:
        yield "noop", ",".join(map(str, sorted(parse_noop(inputs))))
    if inputs.layer_list:
        yield "layer_list", ",".join(str(int(one)) for one in inputs.layer_list.split(",")[: inputs.stages])
    if inputs.unaligned:
        rows = (",".join(map(str, row)) for row in parse_table(inputs.unaligned))
        yield "unaligned", "[" + ",".join(f"[{row}]" for row in rows) + "]"


def _clamped(inputs: MegatronInputs, field: str, plan: LayerPlan, found: dict[str, object]) -> MegatronInputs:
    """A number of layers as small as it can be; left out where it does nothing."""
    number = getattr(inputs, field)
    if number is None:
        return inputs
    without = _tried(inputs, field, None, plan, found) if _needless(inputs, field) else inputs
    if without is not inputs:
        return without
    if inputs.method == "uniform" and field == "number":
        return inputs  # how many layers make one group is no number of layers that are reached
    low, high = 0, number
    while low < high:
        middle = (low + high) // 2
        again = normalize_megatron(replace(inputs, **{field: middle}))
        low, high = (low, middle) if same_layers(plan, again) else (middle + 1, high)
    return _tried(inputs, field, low, plan, found)


def _needless(inputs: MegatronInputs, field: str) -> bool:
    """Whether what a number belongs to is not there; without a number norms and activations of all layers are meant."""
    if field == "number":
        return inputs.granularity != "full"
    return not (inputs.activation if field == "activation_layers" else inputs.norm)
