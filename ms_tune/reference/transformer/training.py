"""Train a pipeline stage: forward and backward passes in the schedule's order, then the optimizer."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence

import mindspore
from mindspore import ParameterTuple, Tensor, mint, nn
from mindspore.communication import init
from mindspore.mint import distributed
from mindspore.ops.composite import GradOperation

from ms_tune.dialects.job_parts import Sharding
from ms_tune.dialects.stage import Stage
from ms_tune.planning.schedule import PipelinePass, Schedule, stage_passes
from ms_tune.records import from_plain
from ms_tune.reference.job import ReferenceJob, rank_groups
from ms_tune.reference.transformer.network import ChunkNetwork
from ms_tune.reference.transformer.optimizer import UnshardedWeights
from ms_tune.reference.transformer.parallel import make_groups
from ms_tune.reference.transformer.settings import NetworkSettings
from ms_tune.reference.transformer.sharding import ShardedWeights, Sharder
from ms_tune.training_process import begin_dynamic_graph, make_clones_cheap, report, write_tensor_list


class Trainer:
    """The training of one stage."""

    def __init__(self, stage: Stage, settings: NetworkSettings) -> None:
        config = settings.config
        self.stage, self.settings = stage, settings
        optimizer = config.optimizer
        sharder = None
        if optimizer.sharding is Sharding.PARAMETERS:
            sharder = Sharder(settings.groups, optimizer.reshards, pipeline=stage.stages > 1)
        self.networks = nn.CellList([ChunkNetwork(chunk, settings, sharder) for chunk in stage.chunks])
        for network in self.networks:
            network.set_train()
        self.weights = [ParameterTuple(network.trainable_params()) for network in self.networks]
        self.state = (
            ShardedWeights(sharder, config)
            if sharder
            else UnshardedWeights(self.networks, config, settings.groups, stage.number)
        )
        schedule = Schedule.INTERLEAVED_FULL_WARM_UP if config.shape.legacy else Schedule.INTERLEAVED_SPREAD
        self.schedule = stage_passes(
            schedule, stage.number, stage.stages, len(stage.chunks), config.batch.micro_batch_num
        )
        # Data between a forward pass and its backward pass, by chunk: the recorded pass, its input, other tensors to keep.
        self.in_flight: list[deque[tuple[nn.Cell, Tensor, tuple[Tensor, ...]]]] = [deque() for _ in stage.chunks]
        self.legacy = config.shape.legacy
        self.sent: Tensor | None = None
        self.ahead: deque[Tensor] = deque()
        heads = [number for number, chunk in enumerate(stage.chunks) if chunk.head]
        ahead = self.legacy and len(stage.chunks) > 1
        self.receives = _count_receives(self.schedule, heads) if ahead else Counter()

    def step(self) -> None:
        """Run one step: every micro-batch forward and backward, gradients together, weights updated."""
        self.state.start_step()
        for position, one in enumerate(self.schedule):
            self.state.start_pass(self.schedule[position:])
            for _ in range(self.receives.get(position, 0)):
                self.ahead.append(self._receive(self.settings.groups.ranks.following))
            if one.forward:
                self._forward(one)
            else:
                self._backward(one)
        self.sent = None
        self.state.update()

    def _forward(self, one: PipelinePass) -> None:
        network, chunk = self.networks[one.chunk], self.stage.chunks[one.chunk]
        x = network.tokens if chunk.embedding else self._receive(self.settings.groups.ranks.previous)
        recorded = _Recorded(network)
        # legacy/model/transformer.py: the received tensor becomes the value of a parameter, and a copy of that the input.
        given = mint.clone(x) if self.legacy and not chunk.embedding else x
        y = recorded(given)
        # HyperParallel's `GradFunction` (pipeline_parallel/backward.py) keeps the output until the backward pass.
        self.in_flight[one.chunk].append((recorded, given, (x, y) if chunk.head or not self.legacy else (x,)))
        if not chunk.head:
            distributed.send(y, self.settings.groups.ranks.following)

    def _backward(self, one: PipelinePass) -> None:
        chunk, weights = self.stage.chunks[one.chunk], self.weights[one.chunk]
        if chunk.head:
            sens = mint.ones((), dtype=mindspore.float32)
        else:
            sens = self.ahead.popleft() if self.ahead else self._receive(self.settings.groups.ranks.following)
        last = one.micro_batch == self.settings.config.batch.micro_batch_num - 1
        self.state.start_backward(one.chunk, last=last)
        recorded, x, _kept = self.in_flight[one.chunk].popleft()
        differentiate = GradOperation(get_all=not chunk.embedding, get_by_list=True, sens_param=True)
        gradients = differentiate(recorded, weights)(x, sens)
        if not chunk.embedding:
            (by_input, *_), gradients = gradients
            distributed.send(by_input, self.settings.groups.ranks.previous)
            # core/pipeline_parallel/schedules.py: it is freed when the next one exists.
            self.sent = by_input if self.legacy else None
        self.state.take(weights, gradients)
        self.state.finish_backward(one.chunk, last=last)

    def _receive(self, rank: int) -> Tensor:
        settings = self.settings
        tokens = settings.tokens // (settings.groups.tensor.size if settings.sequence else 1)
        shape = (tokens, settings.config.batch.micro_batch_size, settings.shape.hidden_size)
        dtype = settings.dtype if self.legacy else settings.format_of("compute")
        buffer = mint.empty(shape, dtype=dtype)
        distributed.recv(buffer, rank)
        return buffer


def _count_receives(schedule: Sequence[PipelinePass], heads: Collection[int]) -> Counter[int]:
    # Count the gradients received before each pass. Interleaved schedules receive them early: right after the previous backward
    # pass, the first one before the forward pass that precedes it (``forward_backward_pipelining_with_interleaving``,
    # core/pipeline_parallel/schedules.py).
    backward = [position for position, one in enumerate(schedule) if not one.forward]
    ahead = [max(backward[0] - 1, 0), *(position + 1 for position in backward[:-1])]
    return Counter(
        early for position, early in zip(backward, ahead, strict=True) if schedule[position].chunk not in heads
    )


class _Recorded(nn.Cell):
    """One forward pass, kept for its backward pass.

    Each pass needs a separate cell: MindSpore finds the recorded pass by the cell (as ``ModelWithLoss`` of
    MindSpeed-Core-MS r0.1.0, core/pipeline_parallel/schedules.py).
    """

    def __init__(self, network: ChunkNetwork) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.set_grad()

    def construct(self, x: Tensor) -> Tensor:
        return self.network(x)


def run(job_data: Mapping[str, object]) -> None:
    """Build the stage, train, and list the tensors that stay in memory."""
    job = from_plain(ReferenceJob, job_data)
    report("build")
    begin_dynamic_graph()
    make_clones_cheap()
    if job.data_parallel * job.config.parallelism.model_size > 1:
        init()
    groups = make_groups(rank_groups(job.config, job.data_parallel, int(os.environ["RANK_ID"])))
    trainer = Trainer(job.stage, NetworkSettings(job.config, groups))
    for step in range(1, job.steps + 1):
        report("step", step, job.steps)
        trainer.step()
    mindspore.runtime.synchronize()
    write_tensor_list(trainer.state.tensors())
    report("write")
