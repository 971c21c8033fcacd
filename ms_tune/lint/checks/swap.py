"""Checks of ``swap_config`` (``TransformerSwapConfig`` and ``check_rules._check_swap``, MindFormers 1.6 to 2.1).

The entries are read even when swap is off, so what is malformed stops the run in any case; the stricter rules of
``check_rules`` only hold when it is on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext

_SECTION = "swap_config"
_RECOMPUTE = ("recompute", "select_recompute", "select_comm_recompute")


def entries(context: CheckContext) -> Iterator[Violation]:
    """Entries that ``TransformerSwapConfig`` refuses, whether swap is on or off."""
    if context.get("swap_config.layer_swap") is None and context.get("swap_config.op_swap") is None:
        return
    for key in ("layer_swap", "op_swap"):
        value = context.get(f"{_SECTION}.{key}")
        path: KeyPath = (_SECTION, key)
        if value is None:
            continue
        if not isinstance(value, (list, dict)):
            yield Violation(path, "not-a-list")
            continue
        wrapped: list[tuple[KeyPath, object]] = (
            [(path, value)] if isinstance(value, dict) else [((*path, i), item) for i, item in enumerate(value)]
        )
        yield from _entries(wrapped, named=key == "op_swap")


def _entries(items: list[tuple[KeyPath, object]], *, named: bool) -> Iterator[Violation]:
    groups: dict[object, list[tuple[KeyPath, dict[object, object]]]] = {}
    for path, item in items:
        if not isinstance(item, dict):
            yield Violation(path, "not-an-entry")
            continue
        # Operators without a prefetch only fail when swap is on.
        needed = ("op_name", "layers") if named else ("layers", "backward_prefetch")
        missing = next((key for key in needed if key not in item), "")
        if missing:
            yield Violation(path, "missing", {"missing": missing})
        elif named and not _are_names(item["op_name"]):
            yield Violation((*path, "op_name"), "op-name")
        elif not _are_layers(item["layers"]):
            yield Violation((*path, "layers"), "layers")
        else:
            for name in _names(item["op_name"]) if named else [""]:
                groups.setdefault(name, []).append((path, item))
    for group in groups.values():
        first, *others = (item.get("backward_prefetch") for _, item in group)
        if any(item["layers"] is True for _, item in group) and any(other != first for other in others):
            yield Violation((*group[-1][0], "backward_prefetch"), "inconsistent")


def while_off(context: CheckContext) -> Iterator[Violation]:
    """Lists that are sound, beside a switch that is off."""
    if any(True for _ in entries(context)):
        return
    for key in ("layer_swap", "op_swap"):
        if context.get(f"{_SECTION}.{key}"):
            yield Violation((_SECTION, key))


def prefetch(context: CheckContext) -> Iterator[Violation]:
    """With swap on, ``check_rules`` takes whole numbers from 1 up only, although ``Cell.offload`` knows others."""
    default = context.get(f"{_SECTION}.default_prefetch", 1)
    if not _is_prefetch(default):
        yield Violation((_SECTION, "default_prefetch"))
    for path, item in _written(context):
        if not _is_prefetch(item.get("backward_prefetch")):
            yield Violation((*path, "backward_prefetch"))


def nested_layers(context: CheckContext) -> Iterator[Violation]:
    """With swap on, ``check_rules`` refuses the lists of lists that the class itself takes."""
    for path, item in _written(context):
        layers = item.get("layers")
        if isinstance(layers, list) and any(isinstance(part, list) for part in layers):
            yield Violation((*path, "layers"))


def recompute_values(context: CheckContext) -> Iterator[Violation]:
    """Recompute values in swap mode are layer ids: a switch, or a list of whole numbers (``_rule_recompute_no_pp``)."""
    for key in _RECOMPUTE:
        path: KeyPath = ("recompute_config", key)
        value = context.source.get(path, default=False)
        if isinstance(value, list):
            if not all(isinstance(item, int) for item in value):
                yield Violation(path)
        elif isinstance(value, dict) and key != "recompute":
            for pattern, layers in value.items():
                if not isinstance(layers, list):
                    yield Violation((*path, str(pattern)), "pattern")
        elif not isinstance(value, bool):
            yield Violation(path)


def without_lazy_inline(context: CheckContext) -> Iterator[Violation]:
    """Swap needs lazy inline; without pipeline stages that is only kept with gradient accumulation."""
    stages = context.integer("parallel_config.pipeline_stage", 1)
    steps = context.integer("runner_config.gradient_accumulation_steps", 1)
    if stages == 1 and steps == 1:
        yield Violation((_SECTION, "swap"))


def _written(context: CheckContext) -> Iterator[tuple[KeyPath, dict[object, object]]]:
    """The entries of both lists; a single entry need not be in a list."""
    for key in ("layer_swap", "op_swap"):
        value = context.get(f"{_SECTION}.{key}")
        if isinstance(value, dict):
            yield (_SECTION, key), value
        for index, item in enumerate(value if isinstance(value, list) else ()):
            if isinstance(item, dict):
                yield (_SECTION, key, index), item


def _is_prefetch(value: object) -> bool:
    """``isinstance(value, int)``, which in Python takes True for a 1 as well."""
    return isinstance(value, int) and value >= 1


def _are_names(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(name, str) for name in value))


def _names(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _are_layers(value: object) -> bool:
    if isinstance(value, bool):
        return True
    if not isinstance(value, list):
        return False
    return _are_whole(value) or all(isinstance(part, list) and _are_whole(part) for part in value)


def _are_whole(value: list[object]) -> bool:
    return all(isinstance(item, int) and not isinstance(item, bool) for item in value)
