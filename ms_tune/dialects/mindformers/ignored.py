"""What the framework accepts without a word although its author hardly meant it.

None of these stops the framework; those that do are found where the rule is (:mod:`ms_tune.dialects.mindformers.plan`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.mindformers.inputs import KEYS, is_counts, is_patterns
from ms_tune.dialects.mindformers.swap import find_swap_traps
from ms_tune.dialects.values import compile_segment, is_risky, leaves, to_int32
from ms_tune.enums import RecomputeMode
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from ms_tune.dialects.layer_plan import Formative, LayerCell, LayerSpec, Placement
    from ms_tune.dialects.mindformers.inputs import RecomputeInputs

_SHOWN = 4  # examples in one message

# A dot that is neither escaped nor a wildcard with a repeat: "feed_forward.mul" is meant to be "feed_forward\.mul".
_PLAIN_DOT = re.compile(r"(?<!\\)\.(?![*+?{])")


def find_traps(
    inputs: RecomputeInputs,
    placement: Placement | None,
    formative: Formative | None,
    layers: Sequence[LayerSpec],
    dropped: Sequence[tuple[str, str]],
) -> list[Diagnostic]:
    """Every trap that can be told with what is known; without a placement that is the interleave only."""
    problems = [*_interleave_traps(inputs), *_unheard_traps(inputs)]
    if placement is None:
        return problems
    problems += _placement_traps(inputs, placement)
    by_id = inputs.swaps.swap is True
    for key in KEYS:
        if not by_id:
            problems += _value_traps(key, inputs, placement)
        problems += _pattern_traps(key, inputs.values.get(key))
    if formative is not None and formative.by_id is not None:
        problems += find_swap_traps(inputs, formative.by_id, layers)
    elif formative is not None and len(layers) == inputs.placed_layers:
        select = {pattern for plan in layers for pattern in plan.select_patterns}
        comm = {pattern for plan in layers for pattern in plan.comm_patterns}
        problems += _hidden_traps("select_recompute", formative.select_recompute, placement, select)
        problems += _hidden_traps("select_comm_recompute", formative.select_comm_recompute, placement, comm)
    problems += _ahead_traps(inputs, layers)
    problems += [
        Diagnostic("pattern-excluded", Severity.INFO, msg("layers.pattern-excluded", key=key, pattern=pattern))
        for key, pattern in dropped
    ]
    return problems


def _ahead_traps(inputs: RecomputeInputs, layers: Sequence[LayerSpec]) -> Iterator[Diagnostic]:
    """Prediction layers behind the others, where lists have no place for them (1.7 to 2.1)."""
    if inputs.legacy or inputs.reduced or not inputs.mtp_layers or not layers:
        return
    last = layers[-1]
    if last.recompute is not RecomputeMode.NONE or last.swap:
        message = msg("layers.ahead-as-last", count=inputs.mtp_layers, layer=last.layer)
        yield Diagnostic("ahead-as-last", Severity.INFO, message)


def _unheard_traps(inputs: RecomputeInputs) -> Iterator[Diagnostic]:
    """Swap settings that reach no layer."""
    section = inputs.swap
    if section.swap is True and not inputs.legacy:
        # `TransformerOpParallelConfig.to_dict`, which such models get their settings through, leaves swap out.
        yield Diagnostic("swap-dropped", Severity.WARNING, msg("layers.swap-dropped"))
    elif section.swap is False:
        unused = [key for key in ("layer_swap", "op_swap") if getattr(section, key)]
        if unused:
            yield Diagnostic("swap-off", Severity.INFO, msg("layers.swap-off", keys=", ".join(unused)))


def _interleave_traps(inputs: RecomputeInputs) -> Iterator[Diagnostic]:
    if not inputs.interleave and inputs.interleave_num not in (None, 1):
        message = msg("layers.interleave-off", chunks=inputs.interleave_num)
        yield Diagnostic("interleave-off", Severity.WARNING, message)


def _placement_traps(inputs: RecomputeInputs, placement: Placement) -> Iterator[Diagnostic]:
    _, used = to_int32(inputs.offset)
    negative = [str(count) for row in placement.counts for count in row if count < 0]
    if negative:
        message = msg("layers.cell-negative", counts=_examples(negative), version=inputs.version)
        yield Diagnostic("cell-negative", Severity.ERROR, message)
    if placement.slots != inputs.placed_layers:
        message = msg(
            "layers.offset-repeated",
            offset=inputs.offset,
            chunks=len(placement.counts),
            slots=placement.slots,
            layers=inputs.placed_layers,
        )
        yield Diagnostic("offset-repeated", Severity.ERROR, message)
    if any(used) and not any(map(any, placement.offset)):
        message = msg("layers.offset-ignored", offset=inputs.offset)
        yield Diagnostic("offset-ignored", Severity.INFO, message)
    elif leaves(inputs.offset) != used:
        message = msg("layers.offset-rounded", offset=inputs.offset, used=used)
        yield Diagnostic("offset-rounded", Severity.WARNING, message)
    first = inputs.start_stage
    filled = {cell.stage for cell in placement.cells}
    empty = [stage for stage in range(first, first + inputs.placed_stages) if stage not in filled]
    if empty:
        message = msg("layers.stage-empty", stages=", ".join(map(str, empty)))
        yield Diagnostic("stage-empty", Severity.INFO, message)


def _value_traps(key: str, inputs: RecomputeInputs, placement: Placement) -> Iterator[Diagnostic]:
    value = inputs.values.get(key)
    if isinstance(value, dict):
        for pattern, item in value.items():
            yield from _list_traps(f"{key}[{str(pattern)!r}]", item, inputs, placement)
    elif key == "recompute" or (not is_patterns(value) and not key.endswith("_exclude")):
        yield from _list_traps(key, value, inputs, placement)


def _list_traps(name: str, value: object, inputs: RecomputeInputs, placement: Placement) -> Iterator[Diagnostic]:
    if not isinstance(value, (list, tuple)) or not value:
        return
    if is_patterns(value):
        yield Diagnostic("strings-mean-all", Severity.WARNING, msg("layers.strings-mean-all", name=name))
        return
    stages = len(placement.counts[0])
    if is_counts(value) and len(value) < stages:
        message = msg("layers.list-short", name=name, given=len(value), stages=stages)
        yield Diagnostic("list-short", Severity.WARNING, message)
    counts = list(_counts_with_limits(value, inputs, placement))
    above = [f"{count} > {limit}" for count, limit in counts if count > limit]
    if above:
        message = msg("layers.count-clamped", name=name, counts=_examples(above))
        yield Diagnostic("count-clamped", Severity.WARNING, message)
    below = [str(count) for count, _ in counts if count < 0]
    if below and not is_counts(value):
        message = msg("layers.count-negative", name=name, counts=_examples(below))
        yield Diagnostic("count-negative", Severity.WARNING, message)


def _counts_with_limits(
    value: Sequence[object], inputs: RecomputeInputs, placement: Placement
) -> Iterator[tuple[int, int]]:
    """Each whole number of a list, or of a list of rows, with the layers that there are."""
    counts = placement.counts
    if is_counts(value):
        for column, item in enumerate(value[: len(counts[0])]):
            if isinstance(item, int) and not isinstance(item, bool):
                yield item, placement.column_total(column)
        return
    for chunk, row in enumerate(value[: len(counts)]):
        if not isinstance(row, (list, tuple)):
            continue
        backwards = inputs.zero_bubble and chunk == 1
        for item, limit in zip(row[::-1] if backwards else row, counts[chunk], strict=False):
            if isinstance(item, int) and not isinstance(item, bool):
                yield item, limit


def _examples(items: Sequence[str]) -> str:
    more = ", …" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more


def _pattern_traps(key: str, value: object) -> Iterator[Diagnostic]:
    """Patterns that can match nothing, or more than any operator (``LayerSetting.set_pattern_recompute``)."""
    if key == "recompute" or not (isinstance(value, dict) or is_patterns(value)):
        return
    for pattern in value if isinstance(value, (dict, list, tuple)) else ():
        if not isinstance(pattern, str):
            continue
        segments = pattern.split(r"\.")
        trap = _segment_trap(segments)
        if trap:
            meant = pattern.replace(r"\.", ".").replace(".", r"\.")
            severity = (
                Severity.WARNING if trap in {"pattern-dot", "pattern-empty", "pattern-complex"} else Severity.ERROR
            )
            yield Diagnostic(trap, severity, msg(f"layers.{trap}", key=key, pattern=pattern, meant=meant))


def _segment_trap(segments: Sequence[str]) -> str | None:
    if not all(_is_expression(segment) for segment in segments):
        return "pattern-invalid"
    if not all(segments):
        return "pattern-empty"
    if segments[-1] in {".*", ".+"}:
        return "pattern-any"
    if any(map(is_risky, segments)):
        return "pattern-complex"
    if any(_PLAIN_DOT.search(segment) for segment in segments):
        return "pattern-dot"
    return None


def _is_expression(segment: str) -> bool:
    try:
        compile_segment(segment)
    except re.error:
        return False
    return True


def _hidden_traps(
    key: str,
    patterns: Mapping[object, Sequence[Sequence[int]]],
    placement: Placement,
    seen: AbstractSet[str],
) -> Iterator[Diagnostic]:
    """Patterns that reach layers, but only such layers as are recomputed in full."""
    hidden, reaching = [], 0
    for pattern, rows in patterns.items():
        if any(_reaches(rows, cell) for cell in placement.cells):
            reaching += 1
            if pattern not in seen:
                hidden.append(str(pattern))
    if hidden:
        # Some patterns behind full recompute may be meant; a whole setting without effect hardly is.
        severity = Severity.WARNING if len(hidden) == reaching else Severity.INFO
        message = msg("layers.select-hidden", key=key, patterns=_examples(hidden))
        yield Diagnostic("select-hidden", severity, message)


def _reaches(rows: Sequence[Sequence[int]], cell: LayerCell) -> bool:
    """As the framework has it, but for rows that are too short: no layer may have needed them."""
    return cell.chunk < len(rows) and cell.rank < [*rows[cell.chunk], *[0] * (cell.column + 1)][cell.column]
