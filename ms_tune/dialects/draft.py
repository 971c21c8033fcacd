"""A conversion under way: what it has to say, what it has found, and what the problems of all dialects show alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.dialects.cells import Cells, run_length
from ms_tune.dialects.layer_specs import write_specs
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from ms_tune.dialects.operator_names import Choices, Side
    from ms_tune.dialects.plan_result import LayerSpec

_SHOWN = 8  # layers or names in one message
# The keys that an attribute of a layer goes to in the static graph.
KEYS = {
    "select_patterns": "select_recompute",
    "comm_patterns": "select_comm_recompute",
    "select_excludes": "select_recompute_exclude",
    "comm_excludes": "select_comm_recompute_exclude",
}


@dataclass(slots=True)
class SettingsDraft:
    """A conversion under way."""

    cells: Cells
    choices: Choices
    target: Side | None
    values: dict[str, object] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)

    def say(self, name: str, severity: Severity, /, **params: object) -> None:
        """Tell of something that is lost or differs."""
        self.problems.append(Diagnostic(f"convert-{name}", severity, msg(f"plans.convert.{name}", **params)))

    def is_there(self, name: str, layer: LayerSpec) -> bool:
        """Whether a name finds something in a layer; where it does not, a count may run over the layer."""
        paths = self.target.paths.get(layer.layer) if self.target else None
        return not paths or name in paths

    def spelled(self, name: str) -> str:
        r"""A path as a pattern of the static graph, which parts its levels with ``\.``; a pattern stays one."""
        return name.replace(".", r"\.") if self.target else name


def few(names: Sequence[str]) -> str:
    """The first few of them, for a message."""
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")


def shown_layers(layers: Sequence[int]) -> str:
    """Layers in a message: ranges, the first few of them."""
    return few(write_specs(layers))


def shown(layers: Sequence[LayerSpec]) -> str:
    """The numbers of layers, for a message."""
    return shown_layers([layer.layer for layer in layers])


def squeeze(cells: Cells, rows: list[list[int]]) -> list[Any]:
    """Rows of one chunk are written without the outer list."""
    return list(rows if cells.chunks > 1 else rows[0])


def runs(
    draft: SettingsDraft,
    key: str,
    wanted: Callable[[LayerSpec], bool],
    start: Callable[[LayerSpec], bool],
    *,
    over: bool,
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
        draft.say("holes", Severity.ERROR, key=key, layers=shown(bad))
        return None
    return rows


def never(_: LayerSpec) -> bool:
    """No layer."""
    return False


def has(layers: Container[int], layer: LayerSpec) -> bool:
    """Whether a layer is one of those."""
    return layer.layer in layers
