"""Implement AdamW, and the memory of gradients and optimizer state for weights that are whole on every rank.

A trace attributes allocations in files of this name to the update of weights (:mod:`ms_tune.footprint.phases`): therefore other
work on gradients of sharded weights is in another file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import mindspore
from mindspore import Parameter, Tensor, mint, nn

from ms_tune.dialects.job_parts import TrainingConfig
from ms_tune.reference.read import FUSED_ADAMW
from ms_tune.reference.transformer.gradient_buffers import (
    ArrivingGradients,
    BucketWeight,
    GradientBuffers,
    LooseGradients,
    make_zeros,
)
from ms_tune.reference.transformer.linear import cast_to
from ms_tune.reference.transformer.moe import GroupedExperts, SequentialExperts
from ms_tune.reference.transformer.parallel import Groups
from ms_tune.reference.transformer.settings import number_format

if TYPE_CHECKING:
    from ms_tune.planning.schedule import PipelinePass

# Their values do not matter in simulation.
_RATE, _DECAY, _FIRST, _SECOND, _EPSILON = 1e-4, 0.1, 0.9, 0.95, 1e-8


def make_adamw(weights: Sequence[Parameter], config: TrainingConfig) -> AdamW | mint.optim.AdamW:
    """Create AdamW with one operator per weight, or with several as in MindFormers' dynamic graph by default."""
    if config.shape.legacy or config.optimizer.name == FUSED_ADAMW:
        return mint.optim.AdamW(weights, lr=_RATE)
    return AdamW(weights)


def clone_narrow(weights: Sequence[Parameter]) -> list[Tensor]:
    """Return copies of weights that are narrower than float32; the framework never uses or frees them.

    ``_init_main_params`` of MindFormers 2.0 (pynative/optimizer/adamw.py) makes its float32 copies from ``clone()``, and
    MindSpore keeps a reference to the cloned tensor (``cloned_obj``); 2.1 does not.
    """
    return [mint.clone(weight) for weight in weights if weight.dtype != mindspore.float32]


def squared_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Return the sum of all gradients' squares (``_calculate_global_grad_norm``, pynative/trainer/utils.py, MindFormers 2.1).

    The squares of one gradient at a time are alive, as large as the gradient.
    """
    return mint.sum(mint.stack([mint.sum(mint.square(cast_to(one, mindspore.float32))) for one in gradients]))


class AdamW:
    """AdamW, operator by operator, one weight at a time (``pynative/optimizer/adamw.py`` of MindFormers 2.1).

    The results of several operators are alive at once: several tensors of the largest weight's size.
    """

    def __init__(self, weights: Sequence[Parameter]) -> None:
        self.parameters = weights
        self.exp_avg, self.exp_avg_sq = (
            [make_zeros(f"{name}.{weight.name}", int(weight.size), mindspore.float32) for weight in weights]
            for name in ("adam_m", "adam_v")
        )
        for moment in (*self.exp_avg, *self.exp_avg_sq):
            moment.zero_()  # a new parameter is on the host until an operator uses it

    def __call__(self, gradients: Sequence[Tensor]) -> None:
        """Update every weight."""
        for weight, gradient, first, second in zip(
            self.parameters, gradients, self.exp_avg, self.exp_avg_sq, strict=True
        ):
            _update_weights(weight, gradient, first.view(weight.shape), second.view(weight.shape))


def _update_weights(weight: Tensor, gradient: Tensor, first: Tensor, second: Tensor) -> None:
    wide = cast_to(gradient, mindspore.float32)
    decayed = cast_to(weight, mindspore.float32) * (1.0 - _RATE * _DECAY)
    first.copy_((first * _FIRST).add(wide * (1.0 - _FIRST)))
    second.copy_(mint.addcmul(second * _SECOND, wide, wide, value=1.0 - _SECOND))
    deviation = (second / (1.0 - _SECOND)).sqrt().add(_EPSILON)
    weight.copy_(cast_to(decayed - (first / deviation) * _RATE, weight.dtype))


class UnshardedWeights:
    """Weights that are whole on every rank; the optimizer's state may be sharded.

    In MindSpeed-Core-MS r0.1.0 the gradients of each micro-batch are added to buffers that live for the whole run. With mixed
    precision the optimizer uses float32 copies of the weights (core/optimizer/optimizer.py, Float16OptimizerWithFloat16Params);
    the distributed optimizer keeps only this rank's part of those copies and of the moments, receives its part of the gradients
    by reduce-scatter and returns the new weights by all-gather (core/optimizer/distrib_optimizer.py). Routed experts have their
    own data-parallel ranks. MindFormers' dynamic graph on a single device has all of it whole.
    """

    def __init__(self, networks: Sequence[nn.Cell], config: TrainingConfig, groups: Groups, stage: int) -> None:
        self.config = config
        chunks = [_bucket_weights(network, config, groups) for network in networks]
        self.entries = [entry for chunk in chunks for entry in chunk]
        self.weights = [entry.weight for entry in self.entries]
        dtype, optimizer = number_format(config.precision.gradients), config.optimizer
        self.buffers = (
            [GradientBuffers(chunk, dtype, optimizer, stage) for chunk in chunks] if optimizer.gradient_buffers else []
        )
        self.loose: LooseGradients | ArrivingGradients | None = None
        if not self.buffers:
            self.loose = (
                LooseGradients(self.entries, config) if config.shape.legacy else ArrivingGradients(self.entries, dtype)
            )
        self.main = self._main_copies() if config.precision.mixed or config.optimizer.distributed else []
        self.narrow = self._narrow_moments() if config.shape.legacy else []
        self.clones = clone_narrow(self.weights) if optimizer.keeps_clones else []
        self.optimizer = make_adamw(self.main or self.weights, config)
        if self.main:
            # float32 weights need no copy: core/optimizer/optimizer.py and distrib_optimizer.py, and ``_init_main_params`` of
            # MindFormers (2.0, pynative/optimizer/adamw.py).
            self.main = [
                _own_part(entry) if entry.weight.dtype == mindspore.float32 else main
                for entry, main in zip(self.entries, self.main, strict=True)
            ]
            self.optimizer.parameters = self.main

    def _main_copies(self) -> list[Parameter]:
        # Return the optimizer's own copy of each weight, or of this rank's part of it. MindFormers' dynamic graph does not copy
        # float32 weights (``_init_main_params``, pynative/optimizer/adamw.py, 2.1).
        precision, legacy = self.config.precision, self.config.shape.legacy
        dtype = mindspore.float32 if precision.mixed else number_format(precision.parameters)
        return [
            make_zeros(f"main.{entry.weight.name}", entry.padded // entry.parts, dtype)
            if legacy or entry.weight.dtype != mindspore.float32
            else entry.weight
            for entry in self.entries
        ]

    def _narrow_moments(self) -> list[Parameter]:
        # Return unused moments in the number format of the weights. ``Float16OptimizerWithFloat16Params`` replaces the moments
        # of AdamW by float32 ones, but AdamW, being a ``Cell``, still has the old ones among its parameters.
        if not self.config.precision.mixed or self.config.optimizer.distributed:
            return []
        made = [
            make_zeros(f"{moment}.{weight.name}", int(weight.size), weight.dtype)
            for weight in self.weights
            for moment in ("exp_avg", "exp_avg_sq")
            if weight.dtype != mindspore.float32
        ]
        for moment in made:
            moment.zero_()  # a new parameter is on the host until an operator uses it
        return made

    def start_step(self) -> None:
        """Clear the gradients of the previous step."""
        for buffers in self.buffers:
            buffers.start_step()
        if self.loose:
            self.loose.start_step()

    def start_pass(self, following: Sequence[PipelinePass]) -> None:
        """Do nothing: the weights are always whole."""

    def start_backward(self, chunk: int, *, last: bool) -> None:
        """Prepare for a backward pass; ``last``: of the chunk's last micro-batch."""
        if self.buffers and last:
            self.buffers[chunk].open()

    def finish_backward(self, chunk: int, *, last: bool) -> None:
        """Do nothing: gradients wait for the update, or are already sent."""

    def take(self, weights: Sequence[Parameter], gradients: Sequence[Tensor]) -> None:
        """Add the gradients of one micro-batch, unless hooks have done so."""
        if self.loose:
            self.loose.take(weights, gradients)

    def update(self) -> None:
        """Reduce the gradients, step the optimizer, and copy the new values into the weights."""
        for buffers in self.buffers:
            buffers.reduce()
        gradients = tuple(self._gradients())
        if not self.config.shape.legacy:
            squared_norm(gradients)
        self.optimizer(gradients)
        if not self.main:
            return
        for entry, main in zip(self.entries, self.main, strict=True):
            weight = entry.weight
            if main is weight:
                continue
            new = main.astype(weight.dtype)
            if entry.parts == 1:
                weight.copy_(new[: weight.size].reshape(weight.shape))
        for buffers in self.buffers:
            buffers.gather()

    def _gradients(self) -> Iterator[Tensor]:
        # Yield the gradient of each weight over all ranks as the optimizer needs it: shape, part, number format.
        targets = self.main or self.weights
        views = {id(entry.weight): buffers for buffers in self.buffers for entry in buffers.weights}
        for entry, target in zip(self.entries, targets, strict=True):
            weight = entry.weight
            gradient = self.loose.of(entry) if self.loose else views[id(weight)].of(weight, int(target.size))
            yield gradient.reshape(-1)[: target.size].reshape(target.shape).astype(target.dtype)

    def tensors(self) -> dict[str, list[Tensor]]:
        """Return the tensors that live for the whole run, by category."""
        weights = {id(weight) for weight in self.weights}
        # Others are the weights themselves, or parts of them.
        copies = [main for main in self.main if isinstance(main, Parameter) and id(main) not in weights]
        moments = [*self.optimizer.exp_avg, *self.optimizer.exp_avg_sq, *self.narrow, *self.clones]
        gradients = [flat for buffers in self.buffers for flat in buffers.flats]
        gradients += self.loose.tensors() if self.loose else []
        return {"weights": self.weights, "optimizer_state": [*copies, *moments], "gradients": gradients}


def _own_part(entry: BucketWeight) -> Tensor:
    # Return this rank's part of a float32 weight, in the weight's own memory.
    entry.weight.zero_()  # a new parameter is on the host until an operator uses it
    return entry.weight.view(-1)[: entry.padded // entry.parts]


def _bucket_weights(network: nn.Cell, config: TrainingConfig, groups: Groups) -> list[BucketWeight]:
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
        made.append(BucketWeight(weight, group, group.size if sharded else 1))
    return made
