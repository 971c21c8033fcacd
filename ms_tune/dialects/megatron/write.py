"""Arguments of MindSpeed-LLM's programs that do to every layer what a plan says, or as near to it as arguments can.

Arguments say less than lists: recomputation counts the same number of layers in every chunk, and layers are shared out evenly but for
``--num-layer-list`` and layers that do nothing. So the arguments are looked for: of those that come into question the first
with the fewest layers that differ, by the framework's own rules (:mod:`ms_tune.dialects.megatron.recompute`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ms_tune.diagnostics import Severity
from ms_tune.dialects import MEGATRON
from ms_tune.dialects.draft import LISTS, name_ranges
from ms_tune.dialects.megatron.placement import ARGUMENTS, MegatronInputs, parse_noop, parse_table
from ms_tune.dialects.megatron.recompute import ACTIVATION, EXPERTS_ACTIVATION, NORMS, normalize_megatron
from ms_tune.dialects.operators import SWAP
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from ms_tune.dialects import LayerPlan, LayerSpec
    from ms_tune.dialects.draft import Cells, SettingsDraft
    from ms_tune.text import Message

# What a layer does: stage and chunk, recomputed in full, parts recomputed.
Act: TypeAlias = "tuple[tuple[int, int], bool, frozenset[str]]"

ATTENTION, UP_PROJECTION, MLP = "self_attention.core_attention", "self_attention.qkv_up_proj", "mlp"
DENSE_PARTS = frozenset((*NORMS, ATTENTION, UP_PROJECTION, MLP, ACTIVATION))
EXPERT_PARTS = frozenset((*NORMS, ATTENTION, UP_PROJECTION, MLP, EXPERTS_ACTIVATION))
_PARTIAL = (("norm", frozenset(NORMS)), ("activation", frozenset((ACTIVATION, EXPERTS_ACTIVATION))))
_OF_MODEL = ("experts", "grouped", "latent")
_MODULES = {"core_attn": ATTENTION, "mla_up_proj": UP_PROJECTION}


def without_idle(plan: LayerPlan) -> LayerPlan:
    """A plan of arguments without the layers that do nothing; the others are counted anew."""
    if plan.placement is None or all(layer.kind is not LayerKind.NOOP for layer in plan.layers):
        return plan
    layers = [layer for layer in plan.layers if layer.kind is not LayerKind.NOOP]
    held = Counter((layer.chunk, layer.stage) for layer in layers if layer.kind is not LayerKind.PREDICTION)
    counts = [[held[chunk, stage] for stage in range(len(row))] for chunk, row in enumerate(plan.placement)]
    numbered = tuple(layer._replace(layer=number) for number, layer in enumerate(layers))
    return plan._replace(placement=tuple(map(tuple, counts)), layers=numbered)


def arguments_for(
    cells: Cells, named: Mapping[int, AbstractSet[str]], release: str, experts: AbstractSet[int]
) -> MegatronInputs:
    """The arguments that place these layers, recompute them in full as they are, and of each what is named."""
    wanted = [
        ((layer.stage, layer.chunk), layer.recompute is RecomputeMode.FULL, frozenset(named.get(layer.layer, ())))
        for layer in cells.layers
    ]
    latent = any(UP_PROJECTION in names for names in named.values())
    found = [_recomputing(placed, cells, wanted) for placed in _placements(cells, release, experts, latent=latent)]
    return min(found, key=lambda one: _differing(one, wanted))


def values_of(inputs: MegatronInputs) -> dict[str, object]:
    """Arguments by their names, True for a switch: those of the layers, not how many experts there are, and of which kind."""
    fields = ((name, getattr(inputs, field)) for field, name in ARGUMENTS.items() if field not in _OF_MODEL)
    found = {name: value for name, value in fields if value not in (None, False)}
    return {name: " ".join(value) if isinstance(value, tuple) else value for name, value in found.items()}


def _placements(cells: Cells, release: str, experts: AbstractSet[int], *, latent: bool) -> Iterator[MegatronInputs]:
    """Ways to place the layers: in equal shares, by a list, or filled up with layers that do nothing."""
    counts = [count for row in cells.counts for count in row]
    most = max(counts)
    first = min(experts, default=0)
    base = MegatronInputs(
        release=release,
        layers=len(cells.layers),
        stages=cells.stages,
        layers_of_chunk=most if cells.chunks > 1 else None,
        ahead=len(cells.behind) or None,
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
        yield _filled_up(base, counts, [0] * len(counts), first)
    # Where fewer layers are recomputed than elsewhere, those that do nothing may be the first ones that are.
    full = [_full(cell) for row in cells.rows for cell in row]
    if len(set(full)) > 1:
        yield _filled_up(base, counts, [max(full) - number for number in full], first)


def _filled_up(base: MegatronInputs, counts: Sequence[int], before: Sequence[int], first: int) -> MegatronInputs:
    """Layers that do nothing in front of and behind those of each cell; ``first`` is the first layer with experts."""
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


def _recomputing(placed: MegatronInputs, cells: Cells, wanted: Sequence[Act]) -> MegatronInputs:
    """The placement with what is recomputed: in full first, since all else is counted behind it."""
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
    """The arguments with the first of the ways after which the fewest layers differ; as they are if none is nearer."""
    every = [inputs, *(replace(inputs, **way) for way in ways)]  # type: ignore[arg-type]  # fields by their names
    return min(every, key=lambda one: _differing(one, wanted))


def _differing(inputs: MegatronInputs, wanted: Sequence[Act]) -> tuple[int, int]:
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
    """Arguments: True for a switch. What they cannot say alike shows where they are read back."""
    if draft.choices.named[SWAP]:
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


def remedy(inputs: MegatronInputs) -> Message | None:
    """The first change that is enough, in words; None if none of those that are tried is."""
    changes = remedy_changes(inputs)
    if not changes:
        return None
    named = ((ARGUMENTS[field], value) for field, value in changes.items())
    words = (f"- {name}" if value in (None, False) else f"{name} {value}" for name, value in named)
    return msg("megatron_layers.write", changes="; ".join(words))


def remedy_changes(inputs: MegatronInputs) -> Mapping[str, object] | None:
    """The same change as new values of fields; None or False leaves an argument out."""
    for changes in _candidates(inputs):
        if normalize_megatron(replace(inputs, **changes)).failure is None:  # type: ignore[arg-type]  # fields by name
            return changes
    return None


def _candidates(inputs: MegatronInputs) -> Iterator[Mapping[str, object]]:
    """Changes of one argument, then of two: values that stay close to what is written, then leaving it out."""
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
