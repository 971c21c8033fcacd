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

from importlib import import_module

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import MEGATRON, MINDFORMERS, MINDFORMERS_PYNATIVE, MINDSPEED_MS, write_specs
from ms_tune.dialects.operators import SWAP, as_written
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.facts.query import default_release
from ms_tune.records import Record
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

    from ms_tune.dialects import LayerPlan, LayerSpec
    from ms_tune.dialects.operators import Choices, Side


class Converted(Record):
    """Settings of another dialect."""

    values: Mapping[str, object]  # dotted keys of the other dialect and their values
    # What cannot be said there (errors: it is missing from the values), and what is not quite the same.
    problems: tuple[Diagnostic, ...]
    release: str = ""  # the release that is to read them


def convert_plan(  # noqa: PLR0913 - settings with defaults
    plan: LayerPlan,
    to: str,
    *,
    version: str | None = None,
    choices: Choices | None = None,
    target: Side | None = None,
    legacy: bool = True,
) -> Converted:
    """The settings that do the same in another dialect, in the names of ``choices`` or else of the plan."""
    if to not in {MINDFORMERS, MINDFORMERS_PYNATIVE, MINDSPEED_MS, MEGATRON}:
        raise ValueError(to)
    release = version or default_release(Dialect(to))
    choices = choices or as_written(plan.switched_on or plan.layers)
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
    # Only the dynamic graph of MindFormers numbers layers that predict; the static graph treats them as the last layer.
    last = cells.layers[-1].recompute
    if to not in {MINDFORMERS_PYNATIVE, MEGATRON} and any(layer.recompute is not last for layer in cells.behind):
        draft.say("prediction-layers", Severity.WARNING, layers=name_layers(cells.behind))
    import_module(f"ms_tune.dialects.{to.replace('-', '_')}.write").write_layers(draft)
    if choices.named[SWAP] and plan.dialect != to and to not in {MINDSPEED_MS, MEGATRON}:
        draft.say("prefetch", Severity.WARNING)
    _tell_names(draft, to)
    return Converted(draft.values, tuple(draft.problems), release)


def _cut_cells(plan: LayerPlan, ahead: int) -> Cells:
    """The cells of a plan; of a static graph's, so many of the last layers predict further tokens."""
    placement = plan.placement or ((0,),)
    stages, chunks = len(placement[0]), len(placement)
    known = len(plan.layers)
    # The cells of a static-graph plan may have more room than there are layers.
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


def _tell_names(draft: SettingsDraft, to: str) -> None:
    """Operators that have no equivalent there, with the layers that it costs; and what is recomputed besides."""
    for kind, found in (("lost", draft.choices.lost), ("wider", draft.choices.wider)):
        rows: dict[tuple[str, str], list[str]] = {}
        for (attribute, path), layers in found.items():
            rows.setdefault((LISTS.get(attribute, "op_swap"), name_ranges(layers)), []).append(path)
        severity = Severity.ERROR if kind == "lost" and to != MINDSPEED_MS else Severity.WARNING
        name = "own-operators" if kind == "lost" and to == MINDSPEED_MS else kind
        for (key, layers_text), names in rows.items():
            draft.say(name, severity, key=key, layers=layers_text, names=join_few(names), to=to)


# The keys that an attribute of a layer goes to in the static graph.
LISTS = {
    "select_patterns": "select_recompute",
    "comm_patterns": "select_comm_recompute",
    "select_excludes": "select_recompute_exclude",
    "comm_excludes": "select_comm_recompute_exclude",
}
_SHOWN = 8  # layers or names in one message


class Cells(Record):
    """A plan by cell."""

    rows: tuple[tuple[tuple[LayerSpec, ...], ...], ...]  # the layers of each (chunk, stage), in order
    behind: tuple[LayerSpec, ...]  # layers of multi-token prediction, behind all others
    # Whether the layers run through chunk 0 from the first stage to the last, then through chunk 1, and so on, and
    # every layer is there once.
    straight: bool

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return len(self.rows[0])

    @property
    def chunks(self) -> int:
        """Chunks of each stage."""
        return len(self.rows)

    @property
    def layers(self) -> tuple[LayerSpec, ...]:
        """The layers of all cells."""
        return tuple(layer for row in self.rows for cell in row for layer in cell)

    @property
    def counts(self) -> list[list[int]]:
        """Layers of each cell."""
        return [[len(cell) for cell in row] for row in self.rows]

    def merge_chunks(self) -> Cells:
        """The same layers in one chunk."""
        columns = zip(*self.rows, strict=True)
        row = tuple(tuple(layer for cell in column for layer in cell) for column in columns)
        return Cells((row,), self.behind, self.straight)


class SettingsDraft(Record):
    """A conversion under way."""

    plan: LayerPlan  # what the layers do
    release: str  # that is to read the settings
    cells: Cells
    choices: Choices  # what the layers do, in the names that the settings are to hold
    target: Side | None  # the layers of the target's model, if the choices were translated into its names
    legacy: bool  # whether a model of the static graph is to be a legacy one
    values: dict[str, object]  # what is written so far
    problems: list[Diagnostic]

    def say(self, name: str, severity: Severity, /, **params: object) -> None:
        """Tell of something that is lost or differs."""
        self.problems.append(conversion_problem(name, severity, **params))

    def is_there(self, name: str, layer: LayerSpec) -> bool:
        """Whether a name finds something in a layer; where it does not, a count may run over the layer."""
        paths = self.target.paths.get(layer.layer) if self.target else None
        return not paths or name in paths

    def spelled(self, name: str) -> str:
        r"""A path as a pattern of the static graph, which parts its levels with ``\.``; a pattern stays one."""
        return name.replace(".", r"\.") if self.target else name


def conversion_problem(name: str, severity: Severity, /, **params: object) -> Diagnostic:
    """Something that a conversion loses, or does otherwise."""
    return Diagnostic(f"convert-{name}", severity, msg(f"plans.convert.{name}", **params))


def is_full(layer: LayerSpec) -> bool:
    """Whether the layer is recomputed as a whole."""
    return layer.recompute is RecomputeMode.FULL


def join_few(names: Sequence[str]) -> str:
    """The first few of them, for a message."""
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def name_ranges(layers: Iterable[int]) -> str:
    """Layers in a message: ranges, the first few of them."""
    return join_few(write_specs(layers))


def name_layers(layers: Iterable[LayerSpec]) -> str:
    """The numbers of layers, for a message."""
    return name_ranges([layer.layer for layer in layers])


def flatten_chunk(cells: Cells, rows: list[list[int]]) -> list[Any]:
    """Rows of one chunk are written without the outer list."""
    return list(rows if cells.chunks > 1 else rows[0])


def count_layers(
    draft: SettingsDraft, key: str, wanted: Collection[int], idle: Collection[int], *, over: bool
) -> list[list[int]] | None:
    """How many layers of each cell are wanted, as counts that run ``over`` idle layers or start behind them; None if there are none."""
    rows, bad = [], list[int]()
    for row in draft.cells.rows:
        lengths = []
        for cell in row:
            numbers = [layer.layer for layer in cell]
            skipped = 0 if over else sum(number in idle for number in numbers)
            length = run_length(numbers, skipped, wanted, idle if over else ())
            if length is None:
                bad += [number for number in numbers if number in wanted]
            lengths.append(length or 0)
        rows.append(lengths)
    if bad:
        draft.say("holes", Severity.ERROR, key=key, layers=name_ranges(bad))
        return None
    return rows


def run_length(cell: Sequence[int], start: int, wanted: Collection[int], idle: Collection[int] = ()) -> int | None:
    """How many layers of a cell reach the last one that is wanted; None if others than idle ones lie before or between."""
    flags = [number in wanted for number in cell]
    length = max(len(cell) - flags[::-1].index(True) - start, 0) if any(flags) else 0
    between = cell[start : start + length]
    early = any(flags[:start])
    return None if early or not all(one in wanted or one in idle for one in between) else length


def write_static_swap(draft: SettingsDraft, sections: Iterable[str]) -> None:
    """Entries for whole layers and for operators, each with its own prefetch. Lists of recompute then hold layers."""
    whole: list[object] = []
    operators: list[object] = []
    for (name, prefetch), layers in draft.choices.named[SWAP].items():
        entry = {"backward_prefetch": prefetch, "layers": layers}
        if name:
            operators.append({"op_name": draft.spelled(name), **entry})
        else:
            whole.append(entry)
    for section in sections:
        draft.values[f"{section}.swap"] = True
        draft.values[f"{section}.layer_swap"] = whole
        draft.values[f"{section}.op_swap"] = operators
    draft.say("swap-numbers", Severity.INFO)


def write_dynamic_swap(draft: SettingsDraft) -> None:
    """One prefetch for all, one pipeline stage, and never a layer so close to the end that nothing is left to run."""
    groups, cells = draft.choices.named[SWAP], draft.cells
    if not groups:
        return
    total = len(cells.layers) + len(cells.behind)
    prefetches = {prefetch for _, prefetch in groups}
    prefetch = next(iter(prefetches))
    last = max(layer for layers in groups.values() for layer in layers)
    if len(prefetches) > 1 or isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 1:
        draft.say("one-prefetch", Severity.ERROR, prefetches=", ".join(sorted(map(str, prefetches))))
    elif cells.stages > 1:
        draft.say("swap-pipeline", Severity.ERROR)
    elif last + prefetch >= total:
        draft.say("swap-last", Severity.ERROR, layer=last, limit=total - prefetch - 1)
    else:
        draft.values["swap.enable"] = True
        draft.values["swap.default_prefetch"] = prefetch
        named = [(name, write_specs(layers)) for (name, _), layers in groups.items()]
        draft.values["swap.layer_swap"] = [{"layers": specs} for name, specs in named if not name]
        draft.values["swap.op_swap"] = [{"op_name": name, "layers": specs} for name, specs in named if name]
