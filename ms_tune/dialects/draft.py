"""Intermediate state of a conversion between dialects, and the code that all target dialects share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects import LayerPlan, LayerSpec, write_specs
from ms_tune.dialects.operators import SWAP, Choices, Side
from ms_tune.enums import RecomputeMode
from ms_tune.records import Any, Record
from ms_tune.text import msg

# The static graph's key for each attribute of a layer.
LISTS = {
    "select_patterns": "select_recompute",
    "comm_patterns": "select_comm_recompute",
    "select_excludes": "select_recompute_exclude",
    "comm_excludes": "select_comm_recompute_exclude",
}
_SHOWN = 8  # maximum layers or names in one message


class Cells(Record):
    """The layers of a plan, grouped by chunk and stage."""

    rows: tuple[tuple[tuple[LayerSpec, ...], ...], ...]  # the layers of each (chunk, stage), in order
    mtp_layers: tuple[LayerSpec, ...]  # layers of multi-token prediction, after all others
    # Whether layers run through chunk 0 from the first stage to the last, then chunk 1, and so on, each exactly once.
    straight: bool

    @property
    def stages(self) -> int:
        """Return the number of pipeline stages."""
        return len(self.rows[0])

    @property
    def chunks(self) -> int:
        """Return the number of chunks per stage."""
        return len(self.rows)

    @property
    def layers(self) -> tuple[LayerSpec, ...]:
        """Return the layers of all cells."""
        return tuple(layer for row in self.rows for cell in row for layer in cell)

    @property
    def counts(self) -> list[list[int]]:
        """Return the number of layers in each cell."""
        return [[len(cell) for cell in row] for row in self.rows]

    def merge_chunks(self) -> Cells:
        """Return the same layers with all chunks merged into one."""
        columns = zip(*self.rows, strict=True)
        row = tuple(tuple(layer for cell in column for layer in cell) for column in columns)
        return Cells((row,), self.mtp_layers, self.straight)


class SettingsDraft(Record):
    """A conversion in progress."""

    plan: LayerPlan  # plan to convert
    release: str  # release that will read the settings
    cells: Cells
    choices: Choices  # operators of each layer, in the names that the settings will use
    target: Side | None  # the layers of the target's model, if the choices were translated into its names
    legacy: bool  # whether a static-graph model is written as a legacy one
    values: dict[str, object]  # settings written so far
    problems: list[Diagnostic]

    def say(self, name: str, severity: Severity, /, **params: object) -> None:
        """Report a setting that is lost or differs."""
        self.problems.append(conversion_problem(name, severity, **params))

    def matches_part(self, name: str, layer: LayerSpec) -> bool:
        """Return whether a name matches a module of a layer (True if the layer's modules are unknown)."""
        paths = self.target.paths.get(layer.layer) if self.target else None
        return not paths or name in paths

    def spelled(self, name: str) -> str:
        r"""Return a path as a pattern of the static graph, with ``\.`` between levels; patterns are unchanged."""
        return name.replace(".", r"\.") if self.target else name


def conversion_problem(name: str, severity: Severity, /, **params: object) -> Diagnostic:
    """Return the problem for a setting that a conversion loses or changes."""
    return Diagnostic(f"convert-{name}", severity, msg(f"plans.convert.{name}", **params))


def is_full(layer: LayerSpec) -> bool:
    """Return whether the layer is fully recomputed."""
    return layer.recompute is RecomputeMode.FULL


def join_few(names: Sequence[str]) -> str:
    """Join the first few names for a message."""
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def name_ranges(layers: Iterable[int]) -> str:
    """Return layers as text for a message: ranges, only the first few."""
    return join_few(write_specs(layers))


def flatten_chunk(cells: Cells, rows: list[list[int]]) -> list[Any]:
    """Return the rows, without the outer list if there is only one chunk."""
    return list(rows if cells.chunks > 1 else rows[0])


def count_layers(
    draft: SettingsDraft, key: str, wanted: Collection[int], idle: Collection[int], *, over: bool
) -> list[list[int]] | None:
    """Return how many layers of each cell a list must count to select the wanted ones; None if counts cannot."""
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
    """Return the number of layers from ``start`` to the last wanted one; None if that count would select wrong layers."""
    flags = [number in wanted for number in cell]
    length = max(len(cell) - flags[::-1].index(True) - start, 0) if any(flags) else 0
    between = cell[start : start + length]
    early = any(flags[:start])
    return None if early or not all(one in wanted or one in idle for one in between) else length


def write_static_swap(draft: SettingsDraft, sections: Iterable[str]) -> None:
    """Write swap entries of layers and operators, each with its prefetch. Recompute lists then contain layer numbers too."""
    whole: list[object] = []
    operators: list[object] = []
    for (name, prefetch), layers in draft.choices.layers_by_name[SWAP].items():
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
    """Write swap, or report settings that the dynamic graph lacks: several prefetches or stages, a layer too close to the end."""
    groups, cells = draft.choices.layers_by_name[SWAP], draft.cells
    if not groups:
        return
    total = len(cells.layers) + len(cells.mtp_layers)
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
