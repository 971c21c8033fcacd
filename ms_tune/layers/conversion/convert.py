"""The same plan in another dialect.

Three things differ between the dialects (their own modules name the sources):

- placement: an offset from the even split (``mindformers``), counts (``mindspeed-ms``), ranges of layers
  (``mindformers-pynative``);
- lists: counts from the first layer of a cell on, where full recompute wins (``mindformers``), counts behind the
  layers that are recomputed in full (``mindspeed-ms``), numbers of layers (``mindformers-pynative``);
- operators: names of one framework's modules, or one operator that cannot be chosen (``mindspeed-ms``). They are
  translated before (:mod:`ms_tune.layers.conversion.names`).

What cannot be said in the other dialect is left out of the values and named in a problem. What is in the values does
to every layer what the plan says, which :mod:`ms_tune.normalize.convert` proves by the other dialect's own rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ms_tune.frameworks.dialect import Dialect
from ms_tune.frameworks.releases import default_release
from ms_tune.layers.cells import Cells, cut, is_full, run_length
from ms_tune.layers.conversion.megatron import arguments_for, values_of
from ms_tune.layers.conversion.names import SWAP, Choices, Side, as_written
from ms_tune.layers.conversion.swap import swap_dynamic, swap_static
from ms_tune.layers.megatron.recompute import EXPERTS_ACTIVATION
from ms_tune.layers.patterns import drop_excluded
from ms_tune.layers.plans import MEGATRON, MINDFORMERS, MINDFORMERS_PYNATIVE, MINDSPEED_MS
from ms_tune.layers.pynative.layer_specs import write_specs
from ms_tune.layers.result import Problem, Severity
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from ms_tune.layers.plans import NormalizedPlan
    from ms_tune.layers.result import LayerPlan

_SHOWN = 8  # layers or names in one message
# The keys that an attribute of a layer goes to in the static graph.
_KEYS = {
    "select_patterns": "select_recompute",
    "comm_patterns": "select_comm_recompute",
    "select_excludes": "select_recompute_exclude",
    "comm_excludes": "select_comm_recompute_exclude",
}


@dataclass(frozen=True, slots=True)
class Converted:
    """Settings of another dialect.

    Args:
        values: Dotted keys of the other dialect and their values.
        problems: What cannot be said there (errors: it is missing from the values), and what is not quite the same.
        release: The release that is to read them.
    """

    values: Mapping[str, object]
    problems: tuple[Problem, ...]
    release: str = ""


@dataclass(frozen=True, slots=True)
class Naming:
    """How a conversion names things.

    Args:
        choices: What the layers do, in the names that the settings are to hold.
        target: The layers of the target's model, if the choices were translated into its names.
        legacy: Whether a model of the static graph is to be a legacy one.
        ahead: How many of the last layers of a static-graph plan predict further tokens.
    """

    choices: Choices
    target: Side | None = None
    legacy: bool = True
    ahead: int = 0


@dataclass(slots=True)
class _Draft:
    """A conversion under way."""

    cells: Cells
    choices: Choices
    target: Side | None
    values: dict[str, object] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def say(self, name: str, severity: Severity, /, **params: object) -> None:
        """Tell of something that is lost or differs."""
        self.problems.append(Problem(f"convert-{name}", severity, msg(f"plans.convert.{name}", **params)))

    def is_there(self, name: str, layer: LayerPlan) -> bool:
        """Whether a name finds something in a layer; where it does not, a count may run over the layer."""
        paths = self.target.paths.get(layer.layer) if self.target else None
        return not paths or name in paths

    def spelled(self, name: str) -> str:
        r"""A path as a pattern of the static graph, which parts its levels with ``\.``; a pattern stays one."""
        return name.replace(".", r"\.") if self.target else name


def convert(
    plan: NormalizedPlan,
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
    draft = _Draft(cut(plan, naming.ahead), naming.choices, naming.target)
    if plan.failure is not None or not draft.cells.layers or plan.placement is None:
        draft.say("no-plan", Severity.ERROR)
        return Converted({}, tuple(draft.problems))
    if not draft.cells.straight:
        draft.say("order", Severity.ERROR)
        return Converted({}, tuple(draft.problems))
    if draft.cells.stages == 1 and draft.cells.chunks > 1 and to != MINDFORMERS:
        draft.say("chunks-merged", Severity.WARNING, chunks=draft.cells.chunks)
        draft.cells = draft.cells.merged()
    _tell_prediction_layers(draft, to)
    if to == MEGATRON:
        _to_megatron(draft, version or default_release(Dialect.MEGATRON))
    elif to == MINDSPEED_MS:
        _to_mindspeed_ms(plan, draft)
    elif to == MINDFORMERS:
        _to_mindformers(draft, legacy=naming.legacy)
    else:
        _to_pynative(plan, draft, ".".join((version or default_release(Dialect.MINDFORMERS_PYNATIVE)).split(".")[:2]))
    if draft.choices.named[SWAP] and plan.dialect != to and to not in {MINDSPEED_MS, MEGATRON}:
        draft.say("prefetch", Severity.WARNING)
    _tell_names(draft, to)
    return Converted(draft.values, tuple(draft.problems))


def _tell_names(draft: _Draft, to: str) -> None:
    """Operators that have no equivalent there, with the layers that it costs; and what is recomputed besides."""
    for kind, found in (("lost", draft.choices.lost), ("wider", draft.choices.wider)):
        rows: dict[tuple[str, str], list[str]] = {}
        for (attribute, path), layers in found.items():
            rows.setdefault((_KEYS.get(attribute, "op_swap"), shown_layers(layers)), []).append(path)
        severity = Severity.ERROR if kind == "lost" and to != MINDSPEED_MS else Severity.WARNING
        name = "own-operators" if kind == "lost" and to == MINDSPEED_MS else kind
        for (key, layers_text), names in rows.items():
            draft.say(name, severity, key=key, layers=layers_text, names=_few(names), to=to)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def shown_layers(layers: Sequence[int]) -> str:
    """Layers in a message: ranges, the first few of them."""
    return _few(write_specs(layers))


def _tell_prediction_layers(draft: _Draft, to: str) -> None:
    """Only the dynamic graph of MindFormers numbers them; the static graph treats them as it treats the last layer."""
    if to not in {MINDFORMERS_PYNATIVE, MEGATRON} and any(
        layer.recompute is not draft.cells.layers[-1].recompute for layer in draft.cells.behind
    ):
        draft.say("prediction-layers", Severity.WARNING, layers=_shown(draft.cells.behind))


def _shown(layers: Sequence[LayerPlan]) -> str:
    return shown_layers([layer.layer for layer in layers])


def _squeeze(cells: Cells, rows: list[list[int]]) -> list[Any]:
    """Rows of one chunk are written without the outer list."""
    return list(rows if cells.chunks > 1 else rows[0])


def _runs(
    draft: _Draft, key: str, wanted: Callable[[LayerPlan], bool], start: Callable[[LayerPlan], bool], *, over: bool
) -> list[list[int]] | None:
    """How many layers of each cell are wanted, told as counts; None if counts cannot say it.

    Args:
        draft: The conversion.
        key: What the counts are for.
        wanted: Which layers are.
        start: Which layers, at the start of a cell or anywhere, are without effect in the count.
        over: Whether the count includes those layers, or starts behind them.
    """
    rows, bad = [], []
    for row in draft.cells.rows:
        lengths = []
        for cell in row:
            skipped = 0 if over else sum(map(start, cell))
            length = run_length(cell, skipped, wanted, start if over else None)
            if length is None:
                bad += [layer for layer in cell if wanted(layer)]
            lengths.append(length or 0)
        rows.append(lengths)
    if bad:
        draft.say("holes", Severity.ERROR, key=key, layers=_shown(bad))
        return None
    return rows


def _never(_: LayerPlan) -> bool:
    return False


def _to_mindspeed_ms(plan: NormalizedPlan, draft: _Draft) -> None:
    cells = draft.cells
    prefix = "parallel_config"
    columns = _mindspeed_placement(draft, prefix)
    if any(layer.select_excludes or layer.comm_excludes for layer in cells.layers):
        draft.say("excludes", Severity.ERROR)
    if any(layer.swap for layer in plan.layers):
        draft.say("swap", Severity.ERROR)
    requests: tuple[tuple[str, Callable[[LayerPlan], bool]], ...] = (
        ("recompute", is_full),
        ("select_recompute", partial(_has, draft.choices.reached("select_patterns"))),
        ("select_comm_recompute", partial(_has, draft.choices.reached("comm_patterns"))),
    )
    for key, wanted in requests:
        rows = _runs(draft, key, wanted, _never if wanted is is_full else is_full, over=False)
        if rows is None or columns is None:
            continue
        if columns and any(row[-1] for row in rows):
            # A fault of the framework: the stage of the embedding reads the last stage's value and stops over it.
            draft.say("standalone", Severity.ERROR, key=key)
            continue
        draft.values[f"{prefix}.recompute_config.{key}"] = _squeeze(cells, [row[columns:] for row in rows])


def _to_megatron(draft: _Draft, release: str) -> None:
    """Arguments: True for a switch. What they cannot say alike shows where they are read back."""
    if draft.choices.named[SWAP]:
        draft.say("swap-arguments", Severity.ERROR)
    for attribute in ("comm_patterns", "select_excludes", "comm_excludes"):
        for name, chosen in draft.choices.layers(attribute).items():
            draft.say(
                "lost", Severity.ERROR, key=_KEYS[attribute], names=name, to=MEGATRON, layers=shown_layers(chosen)
            )
    named: dict[int, set[str]] = {}
    for name, chosen in draft.choices.layers("select_patterns").items():
        for layer in chosen:
            named.setdefault(layer, set()).add(name)
    experts = (
        {layer for layer, paths in draft.target.paths.items() if EXPERTS_ACTIVATION in paths} if draft.target else set()
    )
    usual = {layer.layer for layer in draft.cells.layers}
    draft.values.update(values_of(arguments_for(draft.cells, named, release, experts & usual)))


def _has(layers: Container[int], layer: LayerPlan) -> bool:
    return layer.layer in layers


def _mindspeed_placement(draft: _Draft, prefix: str) -> int | None:
    """The placement as counts; gives the number of leading stages without layers, or None if it cannot be said."""
    cells = draft.cells
    counts = cells.counts
    leading = int(cells.stages > 1 and all(row[0] == 0 for row in counts))
    empty = [stage for stage in range(leading, cells.stages) if any(row[stage] == 0 for row in counts)]
    if empty or len(cells.layers) < cells.stages * cells.chunks:
        draft.say("empty", Severity.ERROR, stages=", ".join(map(str, empty or [0])))
        return None
    draft.values["model_config.num_layers"] = len(cells.layers)
    draft.values[f"{prefix}.pipeline_model_parallel_size"] = cells.stages
    if cells.chunks > 1:
        draft.values[f"{prefix}.virtual_pipeline_model_parallel_size"] = cells.chunks
    if leading:
        draft.values[f"{prefix}.standalone_embedding_stage"] = True
    if cells.stages > 1:
        draft.values[f"{prefix}.num_layer_list"] = _squeeze(cells, [row[leading:] for row in counts])
    return leading


def _to_mindformers(draft: _Draft, *, legacy: bool) -> None:
    cells = draft.cells
    counts = cells.counts
    flat = [count for row in counts for count in row]
    if 0 in flat[1:-1]:
        empty = [stage for stage in range(cells.stages) if any(row[stage] == 0 for row in counts)]
        draft.say("empty", Severity.ERROR, stages=", ".join(map(str, empty)))
        return
    if not legacy:
        draft.values["use_legacy"] = False
    base = len(cells.layers) // len(flat)
    offset = [[count - base for count in row] for row in counts]
    draft.values["model.model_config.num_layers"] = len(cells.layers)
    draft.values["parallel_config.pipeline_stage"] = cells.stages
    draft.values["model.model_config.offset"] = _squeeze(cells, offset) if any(map(any, offset)) else 0
    if cells.chunks > 1:
        draft.values["model.model_config.pp_interleave_num"] = cells.chunks
        draft.values["parallel.pipeline_config.pipeline_interleave"] = True
        draft.values["parallel.pipeline_config.pipeline_scheduler"] = "1f1b"
    swapping = bool(draft.choices.named[SWAP])
    full = _listed(draft, "recompute", is_full, _never, by_id=swapping)
    if swapping:
        sections = ["swap_config"] if legacy else ["model.model_config"]
        if not legacy and isinstance(full, list) and len(full) > cells.stages:
            # The model does not hear of it, but a list that is longer than there are stages is refused without.
            sections.append("swap_config")
        swap_static(draft.choices.named[SWAP], sections, draft.values, draft.problems, draft.spelled)
    draft.values["recompute_config.recompute"] = False if full is None else full
    for attribute, key in _KEYS.items():
        value = _mindformers_patterns(draft, key, attribute, by_id=swapping)
        chosen = draft.values.get(f"recompute_config.{key.removesuffix('_exclude')}")
        # With swap on, exclude lists have no effect; without, they take patterns away that say the same.
        if key.endswith("_exclude") and value and (swapping or _takes_away(value, chosen)):
            draft.say("excludes", Severity.ERROR)
            value = False
        draft.values[f"recompute_config.{key}"] = value


def _takes_away(excluded: object, chosen: object) -> bool:
    """Whether an exclude list takes a pattern out of the list beside it, whatever layers they are for."""
    if not isinstance(excluded, dict) or not isinstance(chosen, dict):
        return False
    dropped: list[tuple[str, str]] = []
    drop_excluded("", dict(chosen), excluded, dropped, timed=True)
    return bool(dropped)


def _mindformers_patterns(draft: _Draft, key: str, attribute: str, *, by_id: bool) -> object:
    """A mapping of patterns. An exclude reaches layers that are recomputed in full as well."""
    found: dict[str, object] = {}
    for name, layers in draft.choices.layers(attribute).items():
        value = _listed(draft, key, partial(_has, set(layers)), partial(_without_effect, draft, key, name), by_id=by_id)
        if value is not None:
            found[draft.spelled(name)] = value
    return found or False


def _without_effect(draft: _Draft, key: str, name: str, layer: LayerPlan) -> bool:
    return (is_full(layer) and not key.endswith("_exclude")) or not draft.is_there(name, layer)


def _listed(
    draft: _Draft,
    key: str,
    wanted: Callable[[LayerPlan], bool],
    idle: Callable[[LayerPlan], bool],
    *,
    by_id: bool,
) -> object:
    """The layers wanted: their numbers when swap is on, else counts from the first layer of each cell on."""
    chosen = [layer.layer for layer in draft.cells.layers if wanted(layer)]
    if not chosen:
        return None
    if by_id:
        return chosen
    rows = _runs(draft, key, wanted, idle, over=True)
    return None if rows is None else _squeeze(draft.cells, rows)


def _to_pynative(plan: NormalizedPlan, draft: _Draft, version: str) -> None:
    cells = draft.cells
    if cells.stages > 1 and any(count == 0 for row in cells.counts for count in row):
        empty = [stage for stage in range(cells.stages) if any(row[stage] == 0 for row in cells.counts)]
        draft.say("empty", Severity.ERROR, stages=", ".join(map(str, empty)))
    else:
        draft.values["parallelism.pipeline_parallel"] = cells.stages
        draft.values["parallelism.pipeline_parallel_interleave_num"] = cells.chunks
        draft.values["parallelism.pipeline_parallel_layers_per_stage"] = "auto" if cells.stages == 1 else _texts(cells)
    draft.values["model.num_hidden_layers"] = len(cells.layers)
    if cells.behind:
        draft.values["model.num_nextn_predict_layers"] = len(cells.behind)
    full = write_specs(layer.layer for layer in plan.layers if is_full(layer))
    found = {attribute: _modules(draft, attribute) for attribute in _KEYS}
    select, comm = found["select_patterns"], found["comm_patterns"]
    draft.values["recompute.mode"] = "select" if select else "full" if full else "None"
    draft.values["recompute.full_recompute_layer"] = full
    draft.values["recompute.select_module"] = select or None
    draft.values["recompute_comm.enable"] = bool(comm)
    draft.values["recompute_comm.select_module"] = comm or None
    excludes = {**found["select_excludes"], **found["comm_excludes"]}
    if excludes and (full or select):
        if version == "2.0" or _is_names(plan):
            _excluded_names(plan, draft, version)
        else:
            draft.values["recompute.exclude_op"] = excludes
    swap_dynamic(draft.choices.named[SWAP], draft.cells, draft.values, draft.problems)


def _is_names(plan: NormalizedPlan) -> bool:
    """Whether what is excluded are names of operators for the whole model, as in MindFormers 2.0."""
    return plan.dialect == MINDFORMERS_PYNATIVE and plan.framework_version == "2.0"


def _excluded_names(plan: NormalizedPlan, draft: _Draft, version: str) -> None:
    """Names for the whole model go to names only."""
    if version == "2.0" and _is_names(plan):
        names = dict.fromkeys(name for layer in plan.layers for name in layer.select_excludes)
        draft.values["recompute.exclude_op"] = list(names)
    else:
        draft.say("excludes", Severity.ERROR)


def _texts(cells: Cells) -> list[str]:
    columns = zip(*cells.rows, strict=True)
    return [",".join(write_specs(layer.layer for layer in cell)[0] for cell in column) for column in columns]


def _modules(draft: _Draft, attribute: str) -> dict[str, list[str]]:
    """Layers by module. The dynamic graph takes no blank pattern."""
    found = {}
    for name, layers in draft.choices.layers(attribute).items():
        if name.strip():
            found[name] = write_specs(layers)
        else:
            draft.say("pattern", Severity.ERROR, key=_KEYS[attribute], pattern=name)
    return found
