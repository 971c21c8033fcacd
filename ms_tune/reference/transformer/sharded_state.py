"""Gradients and optimizer state where every rank has parts of the weights (MindFormers' dynamic graph).

``_optimizer_update`` and ``_calculate_global_grad_norm`` (``pynative/trainer``, 2.1) and ``pynative/optimizer``: the norm of
all gradients, AdamW on float32 parts, the new values into the parts that are narrower, and the gradients are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore
from mindspore.mint import distributed

from .adamw import clones, make_adamw, squared_norm
from .buckets import zeros
from .linear import cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mindspore import Parameter, Tensor

    from ms_tune.dialects.job_parts import TrainingConfig
    from ms_tune.planning.schedule import PipelinePass

    from .sharding import Sharder

# core/pipeline_parallel/scheduler.py of HyperParallel, `add_fsdp_unshard_reshard`: so many chunks are whole at once.
_ACTIVE_CHUNKS = 3


class ShardedWeights:
    """Weights of which every rank has a part: float32 copies, moments and gradients are parts as well.

    Args:
        sharder: Has sharded the weights.
        config: The config.
    """

    def __init__(self, sharder: Sharder, config: TrainingConfig) -> None:
        self.sharder, self.chunks = sharder, sharder.chunks
        self.parts = [weight.part for weight in sharder.weights]
        self.main = [
            part if part.dtype == mindspore.float32 else zeros(f"main.{part.name}", part.size, mindspore.float32)
            for part in self.parts
        ]
        for new in (*self.parts, *self.main):
            new.zero_()  # a new parameter is on the host
        self.clones = clones(self.parts) if config.optimizer.keeps_clones else []
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
                part.copy_(cast(main, part.dtype))

    def tensors(self) -> dict[str, list[Tensor]]:
        """The tensors that live for the whole run, and the gradients of the last step, by category."""
        copies = [main for part, main in zip(self.parts, self.main, strict=True) if part is not main]
        moments = [*self.optimizer.exp_avg, *self.optimizer.exp_avg_sq, *self.clones]
        return {"weights": self.parts, "optimizer_state": [*copies, *moments], "gradients": self.gradients}
