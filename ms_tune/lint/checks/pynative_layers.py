"""Checks of MindFormers 2.x dynamic-graph configs that compare the layers of several settings.

``apply_recompute`` in ``mindformers/pynative/distributed/activation_checkpoint.py`` (2.0 and 2.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.layer_plan import parse_specs
from ms_tune.lint.checks import plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext

_MODULES: KeyPath = ("recompute", "select_module")
_EXCLUDED: KeyPath = ("recompute", "exclude_op")


def modules_behind_full(context: CheckContext) -> Iterator[Violation]:
    """Modules of layers that are recomputed in full: the layer wins, and nothing says so.

    Beside ``full_recompute_layer`` the layers of modules are not checked either: those that no layer has are dropped.
    """
    if context.get("recompute.mode") != "select" or not plan.passes(context):
        return
    full = set(parse_specs(context.get("recompute.full_recompute_layer")))
    last, ahead = context.model.number("num_layers"), context.model.number("mtp_num_layers") or 0
    for path, layers in _layers(context, _MODULES):
        if full and layers and layers <= full:
            yield Violation(path, at_key=True, related=((("recompute", "full_recompute_layer"), "full"),))
        elif full and last is not None and max(layers, default=0) >= last + ahead:
            yield Violation(path, "beyond", {"last": last + ahead - 1})


def exclusions(context: CheckContext) -> Iterator[Violation]:
    """An exclusion (2.1) that leaves nothing of a module's recompute, or of layers that are not recomputed at all."""
    if context.get("recompute.mode") not in ("full", "select") or not plan.passes(context):
        return
    full = set(parse_specs(context.get("recompute.full_recompute_layer")))
    chosen = dict(_layers(context, _MODULES)) if context.get("recompute.mode") == "select" else {}
    recomputed = full.union(*chosen.values())
    for path, layers in _layers(context, _EXCLUDED):
        own = chosen.get((*_MODULES, path[-1]), set()) - full
        if own and own <= layers:
            yield Violation(path, "itself", {"pattern": path[-1]}, at_key=True)
        elif layers and not layers & recomputed:
            yield Violation(path, "elsewhere", {"pattern": path[-1]}, at_key=True)


def rampup_steps(context: CheckContext) -> Iterator[Violation]:
    """A growing batch (2.1) that does not reach the whole one in equal steps (``BatchSizeScheduler._validate``).

    Each size is divided by data-parallel size times ``local_batch_size``; the former is known on the cluster only.
    """
    value = context.get("training.rampup_batch_size")
    whole = context.integer("training.global_batch_size", 1)
    local = context.integer("training.local_batch_size", 1)
    if not isinstance(value, list) or not whole or not local or not all(_is_whole(item) for item in value):
        return
    path: KeyPath = ("training", "rampup_batch_size")
    match value:
        case [start, step, _] if start > 0 and step > 0:
            params = {"start": start, "step": step, "whole": whole, "local": local}
        case _:
            return  # a check of its own says so
    if whole < start:
        yield Violation(path, "above", params)
    elif (whole - start) % step:
        yield Violation(path, "steps", params)
    elif start % local or (whole > start and step % local):
        yield Violation(path, "local", params)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _layers(context: CheckContext, section: KeyPath) -> Iterator[tuple[KeyPath, set[int]]]:
    """The patterns of a section, each with its layers; the framework has gone through them without a complaint."""
    value = context.source.get(section)
    for pattern, specs in value.items() if isinstance(value, dict) else ():
        if isinstance(specs, list):
            yield (*section, str(pattern)), set(parse_specs(specs))
