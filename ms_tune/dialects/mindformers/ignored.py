"""Report settings that MindFormers' static graph accepts silently although they are probably mistakes.

None of these stops the framework; those that do are checked with the rules
(:mod:`ms_tune.dialects.mindformers.recompute`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import LayerSpec
from ms_tune.dialects.mindformers.placement import KEYS, NO_SWAP, Placement, RecomputeInputs, SwapValues
from ms_tune.dialects.values import is_counts, is_patterns, is_risky, pattern_fault, read_array, to_int32
from ms_tune.enums import RecomputeMode
from ms_tune.records import Any
from ms_tune.text import msg

_SHOWN = 4  # maximum examples in one message

# A dot that is neither escaped nor a repeated wildcard: "feed_forward.mul" should be "feed_forward\.mul".
_PLAIN_DOT = r"(?<!\\)\.(?![*+?{])"


def find_ignored(
    inputs: RecomputeInputs,
    placement: Placement | None,
    layers: Sequence[LayerSpec],
    reached: Mapping[str, Mapping[str, bool]],
    swap_traps: Iterable[Diagnostic],
) -> Iterator[Diagnostic]:
    """Yield settings that are ignored or probably wrong; without a placement only those that affect no layer."""
    if not inputs.interleave and inputs.interleave_num not in (None, 1):
        message = msg("layers.interleave-off", chunks=inputs.interleave_num)
        yield Diagnostic("interleave-off", Severity.WARNING, message)
    if inputs.swap is not NO_SWAP:
        yield from _find_unread_swap(inputs.swap, legacy=inputs.legacy)
    if placement is None:
        return
    if inputs.offset != 0 or inputs.start_stage or not placement.cells:  # otherwise all cells are equal
        yield from _find_placement_problems(inputs, placement)
    for key, value in zip(KEYS, inputs.values, strict=True):
        if value:
            yield from _find_value_problems(key, value, inputs, placement)
    yield from swap_traps
    if any(map(attrgetter("overridden"), layers)) and len(layers) == len(placement.cells):
        yield from _find_hidden_patterns(inputs, reached, layers)
    if inputs.mtp_layers and layers and not inputs.legacy and not inputs.reduced:
        last = layers[-1]  # prediction layers come after all others, and lists have no entries for them (1.7 to 2.1)
        if last.recompute is not RecomputeMode.NONE or last.swap:
            message = msg("layers.ahead-as-last", count=inputs.mtp_layers, layer=last.layer)
            yield Diagnostic("ahead-as-last", Severity.INFO, message)


def _find_unread_swap(section: SwapValues, *, legacy: bool) -> Iterator[Diagnostic]:
    if section.swap is True and not legacy:
        # `TransformerOpParallelConfig.to_dict`, which passes settings to such models, drops swap.
        yield Diagnostic("swap-dropped", Severity.WARNING, msg("layers.swap-dropped"))
    elif section.swap is False and (section.layer_swap or section.op_swap):
        unused = [key for key in ("layer_swap", "op_swap") if getattr(section, key)]
        yield Diagnostic("swap-off", Severity.INFO, msg("layers.swap-off", keys=", ".join(unused)))


def _find_placement_problems(inputs: RecomputeInputs, placement: Placement) -> Iterator[Diagnostic]:
    negative = [str(count) for row in placement.counts for count in row if count < 0]
    if negative:
        message = msg("layers.cell-negative", counts=_examples(negative), version=inputs.version)
        yield Diagnostic("cell-negative", Severity.ERROR, message)
    if placement.slots != len(placement.cells):
        message = msg(
            "layers.offset-repeated",
            offset=inputs.offset,
            chunks=len(placement.counts),
            slots=placement.slots,
            layers=len(placement.cells),
        )
        yield Diagnostic("offset-repeated", Severity.ERROR, message)
    if inputs.offset != 0:
        used = to_int32(inputs.offset)[1]
        if any(used) and not any(map(any, placement.offset)):
            message = msg("layers.offset-ignored", offset=inputs.offset)
            yield Diagnostic("offset-ignored", Severity.INFO, message)
        elif read_array(inputs.offset)[1] != used:
            message = msg("layers.offset-rounded", offset=inputs.offset, used=used)
            yield Diagnostic("offset-rounded", Severity.WARNING, message)
    first = inputs.start_stage
    filled = set(map(attrgetter("stage"), placement.cells))
    empty = [stage for stage in range(first, first + len(placement.totals)) if stage not in filled]
    if empty:
        message = msg("layers.stage-empty", stages=", ".join(map(str, empty)))
        yield Diagnostic("stage-empty", Severity.INFO, message)


def _find_value_problems(key: str, value: Any, inputs: RecomputeInputs, placement: Placement) -> Iterator[Diagnostic]:  # noqa: ANN401 - the value as in the config
    has_patterns = key != "recompute" and is_patterns(value)
    named = [(key, value)] if not has_patterns and not key.endswith("_exclude") else []
    if isinstance(value, dict):
        named = [(f"{key}[{str(pattern)!r}]", item) for pattern, item in value.items()]
    for name, item in named if inputs.swaps.swap is not True else ():
        if isinstance(item, (list, tuple)) and item:
            yield from _check_list(name, item, inputs, placement)
    if has_patterns or (key != "recompute" and isinstance(value, dict)):
        yield from _find_pattern_problems(key, value)


def _check_list(name: str, value: Sequence[Any], inputs: RecomputeInputs, placement: Placement) -> Iterator[Diagnostic]:
    if is_patterns(value):
        yield Diagnostic("strings-mean-all", Severity.WARNING, msg("layers.strings-mean-all", name=name))
        return
    flat, stages = is_counts(value), len(placement.totals)
    if flat and len(value) < stages:
        message = msg("layers.list-short", name=name, given=len(value), stages=stages)
        yield Diagnostic("list-short", Severity.WARNING, message)
    rows = [
        (row[::-1] if inputs.zero_bubble and chunk == 1 else row, limits)
        for chunk, (row, limits) in enumerate(zip(value, placement.counts, strict=False))
        if isinstance(row, (list, tuple))
    ]
    counts = [  # limited to the existing layers
        (count, limit)
        for row, limits in ([(value, placement.totals)] if flat else rows)
        for count, limit in zip(row, limits, strict=False)
        if isinstance(count, int) and not isinstance(count, bool)
    ]
    above = [f"{count} > {limit}" for count, limit in counts if count > limit]
    if above:
        message = msg("layers.count-clamped", name=name, counts=_examples(above))
        yield Diagnostic("count-clamped", Severity.WARNING, message)
    below = [str(count) for count, _ in counts if count < 0]
    if below and not flat:
        message = msg("layers.count-negative", name=name, counts=_examples(below))
        yield Diagnostic("count-negative", Severity.WARNING, message)


def _examples(items: Sequence[str]) -> str:
    more = ", …" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more


def _find_pattern_problems(key: str, patterns: Iterable[object]) -> Iterator[Diagnostic]:
    """Report patterns that can match nothing, or more than any operator (``LayerSetting.set_pattern_recompute``)."""
    for pattern in patterns:
        if not isinstance(pattern, str):
            continue
        segments = pattern.split(r"\.")
        problem = _find_segment_problem(segments)
        if problem:
            meant = pattern.replace(r"\.", ".").replace(".", r"\.")
            severity = (
                Severity.WARNING if problem in {"pattern-dot", "pattern-empty", "pattern-complex"} else Severity.ERROR
            )
            yield Diagnostic(problem, severity, msg(f"layers.{problem}", key=key, pattern=pattern, meant=meant))


def _find_segment_problem(segments: Sequence[str]) -> str | None:
    if any(map(pattern_fault, segments)):
        return "pattern-invalid"
    if not all(segments):
        return "pattern-empty"
    if segments[-1] in {".*", ".+"}:
        return "pattern-any"
    if any(map(is_risky, segments)):
        return "pattern-complex"
    if any(re.search(_PLAIN_DOT, segment) for segment in segments):
        return "pattern-dot"
    return None


def _find_hidden_patterns(
    inputs: RecomputeInputs, reached: Mapping[str, Mapping[str, bool]], layers: Sequence[LayerSpec]
) -> Iterator[Diagnostic]:
    """Report patterns that apply only to fully recomputed layers."""
    for key, patterns in reached.items() if inputs.swaps.swap is not True else ():
        attribute = "select_patterns" if key == "select_recompute" else "comm_patterns"
        seen = {pattern for layer in layers for pattern in getattr(layer, attribute)}
        reaching = [pattern for pattern, is_reached in patterns.items() if is_reached]
        hidden = [str(pattern) for pattern in reaching if str(pattern) not in seen]
        if hidden and getattr(inputs.values, key):
            # Some patterns overridden by full recompute may be intended; a whole setting without effect hardly is.
            severity = Severity.WARNING if len(hidden) == len(reaching) else Severity.INFO
            message = msg("layers.select-hidden", key=key, patterns=_examples(hidden))
            yield Diagnostic("select-hidden", severity, message)
