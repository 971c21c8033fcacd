"""Gradients and optimizer state of MindSpeed-Core-MS r0.1.0, as far as memory goes.

Gradients of each micro-batch are added to buffers that live for the whole run. With mixed precision the optimizer
works on float32 copies of the weights (core/optimizer/optimizer.py, Float16OptimizerWithFloat16Params); the distributed
optimizer keeps only this rank's part of those copies and of the moments, gets its part of the gradients by
reduce-scatter and returns the new weights by all-gather (core/optimizer/distrib_optimizer.py). Routed experts have
data-parallel ranks of their own. With fully sharded weights (MindFormers' dynamic graph) the parts are there already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import mindspore
from mindspore import Parameter, Tensor, mint
from mindspore.common.initializer import initializer
from mindspore.mint import distributed

from .moe import GroupedExperts, SequentialExperts
from .settings import number_format

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mindspore import nn

    from ms_tune.config.model import TrainingConfig

    from .parallel import Group, Groups
    from .sharding import Sharder

_LEARNING_RATE = 1e-4  # its value changes nothing in simulation


@dataclass(frozen=True, slots=True)
class _Weight:
    """A weight and the ranks that have copies of it."""

    weight: Parameter
    group: Group
    parts: int

    @property
    def padded(self) -> int:
        """Elements, up to a multiple of the parts."""
        return -(-int(self.weight.size) // self.parts) * self.parts


class WholeWeights:
    """Weights that every rank has whole; the optimizer's state is sharded or not.

    Args:
        networks: The chunks of this stage.
        config: The config.
        groups: This rank's groups.
    """

    def __init__(self, networks: Sequence[nn.Cell], config: TrainingConfig, groups: Groups) -> None:
        self.config = config
        self.entries = [entry for network in networks for entry in _entries(network, config, groups)]
        self.weights = [entry.weight for entry in self.entries]
        self.buffers = self._gradient_buffers() if config.optimizer.gradient_buffers else []
        self.main = self._main_copies() if config.precision.mixed or config.optimizer.distributed else []
        self.optimizer = mint.optim.AdamW(self.main or self.weights, lr=_LEARNING_RATE)
        self.totals: dict[int, Tensor] = {}

    def _gradient_buffers(self) -> list[Parameter]:
        """Flat buffers that a hook on each weight adds its gradient to."""
        dtype = number_format(self.config.precision.gradients)
        buffers = [_zeros(f"gradient.{entry.weight.name}", entry.padded, dtype) for entry in self.entries]
        for weight, buffer in zip(self.weights, buffers, strict=True):
            weight.register_hook(_adds_to(buffer, weight))
        return buffers

    def _main_copies(self) -> list[Parameter]:
        """The optimizer's own copy of each weight, or of this rank's part of it."""
        precision = self.config.precision
        dtype = mindspore.float32 if precision.mixed else number_format(precision.parameters)
        return [_zeros(f"main.{entry.weight.name}", entry.padded // entry.parts, dtype) for entry in self.entries]

    def start_step(self) -> None:
        """Forget the gradients of the step before."""
        for buffer in self.buffers:
            buffer.zero_()
        self.totals = {}

    def take(self, weights: Sequence[Parameter], gradients: Sequence[Tensor]) -> None:
        """Add the gradients of one micro-batch, unless hooks have done so."""
        if self.buffers:
            return
        for weight, gradient in zip(weights, gradients, strict=True):
            if id(weight) in self.totals:
                self.totals[id(weight)].add_(gradient)
            else:
                self.totals[id(weight)] = gradient

    def update(self) -> None:
        """Reduce the gradients, step the optimizer, and bring the new values into the weights."""
        gradients = self.buffers or [self.totals[id(weight)] for weight in self.weights]
        self.totals = {}
        self.optimizer(tuple(self._reduced(i, gradient) for i, gradient in enumerate(gradients)))
        if not self.main:
            return
        for entry, main in zip(self.entries, self.main, strict=True):
            weight = entry.weight
            new = main.astype(weight.dtype)
            if entry.parts > 1:
                whole = mint.empty((main.size * entry.parts,), dtype=weight.dtype)
                distributed.all_gather_into_tensor(whole, new, group=entry.group.name)
                new = whole
            weight.copy_(new[: weight.size].reshape(weight.shape))

    def _reduced(self, index: int, gradient: Tensor) -> Tensor:
        """The gradient of one weight over all ranks, as the optimizer wants it: shape, part, number format."""
        entry = self.entries[index]
        if entry.parts > 1:
            whole = gradient.reshape(-1)
            part = mint.empty((whole.size // entry.parts,), dtype=whole.dtype)
            distributed.reduce_scatter_tensor(part, whole, group=entry.group.name)
            # As core/distributed/param_and_grad_buffer.py: the result goes back into this rank's part of the buffer.
            gradient = whole[: part.size]
            gradient.copy_(part)
        elif entry.group.size > 1:
            gradient = gradient.contiguous()
            distributed.all_reduce(gradient, group=entry.group.name)
        target = self.main[index] if self.main else entry.weight
        return gradient.reshape(-1)[: target.size].reshape(target.shape).astype(target.dtype)

    def tensors(self) -> dict[str, list[Tensor]]:
        """The tensors that live for the whole run, by category."""
        moments = [*self.optimizer.exp_avg, *self.optimizer.exp_avg_sq]
        return {"weights": self.weights, "optimizer_state": [*self.main, *moments], "gradients": self.buffers}


class ShardedWeights:
    """Weights of which every rank has a part: float32 copies, moments and gradients are parts as well."""

    def __init__(self, sharder: Sharder, networks: Sequence[nn.Cell]) -> None:
        self.sharded, self.networks = sharder.weights, networks
        self.parts = [weight.part for weight in self.sharded]
        self.main = [
            part if part.dtype == mindspore.float32 else _zeros(f"main.{part.name}", part.size, mindspore.float32)
            for part in self.parts
        ]
        self.optimizer = mint.optim.AdamW(self.main, lr=_LEARNING_RATE)

    def start_step(self) -> None:
        """Forget the gradients of the step before."""
        for weight in self.sharded:
            weight.gradient.zero_()

    def take(self, weights: Sequence[Parameter], gradients: Sequence[Tensor]) -> None:
        """Nothing is left to take: hooks have sent every gradient to its ranks."""

    def update(self) -> None:
        """Step the optimizer, and bring the new values into the parts."""
        for network in self.networks:
            network.units.let_go()
        self.optimizer(tuple(weight.gradient for weight in self.sharded))
        for part, main in zip(self.parts, self.main, strict=True):
            if part is not main:
                part.copy_(main.astype(part.dtype))

    def tensors(self) -> dict[str, list[Tensor]]:
        """The tensors that live for the whole run, by category."""
        copies = [main for part, main in zip(self.parts, self.main, strict=True) if part is not main]
        moments = [*self.optimizer.exp_avg, *self.optimizer.exp_avg_sq]
        gradients = [weight.gradient for weight in self.sharded]
        return {"weights": self.parts, "optimizer_state": [*copies, *moments], "gradients": gradients}


def _entries(network: nn.Cell, config: TrainingConfig, groups: Groups) -> list[_Weight]:
    experts = {
        id(weight)
        for _, cell in network.cells_and_names()
        if isinstance(cell, GroupedExperts | SequentialExperts)
        for weight in cell.trainable_params()
    }
    sharded = config.optimizer.distributed
    made = []
    for weight in network.trainable_params():
        group = groups.expert_data if id(weight) in experts else groups.data
        made.append(_Weight(weight, group, group.size if sharded else 1))
    return made


def _adds_to(buffer: Parameter, weight: Parameter) -> Callable[[Tensor], Tensor]:
    """A gradient hook as that of core/distributed/distributed_data_parallel.py: accumulate, and let go at once."""
    size, shape = weight.size, weight.shape

    def hook(gradient: Tensor) -> Tensor:
        buffer[:size].reshape(shape).add_(gradient)
        return Tensor(0, weight.dtype)

    return hook


def _zeros(name: str, size: int, dtype: mindspore.Type) -> Parameter:
    return Parameter(initializer("zeros", (size,), dtype), name=name, requires_grad=False)
