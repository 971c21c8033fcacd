"""Convert a plan to the settings of another dialect.

Three rules differ between the dialects (the modules of the dialects name the sources):

- placement: an offset from the even split (``mindformers``), counts (``mindspeed-ms``), ranges of layers
  (``mindformers-pynative``);
- lists: counts from the first layer of a cell, where full recompute wins (``mindformers``); counts after the
  fully recomputed layers (``mindspeed-ms``); layer numbers (``mindformers-pynative``);
- operators: names of one framework's modules, or one fixed operator (``mindspeed-ms``). They are translated
  beforehand (:mod:`ms_tune.dialects.operators`).

Settings without an equivalent in the other dialect are left out and reported as problems. The rest reproduces the plan
for every layer, which :mod:`ms_tune.normalize.convert` proves with the other dialect's own rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import MEGATRON, MINDFORMERS, MINDFORMERS_PYNATIVE, MINDSPEED_MS, LayerPlan, LayerSpec
from ms_tune.dialects.draft import LISTS, Cells, SettingsDraft, join_few, name_ranges
from ms_tune.dialects.operators import SWAP, Choices, Side, copy_choices
from ms_tune.enums import Dialect
from ms_tune.facts.query import default_release
from ms_tune.records import Record


class Converted(Record):
    """Settings converted to another dialect."""

    values: Mapping[str, object]  # dotted keys of the other dialect and their values
    # Settings without an equivalent (errors: left out of the values), and settings that differ slightly.
    problems: tuple[Diagnostic, ...]
    release: str = ""  # the release that will read them


def convert_plan(  # noqa: PLR0913 - settings with defaults
    plan: LayerPlan,
    to: str,
    *,
    version: str | None = None,
    choices: Choices | None = None,
    target: Side | None = None,
    legacy: bool = True,
) -> Converted:
    """Return the equivalent settings of another dialect, with the operator names of ``choices`` or else of the plan."""
    if to not in {MINDFORMERS, MINDFORMERS_PYNATIVE, MINDSPEED_MS, MEGATRON}:
        raise ValueError(to)
    release = version or default_release(Dialect(to))
    choices = choices or copy_choices(plan.switched_on or plan.layers)
    cells = _cut_cells(plan, target.ahead if target else 0)
    draft = SettingsDraft(plan, release, cells, choices, target, legacy, {}, [])
    if plan.failure is not None or not cells.layers or plan.placement is None:
        draft.say("no-plan", Severity.ERROR)
        return Converted({}, tuple(draft.problems), release)
    if not cells.straight:
        draft.say("order", Severity.ERROR)
        return Converted({}, tuple(draft.problems), release)
    if cells.stages == 1 and cells.chunks > 1 and to != MINDFORMERS:
        draft.say("chunks-merged", Severity.WARNING, chunks=cells.chunks)
        draft = draft._replace(cells=cells.merge_chunks())
    # Only MindFormers' dynamic graph numbers multi-token prediction layers; the static graph treats them as the last
    # layer.
    last = cells.layers[-1].recompute
    if to not in {MINDFORMERS_PYNATIVE, MEGATRON} and any(layer.recompute is not last for layer in cells.mtp_layers):
        numbers = [layer.layer for layer in cells.mtp_layers]
        draft.say("prediction-layers", Severity.WARNING, layers=name_ranges(numbers))
    import_module(f"ms_tune.dialects.{to.replace('-', '_')}.write").write_layers(draft)
    if choices.layers_by_name[SWAP] and plan.dialect != to and to not in {MINDSPEED_MS, MEGATRON}:
        draft.say("prefetch", Severity.WARNING)
    _report_names(draft, to)
    return Converted(draft.values, tuple(draft.problems), release)


def _cut_cells(plan: LayerPlan, ahead: int) -> Cells:
    """Return the cells of a plan, whose last ``ahead`` layers are multi-token prediction (static graph)."""
    placement = plan.placement or ((0,),)
    stages, chunks = len(placement[0]), len(placement)
    known = len(plan.layers)
    # The cells of a static-graph plan may have more places than there are layers.
    placed = known - ahead if plan.dialect == MINDFORMERS else min(known, sum(map(sum, placement)))
    rows: list[list[list[LayerSpec]]] = [[[] for _ in range(stages)] for _ in range(chunks)]
    straight = True
    for layer in plan.layers[:placed]:
        if layer.stage >= stages or layer.chunk >= chunks:
            straight = False
            continue
        rows[layer.chunk][layer.stage].append(layer)
    cells = tuple(tuple(tuple(cell) for cell in row) for row in rows)
    numbers = [layer.layer for row in cells for cell in row for layer in cell]
    straight = straight and numbers == list(range(placed)) == [layer.layer for layer in plan.layers[:placed]]
    return Cells(cells, plan.layers[placed:], straight)


def _report_names(draft: SettingsDraft, to: str) -> None:
    """Report operators without an equivalent, with the layers affected, and operators that are recomputed in addition."""
    for kind, found in (("lost", draft.choices.untranslated), ("wider", draft.choices.wider)):
        rows: dict[tuple[str, str], list[str]] = {}
        for (attribute, path), layers in found.items():
            rows.setdefault((LISTS.get(attribute, "op_swap"), name_ranges(layers)), []).append(path)
        severity = Severity.ERROR if kind == "lost" and to != MINDSPEED_MS else Severity.WARNING
        name = "own-operators" if kind == "lost" and to == MINDSPEED_MS else kind
        for (key, layers_text), names in rows.items():
            draft.say(name, severity, key=key, layers=layers_text, names=join_few(names), to=to)
