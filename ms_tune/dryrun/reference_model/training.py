"""One training step of a pipeline stage: forward and backward passes in the schedule's order, then the optimizer."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import mindspore
from mindspore import ParameterTuple, Tensor, mint, nn
from mindspore.mint import distributed
from mindspore.ops.composite import GradOperation

from ms_tune.config.model import Sharding
from ms_tune.dryrun.schedule import passes

from .network import ChunkNetwork
from .optimizer import ShardedWeights, WholeWeights
from .sharding import Sharder

if TYPE_CHECKING:
    from ms_tune.dryrun.schedule import Pass
    from ms_tune.layers.stage import Stage

    from .settings import Settings


class Trainer:
    """Runs training steps of one stage.

    Args:
        stage: The stage with its layers.
        settings: The config and this rank's groups.
    """

    def __init__(self, stage: Stage, settings: Settings) -> None:
        config = settings.config
        self.stage, self.settings = stage, settings
        optimizer = config.optimizer
        sharder = None
        if optimizer.sharding is Sharding.PARAMETERS:
            sharder = Sharder(settings.groups, optimizer.gathers_again, keeps=stage.stages > 1)
        self.networks = nn.CellList([ChunkNetwork(chunk, settings, sharder) for chunk in stage.chunks])
        for network in self.networks:
            network.set_train()
        self.weights = [ParameterTuple(network.trainable_params()) for network in self.networks]
        self.state = (
            ShardedWeights(sharder, self.networks) if sharder else WholeWeights(self.networks, config, settings.groups)
        )
        self.schedule = passes(stage.index, stage.stages, len(stage.chunks), config.batch.micro_batch_num)
        # What lies between a forward pass and its backward pass, by chunk: the recorded pass, its input, the loss.
        self.in_flight: list[deque[tuple[nn.Cell, Tensor, Tensor | None]]] = [deque() for _ in stage.chunks]

    def step(self) -> None:
        """One step: every micro-batch forward and backward, gradients together, weights updated."""
        self.state.start_step()
        for one in self.schedule:
            if one.forward:
                self._forward(one)
            else:
                self._backward(one)
        self.state.update()

    def _forward(self, one: Pass) -> None:
        network, chunk = self.networks[one.chunk], self.stage.chunks[one.chunk]
        x = network.tokens if chunk.embedding else self._receive(self.settings.groups.ranks.previous)
        recorded = _Recorded(network)
        y = recorded(x)
        self.in_flight[one.chunk].append((recorded, x, y if chunk.head else None))
        if not chunk.head:
            distributed.send(y, self.settings.groups.ranks.following)

    def _backward(self, one: Pass) -> None:
        chunk, weights = self.stage.chunks[one.chunk], self.weights[one.chunk]
        sens = (
            mint.ones((), dtype=mindspore.float32)
            if chunk.head
            else self._receive(self.settings.groups.ranks.following)
        )
        recorded, x, _loss = self.in_flight[one.chunk].popleft()
        differentiate = GradOperation(get_all=not chunk.embedding, get_by_list=True, sens_param=True)
        gradients = differentiate(recorded, weights)(x, sens)
        if not chunk.embedding:
            (by_input, *_), gradients = gradients
            distributed.send(by_input, self.settings.groups.ranks.previous)
        self.state.take(weights, gradients)

    def _receive(self, rank: int) -> Tensor:
        settings = self.settings
        shape = (settings.tokens_between, settings.config.batch.micro_batch_size, settings.shape.hidden_size)
        buffer = mint.empty(shape, dtype=settings.dtype)
        distributed.recv(buffer, rank)
        return buffer

    def tensors(self) -> dict[str, list[Tensor]]:
        """The tensors that live for the whole run, by category."""
        return self.state.tensors()


class _Recorded(nn.Cell):
    """One forward pass, kept for its backward pass.

    A cell of its own for each pass: MindSpore finds the recorded pass by the cell (as ``ModelWithLoss`` of
    MindSpeed-Core-MS r0.1.0, core/pipeline_parallel/schedules.py).
    """

    def __init__(self, network: ChunkNetwork) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.set_grad()

    def construct(self, x: Tensor) -> Tensor:
        return self.network(x)
