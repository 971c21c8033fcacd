"""Find arguments of MindSpeed-LLM's programs that reproduce a plan for every layer, or the closest possible ones.

Arguments express less than lists: recomputation counts the same number of layers in every chunk, and layers are split
evenly except with ``--num-layer-list`` and no-op layers. So candidates are compared by the framework's own rules
(:mod:`ms_tune.dialects.megatron.recompute`); the first one with the fewest differing layers wins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TypeAlias

from ms_tune.diagnostics import Severity
from ms_tune.dialects import MEGATRON, LayerPlan, LayerSpec
from ms_tune.dialects.draft import LISTS, Cells, SettingsDraft, name_ranges
from ms_tune.dialects.megatron.placement import ARGUMENTS, MegatronInputs
from ms_tune.dialects.megatron.recompute import ACTIVATION, EXPERTS_ACTIVATION, NORMS, normalize_megatron
from ms_tune.dialects.operators import SWAP
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.text import Message, msg

# One layer: (stage, chunk), fully recomputed, recomputed parts.
Act: TypeAlias = "tuple[tuple[int, int], bool, frozenset[str]]"

ATTENTION, UP_PROJECTION, MLP = "self_attention.core_attention", "self_attention.qkv_up_proj", "mlp"
DENSE_PARTS = frozenset((*NORMS, ATTENTION, UP_PROJECTION, MLP, ACTIVATION))
EXPERT_PARTS = frozenset((*NORMS, ATTENTION, UP_PROJECTION, MLP, EXPERTS_ACTIVATION))
_PARTIAL = (("norm", frozenset(NORMS)), ("activation", frozenset((ACTIVATION, EXPERTS_ACTIVATION))))
_OF_MODEL = ("experts", "grouped", "latent")
_MODULES = {"core_attn": ATTENTION, "mla_up_proj": UP_PROJECTION}


def without_idle(plan: LayerPlan) -> LayerPlan:
    """Return the plan without no-op layers; the others are renumbered."""
    if plan.placement is None or all(layer.kind is not LayerKind.NOOP for layer in plan.layers):
        return plan
    layers = [layer for layer in plan.layers if layer.kind is not LayerKind.NOOP]
    placed = Counter((layer.chunk, layer.stage) for layer in layers if layer.kind is not LayerKind.PREDICTION)
    counts = [[placed[chunk, stage] for stage in range(len(row))] for chunk, row in enumerate(plan.placement)]
    numbered = tuple(layer._replace(layer=number) for number, layer in enumerate(layers))
    return plan._replace(placement=tuple(map(tuple, counts)), layers=numbered)


def arguments_for(
    cells: Cells, named: Mapping[int, AbstractSet[str]], release: str, experts: AbstractSet[int]
) -> MegatronInputs:
    """Return the arguments that place these layers and reproduce their full recomputation and their ``named`` parts."""
    wanted = [
        ((layer.stage, layer.chunk), layer.recompute is RecomputeMode.FULL, frozenset(named.get(layer.layer, ())))
        for layer in cells.layers
    ]
    latent = any(UP_PROJECTION in names for names in named.values())
    found = [
        _add_recomputation(placed, cells, wanted) for placed in _placements(cells, release, experts, latent=latent)
    ]
    return min(found, key=lambda one: _count_differing(one, wanted))


def values_of(inputs: MegatronInputs) -> dict[str, object]:
    """Return the layer arguments by name, True for a switch, without the number and kind of experts."""
    fields = ((name, getattr(inputs, field)) for field, name in ARGUMENTS.items() if field not in _OF_MODEL)
    found = {name: value for name, value in fields if value not in (None, False)}
    return {name: " ".join(value) if isinstance(value, tuple) else value for name, value in found.items()}


def _placements(cells: Cells, release: str, experts: AbstractSet[int], *, latent: bool) -> Iterator[MegatronInputs]:
    """Yield ways to place the layers: evenly, by a list, or padded with no-op layers."""
    counts = [count for row in cells.counts for count in row]
    most = max(counts)
    first = min(experts, default=0)
    base = MegatronInputs(
        release=release,
        layers=len(cells.layers),
        stages=cells.stages,
        layers_of_chunk=most if cells.chunks > 1 else None,
        ahead=len(cells.mtp_layers) or None,
        experts=len(experts) or None,
        dense=first or None,
        grouped=bool(experts),
        latent=latent,
    )
    even = all(count == most for count in counts)
    if even:
        yield base
    elif cells.chunks == 1:
        yield replace(base, layer_list=",".join(map(str, counts)))
    if not even:
        yield _pad_cells(base, counts, [0] * len(counts), first)
    # Cells with fewer recomputed layers than others may start with no-op layers, which count as recomputed.
    full = [_full(cell) for row in cells.rows for cell in row]
    if len(set(full)) > 1:
        yield _pad_cells(base, counts, [max(full) - number for number in full], first)


def _pad_cells(base: MegatronInputs, counts: Sequence[int], before: Sequence[int], first: int) -> MegatronInputs:
    """Pad each cell with no-op layers before and after its own; ``first`` is the first layer with experts."""
    most = max(count + skipped for count, skipped in zip(counts, before, strict=True))
    number = most * len(counts)
    used = [
        cell * most + skipped + index
        for cell, (count, skipped) in enumerate(zip(counts, before, strict=True))
        for index in range(count)
    ]
    idle = ",".join(map(str, sorted(set(range(number)) - set(used))))
    of_chunk = most if base.layers_of_chunk is not None else None
    dense = used[first] if first else None
    return replace(base, layers=number, layers_of_chunk=of_chunk, noop=idle, dense=dense)


def _full(cell: Iterable[LayerSpec]) -> int:
    return sum(layer.recompute is RecomputeMode.FULL for layer in cell)


def _add_recomputation(placed: MegatronInputs, cells: Cells, wanted: Sequence[Act]) -> MegatronInputs:
    """Add recomputation to a placement: full first, because everything else is counted after it."""
    found = _best(placed, _in_full(placed, cells), wanted)
    found = _best(found, _modules(found, wanted), wanted)
    for field, names in _PARTIAL:
        reached = [len([1 for layer in cell if wanted[layer.layer][2] & names]) for row in cells.rows for cell in row]
        ways: list[Mapping[str, object]] = [{field: True}] * any(reached)
        ways += [{field: True, f"{field}_layers": number} for number in sorted({*reached} - {0})]
        found = _best(found, ways, wanted)
    return found


def _in_full(placed: MegatronInputs, cells: Cells) -> Iterator[Mapping[str, object]]:
    full = [[_full(cell) for cell in row] for row in cells.rows]
    reached = {number for row in full for number in row} - {0}
    if not reached:
        return
    yield {"granularity": "full", "method": "uniform", "number": 1}
    for number in sorted(reached, reverse=True):
        yield {"granularity": "full", "method": "block", "number": number}
    if placed.layers_of_chunk is not None:
        of_stages = {sum(column) for column in zip(*full, strict=True)} - {0}
        for number in sorted(of_stages, reverse=True):
            yield {"granularity": "full", "method": "block", "number": number, "by_rank": True}


def _modules(found: MegatronInputs, wanted: Sequence[Act]) -> Iterator[Mapping[str, object]]:
    if found.granularity is not None:
        return
    named = {name for _, _, names in wanted for name in names}
    modules = [module for module, name in _MODULES.items() if name in named]
    modules += ["mlp", "moe"] if MLP in named and found.experts else ["mlp"] * (MLP in named)
    for length in range(len(modules), 0, -1):
        yield {"granularity": "selective", "modules": tuple(modules[:length])}


def _best(inputs: MegatronInputs, ways: Iterable[Mapping[str, object]], wanted: Sequence[Act]) -> MegatronInputs:
    """Return the arguments for the placement with the fewest differing layers; the unchanged ones if none is better."""
    every = [inputs, *(replace(inputs, **way) for way in ways)]  # type: ignore[arg-type]  # fields by their names
    return min(every, key=lambda one: _count_differing(one, wanted))


def _count_differing(inputs: MegatronInputs, wanted: Sequence[Act]) -> tuple[int, int]:
    plan = normalize_megatron(inputs)
    layers = [layer for layer in plan.layers if layer.kind not in (LayerKind.NOOP, LayerKind.PREDICTION)]
    if plan.failure is not None or len(layers) != len(wanted):
        return len(wanted) + 1, 0
    acts = [
        ((layer.stage, layer.chunk), layer.recompute is RecomputeMode.FULL, frozenset(layer.select_patterns))
        for layer in layers
    ]
    things = [
        sum(here != there for here, there in zip(act, other, strict=True))
        for act, other in zip(acts, wanted, strict=True)
    ]
    parts = [len(act[2] ^ other[2]) for act, other in zip(acts, wanted, strict=True)]
    return sum(map(bool, things)), sum(things) + sum(parts)


def write_layers(draft: SettingsDraft) -> None:
    """Write arguments, True for a switch. Differences from the plan are found when they are read back."""
    if draft.choices.layers_by_name[SWAP]:
        draft.say("swap-arguments", Severity.ERROR)
    for attribute in ("comm_patterns", "select_excludes", "comm_excludes"):
        for name, chosen in draft.choices.layers(attribute).items():
            draft.say("lost", Severity.ERROR, key=LISTS[attribute], names=name, to=MEGATRON, layers=name_ranges(chosen))
    named: dict[int, set[str]] = {}
    for name, chosen in draft.choices.layers("select_patterns").items():
        for layer in chosen:
            named.setdefault(layer, set()).add(name)
    experts = (
        {layer for layer, paths in draft.target.paths.items() if EXPERTS_ACTIVATION in paths} if draft.target else set()
    )
    usual = {layer.layer for layer in draft.cells.layers}
    draft.values.update(values_of(arguments_for(draft.cells, named, draft.release, experts & usual)))


# Arguments that a remedy may remove, the least important first.
_OPTIONAL = (
    *("method", "number", "norm_layers", "activation_layers"),
    *("layers_of_chunk", "chunks", "dense", "noop", "layer_list"),
    *("distributed", "whole_experts", "in_bubble", "in_advance", "swap"),
)
_MOST_DIVISORS = 16


def remedy(inputs: MegatronInputs) -> Message | None:
    """Return the first sufficient change in words; None if none of the tried ones is sufficient."""
    changes = remedy_changes(inputs)
    if not changes:
        return None
    named = ((ARGUMENTS[field], value) for field, value in changes.items())
    words = (f"- {name}" if value in (None, False) else f"{name} {value}" for name, value in named)
    return msg("megatron_layers.write", changes="; ".join(words))


def remedy_changes(inputs: MegatronInputs) -> Mapping[str, object] | None:
    """Return the same change as new values of fields; None or False removes an argument."""
    for changes in _candidates(inputs):
        if normalize_megatron(replace(inputs, **changes)).failure is None:  # type: ignore[arg-type]  # fields by name
            return changes
    return None


def _candidates(inputs: MegatronInputs) -> Iterator[Mapping[str, object]]:
    """Yield changes of one argument, then of two: first values near the present ones, then removals."""
    yield from _values(inputs)
    for field in _OPTIONAL:
        if getattr(inputs, field) not in (None, False):
            yield {field: False if isinstance(getattr(inputs, field), bool) else None}
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


# Settings that may have no effect, in the order of trial: dependent settings come later.
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
    """Return new values of fields, in an order in which they can be applied one by one; None or False removes an argument.

    Every layer stays the same after each of them. Empty for arguments that the frameworks refuse.
    """
    plan = normalize_megatron(inputs)
    if plan.failure is not None:
        return {}
    found: dict[str, object] = {}
    if inputs.swap or inputs.in_bubble or inputs.in_advance:
        return found
    for field, nothing in _MAY_BE_IDLE.items():
        spelled_out = field == "modules" and (inputs.activations or inputs.granularity == "selective")
        if getattr(inputs, field) not in (None, False) and not spelled_out:
            inputs = _try_value(inputs, field, nothing, plan, found)
    if inputs.modules is not None:
        for module in inputs.modules:
            rest = tuple(one for one in inputs.modules or () if one != module)
            inputs = _try_value(inputs, "modules", rest, plan, found) if rest else inputs
    for field in _NUMBERS:
        inputs = _clamp_number(inputs, field, plan, found)
    return found


def same_layers(one: LayerPlan, other: LayerPlan) -> bool:
    """Return whether two plans place and recompute every layer in the same way."""
    return other.failure is None and (one.placement, one.layers) == (other.placement, other.layers)


def _try_value(
    inputs: MegatronInputs, field: str, value: object, plan: LayerPlan, found: dict[str, object]
) -> MegatronInputs:
    changed: MegatronInputs = replace(inputs, **{field: value})  # type: ignore[arg-type]  # a field by its name
    if changed == inputs or not same_layers(plan, normalize_megatron(changed)):
        return inputs
    found[field] = value
    return changed


def _clamp_number(inputs: MegatronInputs, field: str, plan: LayerPlan, found: dict[str, object]) -> MegatronInputs:
    """Reduce a number of layers to the smallest value with the same effect; remove it if it has no effect."""
    number = getattr(inputs, field)
    if number is None:
        return inputs
    without = _try_value(inputs, field, None, plan, found) if _is_needless(inputs, field) else inputs
    if without is not inputs:
        return without
    if inputs.method == "uniform" and field == "number":
        return inputs  # here the number is the size of a group, not a number of layers
    low, high = 0, number
    while low < high:
        middle = (low + high) // 2
        again = normalize_megatron(replace(inputs, **{field: middle}))
        low, high = (low, middle) if same_layers(plan, again) else (middle + 1, high)
    return _try_value(inputs, field, low, plan, found)


def _is_needless(inputs: MegatronInputs, field: str) -> bool:
    """Return whether a limit on the number of layers has no effect because the recomputation that it limits is off."""
    if field == "number":
        return inputs.granularity != "full"
    return not (inputs.activation if field == "activation_layers" else inputs.norm)
