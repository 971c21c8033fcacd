"""Define the memory table that plans are made from, and plans: layers and recompute modes per cell, also as MindFormers' lists.

A table comes from dryruns, from a JSON file or from SAPP's description of layers (:mod:`ms_tune.planning.table_file`). Bytes are
integers; times are in any unit, the same for the whole table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError
from ms_tune.planning.schedule import Schedule, why_refused
from ms_tune.records import Record
from ms_tune.text import msg

MOST_STAGES, MOST_CHUNKS, MOST_LAYERS = 1024, 64, 10_000
MOST_ALL_PASSES = 65_536  # of all stages in one training step
MOST_BYTES = 2**52

# Order of the layers in a cell. MindFormers adds ``offset`` to ``layers // (stages x chunks)``, and counts every recompute mode
# from the first layer of a cell (:mod:`ms_tune.dialects.mindformers`): ``recompute`` layers are fully recomputed, and
# ``select_recompute`` and ``select_comm_recompute`` include those layers. So a cell cannot contain both layers that recompute
# only selected operators and layers that recompute only communication. The framework's config names layers that swap one by one;
# in a plan they come after all layers that recompute anything.
IN_CELL = (
    RecomputeMode.FULL,
    RecomputeMode.BOTH,
    RecomputeMode.SELECT,
    RecomputeMode.COMM,
    RecomputeMode.SWAP,
    RecomputeMode.NONE,
)


class LayerCost(Record):
    """Costs of a layer with one recompute mode."""

    activation_bytes: int  # kept per micro-batch between its forward and its backward pass
    backward_extra: float = 0.0  # relative extra time: backward = 2 x forward x (1 + this)
    transient_bytes: int = 0  # needed on top by the stage while this layer is recomputed
    # Kept regardless of micro-batches in flight; negative if the one in its backward pass uses less than the others.
    once_bytes: int = 0
    # Left by a recomputed layer until its cell's backward pass ends: weights gathered for it.
    again_bytes: int = 0
    # Activations per micro-batch copied to the host after the forward pass and back for the backward pass.
    swapped_bytes: int = 0
    # Relative extra time of its forward pass: forward x (1 + this). Positive if copies to the host take longer than the pass
    # (`ms_tune.planning.time_scale`).
    forward_extra: float = 0.0


class LayerGroup(Record):
    """A run of equal layers; the groups of a table are in model order."""

    name: str  # name used in messages
    layer_count: int  # number of layers
    forward: float  # time of a forward pass of one micro-batch through one layer
    bytes: int  # persistent memory of one layer: weights, gradients, optimizer state
    recompute: Mapping[RecomputeMode, LayerCost]  # costs of one layer by recompute mode


class StageEnd(Record):
    """The part of the model before the first or after the last layer."""

    forward: float = 0.0  # time of a forward pass of one micro-batch; a backward pass takes twice as long
    bytes: int = 0  # persistent memory
    # Needed on top by its stage when the last forward pass ends and no layer is recomputed yet: the logits and their loss.
    transient_bytes: int = 0
    # Whether its cell must have a layer, because the framework refuses a cell without layers.
    filled: bool = False


class UpdateCost(Record):
    """Memory in use while weights are updated, when no micro-batch is in flight."""

    # Per layer of each stage: persistent memory, and copies of gradients or weights.
    layer_bytes: tuple[int, ...]
    stage_bytes: tuple[int, ...]  # per stage, without its layers


class RecomputeOverhead(Record):
    """Memory that fully recomputed layers need in addition to their own rows."""

    first_bytes: tuple[int, ...]  # per stage, once at least one of its layers is recomputed: copies of its input
    layer_bytes: tuple[int, ...]  # per such layer of each cell, regardless of micro-batches in flight; can be negative
    transient_bytes: tuple[int, ...]  # per cell, while one of its layers is recomputed
    # Whether memory left by a layer (`LayerCost.again_bytes`) stays until its chunk's next pass, instead of the end of this one.
    lingers: bool = False


Rows = tuple[tuple[int, ...], ...]
LISTS = ("offset", "recompute", "select_recompute", "select_comm_recompute")
SWAP_LIST = "swap"


class PlanLists(Record):
    """Lists of chunks x stages, as MindFormers defines them."""

    offset: Rows  # layers in excess of an even split
    recompute: Rows  # fully recomputed layers
    select_recompute: Rows  # those, and layers with selected operators
    select_comm_recompute: Rows  # those, and layers with communication
    swap: Rows = ()  # layers per cell that swap, after all that recompute anything; empty if none does

    def to_json(self) -> dict[str, list[list[int]]]:
        """Return the lists as JSON; the swap list only if a layer swaps."""
        names = (*LISTS, SWAP_LIST) if self.swap else LISTS
        return {name: [list(row) for row in getattr(self, name)] for name in names}


class CostTable(Record):
    """Memory and time costs from which a plan is made."""

    stages: int  # pipeline stages
    chunks: int  # chunks per stage
    micro_batches: int  # micro-batches per training step
    limit_bytes: int  # memory limit of a stage
    order: Schedule
    layers: tuple[LayerGroup, ...]  # the model's layers, in order
    head: StageEnd = StageEnd()  # before the layers, on the first stage
    tail: StageEnd = StageEnd()  # after the layers, on the last stage
    constant_bytes: int = 0  # memory of every stage in addition to its layers
    stage_bytes: tuple[int, ...] = ()  # additional memory per stage; empty for none
    present: PlanLists | None = None  # the current plan of the config, if any
    # Memory while weights are updated, if it can exceed that of a backward pass.
    update: UpdateCost | None = None
    again: RecomputeOverhead | None = None  # additional memory of fully recomputed layers

    @property
    def cells(self) -> int:
        """Return the number of (chunk, stage) pairs; cell c is chunk c // stages of stage c % stages."""
        return self.stages * self.chunks

    @property
    def filled_cells(self) -> slice:
        """Return the cells that must have a layer in every plan: all, or all except an end or both ends."""
        return slice(0 if self.head.filled else 1, self.cells if self.tail.filled else self.cells - 1)

    @property
    def layer_count(self) -> int:
        """Return the number of layers of the model."""
        return sum(layer.layer_count for layer in self.layers)

    @property
    def kinds(self) -> tuple[RecomputeMode, ...]:
        """Return the available recompute modes, in the order within a cell."""
        return tuple(kind for kind in IN_CELL if kind in self.layers[0].recompute)

    def map_costs(self, change: Callable[[RecomputeMode, LayerCost], LayerCost | None]) -> CostTable:
        """Return the table with changed costs of each recompute mode; modes whose cost becomes None are removed."""
        layers = []
        for layer in self.layers:
            changed = {kind: change(kind, cost) for kind, cost in layer.recompute.items()}
            recompute = {kind: cost for kind, cost in changed.items() if cost is not None}
            layers.append(layer._replace(recompute=recompute))
        return self._replace(layers=tuple(layers))

    def fixed_bytes(self, stage: int) -> int:
        """Return the bytes of a stage that do not depend on its layers."""
        own = self.stage_bytes[stage] if self.stage_bytes else 0
        head = self.head.bytes if stage == 0 else 0
        tail = self.tail.bytes if stage == self.stages - 1 else 0
        return self.constant_bytes + own + head + tail


def check_table(table: CostTable, source: str) -> CostTable:
    """Check that a table is consistent, and return it."""
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
    _check_negative(table, source)
    if not any(layer.forward for layer in table.layers):
        raise ConfigError(msg("planning.table.no-time"), path=source)
    return table


def _check_negative(table: CostTable, source: str) -> None:
    # Constants from least squares can be negative, but not the sum of a stage with its share of layers and one micro-batch.
    least = min(layer.bytes + min(one.activation_bytes for one in layer.recompute.values()) for layer in table.layers)
    layers = max(table.layer_count // table.stages, 1)
    for stage in range(table.stages):
        fixed = table.fixed_bytes(stage)
        if fixed + layers * least < 0:
            sizes = {"fixed": fixed, "layers": layers, "bytes": layers * least}
            raise ConfigError(msg("planning.table.negative", stage=stage, **sizes), path=source)


_BY_CELL = ("again.layer_bytes", "again.transient_bytes")


def _check_stages(table: CostTable, source: str) -> None:
    # Check that lists of sizes have one entry per stage, or per cell.
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
    # Check that a stronger recompute mode neither keeps more nor takes less time, and that all groups have the same modes.
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
    """Convert a plan to lists."""
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
    """Convert a plan's lists to the number of layers by recompute mode, for each cell."""
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
    # Apply the prefix rule to the numbers of one cell; lists shorter than that of fully recomputed layers have no effect.
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
