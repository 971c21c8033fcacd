"""What the framework accepts without a word, or with a warning in its log, when swap is on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.enums import RecomputeMode
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ms_tune.dialects.mindformers.inputs import RecomputeInputs
    from ms_tune.dialects.plan_result import ById, LayerIds, LayerSpec, SwapEntry

_SHOWN = 8  # layers in one message
_EXCLUDES = ("select_recompute_exclude", "select_comm_recompute_exclude")


def find_swap_traps(inputs: RecomputeInputs, by_id: ById, layers: Sequence[LayerSpec]) -> Iterator[Diagnostic]:
    """Every trap of a plan with swap on."""
    if not inputs.rules.places_with_swap and inputs.placed_stages > 1:
        message = msg("layers.swap-no-stage", stages=inputs.placed_stages, version=inputs.version)
        yield Diagnostic("swap-no-stage", Severity.ERROR, message)
    excludes = [key for key in _EXCLUDES if inputs.values.get(key)]
    if excludes:
        message = msg("layers.swap-no-exclude", keys=", ".join(excludes))
        yield Diagnostic("swap-no-exclude", Severity.WARNING, message)
    for name, ids in _lists(by_id):
        yield from _list_traps(name, ids, inputs.placed_layers)
    yield from _shadow_traps("layer_swap", by_id.layer_swap)
    for name, entries in by_id.op_swap.items():
        yield from _shadow_traps(f"op_swap[{name!r}]", entries)
        if any(isinstance(entry.prefetch, bool) for entry in entries):
            # It passes the framework's own checks, because a bool is an int there.
            yield Diagnostic("prefetch-flag", Severity.ERROR, msg("layers.prefetch-flag", pattern=name))
    if layers:
        yield from _effect_traps(layers)


def _lists(by_id: ById) -> Iterator[tuple[str, LayerIds]]:
    """Every list of layer numbers, by a name that its author knows."""
    yield "recompute", by_id.layer_recompute
    for key in ("select_recompute", "select_comm_recompute"):
        lists = getattr(by_id, key)
        # A list without patterns of its own stands behind every default pattern.
        same = len({id(ids) for ids in lists.values()}) == 1 and len(lists) > 1
        for pattern, ids in lists.items():
            yield (key if same else f"{key}[{str(pattern)!r}]"), ids
            if same:
                break
    for entry in by_id.layer_swap:
        yield "layer_swap", entry.layers
    for name, entries in by_id.op_swap.items():
        for entry in entries:
            yield f"op_swap[{name!r}]", entry.layers


def _list_traps(name: str, ids: LayerIds, count: int) -> Iterator[Diagnostic]:
    if isinstance(ids, bool):
        return
    outside = [layer for layer in ids if not 0 <= layer < count]
    if outside:
        message = msg("layers.swap-outside", name=name, layers=_numbers(outside), last=count - 1)
        yield Diagnostic("swap-outside", Severity.WARNING, message)
    repeated = sorted(layer for layer, times in Counter(ids).items() if times > 1)
    if repeated:
        message = msg("layers.swap-repeated", name=name, layers=_numbers(repeated))
        yield Diagnostic("swap-repeated", Severity.WARNING, message)


def _shadow_traps(name: str, entries: Sequence[SwapEntry]) -> Iterator[Diagnostic]:
    """Layers in a second entry that says something else."""
    first: dict[int, object] = {}
    shadowed = set()
    for entry in entries:
        for layer in entry.layers if isinstance(entry.layers, list) else ():
            if first.setdefault(layer, entry.prefetch) != entry.prefetch:
                shadowed.add(layer)
    if shadowed:
        message = msg("layers.swap-shadowed", name=name, layers=_numbers(sorted(shadowed)))
        yield Diagnostic("swap-shadowed", Severity.WARNING, message)


def _effect_traps(layers: Sequence[LayerSpec]) -> Iterator[Diagnostic]:
    """Swap that recompute makes useless: of an operator that is both, recompute wins (the guide on memory, 1.5)."""
    if not any(plan.swap for plan in layers):
        yield Diagnostic("swap-nothing", Severity.WARNING, msg("layers.swap-nothing"))
    full = [plan.layer for plan in layers if plan.recompute is RecomputeMode.FULL and plan.swap]
    if full:
        yield Diagnostic("swap-recomputed", Severity.WARNING, msg("layers.swap-recomputed", layers=_numbers(full)))
    patterns: dict[str, list[int]] = {}
    for plan in layers:
        for swap in plan.swap:
            if swap.target in plan.select_patterns:
                patterns.setdefault(swap.target, []).append(plan.layer)
    for pattern, found in patterns.items():
        message = msg("layers.swap-select", pattern=pattern, layers=_numbers(found))
        yield Diagnostic("swap-select", Severity.WARNING, message)


def _numbers(layers: Iterable[int]) -> str:
    shown = [str(int(layer)) for layer in layers]
    return ", ".join(shown[:_SHOWN]) + (", …" if len(shown) > _SHOWN else "")
