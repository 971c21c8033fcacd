"""Swap on its way between the static and the dynamic graph of MindFormers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.layers.conversion.names import dynamic_pattern, static_pattern
from ms_tune.layers.plans import MINDFORMERS
from ms_tune.layers.pynative.layer_specs import write_specs
from ms_tune.layers.result import Problem, Severity
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from ms_tune.layers.plans import NormalizedPlan

# What is swapped and how soon it is fetched back -> the layers that do so.
_Groups = dict[tuple[str, object], list[int]]


def convert_swap(plan: NormalizedPlan, to: str, values: MutableMapping[str, object], problems: list[Problem]) -> bool:
    """Add the swap settings, and say what is lost.

    Returns:
        Whether swap is on in the values. In the static graph lists of recompute then hold numbers of layers.
    """
    groups: _Groups = {}
    for layer in plan.layers:
        for swap in layer.swap:
            groups.setdefault((swap.target, swap.prefetch), []).append(layer.layer)
    if not groups:
        return False
    if plan.dialect != to:
        problems.append(_problem("prefetch", Severity.WARNING))
    return (
        _to_static(plan, groups, values, problems) if to == MINDFORMERS else _to_dynamic(plan, groups, values, problems)
    )


def _problem(name: str, severity: Severity, /, **params: object) -> Problem:
    return Problem(f"convert-{name}", severity, msg(f"plans.convert.{name}", **params))


def _to_static(
    plan: NormalizedPlan, groups: _Groups, values: MutableMapping[str, object], problems: list[Problem]
) -> bool:
    """Entries for whole layers and for operators, each with its own prefetch."""
    whole: list[object] = []
    operators: list[object] = []
    for (target, prefetch), layers in groups.items():
        entry = {"backward_prefetch": prefetch, "layers": layers}
        name = target if plan.dialect == MINDFORMERS else static_pattern(target)
        if not target:
            whole.append(entry)
        elif name is None:
            problems.append(_problem("pattern", Severity.ERROR, key="op_swap", pattern=target))
        else:
            operators.append({"op_name": name, **entry})
    values["swap_config.swap"] = True
    values["swap_config.layer_swap"] = whole
    values["swap_config.op_swap"] = operators
    problems.append(_problem("legacy-swap", Severity.INFO))
    return True


def _to_dynamic(
    plan: NormalizedPlan, groups: _Groups, values: MutableMapping[str, object], problems: list[Problem]
) -> bool:
    """One prefetch for all, one pipeline stage, and never a layer so close to the end that nothing is left to run."""
    prefetches = {prefetch for _, prefetch in groups}
    prefetch = next(iter(prefetches))
    last = max(layer for layers in groups.values() for layer in layers)
    stages = len((plan.placement or ((0,),))[0])
    if len(prefetches) > 1 or isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 1:
        shown = ", ".join(sorted(map(str, prefetches)))
        problems.append(_problem("one-prefetch", Severity.ERROR, prefetches=shown))
    elif stages > 1:
        problems.append(_problem("swap-pipeline", Severity.ERROR))
    elif last + prefetch >= len(plan.layers):
        problems.append(_problem("swap-last", Severity.ERROR, layer=last, limit=len(plan.layers) - prefetch - 1))
    else:
        whole = [layers for (target, _), layers in groups.items() if not target]
        values["swap.enable"] = True
        values["swap.default_prefetch"] = prefetch
        values["swap.layer_swap"] = [{"layers": write_specs(layers)} for layers in whole]
        values["swap.op_swap"] = [
            {"op_name": _name(plan, target), "layers": write_specs(layers)}
            for (target, _), layers in groups.items()
            if target
        ]
        return True
    return False


def _name(plan: NormalizedPlan, target: str) -> str:
    return dynamic_pattern(target) if plan.dialect == MINDFORMERS else target
