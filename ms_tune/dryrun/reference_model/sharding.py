"""Fully sharded weights: each rank has a part, and whole weights exist only while a layer needs them.

As MindFormers' dynamic graph does it through HyperParallel (``apply_fsdp`` in ``pynative/base_models/gpt/parallelize.py``,
2.1): every layer is a unit, its routed experts another one with ranks of their own; the next unit is gathered while one
runs; a gradient goes to the ranks of its parts in float32 and is added to a buffer there. How HyperParallel frees memory
is not known first hand (it is not published with the wheels); PyTorch's FSDP2, after which it is made, was followed: whole
weights are let go after the forward pass where the policy says so, and after the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import mindspore
from mindspore import Parameter, Tensor, mint, nn
from mindspore.common.initializer import initializer
from mindspore.mint import distributed

from .moe import GroupedExperts, SequentialExperts
from .parallel import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .parallel import Groups


class Unsharded:
    """Weights that are whole all the time."""

    def run(self, cell: nn.Cell, *inputs: object) -> Tensor:
        """The cell's output."""
        return cell(*inputs)


@dataclass(slots=True)
class ShardedWeight:
    """One weight.

    Attributes:
        whole: The weight that the network computes with; without memory unless it is gathered.
        part: What this rank keeps of it, flat.
        gradient: The sum of its gradients, float32, flat.
        group: The ranks that have the other parts.
    """

    whole: Parameter
    part: Parameter
    gradient: Parameter
    group: Group

    def gather(self) -> None:
        """Bring the parts of all ranks together."""
        storage = self.whole.untyped_storage()
        storage.resize_(self.whole.size * self.whole.itemsize)
        if self.group.size == 1:
            # Not `whole.copy_`: a weight that is trained must not be written in place, and its versions are counted.
            storage.copy_(self.part.untyped_storage())
            return
        distributed.all_gather_into_tensor(self.whole.view(-1), self.part, group=self.group.name)

    def let_go(self) -> None:
        """Give the memory of the whole weight back."""
        self.whole.untyped_storage().resize_(0)

    def add_gradient(self, gradient: Tensor) -> None:
        """Add this rank's part of the sum over all ranks."""
        flat = gradient.reshape(-1).astype(mindspore.float32)
        if self.group.size > 1:
            part = mint.empty((flat.size // self.group.size,), dtype=flat.dtype)
            distributed.reduce_scatter_tensor(part, flat, group=self.group.name)
            flat = part
        self.gradient.add_(flat)


@dataclass(slots=True)
class Unit:
    """Weights that are gathered and let go together."""

    weights: list[ShardedWeight]
    gathered: bool = False
    missing: int = 0

    def gather(self) -> None:
        """Have the whole weights in memory."""
        if not self.gathered:
            self.gathered = True
            for weight in self.weights:
                weight.gather()

    def let_go(self) -> None:
        """Have them out of memory."""
        if self.gathered:
            self.gathered = False
            for weight in self.weights:
                weight.let_go()


@dataclass(slots=True)
class Sharder:
    """Shards the weights of cells.

    Attributes:
        groups: This rank's groups.
        gathers_again: Whole weights are let go after the forward pass.
        keeps: They stay until the step is over once they are gathered for a backward pass (pipelines).
    """

    groups: Groups
    gathers_again: bool
    keeps: bool
    weights: list[ShardedWeight] = field(default_factory=list)

    def units(self, cells: Sequence[nn.Cell]) -> Units:
        """One unit for each cell, and one for the routed experts in it."""
        units = [(cell, self._units_of(cell)) for cell in cells]
        return Units(units, gathers_again=self.gathers_again, keeps=self.keeps)

    def _units_of(self, cell: nn.Cell) -> list[Unit]:
        experts = {
            id(weight)
            for _, inner in cell.cells_and_names()
            if isinstance(inner, GroupedExperts | SequentialExperts)
            for weight in inner.trainable_params()
        }
        weights = cell.trainable_params()
        parts = (
            ([weight for weight in weights if id(weight) in experts], self.groups.expert_shards),
            ([weight for weight in weights if id(weight) not in experts], self.groups.shards),
        )
        return [Unit([self._shard(weight, group) for weight in members]) for members, group in parts if members]

    def _shard(self, weight: Parameter, group: Group) -> ShardedWeight:
        # A weight that cannot be cut evenly stays whole on every rank (``_collect_module_replicate_params``).
        size, ways = int(weight.size), group.size if weight.shape[0] % group.size == 0 else 1
        group = group if ways == group.size else Group("", 1, 0)
        name = f"{len(self.weights)}.{weight.name}"  # weights of different chunks may have one name
        sharded = ShardedWeight(
            whole=weight,
            part=_flat(f"part.{name}", size // ways, weight.dtype),
            gradient=_flat(f"gradient.{name}", size // ways, mindspore.float32),
            group=group,
        )
        weight.zero_()  # a new parameter is on the host, where its memory cannot be given back
        sharded.let_go()
        self.weights.append(sharded)
        return sharded


class Units:
    """The units of a chunk, in the order in which they run."""

    def __init__(self, cells: Sequence[tuple[nn.Cell, list[Unit]]], *, gathers_again: bool, keeps: bool) -> None:
        self._units = {id(cell): units for cell, units in cells}
        order = [units for _, units in cells]
        self._next = dict(zip(self._units, [*order[1:], []], strict=True))
        self._before = dict(zip(self._units, [[], *order[:-1]], strict=True))
        self._gathers_again = gathers_again
        for units in order:
            for unit in units:
                for weight in unit.weights:
                    weight.whole.register_hook(_taker(unit, weight, keeps=keeps))

    def run(self, cell: nn.Cell, *inputs: object) -> Tensor:
        """The cell's output, its weights gathered for the time being and the next unit's ahead of time."""
        own, key = self._units[id(cell)], id(cell)
        _gather(own)
        _gather(self._next[key])
        output = cell(*inputs)
        if self._gathers_again:
            for unit in own:
                unit.let_go()

        def before_backward(_gradient: Tensor) -> None:
            _gather(own)
            _gather(self._before[key])
            for unit in own:
                unit.missing = len(unit.weights)

        output.register_hook(before_backward)
        return output

    def let_go(self) -> None:
        """Have all whole weights out of memory: the step is over."""
        for units in self._units.values():
            for unit in units:
                unit.let_go()


def _flat(name: str, size: int, dtype: mindspore.Type) -> Parameter:
    return Parameter(initializer("zeros", (size,), dtype), name=name, requires_grad=False)


def _gather(units: Sequence[Unit]) -> None:
    for unit in units:
        unit.gather()


def _taker(unit: Unit, weight: ShardedWeight, *, keeps: bool) -> Callable[[Tensor], Tensor]:
    """A hook that takes a gradient out of the backward pass, and lets the unit go behind its last one."""

    def hook(gradient: Tensor) -> Tensor:
        weight.add_gradient(gradient)
        unit.missing -= 1
        if not unit.missing and not keeps:
            unit.let_go()
        return Tensor(0, weight.whole.dtype)

    return hook
