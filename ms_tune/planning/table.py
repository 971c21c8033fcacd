"""The memory table that a plan is made from, and plans: how many layers each cell has and what they recompute, also as MindFormers' lists.

A table may come from dryruns, from a JSON file (:mod:`ms_tune.planning.table_file`) or from SAPP's description of layers
(:mod:`ms_tune.planning.sapp`). Bytes are whole numbers; times are in any unit, one for the whole table.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError
from ms_tune.planning.schedule import Schedule, why_refused
from ms_tune.records import Record
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MOST_STAGES, MOST_CHUNKS, MOST_LAYERS = 1024, 64, 10_000
MOST_ALL_PASSES = 65_536  # of all stages in one training step
MOST_BYTES = 2**52

# The layers of a cell in this order. MindFormers takes ``offset`` against ``layers // (stages x chunks)``, and counts every kind of
# recompute from the first layer of a cell on (:mod:`ms_tune.dialects.mindformers`): ``recompute`` layers are recomputed in full,
# ``select_recompute`` and ``select_comm_recompute`` hold those layers as well. So layers that recompute selected operators only and
# layers that recompute communication only cannot stand in one cell. Layers that swap are named one by one in the framework's
# config; a plan has them behind those that recompute anything.
IN_CELL = (
    RecomputeMode.FULL,
    RecomputeMode.BOTH,
    RecomputeMode.SELECT,
    RecomputeMode.COMM,
    RecomputeMode.SWAP,
    RecomputeMode.NONE,
)


class LayerCost(NamedTuple):
    """A layer with one kind of recompute."""

    activation_bytes: int  # what the layer keeps of one micro-batch between its forward and its backward pass
    backward_extra: float = 0.0  # how much longer its backward pass takes: backward = 2 x forward x (1 + this)
    transient_bytes: int = 0  # what the stage holds on top while this layer is computed once more
    # What the layer keeps beside, however many micro-batches are in flight; below zero where the one that is at its
    # backward pass holds less than the others.
    once_bytes: int = 0
    # What stays of a layer that was computed once more until the backward pass of its cell ends: weights that were
    # gathered for it.
    again_bytes: int = 0
    # What of a micro-batch's activations goes to the host after the forward pass and comes back for the backward pass.
    swapped_bytes: int = 0
    # How much longer its forward pass takes: forward x (1 + this). Above zero where what goes to the host is not hidden
    # behind the pass (`ms_tune.planning.time_scale`).
    forward_extra: float = 0.0


class LayerGroup(Record):
    """A run of equal layers; the runs of a table follow each other in the model."""

    name: str  # its name, for messages
    layer_count: int  # how many there are
    forward: float  # time of a forward pass of one micro-batch through one of them
    bytes: int  # what one holds for the whole run: weights, gradients, optimizer state
    recompute: Mapping[RecomputeMode, LayerCost]  # what one keeps, by kind of recompute


class StageEnd(Record):
    """What stands before the first layer or behind the last one."""

    forward: float = 0.0  # time of a forward pass of one micro-batch; its backward pass takes twice as long
    bytes: int = 0  # what it holds for the whole run
    # What its stage holds on top when the last forward pass ends and no layer is computed once more yet: the logits and
    # their loss.
    transient_bytes: int = 0
    # What its stage holds less where no layer stands beside it in its cell: what layers of a chunk share, such as a
    # mask.
    empty_bytes: int = 0
    # Whether a layer has to stand beside it in its cell, because the framework refuses a cell without layers.
    filled: bool = False


class UpdateCost(Record):
    """What is held while weights are updated, when no micro-batch is in flight."""

    # By a layer of each stage: what it holds for the whole run, and copies of its gradients or weights.
    layer_bytes: tuple[int, ...]
    stage_bytes: tuple[int, ...]  # by each stage beside its layers


class RecomputeOverhead(Record):
    """What layers that are recomputed in full make each stage hold on top, beside what their own rows say."""

    first_bytes: tuple[int, ...]  # by each stage, as soon as one of its layers is: copies of what enters it
    layer_bytes: tuple[int, ...]  # by each such layer of each cell, whatever is in flight; may be below zero
    transient_bytes: tuple[int, ...]  # by each cell, while one of its layers is computed once more
    # Whether what a layer leaves (`Kept.again_bytes`) stays until its chunk's next pass, and not only to the end of this one.
    lingers: bool = False


Rows = tuple[tuple[int, ...], ...]
LISTS = ("offset", "recompute", "select_recompute", "select_comm_recompute")
SWAP_LIST = "swap"


class PlanLists(Record):
    """Lists of chunks x stages, in MindFormers' meaning."""

    offset: Rows  # layers beyond an even split
    recompute: Rows  # layers recomputed in full
    select_recompute: Rows  # those and layers with selected operators
    select_comm_recompute: Rows  # those and layers with communication
    swap: Rows = ()  # layers of each cell that swap, behind all that recompute anything; empty where none does

    def to_json(self) -> dict[str, list[list[int]]]:
        """The lists as JSON has them; that of swap only where a layer swaps."""
        names = (*LISTS, SWAP_LIST) if self.swap else LISTS
        return {name: [list(row) for row in getattr(self, name)] for name in names}


class CostTable(Record):
    """What a plan is made from."""

    stages: int  # pipeline stages
    chunks: int  # chunks of each stage
    micro_batches: int  # Micro-batches of a training step
    limit_bytes: int  # what a stage may hold
    order: Schedule
    layers: tuple[LayerGroup, ...]  # the model's layers, in its order
    head: StageEnd = StageEnd()  # what stands before them, on the first stage
    tail: StageEnd = StageEnd()  # what stands behind them, on the last stage
    constant_bytes: int = 0  # what every stage holds beside its layers
    stage_bytes: tuple[int, ...] = ()  # what each stage holds on top; empty for nothing
    present: PlanLists | None = None  # the plan that the config has now, if there is one
    # What is held while weights are updated, where that may be more than in a backward pass.
    update: UpdateCost | None = None
    again: RecomputeOverhead | None = None  # what layers that are recomputed in full make each stage hold on top

    @property
    def cells(self) -> int:
        """How many (chunk, stage) there are; cell c is chunk c // stages of stage c % stages."""
        return self.stages * self.chunks

    @property
    def filled_cells(self) -> slice:
        """The cells that have at least one layer in every plan: all, or all but an end or both."""
        return slice(0 if self.head.filled else 1, self.cells if self.tail.filled else self.cells - 1)

    @property
    def layer_count(self) -> int:
        """Layers of the model."""
        return sum(layer.layer_count for layer in self.layers)

    @property
    def kinds(self) -> tuple[RecomputeMode, ...]:
        """The kinds of recompute that there are, in the order in which a cell has them."""
        return tuple(kind for kind in IN_CELL if kind in self.layers[0].recompute)

    def map_costs(self, change: Callable[[RecomputeMode, LayerCost], LayerCost | None]) -> CostTable:
        """The table with what each kind of recompute costs changed; a kind whose cost becomes None is left out."""
        layers = []
        for layer in self.layers:
            changed = {kind: change(kind, cost) for kind, cost in layer.recompute.items()}
            recompute = {kind: cost for kind, cost in changed.items() if cost is not None}
            layers.append(layer._replace(recompute=recompute))
        return self._replace(layers=tuple(layers))

    def held_by(self, stage: int) -> int:
        """Bytes that a stage holds whatever layers it has."""
        own = self.stage_bytes[stage] if self.stage_bytes else 0
        head = self.head.bytes if stage == 0 else 0
        tail = self.tail.bytes if stage == self.stages - 1 else 0
        return self.constant_bytes + own + head + tail


def check_table(table: CostTable, source: str) -> CostTable:
    """The table itself, which makes sense."""
    refused = why_refused(table.order, table.stages, table.chunks, table.micro_batches)
    if refused is not None:
        raise ConfigError(refused, path=source)
    passes = 2 * table.cells * table.micro_batches
    if passes > MOST_ALL_PASSES:
        raise ConfigError(msg("planning.table.passes", passes=passes, limit=MOST_ALL_PASSES), path=source)
    if table.layer_count > MOST_LAYERS:
        raise ConfigError(msg("planning.table.layers", layers=table.layer_count, limit=MOST_LAYERS), path=source)
    if table.layer_count < len(range(table.cells)[table.filled_cells]):
        detail = msg("planning.table.few-layers", layers=table.layer_count, cells=table.cells)
        raise ConfigError(detail, msg("planning.table.few-layers.hint"), path=source)
    if len({layer.name for layer in table.layers}) < len(table.layers):
        raise ConfigError(msg("planning.table.names"), path=source)
    _check_stages(table, source)
    for layer in table.layers:
        _check_layer(layer, table.layers[0], source)
    if not any(layer.forward for layer in table.layers):
        raise ConfigError(msg("planning.table.no-time"), path=source)
    return table


_BY_CELL = ("again.layer_bytes", "again.transient_bytes")


def _check_stages(table: CostTable, source: str) -> None:
    # A list of sizes has one for each stage, or for each cell.
    lists = {"stage_bytes": table.stage_bytes} if table.stage_bytes else {}
    if table.update is not None:
        lists |= {f"update.{key}": sizes for key, sizes in table.update._asdict().items()}
    if table.again is not None:
        lists |= {f"again.{key}": sizes for key, sizes in table.again._asdict().items() if key != "lingers"}
    for key, sizes in lists.items():
        found = len(sizes)
        if key in _BY_CELL and found != table.cells:
            raise ConfigError(msg("planning.table.cell-bytes", key=key, found=found, cells=table.cells), path=source)
        if key not in _BY_CELL and found != table.stages:
            raise ConfigError(msg("planning.table.stage-bytes", key=key, found=found, stages=table.stages), path=source)


def _check_layer(layer: LayerGroup, first: LayerGroup, source: str) -> None:
    # Recomputing more neither keeps more nor takes less time; every run has the same kinds.
    if not layer.recompute:
        raise ConfigError(msg("planning.table.no-kinds", layer=layer.name), path=source)
    if set(layer.recompute) != set(first.recompute):
        raise ConfigError(msg("planning.table.kinds", layer=layer.name, other=first.name), path=source)
    least = min(kept.once_bytes for kept in layer.recompute.values())
    if layer.bytes + least < 0:
        raise ConfigError(msg("planning.table.once", layer=layer.name, once=least, bytes=layer.bytes), path=source)
    for less, more in _COMPARED:
        if less not in layer.recompute or more not in layer.recompute:
            continue
        one, other = layer.recompute[less], layer.recompute[more]
        names = {"layer": layer.name, "less": less.value, "more": more.value}
        if other.activation_bytes > one.activation_bytes:
            sizes = {"kept": other.activation_bytes, "fewer": one.activation_bytes}
            raise ConfigError(msg("planning.table.keeps-more", **names, **sizes), path=source)
        if other.backward_extra < one.backward_extra or other.forward_extra < one.forward_extra:
            raise ConfigError(msg("planning.table.takes-less", **names), path=source)


_COMPARED = (
    *((RecomputeMode.NONE, kind) for kind in IN_CELL[:-1]),
    (RecomputeMode.SELECT, RecomputeMode.BOTH),
    (RecomputeMode.COMM, RecomputeMode.BOTH),
)


def plan_of(table: CostTable, cells: Sequence[Mapping[RecomputeMode, int]]) -> PlanLists:
    """The lists of a plan."""
    base = table.layer_count // table.cells

    def rows(kinds: tuple[RecomputeMode, ...], less: int = 0) -> Rows:
        flat = [sum(cell.get(kind, 0) for kind in kinds) - less for cell in cells]
        return tuple(tuple(flat[start : start + table.stages]) for start in range(0, table.cells, table.stages))

    swap = rows((RecomputeMode.SWAP,))
    return PlanLists(
        offset=rows(IN_CELL, base),
        recompute=rows((RecomputeMode.FULL,)),
        select_recompute=rows((RecomputeMode.FULL, RecomputeMode.BOTH, RecomputeMode.SELECT)),
        select_comm_recompute=rows((RecomputeMode.FULL, RecomputeMode.BOTH, RecomputeMode.COMM)),
        swap=swap if any(map(any, swap)) else (),
    )


def cells_of(table: CostTable, plan: PlanLists, source: str) -> list[dict[RecomputeMode, int]]:
    """How many layers of each kind of recompute every cell of a plan has."""
    names = (*LISTS, SWAP_LIST) if plan.swap else LISTS
    for name in names:
        shape = [len(row) for row in getattr(plan, name)]
        if shape != [table.stages] * table.chunks:
            wanted = f"{table.chunks} x {table.stages}"
            raise ConfigError(msg("planning.plan.shape", name=name, wanted=wanted), path=source)
    base = table.layer_count // table.cells
    rows = zip(*(itertools.chain.from_iterable(getattr(plan, name)) for name in LISTS), strict=True)
    swaps = list(itertools.chain.from_iterable(plan.swap)) or [0] * table.cells
    found = [
        _cell_of_lists(base + offset, full, select, comm, swap)
        for (offset, full, select, comm), swap in zip(rows, swaps, strict=True)
    ]
    possible = all(count >= 0 for cell in found for count in cell.values())
    possible = possible and all(any(cell.values()) for cell in found[table.filled_cells])
    if not possible or sum(sum(cell.values()) for cell in found) != table.layer_count:
        raise ConfigError(msg("planning.plan.layers", layers=table.layer_count), path=source)
    known = set(table.layers[0].recompute)
    for kind in RecomputeMode:
        if kind not in known and any(cell[kind] for cell in found):
            raise ConfigError(msg("planning.plan.unknown-kind", kind=kind.value), path=source)
    return found


def _cell_of_lists(layers: int, full: int, select: int, comm: int, swap: int) -> dict[RecomputeMode, int]:
    # What the prefix rule makes of the numbers of one cell; what reaches less far than the full layers is nothing.
    select, comm = max(select - full, 0), max(comm - full, 0)
    both = min(select, comm)
    return {
        RecomputeMode.FULL: full,
        RecomputeMode.BOTH: both,
        RecomputeMode.SELECT: select - both,
        RecomputeMode.COMM: comm - both,
        RecomputeMode.SWAP: swap,
        RecomputeMode.NONE: layers - full - max(select, comm) - swap,
    }
