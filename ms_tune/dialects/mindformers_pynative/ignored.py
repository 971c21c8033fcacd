"""Settings that MindFormers' dynamic graph (2.0, 2.1) accepts silently although they are probably mistakes.

Sources: those of :mod:`ms_tune.dialects.mindformers_pynative.recompute`; for layers that the model does not have
``TransformerBlock`` in ``mindformers/pynative/transformers/transformer_block.py``; for checks that need no plan
``apply_recompute`` in ``mindformers/pynative/distributed/activation_checkpoint.py`` (2.0 and 2.1).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ms_tune.diagnostics import Diagnostic, KeyPath, Severity
from ms_tune.dialects import make_problem, parse_specs, unmatched_cells, write_specs
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.plan_checks import accepted, passes
from ms_tune.dialects.values import is_risky

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ms_tune.dialects.mindformers_pynative.placement import PynativeInputs, PynativeOutcome, Ranges

_OUTSIDE = ("layers.", "layers\\.", "model.", "decoder.", "decoder\\.")  # prefixes of paths relative to the whole model


def find_ignored(inputs: PynativeInputs, outcome: PynativeOutcome) -> Iterator[Diagnostic]:
    """Yield the settings that are silently ignored or probably wrong."""
    if inputs.stages == 1 and inputs.chunks != 1:
        yield make_problem("interleave-ignored", chunks=inputs.chunks)
    if inputs.stages == 1 and inputs.layers_per_stage not in (None, "auto"):
        yield make_problem("layers-per-stage-ignored")
    if outcome.ranges is not None:
        yield from _find_coverage_problems(inputs, outcome.ranges)
    elif inputs.stages > 1 and inputs.chunks < 1:
        yield make_problem("no-chunks", Severity.ERROR, chunks=inputs.chunks)
    yield from _find_disabled_settings(inputs)
    yield from _find_swap_problems(inputs)
    yield from _find_pattern_problems(inputs, outcome)
    yield from _find_useless_settings(inputs, outcome)


def _find_coverage_problems(inputs: PynativeInputs, ranges: Ranges) -> Iterator[Diagnostic]:
    """Report missing, repeated or misordered layers: the framework builds any ranges, stage by stage."""
    cells = [cell for row in ranges for cell in row]
    beyond = [f"{first}-{last}" for first, last in cells if last >= inputs.layers]
    if beyond:
        yield make_problem("layers-beyond", Severity.ERROR, ranges=", ".join(beyond), layers=inputs.layers)
    seen = Counter(layer for first, last in cells for layer in range(first, min(last, inputs.layers - 1) + 1))
    missing = write_specs(layer for layer in range(inputs.layers) if layer not in seen)
    if missing:
        yield make_problem("layers-missing", Severity.ERROR, layers=", ".join(missing))
    twice = write_specs(layer for layer, times in seen.items() if times > 1)
    if twice:
        yield make_problem("layers-twice", Severity.ERROR, layers=", ".join(twice))
    if not (missing or twice or beyond) and cells != sorted(cells):
        yield make_problem("layers-out-of-order", Severity.ERROR)


def _find_disabled_settings(inputs: PynativeInputs) -> Iterator[Diagnostic]:
    if inputs.mode == "None":
        given = {
            "full_recompute_layer": inputs.full_layers,
            "select_module": inputs.select_module,
            "exclude_op": inputs.exclude_op,
        }
        for key in filter(given.get, given):
            yield make_problem("mode-none", key=key)
    elif inputs.mode == "full" and inputs.select_module:
        yield make_problem("select-in-full")
    if not inputs.comm and inputs.comm_module:
        yield make_problem("switched-off", switch="recompute_comm.enable", key="select_module")
    if inputs.stages == 1 and (inputs.mode != "None" or inputs.comm or inputs.swap):
        yield make_problem("one-card", Severity.INFO)


def _find_swap_problems(inputs: PynativeInputs) -> Iterator[Diagnostic]:
    if not inputs.swap:
        for key in ("layer_swap", "op_swap"):
            if getattr(inputs, key):
                yield make_problem("switched-off", switch="swap.enable", key=key)
        return
    if not inputs.layer_swap and not inputs.op_swap:
        yield make_problem("swap-of-nothing")
    entries = [*_entries(inputs.layer_swap), *_entries(inputs.op_swap)]
    if isinstance(inputs.layer_swap, list) and len(inputs.layer_swap) > 1:
        yield make_problem("first-entry-only", Severity.ERROR, given=len(inputs.layer_swap))
    if any("backward_prefetch" in entry for entry in entries):
        yield make_problem("prefetch-ignored", prefetch=inputs.prefetch)
    names = Counter(str(entry.get("op_name")) for entry in _entries(inputs.op_swap))
    for name, times in names.items():
        if times > 1 and inputs.version != "2.0":
            yield make_problem("last-entry-only", Severity.ERROR, name=name)


def _entries(value: object) -> list[dict[object, object]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _find_pattern_problems(inputs: PynativeInputs, outcome: PynativeOutcome) -> Iterator[Diagnostic]:
    for key, pattern, layers in outcome.reaches:
        if not any(layers.values()):
            # The framework limits each match to a second; ms-tune skips matches that could take that long.
            name = "pattern-slow" if is_risky(pattern) else "no-match"
            yield make_problem(name, key=key, pattern=pattern)
            continue
        # Nothing more applies to a fully recomputed layer.
        asked = {layer: hit for layer, hit in layers.items() if key == "exclude_op" or layer not in outcome.full}
        found = {(*outcome.places[layer], layer): hit for layer, hit in asked.items()}
        every = range(inputs.total) if key == "exclude_op" else set(range(inputs.total)) - outcome.full
        problem = unmatched_cells(key, pattern, found, everywhere=asked.keys() >= set(every))
        if problem is not None:
            yield problem
    chosen = [("select_module", inputs.select_module), ("recompute_comm.select_module", inputs.comm_module)]
    if inputs.version != "2.0":
        chosen.append(("exclude_op", inputs.exclude_op))
    for key, value in chosen:
        for pattern in value if isinstance(value, dict) else ():
            if isinstance(pattern, str) and pattern.startswith(_OUTSIDE):
                yield make_problem("path-from-outside", Severity.ERROR, key=key, pattern=pattern)


def _find_useless_settings(inputs: PynativeInputs, outcome: PynativeOutcome) -> Iterator[Diagnostic]:
    covered = {layer for layer in outcome.full if layer < inputs.layers}
    if inputs.mtp_layers and len(covered) == inputs.layers and len(outcome.full) < inputs.total:
        first, last = inputs.layers, inputs.total - 1
        text = str(first) if first == last else f"{first}-{last}"
        yield make_problem("prediction-layers-left", Severity.INFO, layers=text)
    both = sorted(outcome.swapped & outcome.full)
    if both:
        yield make_problem("swap-and-recompute", layers=", ".join(write_specs(both)))
    if inputs.mode == "select" and inputs.full_layers:
        yield make_problem("ranges-unchecked", Severity.INFO)


_MODULES: KeyPath = ("recompute", "select_module")
_EXCLUDED: KeyPath = ("recompute", "exclude_op")


def find_modules_from_outside(context: CheckContext) -> Iterator[Violation]:
    """Report a pattern that starts above the layer: paths are relative to a layer, so it never matches."""
    for section in ("recompute", "recompute_comm"):
        value = context.get(f"{section}.select_module")
        for pattern in value if isinstance(value, dict) else ():
            match = re.match(
                r"(?:(?:model|decoder|transformer|backbone)\\?\.)*layers(?:\\?\.(?:\*|\\d\+|\d+|\.\*))?\\?\.",
                str(pattern),
            )
            if match:
                rest = str(pattern)[match.end() :] or ".*"
                yield Violation((section, "select_module", str(pattern)), params={"rest": rest}, at_key=True)


def find_unmatched_modules(context: CheckContext) -> Iterator[Violation]:
    """Report other patterns that match no module of the model, if its modules are known."""
    reported = {one.path for check in (find_modules_from_outside, find_modules_behind_full) for one in check(context)}
    traps = dict.fromkeys(("no-match", "cell-unmatched"), "recompute.select_module")
    asked = CheckContext(context.job, {"traps": traps}, context.refused)
    yield from (violation for violation in accepted(asked) if violation.path not in reported)


def find_modules_behind_full(context: CheckContext) -> Iterator[Violation]:
    """Report selected modules in fully recomputed layers: full recompute wins silently.

    With ``full_recompute_layer`` the layers of modules are not validated either: missing ones are dropped.
    """
    if context.get("recompute.mode") != "select" or not passes(context):
        return
    full = set(parse_specs(context.get("recompute.full_recompute_layer")))
    last, ahead = context.model.layers, context.model.mtp_layers
    for path, layers in _read_layers(context, _MODULES):
        if full and layers and layers <= full:
            yield Violation(path, at_key=True, related=((("recompute", "full_recompute_layer"), "full"),))
        elif full and last is not None and max(layers, default=0) >= last + ahead:
            yield Violation(path, "beyond", {"last": last + ahead - 1})


def find_idle_exclusions(context: CheckContext) -> Iterator[Violation]:
    """Report an exclusion (2.1) that cancels a module's whole recompute, or concerns layers without recompute."""
    if context.get("recompute.mode") not in ("full", "select") or not passes(context):
        return
    full = set(parse_specs(context.get("recompute.full_recompute_layer")))
    chosen = dict(_read_layers(context, _MODULES)) if context.get("recompute.mode") == "select" else {}
    recomputed = full.union(*chosen.values())
    for path, layers in _read_layers(context, _EXCLUDED):
        own = chosen.get((*_MODULES, path[-1]), set()) - full
        if own and own <= layers:
            yield Violation(path, "itself", {"pattern": path[-1]}, at_key=True)
        elif layers and not layers & recomputed:
            yield Violation(path, "elsewhere", {"pattern": path[-1]}, at_key=True)


def _read_layers(context: CheckContext, section: KeyPath) -> Iterator[tuple[KeyPath, set[int]]]:
    value = context.source.get(section)
    for pattern, specs in value.items() if isinstance(value, dict) else ():
        if isinstance(specs, list):
            yield (*section, str(pattern)), set(parse_specs(specs))
