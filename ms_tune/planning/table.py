"""The memory table that a plan is made from: what layers cost and keep, by what they recompute, in a pipeline of a size.

A table may come from dryruns, from a JSON file (:mod:`ms_tune.planning.table_file`) or from SAPP's description of layers
(:mod:`ms_tune.planning.sapp`). Bytes are whole numbers; times are in any unit, one for the whole table.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ms_tune.errors import ConfigError
from ms_tune.planning.schedule import Schedule, refusal
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_STAGES, MOST_CHUNKS, MOST_LAYERS = 1024, 64, 10_000
MOST_ALL_PASSES = 65_536  # of all stages in one training step
MOST_BYTES = 2**52


class Recompute(Enum):
    """What a layer does to hold less: what it recomputes, or that it recomputes nothing and swaps activations to the host."""

    NONE = "none"
    SELECT = "select"
    COMM = "comm"
    BOTH = "both"
    FULL = "full"
    SWAP = "swap"


# The layers of a cell in this order: MindFormers counts every list of recompute from the first layer of a cell on.
IN_CELL = (Recompute.FULL, Recompute.BOTH, Recompute.SELECT, Recompute.COMM, Recompute.SWAP, Recompute.NONE)


class Kept(NamedTuple):
    """A layer with one kind of recompute.

    Args:
        activation_bytes: What the layer keeps of one micro-batch between its forward and its backward pass.
        backward_extra: How much longer its backward pass takes: backward = 2 x forward x (1 + this).
        transient_bytes: What the stage holds on top while this layer is computed once more.
        once_bytes: What the layer keeps beside, however many micro-batches are in flight; below zero where the one that is at
            its backward pass holds less than the others.
        again_bytes: What stays of a layer that was computed once more until the backward pass of its cell ends: weights that
            were gathered for it.
        swapped_bytes: What of a micro-batch's activations goes to the host after the forward pass and comes back for the
            backward pass.
        forward_extra: How much longer its forward pass takes: forward x (1 + this). Above zero where what goes to the host is
            not hidden behind the pass (:mod:`ms_tune.planning.link`).
    """

    activation_bytes: int
    backward_extra: float = 0.0
    transient_bytes: int = 0
    once_bytes: int = 0
    again_bytes: int = 0
    swapped_bytes: int = 0
    forward_extra: float = 0.0


@dataclass(frozen=True, slots=True)
class LayerKind:
    """A run of equal layers; the runs of a table follow each other in the model.

    Args:
        name: Its name, for messages.
        count: How many there are.
        forward: Time of a forward pass of one micro-batch through one of them.
        bytes: What one holds for the whole run: weights, gradients, optimizer state.
        recompute: What one keeps, by kind of recompute.
    """

    name: str
    count: int
    forward: float
    bytes: int
    recompute: Mapping[Recompute, Kept]


@dataclass(frozen=True, slots=True)
class End:
    """What stands before the first layer or behind the last one.

    Args:
        forward: Time of a forward pass of one micro-batch; its backward pass takes twice as long.
        bytes: What it holds for the whole run.
        transient_bytes: What its stage holds on top when the last forward pass ends and no layer is computed once more yet:
            the logits and their loss.
        empty_bytes: What its stage holds less where no layer stands beside it in its cell: what layers of a chunk share, such as a mask.
        filled: Whether a layer has to stand beside it in its cell, because the framework refuses a cell without layers.
    """

    forward: float = 0.0
    bytes: int = 0
    transient_bytes: int = 0
    empty_bytes: int = 0
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """What is held while weights are updated, when no micro-batch is in flight.

    Args:
        layer_bytes: By a layer of each stage: what it holds for the whole run, and copies of its gradients or weights.
        stage_bytes: By each stage beside its layers.
    """

    layer_bytes: tuple[int, ...]
    stage_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Again:
    """What layers that are recomputed in full make each stage hold on top, beside what their own rows say.

    Args:
        first_bytes: By each stage, as soon as one of its layers is: copies of what enters it.
        layer_bytes: By each such layer of each cell, whatever is in flight; may be below zero.
        transient_bytes: By each cell, while one of its layers is computed once more.
    """

    first_bytes: tuple[int, ...]
    layer_bytes: tuple[int, ...]
    transient_bytes: tuple[int, ...]


Rows = tuple[tuple[int, ...], ...]
LISTS = ("offset", "recompute", "select_recompute", "select_comm_recompute")
SWAP_LIST = "swap"


@dataclass(frozen=True, slots=True)
class Plan:
    """Lists of chunks x stages, in MindFormers' meaning.

    Args:
        offset: Layers beyond an even split.
        recompute: Layers recomputed in full.
        select_recompute: Those and layers with selected operators.
        select_comm_recompute: Those and layers with communication.
        swap: Layers of each cell that swap, behind all that recompute anything; empty where none does.
    """

    offset: Rows
    recompute: Rows
    select_recompute: Rows
    select_comm_recompute: Rows
    swap: Rows = ()

    def to_json(self) -> dict[str, list[list[int]]]:
        """The lists as JSON has them; that of swap only where a layer swaps."""
        names = (*LISTS, SWAP_LIST) if self.swap else LISTS
        return {name: [list(row) for row in getattr(self, name)] for name in names}


@dataclass(frozen=True, slots=True)
class Table:
    """What a plan is made from.

    Args:
        stages: Pipeline stages.
        chunks: Chunks of each stage.
        micro_batches: Micro-batches of a training step.
        limit_bytes: What a stage may hold.
        order: The schedule.
        layers: The model's layers, in its order.
        head: What stands before them, on the first stage.
        tail: What stands behind them, on the last stage.
        constant_bytes: What every stage holds beside its layers.
        stage_bytes: What each stage holds on top; empty for nothing.
        present: The plan that the config has now, if there is one.
        update: What is held while weights are updated, where that may be more than in a backward pass.
        again: What layers that are recomputed in full make each stage hold on top.
    """

    stages: int
    chunks: int
    micro_batches: int
    limit_bytes: int
    order: Schedule
    layers: tuple[LayerKind, ...]
    head: End = End()
    tail: End = End()
    constant_bytes: int = 0
    stage_bytes: tuple[int, ...] = ()
    present: Plan | None = None
    update: Update | None = None
    again: Again | None = None

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
        return sum(layer.count for layer in self.layers)

    @property
    def kinds(self) -> tuple[Recompute, ...]:
        """The kinds of recompute that there are, in the order in which a cell has them."""
        return tuple(kind for kind in IN_CELL if kind in self.layers[0].recompute)

    def held_by(self, stage: int) -> int:
        """Bytes that a stage holds whatever layers it has."""
        own = self.stage_bytes[stage] if self.stage_bytes else 0
        head = self.head.bytes if stage == 0 else 0
        tail = self.tail.bytes if stage == self.stages - 1 else 0
        return self.constant_bytes + own + head + tail


def check(table: Table, source: str) -> Table:
    """The table itself, which makes sense.

    Raises:
        ConfigError: It contradicts itself, or no framework runs its schedule.
    """
    refused = refusal(table.order, table.stages, table.chunks, table.micro_batches)
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


def _check_stages(table: Table, source: str) -> None:
    """A list of sizes has one for each stage, or for each cell."""
    lists = {"stage_bytes": table.stage_bytes} if table.stage_bytes else {}
    if table.update is not None:
        lists |= {f"update.{key}": sizes for key, sizes in asdict(table.update).items()}
    if table.again is not None:
        lists |= {f"again.{key}": sizes for key, sizes in asdict(table.again).items()}
    for key, sizes in lists.items():
        found = len(sizes)
        if key in _BY_CELL and found != table.cells:
            raise ConfigError(msg("planning.table.cell-bytes", key=key, found=found, cells=table.cells), path=source)
        if key not in _BY_CELL and found != table.stages:
            raise ConfigError(msg("planning.table.stage-bytes", key=key, found=found, stages=table.stages), path=source)


def _check_layer(layer: LayerKind, first: LayerKind, source: str) -> None:
    """Recomputing more neither keeps more nor takes less time; every run has the same kinds."""
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
    *((Recompute.NONE, kind) for kind in IN_CELL[:-1]),
    (Recompute.SELECT, Recompute.BOTH),
    (Recompute.COMM, Recompute.BOTH),
)
