"""Implement fully sharded weights: each rank has a part, and whole weights exist only while a layer needs them.

The units of weights that are gathered and freed together, and their order, follow ``apply_fsdp`` and ``_setup_gpt_prefetch`` of
MindFormers 2.1 (``pynative/base_models/gpt/parallelize.py``) and their calls in HyperParallel
(``core/fully_shard/hsdp_scheduler.py``, ``hsdp_state.py``, ``core/pipeline_parallel/scheduler.py`` at 019ed966):

- embedding, every layer, its routed experts if they are distributed over ranks, the last norm and the output projection are
  units; with multi-token prediction the output projection belongs to the whole network, from the start of its forward pass to
  the end of its backward pass;
- a unit gathers itself and the next one, in the backward pass the previous one; the prefetched one is waited for only when it
  is used, so tensors that another stream still reads (float32 copies of gradients) stay alive;
- it frees its weights after its forward pass and after its backward pass; the output projection keeps its weight in between;
- in a pipeline nothing is freed in between: up to three chunks are whole from their first pass to their last one, regardless of
  ``reshard_after_forward_policy``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import mindspore
from mindspore import Parameter, Tensor, nn
from mindspore.mint import distributed

from ms_tune.dialects.job_parts import TrainingConfig
from ms_tune.reference.transformer.gradient_buffers import make_zeros
from ms_tune.reference.transformer.linear import cast_to
from ms_tune.reference.transformer.moe import GroupedExperts, SequentialExperts
from ms_tune.reference.transformer.optimizer import clone_narrow, make_adamw, squared_norm
from ms_tune.reference.transformer.parallel import Groups, RankGroup
from ms_tune.reference.transformer.reduction import Reducer, ShardedWeight

if TYPE_CHECKING:
    from ms_tune.planning.schedule import PipelinePass

# core/pipeline_parallel/scheduler.py of HyperParallel, `add_fsdp_unshard_reshard`: the number of chunks that are whole at once.
_ACTIVE_CHUNKS = 3


class Unsharded:
    """Weights that are always whole."""

    def run(self, cell: nn.Cell, *inputs: object) -> Tensor:
        """Return the cell's output."""
        return cell(*inputs)

    def start(self) -> None:
        """Do nothing: the weights need no gathering."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The cells of a chunk, by purpose; None or empty if the chunk has none."""

    embedding: nn.Cell | None
    layers: Sequence[nn.Cell]
    norm: nn.Cell | None
    output: nn.Cell | None
    predictions: Sequence[nn.Cell]
    tied: bool = False  # whether the output projection uses the word embedding's weight

    @property
    def cells(self) -> list[nn.Cell]:
        """Return all cells, in the order in which gradients are reduced at the end of a pipeline's step."""
        cells = [self.embedding, *self.layers, self.norm, self.output, *self.predictions]
        return [cell for cell in cells if cell is not None]

    def stays_gathered(self, cell: nn.Cell) -> bool:
        """Return whether the weights stay whole from the start of the forward pass to the end of the backward pass."""
        return (cell is self.output and bool(self.predictions)) or (cell is self.embedding and self.tied)

    def following(self) -> dict[int, list[nn.Cell]]:
        """Return, by the id of a cell, the cells that it prefetches in the forward pass."""
        chain = self._chain()
        ahead = {id(one): [other] for one, other in pairwise(chain)}
        if chain and not self.predictions:
            ahead[id(chain[-1])] = [cell for cell in (self.norm, self.output) if cell is not None]
        if chain and self.embedding is not None:
            ahead[id(self.embedding)] = [chain[0]]
        return ahead

    def previous(self) -> dict[int, list[nn.Cell]]:
        """Return, by the id of a cell, the cells that it prefetches in the backward pass."""
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
    """Weights that are gathered and freed together."""

    weights: list[ShardedWeight]
    late: bool  # its gradients are reduced after the backward pass: no gradient flows back through it
    releases: bool  # whether it frees its weights after its forward pass
    gathered: bool = False
    missing: int = 0

    def gather(self, *, ahead: bool = False) -> None:
        """Gather the whole weights, or start to gather them with ``ahead``."""
        if not self.gathered:
            self.gathered = True
            for weight in self.weights:
                weight.gather(ahead=ahead)
        if not ahead:
            for weight in self.weights:
                weight.arrive()

    def let_go(self) -> None:
        """Free the whole weights."""
        if self.gathered:
            self.gathered = False
            for weight in self.weights:
                weight.let_go()


@dataclass(slots=True)
class Sharder:
    """The sharding of the weights of cells."""

    groups: Groups  # this rank's groups
    reshards: bool  # whether whole weights are freed after the forward pass
    pipeline: bool  # whether the chunks are part of a pipeline
    chunks: list[Units] = field(default_factory=list)  # the units made so far, chunk by chunk
    weights: list[ShardedWeight] = field(default_factory=list)  # the weights sharded so far
    reducer: Reducer = field(default_factory=Reducer)  # reduces the gradients of all of them

    def units(self, parts: Parts) -> Units:
        """Make one unit per cell, and one for its routed experts if they are distributed over ranks."""
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
        whole = parts.stays_gathered(cell)
        late = cell is parts.embedding or whole  # its gradients are only certain to exist after the backward pass
        releases = not (self.pipeline or cell is parts.output or whole)
        releases &= self.reshards or cell is parts.norm  # the norm has no policy, and `fully_shard` frees it
        return [ShardedUnit(members, late, releases) for members in units if members]

    def _shard(self, weight: Parameter, *, experts: bool) -> ShardedWeight:
        groups = self.groups
        group, copies = (groups.expert_shards, groups.expert_copies) if experts else (groups.shards, groups.copies)
        if weight.shape[0] % group.size:
            # A weight that cannot be split evenly stays whole on every rank (``_collect_module_replicate_params``).
            group, copies = RankGroup("", 1, 0), groups.expert_data if experts else groups.data
        name = f"{len(self.weights)}.{weight.name}"  # weights of different chunks may have the same name
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
        self._held = [unit for cell, units in cells if parts.stays_gathered(cell) for unit in units]
        self._reducer, self._pipeline = reducer, pipeline
        for unit in self._all():
            for weight in unit.weights:
                weight.full.register_hook(self._taker(unit, weight))

    def _all(self) -> list[ShardedUnit]:
        return [unit for units in self._units.values() for unit in units]

    def start(self) -> None:
        """Prepare for a forward pass."""
        _gather_weights(self._held)

    def run(self, cell: nn.Cell, *inputs: object) -> Tensor:
        """Return the cell's output, with its weights gathered meanwhile and the next unit's prefetched."""
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
        """Finish a backward pass: reduce the remaining gradients, and wait for all."""
        for unit in self._all():
            if unit.late:
                self._after_backward(unit)
        self._reducer.finish()

    def gather_weights(self) -> None:
        """Gather all whole weights (``FSDP_UNSHARD``)."""
        _gather_weights(self._all())

    def let_go(self) -> None:
        """Free all whole weights (``FSDP_RESHARD``)."""
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
        # Return a hook that takes a gradient out of the backward pass, and finishes the unit after its last one.
        def hook(gradient: Tensor) -> Tensor:
            weight.pending = gradient if weight.pending is None else weight.pending.add_(gradient)
            unit.missing -= 1
            if not unit.missing and not unit.late:
                self._after_backward(unit)
            return Tensor(0, weight.full.dtype)

        return hook


def _gather_weights(units: Sequence[ShardedUnit], *, ahead: bool = False) -> None:
    for unit in units:
        unit.gather(ahead=ahead)


class ShardedWeights:
    """Sharded weights, float32 copies, moments and gradients, with their update (MindFormers' dynamic graph).

    As ``_optimizer_update`` and ``_calculate_global_grad_norm`` (``pynative/trainer``, 2.1) and ``pynative/optimizer``: compute
    the norm of all gradients, run AdamW on float32 parts, copy the new values into the narrower parts, and free the gradients.
    """

    def __init__(self, sharder: Sharder, config: TrainingConfig) -> None:
        self.sharder, self.chunks = sharder, sharder.chunks
        self.parts = [weight.part for weight in sharder.weights]
        self.main = [
            part if part.dtype == mindspore.float32 else make_zeros(f"main.{part.name}", part.size, mindspore.float32)
            for part in self.parts
        ]
        for new in (*self.parts, *self.main):
            new.zero_()  # a new parameter is on the host until an operator uses it
        self.clones = clone_narrow(self.parts) if config.optimizer.keeps_clones else []
        self.optimizer = make_adamw(self.main, config)
        self.gradients: list[Tensor] = []

    def start_step(self) -> None:
        """Forget the gradients of the previous step.

        The framework does so right after the update; here they stay until now, so that those of the last step can be listed.
        Nothing is allocated in between.
        """
        self.gradients = []

    def start_pass(self, following: Sequence[PipelinePass]) -> None:
        """Gather the next chunks of a pipeline; ``following``: this pass and the later ones."""
        if not self.sharder.pipeline:
            return
        active = list(dict.fromkeys(one.chunk for one in following))[:_ACTIVE_CHUNKS]
        for chunk, units in enumerate(self.chunks):
            if chunk not in active:
                units.let_go()
        for chunk in active:
            self.chunks[chunk].gather_weights()

    def start_backward(self, chunk: int, *, last: bool) -> None:
        """Prepare for a backward pass; ``last``: the chunk's last micro-batch (``_set_requires_all_reduce`` of the trainer)."""
        del chunk
        self.sharder.reducer.sums_copies = last

    def take(self, weights: Sequence[Parameter], gradients: Sequence[Tensor]) -> None:
        """Do nothing: hooks have already read every gradient."""

    def finish_backward(self, chunk: int, *, last: bool) -> None:
        """Reduce the gradients of a backward pass."""
        self.chunks[chunk].finish_backward()
        if last and self.sharder.pipeline:
            self.chunks[chunk].reduce()

    def update(self) -> None:
        """Step the optimizer, and copy the new values into the parts."""
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
        """Return the tensors that live for the whole run, and the gradients of the last step, by category."""
        copies = [main for part, main in zip(self.parts, self.main, strict=True) if part is not main]
        moments = [*self.optimizer.exp_avg, *self.optimizer.exp_avg_sq, *self.clones]
        return {"weights": self.parts, "optimizer_state": [*copies, *moments], "gradients": self.gradients}
