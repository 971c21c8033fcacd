"""Swap on its way between the static and the dynamic graph of MindFormers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.layer_specs import write_specs
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping

    from ms_tune.dialects.cells import Cells
    from ms_tune.dialects.operator_names import ByName


def _problem(name: str, severity: Severity, /, **params: object) -> Diagnostic:
    return Diagnostic(f"convert-{name}", severity, msg(f"plans.convert.{name}", **params))


def swap_static(
    groups: ByName,
    sections: Iterable[str],
    values: MutableMapping[str, object],
    problems: list[Diagnostic],
    spelled: Callable[[str], str],
) -> None:
    """Entries for whole layers and for operators, each with its own prefetch. Lists of recompute then hold layers."""
    whole: list[object] = []
    operators: list[object] = []
    for (name, prefetch), layers in groups.items():
        entry = {"backward_prefetch": prefetch, "layers": layers}
        if name:
            operators.append({"op_name": spelled(name), **entry})
        else:
            whole.append(entry)
    for section in sections:
        values[f"{section}.swap"] = True
        values[f"{section}.layer_swap"] = whole
        values[f"{section}.op_swap"] = operators
    problems.append(_problem("swap-numbers", Severity.INFO))


def swap_dynamic(groups: ByName, cells: Cells, values: MutableMapping[str, object], problems: list[Diagnostic]) -> None:
    """One prefetch for all, one pipeline stage, and never a layer so close to the end that nothing is left to run."""
    if not groups:
        return
    total = len(cells.layers) + len(cells.behind)
    prefetches = {prefetch for _, prefetch in groups}
    prefetch = next(iter(prefetches))
    last = max(layer for layers in groups.values() for layer in layers)
    if len(prefetches) > 1 or isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 1:
        shown = ", ".join(sorted(map(str, prefetches)))
        problems.append(_problem("one-prefetch", Severity.ERROR, prefetches=shown))
    elif cells.stages > 1:
        problems.append(_problem("swap-pipeline", Severity.ERROR))
    elif last + prefetch >= total:
        problems.append(_problem("swap-last", Severity.ERROR, layer=last, limit=total - prefetch - 1))
    else:
        values["swap.enable"] = True
        values["swap.default_prefetch"] = prefetch
        named = [(name, write_specs(layers)) for (name, _), layers in groups.items()]
        values["swap.layer_swap"] = [{"layers": specs} for name, specs in named if not name]
        values["swap.op_swap"] = [{"op_name": name, "layers": specs} for name, specs in named if name]
