"""Swap: the parts of each layer that are moved to the host, and the meaning of recompute values with swap on.

The rules of MindFormers 1.6 to 2.1:

- ``TransformerSwapConfig`` in ``mindformers/modules/transformer/transformer.py`` reads the values, even if swap is off;
- ``_check_swap`` and ``_rule_recompute_no_pp`` in ``mindformers/tools/check_rules.py`` check them more strictly;
- ``LayerSetting`` (location: :mod:`ms_tune.dialects.mindformers.placement`) applies them to the layers;
- ``Cell.offload`` in ``mindspore/nn/cell.py`` validates the prefetch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import LayerSpec, SwapPlan, Warned, make_problem, stop
from ms_tune.dialects.mindformers.placement import KEYS, RecomputeInputs, RecomputeValues, SwapValues
from ms_tune.dialects.values import are_numbers, check_applied, is_patterns
from ms_tune.enums import RecomputeMode
from ms_tune.records import Any

_PREFETCH = "backward_prefetch"
_LAYERS = "layers"
_DEFAULT_TARGET = r".*\.flash_attention"
# Blanks in the framework's messages, from continued source lines.
_LISTS_GAP = " " * 24
_NAME_GAP = " " * 24
_NAMES_GAP = " " * 28
_ALL_GAP = " " * 27
_EVERY_LAYER_GAP = " " * 33
_ONE_LAYER_GAP = " " * 29
_WARNING_GAP = " " * 31
_OPERATOR_GAP = " " * 35


@contextmanager
def _python_errors_as_stops() -> Iterator[None]:
    """Convert Python's exceptions to FrameworkStop: the framework does the same operations with the same values."""
    try:
        yield
    except (TypeError, KeyError, AttributeError, IndexError) as error:
        stop(type(error).__name__, str(error))


class LayerList(list[int]):
    """A list of layer numbers with fast membership tests."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        super().__init__(numbers)
        self._numbers = frozenset(self)

    def __contains__(self, number: object) -> bool:
        return number in self._numbers


class SwapEntries:
    """Swap entries of whole layers and of each operator: the layers, and the prefetch distance in operators."""

    def __init__(self, values: SwapValues) -> None:
        if not isinstance(values.swap, bool):
            kind = type(values.swap).__name__
            stop("TypeError", f"The 'swap' must be a bool, but got {kind}.")
        # Entries in the framework's own form; empty before they are formatted.
        self.layers: list[Any] = []
        self.operators: dict[str, list[dict[str, Any]]] = {}
        self._written_layers: list[Any] = []
        self._written_operators = {_DEFAULT_TARGET: [{_PREFETCH: values.default_prefetch, _LAYERS: True}]}
        if values.layer_swap is None and values.op_swap is None:
            return
        with _python_errors_as_stops():
            layers = self._written_layers = _entries(values.layer_swap, "layer_swap")
            if _reach_all(layers, "layer_swap"):
                self._written_layers = [{_PREFETCH: layers[0][_PREFETCH], _LAYERS: True}]
            operators = self._written_operators = _by_operator(_entries(values.op_swap, "op_swap"))
            for name, entries in operators.items():
                if _reach_all(entries, f"op_swap: {name}"):
                    operators[name] = [{_PREFETCH: entries[0][_PREFETCH], _LAYERS: True}]

    def check(self, values: RecomputeValues, default_prefetch: object) -> None:
        """Run the framework's check of recompute and swap values with swap on."""
        for key in KEYS[:3]:
            _check_ids(getattr(values, key), key)
        if not isinstance(default_prefetch, int) or default_prefetch < 1:
            stop(
                "ValueError",
                "Type of default_prefetch must be int and value of it must be positive, "
                f"but get {type(default_prefetch)} and {default_prefetch}.",
            )
        _check_entries(self._written_layers, "layer_swap")
        for name, entries in self._written_operators.items():
            _check_entries(entries, f"op_swap({name})")

    @staticmethod
    def layer_ids(value: object) -> bool | LayerList:
        """Return a value's layer numbers with swap on; True for all layers."""
        if isinstance(value, bool):
            return value or LayerList()
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            stop("ValueError", f"Illegal input list for select_recompute: {value}")
        return LayerList(value)

    def format_entries(self, inputs: RecomputeInputs, log: list[str]) -> dict[str, Any]:
        """Format the entries as the framework does, by the names of their lists, and log like it."""
        layers = _format_entries(self._written_layers)
        operators = {name: _format_entries(entries) for name, entries in self._written_operators.items()}
        log += [f"Formative layer swap: {layers}", f"Formative op swap: {operators}"]
        with _python_errors_as_stops():
            _log_conflicts(inputs, layers, operators, log)
        self.layers, self.operators = layers, operators
        return {"layer_swap": layers, "op_swap": operators}

    def plan_layer(self, layer: int, *, timed: bool) -> tuple[SwapPlan, ...]:
        """Return the swaps of one layer, whole or by operator; the first formatted entry that contains the layer applies."""
        plans = []
        found = _first(layer, self.layers)
        if found is not None:
            check_prefetch(found[_PREFETCH])
            plans.append(SwapPlan("", found[_PREFETCH]))
        for pattern, entries in self.operators.items():
            found = _first(layer, entries)
            if found is not None:
                check_applied(pattern, timed=timed)
                if pattern:  # an empty one matches nothing; in a plan it would represent the layer itself
                    plans.append(SwapPlan(pattern, found[_PREFETCH]))
        return tuple(plans)

    def find_ignored(
        self, inputs: RecomputeInputs, lists: Mapping[str, Any], layers: Sequence[LayerSpec]
    ) -> Iterator[Diagnostic]:
        """Yield the swap settings that are ignored or probably wrong, with swap on."""
        stages = inputs.stage_num or inputs.stages
        # Since 1.8 the stage of a layer is set even with swap on.
        if inputs.version in ("1.6", "1.7") and stages > 1:
            yield make_problem("swap-no-stage", Severity.ERROR, stages=stages, version=inputs.version)
        excludes = [key for key in KEYS[3:] if getattr(inputs.values, key)]
        if excludes:
            yield make_problem("swap-no-exclude", keys=", ".join(excludes))
        for name, ids in self._name_lists(inputs, lists):
            yield from _find_list_problems(name, ids, inputs.layers)
        yield from _find_shadowed_layers("layer_swap", self.layers)
        for name, entries in self.operators.items():
            yield from _find_shadowed_layers(f"op_swap[{name!r}]", entries)
            if any(isinstance(entry[_PREFETCH], bool) for entry in entries):
                # The framework's own checks accept it because bool is a subclass of int.
                yield make_problem("prefetch-flag", Severity.ERROR, pattern=name)
        if layers:
            yield from _find_useless_swap(layers)

    def _name_lists(self, inputs: RecomputeInputs, lists: Mapping[str, Any]) -> Iterator[tuple[str, bool | LayerList]]:
        yield "recompute", lists["layer_recompute"]
        for key in KEYS[1:3]:
            # A list without its own patterns applies to every default pattern.
            if len(lists[key]) > 1 and not isinstance(getattr(inputs.values, key), dict):
                yield key, next(iter(lists[key].values()))
                continue
            for pattern, ids in lists[key].items():
                yield f"{key}[{str(pattern)!r}]", ids
        for entry in self.layers:
            yield "layer_swap", entry[_LAYERS]
        for name, entries in self.operators.items():
            for entry in entries:
                yield f"op_swap[{name!r}]", entry[_LAYERS]


def _entries(value: object, key: str) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [value]
    if not isinstance(value, list):
        stop("ValueError", f"{key} must be a list or dict")
    return value


def _reach_all(entries: Sequence[Any], mode: str) -> bool:
    """Return whether an entry is for all layers; then all entries must have the same prefetch."""
    before: object = None
    every = differs = False
    for index, entry in enumerate(entries):
        prefetch = entry.get(_PREFETCH)
        if before is not None and before != prefetch:
            differs = True
        layers = entry.get(_LAYERS)
        _check_layers(layers, mode)
        every = every or layers is True
        if differs and every:
            stop(
                "ValueError",
                f"Invalid {mode} configuration at index {index}: {entry}. Inconsistent 'backward_prefetch' values.",
            )
        before = entry[_PREFETCH]
    return every


def _check_layers(layers: object, mode: str) -> None:
    if isinstance(layers, bool):
        return
    invalid = f"Invalid {mode} configuration: {layers}. "
    if not isinstance(layers, (list, tuple)):
        stop("ValueError", f"{invalid}Expected 'layers' to be a list, tuple, or bool.")
    if not are_numbers(layers) and not all(map(are_numbers, layers)):
        stop("ValueError", f"{invalid}{_LISTS_GAP}Expected 'layers' to be a list of ints or list of lists of ints.")


def _by_operator(entries: Sequence[Any]) -> dict[str, list[dict[str, Any]]]:
    """Group the entries by operator; one entry may name several."""
    found: dict[str, list[dict[str, Any]]] = {}
    for index, entry in enumerate(entries):
        name = entry["op_name"]
        invalid = f"Invalid op_swap configuration at index {index}: {entry}. "
        if not isinstance(name, (str, list, tuple)):
            stop("ValueError", f"{invalid}{_NAME_GAP}'op_name' must be a string, list, or tuple.")
        if not isinstance(name, str) and not is_patterns(name):
            stop("ValueError", f"{invalid}{_NAMES_GAP}'op_name' list must contain only strings.")
        for one in [name] if isinstance(name, str) else name:
            found.setdefault(one, []).append({_LAYERS: entry.get(_LAYERS), _PREFETCH: entry.get(_PREFETCH)})
    return found


def _check_ids(value: object, key: str) -> None:
    if isinstance(value, bool):
        return
    if isinstance(value, (list, tuple)):
        for item in value:
            if not isinstance(item, int):
                stop(
                    "ValueError",
                    f"If the type of {key} is list or tuple, the type of element of it must be int, "
                    f"but get {type(item)}.",
                )
        return
    if not isinstance(value, dict):
        stop("AttributeError", f"'{type(value).__name__}' object has no attribute 'items'")
    for name, layers in value.items():
        if not isinstance(name, str):
            stop("ValueError", f"Op_name of {key} must be str when enabling swap, but get {type(name)}.")
        if not isinstance(layers, list):
            stop("ValueError", f"Layer info of {key} must be list when enabling swap, but get {type(layers)}.")


def _check_entries(entries: Sequence[Any], key: str) -> None:
    for entry in entries:
        _check_ids(entry[_LAYERS], f"{key}.layers")
        prefetch = entry[_PREFETCH]
        if not isinstance(prefetch, int) or prefetch < 1:
            stop(
                "ValueError",
                f"Type of {key}.backward_prefetch must be int and the value of {key}.backward_prefetch must be "
                f"positive, but get {prefetch}.",
            )


def _format_entries(entries: Iterable[Any]) -> list[dict[str, Any]]:
    return [{_PREFETCH: entry.get(_PREFETCH), _LAYERS: SwapEntries.layer_ids(entry.get(_LAYERS))} for entry in entries]


def _log_conflicts(
    inputs: RecomputeInputs, swaps: Sequence[Any], operators: Mapping[str, Sequence[Any]], log: list[str]
) -> None:
    """Log the framework's warnings about layers and operators that are both recomputed and swapped."""
    recompute, select = inputs.values.recompute, inputs.values.select_recompute
    if recompute is True:
        log.append(Warned(f"All layers and ops that are enabled swap do not work!{_ALL_GAP}Because recompute = True."))
    if isinstance(recompute, list) and recompute:
        for layer in recompute:
            _log_layer(layer, "All", inputs, swaps, log)
        for name, entries in operators.items():
            _log_operator(name, recompute, entries, log)
    for name, layers in select.items() if isinstance(select, dict) else ():
        if layers is True:
            log.append(
                Warned(
                    f"{name} operator in all layers that is enabled swap do not work!{_OPERATOR_GAP}"
                    "Because it is enabled recompute."
                )
            )
            continue
        for layer in layers:
            _log_layer(layer, name, inputs, swaps, log)
        if name in operators:
            _log_operator(name, layers, operators[name], log)


def _log_layer(
    layer: int, name: str, inputs: RecomputeInputs, entries: Sequence[Mapping[str, Any]], log: list[str]
) -> None:
    for entry in entries:
        layers = entry[_LAYERS]
        if layers is True or layer in layers:
            # Up to 1.8 a continued source line leaves more blanks if the layer is in a list.
            gap = _WARNING_GAP if layers is True or inputs.version not in ("1.6", "1.7", "1.8") else _OPERATOR_GAP
            log.append(Warned(_conflict(name, layer, gap)))


def _log_operator(name: str, layers: Sequence[int], entries: Sequence[Mapping[str, Any]], log: list[str]) -> None:
    every = any(entry[_LAYERS] is True for entry in entries)
    swapped = {layer for entry in entries if entry[_LAYERS] is not True for layer in entry[_LAYERS]}
    log += [Warned(_conflict(name, layer, _OPERATOR_GAP)) for layer in layers if every or layer in swapped]


def _conflict(name: str, layer: int, gap: str) -> str:
    return f"{name} operator in layer {layer} that{gap}is enabled swap do not work! Because it is enabled recompute."


def _first(layer: int, entries: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    return next((entry for entry in entries if entry[_LAYERS] is True or layer in entry[_LAYERS]), None)


def check_prefetch(prefetch: object, owner: str = "Cell") -> None:
    """Raise the error that MindSpore's ``Cell.offload`` raises for an invalid prefetch."""
    if isinstance(prefetch, str):
        if prefetch != "Auto":
            stop(
                "ValueError",
                f"For '{owner}', the 'backward_prefetch' must be str and must be in '['Auto']', but got '{prefetch}'.",
            )
    elif isinstance(prefetch, int):
        if isinstance(prefetch, bool) or prefetch < 0:
            kind = type(prefetch).__name__
            exception = "TypeError" if isinstance(prefetch, bool) else "ValueError"
            stop(exception, f"The input value must be int and must >= 0, but got '{prefetch}' with type '{kind}'.")
    else:
        stop("TypeError", f"The input value must be int, but got '{type(prefetch).__name__}'")


def layer_swap_line(layer: int, plan: SwapPlan, entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the framework's log line for swapping a whole layer."""
    gap = _EVERY_LAYER_GAP if entries and entries[0][_LAYERS] is True else _ONE_LAYER_GAP
    return f"Set layer swap at layer {layer}{gap}and value is: {plan.prefetch}"


_SHOWN = 8  # maximum layers in one message


def _find_list_problems(name: str, ids: bool | LayerList, count: int) -> Iterator[Diagnostic]:  # noqa: FBT001 - True means all layers
    if isinstance(ids, bool):
        return
    outside = [layer for layer in ids if not 0 <= layer < count]
    if outside:
        yield make_problem("swap-outside", name=name, layers=_numbers(outside), last=count - 1)
    repeated = sorted(layer for layer, times in Counter(ids).items() if times > 1)
    if repeated:
        yield make_problem("swap-repeated", name=name, layers=_numbers(repeated))


def _find_shadowed_layers(name: str, entries: Sequence[Mapping[str, Any]]) -> Iterator[Diagnostic]:
    """Report layers in a second entry with another prefetch."""
    first: dict[int, object] = {}
    shadowed = set()
    for entry in entries:
        for layer in entry[_LAYERS] if entry[_LAYERS] is not True else ():
            if first.setdefault(layer, entry[_PREFETCH]) != entry[_PREFETCH]:
                shadowed.add(layer)
    if shadowed:
        yield make_problem("swap-shadowed", name=name, layers=_numbers(sorted(shadowed)))


def _find_useless_swap(layers: Sequence[LayerSpec]) -> Iterator[Diagnostic]:
    """Report swap that recompute makes useless: recompute wins if an operator has both (guide on memory, 1.5)."""
    if not any(plan.swap for plan in layers):
        yield make_problem("swap-nothing")
    full = [plan.layer for plan in layers if plan.recompute is RecomputeMode.FULL and plan.swap]
    if full:
        yield make_problem("swap-recomputed", layers=_numbers(full))
    patterns: dict[str, list[int]] = {}
    for plan in layers:
        for swap in plan.swap:
            if swap.target in plan.select_patterns:
                patterns.setdefault(swap.target, []).append(plan.layer)
    for pattern, found in patterns.items():
        yield make_problem("swap-select", pattern=pattern, layers=_numbers(found))


def _numbers(layers: Iterable[int]) -> str:
    shown = [str(int(layer)) for layer in layers]
    return ", ".join(shown[:_SHOWN]) + (", …" if len(shown) > _SHOWN else "")
