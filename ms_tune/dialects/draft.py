"""A conversion between dialects under way: the plan by cell, what is said of it, and what all dialects write alike."""

from __future__ import annotations

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import write_specs
from ms_tune.dialects.operators import SWAP
from ms_tune.enums import RecomputeMode
from ms_tune.records import Record
from ms_tune.text import msg

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from typing import Any

    from ms_tune.dialects import LayerPlan, LayerSpec
    from ms_tune.dialects.operators import Choices, Side

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
