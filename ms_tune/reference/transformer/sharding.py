"""Fully sharded weights: each rank has a part, and whole weights exist only while a layer needs them.

Which weights are gathered and let go together, and when, follows ``apply_fsdp`` and ``_setup_gpt_prefetch`` of MindFormers
2.1 (``pynative/base_models/gpt/parallelize.py``) and what they call in HyperParallel
(``core/fully_shard/hsdp_scheduler.py``, ``hsdp_state.py``, ``core/pipeline_parallel/scheduler.py`` at 019ed966):

- embedding, every layer, its routed experts where they are spread over ranks, the last norm and the output projection are
  units; with multi-token prediction the output projection belongs to the whole network, from the start of its forward
  pass to the end of its backward pass;
- a unit gathers itself and the one behind it, in the backward pass the one before it; nobody waits for what is gathered
  ahead of time before it is used, so that what another stream still reads (float32 copies of gradients) lives on;
- it lets go behind its forward pass and behind its backward pass; the output projection keeps its weight in between;
- in a pipeline nothing is let go in between: up to three chunks are whole from their first pass to their last one, whatever
  ``reshard_after_forward_policy`` says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import mindspore
from mindspore import Parameter, Tensor, nn
from mindspore.mint import distributed

from ms_tune.reference.transformer.gradient_buffers import make_zeros
from ms_tune.reference.transformer.linear import cast_to
from ms_tune.reference.transformer.moe import GroupedExperts, SequentialExperts
from ms_tune.reference.transformer.optimizer import clone_narrow, make_adamw, squared_norm
from ms_tune.reference.transformer.parallel import RankGroup
from ms_tune.reference.transformer.reduction import Reducer, ShardedWeight

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ms_tune.dialects.job_parts import TrainingConfig
    from ms_tune.planning.schedule import PipelinePass
    from ms_tune.reference.transformer.parallel import Groups

# core/pipeline_parallel/scheduler.py of HyperParallel, `add_fsdp_unshard_reshard`: so many chunks are whole at once.
_ACTIVE_CHUNKS = 3


class Unsharded:
    """Weights that are whole all the time."""

    def run(self, cell: nn.Cell, *inputs: object) -> Tensor:
        """The cell's output."""
        return cell(*inputs)

    def start(self) -> None:
        """Nothing is gathered."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The cells of a chunk, by what they are for; None and empty where it has none."""

    embedding: nn.Cell | None
    layers: Sequence[nn.Cell]
    norm: nn.Cell | None
    output: nn.Cell | None
    predictions: Sequence[nn.Cell]
    tied: bool = False  # the output projection uses the word embedding's weight

    @property
    def cells(self) -> list[nn.Cell]:
        """All of them, in the order in which gradients are reduced at the end of a pipeline's step."""
        cells = [self.embedding, *self.layers, self.norm, self.output, *self.predictions]
        return [cell for cell in cells if cell is not None]

    def is_held(self, cell: nn.Cell) -> bool:
        """Whether its weights are whole from the start of the forward pass to the end of the backward pass."""
        return (cell is self.output and bool(self.predictions)) or (cell is self.embedding and self.tied)

    def following(self) -> dict[int, list[nn.Cell]]:
        """What is gathered ahead of time in the forward pass, by the cell that does it."""
        chain = self._chain()
        ahead = {id(one): [other] for one, other in pairwise(chain)}
        if chain and not self.predictions:
            ahead[id(chain[-1])] = [cell for cell in (self.norm, self.output) if cell is not None]
        if chain and self.embedding is not None:
            ahead[id(self.embedding)] = [chain[0]]
        return ahead

    def previous(self) -> dict[int, list[nn.Cell]]:
        """The same in the backward pass."""
        chain = self._chain()
        ahead = {id(other): [one] for one, other in pairwise(chain)}
        if chain and self.embedding is not None:
            ahead[id(chain[0])] = [self.embedding]
        if chain and self.output is not None and not self.predictions:
            ahead[id(self.output)] = [chain[-1]]
        return ahead

    def _chain(self) -> list[nn.Cell]:
        norm = [self.norm] if self.norm is not None and self.predictions else []
        return [*self.layers, *norm, *self.predictions]


@dataclass(slots=True)
class ShardedUnit:
    """Weights that are gathered and let go together."""

    weights: list[ShardedWeight]
    late: bool  # its gradients are reduced when the backward pass is over: nothing goes back through it
    releases: bool  # it lets go behind its forward pass
    gathered: bool = False
    missing: int = 0

    def gather(self, *, ahead: bool = False) -> None:
        """Have the whole weights in memory, or, ahead of time, on their way."""
        if not self.gathered:
            self.gathered = True
            for weight in self.weights:
                weight.gather(ahead=ahead)
        if not ahead:
            for weight in self.weights:
                weight.arrive()

    def let_go(self) -> None:
        """Have them out of memory."""
        if self.gathered:
            self.gathered = False
            for weight in self.weights:
                weight.let_go()


@dataclass(slots=True)
class Sharder:
    """Shards the weights of cells."""

    groups: Groups  # this rank's groups
    gathers_again: bool  # whole weights are let go after the forward pass
    pipeline: bool  # the chunks are part of a pipeline
    chunks: list[Units] = field(default_factory=list)  # the units that it has made, chunk by chunk
    weights: list[ShardedWeight] = field(default_factory=list)  # the weights that it has sharded
    reducer: Reducer = field(default_factory=Reducer)  # takes the gradients of all of them

    def units(self, parts: Parts) -> Units:
        """One unit for each cell, and one for the routed experts in it where ranks hold different ones."""
        cells = [(cell, self._units_of(cell, parts)) for cell in parts.cells]
        made = Units(cells, parts, self.reducer, pipeline=self.pipeline)
        self.chunks.append(made)
        return made

    def _units_of(self, cell: nn.Cell, parts: Parts) -> list[ShardedUnit]:
        experts = {
            id(weight)
            for _, inner in cell.cells_and_names()
            if isinstance(inner, GroupedExperts | SequentialExperts)
            for weight in inner.trainable_params()
        }
        weights = cell.trainable_params()
        routed = [self._shard(weight, experts=True) for weight in weights if id(weight) in experts]
        others = [self._shard(weight, experts=False) for weight in weights if id(weight) not in experts]
        units = [routed, others] if self.groups.expert.size > 1 else [routed + others]
        held = parts.is_held(cell)
        late = cell is parts.embedding or held  # its gradients are there for sure only when the backward pass is over
        releases = not (self.pipeline or cell is parts.output or held)
        releases &= self.gathers_again or cell is parts.norm  # of the norm nothing is said, and `fully_shard` does it
        return [ShardedUnit(members, late, releases) for members in units if members]

    def _shard(self, weight: Parameter, *, experts: bool) -> ShardedWeight:
        groups = self.groups
        group, copies = (groups.expert_shards, groups.expert_copies) if experts else (groups.shards, groups.copies)
        if weight.shape[0] % group.size:
            # What cannot be cut evenly stays whole on every rank (``_collect_module_replicate_params``).
            group, copies = RankGroup("", 1, 0), groups.expert_data if experts else groups.data
        name = f"{len(self.weights)}.{weight.name}"  # weights of different chunks may have one name
        part = make_zeros(f"part.{name}", int(weight.size) // group.size, weight.dtype)
        sharded = ShardedWeight(weight, part, group, copies)
        sharded.begin()
        self.weights.append(sharded)
        return sharded


class Units:
    """The units of a chunk."""

    def __init__(
        self, cells: Sequence[tuple[nn.Cell, list[ShardedUnit]]], parts: Parts, reducer: Reducer, *, pipeline: bool
    ) -> None:
        self._units = {id(cell): units for cell, units in cells}
        self._following, self._previous = parts.following(), parts.previous()
        self._held = [unit for cell, units in cells if parts.is_held(cell) for unit in units]
        self._reducer, self._pipeline = reducer, pipeline
        for unit in self._all():
            for weight in unit.weights:
                weight.whole.register_hook(self._taker(unit, weight))

    def _all(self) -> list[ShardedUnit]:
        return [unit for units in self._units.values() for unit in units]

    def start(self) -> None:
        """A forward pass begins."""
        _gather_weights(self._held)

    def run(self, cell: nn.Cell, *inputs: object) -> Tensor:
        """The cell's output, its weights gathered for the time being and the next unit's ahead of time."""
        own = self._units[id(cell)]
        _gather_weights(own)
        for ahead in self._following.get(id(cell), ()):
            _gather_weights(self._units[id(ahead)], ahead=True)
        output = cell(*inputs)
        for unit in own:
            if unit.releases:
                unit.let_go()

        def before_backward(_gradient: Tensor) -> None:
            _gather_weights(own)
            for ahead in self._previous.get(id(cell), ()):
                _gather_weights(self._units[id(ahead)], ahead=True)
            for unit in own:
                unit.missing = len(unit.weights)

        output.register_hook(before_backward)
        return output

    def finish_backward(self) -> None:
        """A backward pass is over: reduce what is left, and wait for everything."""
        for unit in self._all():
            if unit.late:
                self._after_backward(unit)
        self._reducer.finish()

    def make_whole(self) -> None:
        """Have all whole weights in memory (``FSDP_UNSHARD``)."""
        _gather_weights(self._all())

    def let_go(self) -> None:
        """Have all whole weights out of memory (``FSDP_RESHARD``)."""
        for unit in self._all():
            unit.let_go()

    def reduce(self) -> None:
        """Reduce the gradients of all micro-batches, unit by unit (``execute_reduce_grad``)."""
        for unit in self._all():
            self._reducer.reduce(unit.weights)
            unit.let_go()
        self._reducer.finish()

    def _after_backward(self, unit: ShardedUnit) -> None:
        if self._pipeline:
            for weight in unit.weights:
                weight.add_up()
            return
        self._reducer.reduce(unit.weights)
        unit.let_go()

    def _taker(self, unit: ShardedUnit, weight: ShardedWeight) -> Callable[[Tensor], Tensor]:
        # A hook that takes a gradient out of the backward pass, and sees to the unit behind its last one.
        def hook(gradient: Tensor) -> Tensor:
            weight.pending = gradient if weight.pending is None else weight.pending.add_(gradient)
            unit.missing -= 1
            if not unit.missing and not unit.late:
                self._after_backward(unit)
            return Tensor(0, weight.whole.dtype)

        return hook


def _gather_weights(units: Sequence[ShardedUnit], *, ahead: bool = False) -> None:
    for unit in units:
        unit.gather(ahead=ahead)


class ShardedWeights:
    """Weights of which every rank has a part: float32 copies, moments and gradients are parts as well (MindFormers' dynamic graph).

    ``_optimizer_update`` and ``_calculate_global_grad_norm`` (``pynative/trainer``, 2.1) and ``pynative/optimizer``: the norm of
    all gradients, AdamW on float32 parts, the new values into the parts that are narrower, and the gradients are gone.
    """

    def __init__(self, sharder: Sharder, config: TrainingConfig) -> None:
        self.sharder, self.chunks = sharder, sharder.chunks
        self.parts = [weight.part for weight in sharder.weights]
        self.main = [
            part if part.dtype == mindspore.float32 else make_zeros(f"main.{part.name}", part.size, mindspore.float32)
            for part in self.parts
        ]
        for new in (*self.parts, *self.main):
            new.zero_()  # a new parameter is on the host
        self.clones = clone_narrow(self.parts) if config.optimizer.keeps_clones else []
        self.optimizer = make_adamw(self.main, config)
        self.gradients: list[Tensor] = []

    def start_step(self) -> None:
        """Forget the gradients of the step before.

        The framework does so right behind the update; here they stay until now, so that those of the last step can be
        listed. Nothing is allocated in between.
        """
        self.gradients = []

    def start_pass(self, following: Sequence[PipelinePass]) -> None:
        """Have those chunks of a pipeline whole that are next; ``following``: this pass and those behind it."""
        if not self.sharder.pipeline:
            return
        active = list(dict.fromkeys(one.chunk for one in following))[:_ACTIVE_CHUNKS]
        for chunk, units in enumerate(self.chunks):
            if chunk not in active:
                units.let_go()
        for chunk in active:
            self.chunks[chunk].make_whole()

    def start_backward(self, chunk: int, *, last: bool) -> None:
        """A backward pass begins; the last one of its chunk or not (``_set_requires_all_reduce`` of the trainer)."""
        del chunk
        self.sharder.reducer.sums_copies = last

    def take(self, weights: Sequence[Parameter], gradients: Sequence[Tensor]) -> None:
        """Nothing is left to take: hooks have got every gradient."""

    def finish_backward(self, chunk: int, *, last: bool) -> None:
        """A backward pass is over."""
        self.chunks[chunk].finish_backward()
        if last and self.sharder.pipeline:
            self.chunks[chunk].reduce()

    def update(self) -> None:
        """Step the optimizer, and bring the new values into the parts."""
        for units in self.chunks:
            units.let_go()
        self.gradients = [weight.gradient for weight in self.sharder.weights]
        for weight in self.sharder.weights:
            weight.gradient = None
        distributed.all_reduce(squared_norm(self.gradients))
        self.optimizer(self.gradients)
        for part, main in zip(self.parts, self.main, strict=True):
            if part is not main:
                part.copy_(cast_to(main, part.dtype))

    def tensors(self) -> dict[str, list[Tensor]]:
        """The tensors that live for the whole run, and the gradients of the last step, by category."""
        copies = [main for part, main in zip(self.parts, self.main, strict=True) if part is not main]
        moments = [*self.optimizer.exp_avg, *self.optimizer.exp_avg_sq, *self.clones]
        return {"weights": self.parts, "optimizer_state": [*copies, *moments], "gradients": self.gradients}
