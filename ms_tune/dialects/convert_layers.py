"""The same plan in another dialect.

Three things differ between the dialects (their own modules name the sources):

- placement: an offset from the even split (``mindformers``), counts (``mindspeed-ms``), ranges of layers
  (``mindformers-pynative``);
- lists: counts from the first layer of a cell on, where full recompute wins (``mindformers``), counts behind the
  layers that are recomputed in full (``mindspeed-ms``), numbers of layers (``mindformers-pynative``);
- operators: names of one framework's modules, or one operator that cannot be chosen (``mindspeed-ms``). They are
  translated before (:mod:`ms_tune.dialects.operators`).

What cannot be said in the other dialect is left out of the values and named in a problem. What is in the values does
to every layer what the plan says, which :mod:`ms_tune.normalize.convert` proves by the other dialect's own rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import dialect_module
from ms_tune.dialects.draft import LISTS, SettingsDraft, cut, few, shown, shown_layers
from ms_tune.dialects.layer_plan import MEGATRON, MINDFORMERS, MINDFORMERS_PYNATIVE, MINDSPEED_MS
from ms_tune.dialects.operators import SWAP, Choices, Side, as_written
from ms_tune.enums import Dialect
from ms_tune.facts.query import default_release
from ms_tune.records import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ms_tune.dialects.layer_plan import LayerPlan


class Converted(Record):
    """Settings of another dialect."""

    values: Mapping[str, object]  # dotted keys of the other dialect and their values
    # What cannot be said there (errors: it is missing from the values), and what is not quite the same.
    problems: tuple[Diagnostic, ...]
    release: str = ""  # the release that is to read them


class Naming(Record):
    """How a conversion names things."""

    choices: Choices  # what the layers do, in the names that the settings are to hold
    target: Side | None = None  # the layers of the target's model, if the choices were translated into its names
    legacy: bool = True  # whether a model of the static graph is to be a legacy one
    ahead: int = 0  # how many of the last layers of a static-graph plan predict further tokens


def convert(
    plan: LayerPlan,
    to: str,
    *,
    version: str | None = None,
    naming: Naming | None = None,
) -> Converted:
    """The settings that do the same in another dialect.

    Args:
        plan: What the layers do.
        to: The other dialect: ``mindformers``, ``mindformers-pynative``, ``mindspeed-ms`` or ``megatron``, whose keys are arguments.
        version: The release that is to read the settings; ``mindformers-pynative`` (2.0 and 2.1) and ``megatron`` differ.
        naming: The names of operators; without it those of the plan stay.

    Raises:
        ValueError: There is no such dialect.
    """
    if to not in {MINDFORMERS, MINDFORMERS_PYNATIVE, MINDSPEED_MS, MEGATRON}:
        raise ValueError(to)
    naming = naming or Naming(as_written(plan.switched_on or plan.layers))
    release = version or default_release(Dialect(to))
    cells = cut(plan, naming.ahead)
    draft = SettingsDraft(plan, release, cells, naming.choices, naming.target, naming.legacy, {}, [])
    if plan.failure is not None or not draft.cells.layers or plan.placement is None:
        draft.say("no-plan", Severity.ERROR)
        return Converted({}, tuple(draft.problems))
    if not draft.cells.straight:
        draft.say("order", Severity.ERROR)
        return Converted({}, tuple(draft.problems))
    if draft.cells.stages == 1 and draft.cells.chunks > 1 and to != MINDFORMERS:
        draft.say("chunks-merged", Severity.WARNING, chunks=draft.cells.chunks)
        draft = draft._replace(cells=draft.cells.merged())
    _tell_prediction_layers(draft, to)
    dialect_module(to, "write").write_layers(draft)
    if draft.choices.named[SWAP] and plan.dialect != to and to not in {MINDSPEED_MS, MEGATRON}:
        draft.say("prefetch", Severity.WARNING)
    _tell_names(draft, to)
    return Converted(draft.values, tuple(draft.problems))


def _tell_names(draft: SettingsDraft, to: str) -> None:
    """Operators that have no equivalent there, with the layers that it costs; and what is recomputed besides."""
    for kind, found in (("lost", draft.choices.lost), ("wider", draft.choices.wider)):
        rows: dict[tuple[str, str], list[str]] = {}
        for (attribute, path), layers in found.items():
            rows.setdefault((LISTS.get(attribute, "op_swap"), shown_layers(layers)), []).append(path)
        severity = Severity.ERROR if kind == "lost" and to != MINDSPEED_MS else Severity.WARNING
        name = "own-operators" if kind == "lost" and to == MINDSPEED_MS else kind
        for (key, layers_text), names in rows.items():
            draft.say(name, severity, key=key, layers=layers_text, names=few(names), to=to)


def _tell_prediction_layers(draft: SettingsDraft, to: str) -> None:
    """Only the dynamic graph of MindFormers numbers them; the static graph treats them as it treats the last layer."""
    if to not in {MINDFORMERS_PYNATIVE, MEGATRON} and any(
        layer.recompute is not draft.cells.layers[-1].recompute for layer in draft.cells.behind
    ):
        draft.say("prediction-layers", Severity.WARNING, layers=shown(draft.cells.behind))
