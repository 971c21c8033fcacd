"""Implement the gradient buffers of MindSpeed-Core-MS r0.1.0 and their reduction.

The weights of a chunk share one flat buffer per set of data-parallel ranks, in reverse order; it is reduced in buckets. If
reduction overlaps with the backward pass, a bucket is sent as soon as its last gradient of the step has arrived, and the sent
copy and the result stay until the step's end (core/distributed/param_and_grad_buffer.py and distributed_data_parallel.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import mindspore
from mindspore import Parameter, Tensor, mint
from mindspore.common.initializer import initializer
from mindspore.mint import distributed

from ms_tune.reference.transformer.parallel import RankGroup, sum_over_ranks

if TYPE_CHECKING:
    from ms_tune.dialects.job_parts import Optimizer, TrainingConfig

_LEAST_BUCKET, _BUCKET_PER_RANK = 40_000_000, 1_000_000  # elements; distributed_data_parallel.py, bucket_size


@dataclass(frozen=True, slots=True)
class BucketWeight:
    """A weight and the ranks that have copies of it."""

    weight: Parameter
    group: RankGroup
    parts: int  # number of shards of the optimizer's state

    @property
    def padded(self) -> int:
        """Return the number of elements, rounded up to a multiple of the shards."""
        return -(-int(self.weight.size) // self.parts) * self.parts


@dataclass(slots=True)
class Bucket:
    """A part of a buffer that is reduced in one operation."""

    flat: Tensor  # the whole buffer
    start: int  # its first element there, up to `end`
    end: int
    group: RankGroup
    parts: int
    members: list[BucketWeight]  # the weights whose gradients it contains, in order
    _ready: int = 0
    _sent: list[Tensor] = field(default_factory=list)
    _result: Tensor | None = None

    def reset(self) -> None:
        """Discard the state of the previous step."""
        self._ready, self._result = 0, None

    def add_ready(self) -> None:
        """Count one more gradient of the step's last micro-batch."""
        self._ready += 1
        if self._ready == len(self.members):
            self.send()

    def send(self) -> None:
        """Start the reduction, unless already started."""
        if self.group.size == 1 or self._result is not None:
            return
        source = self.flat[self.start : self.end]
        if self.start:
            # Communication operators do not accept a part of a buffer: MindSpore copies it first.
            source = mint.clone(source)
            self._sent.append(source)
        if self.parts > 1:
            self._result = mint.empty((source.size // self.parts,), dtype=source.dtype)
            distributed.reduce_scatter_tensor(self._result, source, group=self.group.name)
        else:
            self._result = mint.clone(source)
            distributed.all_reduce(self._result, group=self.group.name)

    def finish(self) -> None:
        """Copy the result back into the buffer."""
        self.send()
        if self._result is not None:
            self.flat[self.start : self.start + self._result.size].copy_(self._result)
            self._result = None
        self._sent.clear()

    def gathered(self) -> Tensor:
        """Gather the new values of all weights of the bucket from the ranks that have parts of them (``distrib_optimizer.py``).

        Uses as many elements as the bucket has, in addition to the weights themselves.
        """
        size = (self.end - self.start) // self.parts
        whole = mint.empty((self.end - self.start,), dtype=self.members[0].weight.dtype)
        own = whole[self.group.place * size : (self.group.place + 1) * size]
        if self.start and not self.group.place:
            own = mint.clone(own)  # a part of one buffer there, which MindSpore copies first
        distributed.all_gather_into_tensor(whole, own, group=self.group.name)
        return whole


class GradientBuffers:
    """The buffers of one chunk's weights."""

    def __init__(
        self, weights: Sequence[BucketWeight], dtype: mindspore.Type, optimizer: Optimizer, stage: int
    ) -> None:
        self._early = optimizer.overlaps and not (optimizer.delays and stage > 0)
        self._open = False
        self.weights = weights
        self.flats: list[Tensor] = []
        self.buckets: list[Bucket] = []
        self._views: dict[int, tuple[Tensor, int]] = {}
        kinds: dict[tuple[str, mindspore.Type], list[BucketWeight]] = {}
        for weight in reversed(weights):
            kinds.setdefault((weight.group.name, weight.weight.dtype), []).append(weight)
        for members in kinds.values():
            limit = optimizer.bucket_size or max(_LEAST_BUCKET, _BUCKET_PER_RANK * members[0].group.size)
            self._allocate(members, dtype, limit if optimizer.overlaps and stage == 0 else None)

    def _allocate(self, members: Sequence[BucketWeight], dtype: mindspore.Type, limit: int | None) -> None:
        # Created on the device: a parameter would begin as an array on the host, larger than many hosts' memory.
        flat = mint.zeros((sum(weight.padded for weight in members),), dtype=dtype)
        self.flats.append(flat)
        start = end = 0
        inside: list[BucketWeight] = []
        for weight in members:
            if limit is not None and inside and end - start >= limit:
                self._close(flat, start, end, inside)
                start, inside = end, []
            self._views[id(weight.weight)] = (flat, end)
            end += weight.padded
            inside.append(weight)
        self._close(flat, start, end, inside)

    def _close(self, flat: Tensor, start: int, end: int, inside: Iterable[BucketWeight]) -> None:
        weights = list(inside)
        bucket = Bucket(flat, start, end, weights[0].group, weights[0].parts, weights)
        self.buckets.append(bucket)
        for weight in weights:
            weight.weight.register_hook(self._adds(weight.weight, bucket))

    def _adds(self, weight: Parameter, bucket: Bucket) -> Callable[[Tensor], Tensor]:
        # Return a gradient hook as in core/distributed/distributed_data_parallel.py: accumulate, and free at once.
        def hook(gradient: Tensor) -> Tensor:
            self.of(weight, int(weight.size)).reshape(weight.shape).add_(gradient)
            if self._open:
                bucket.add_ready()
            return Tensor(0, weight.dtype)

        return hook

    def of(self, weight: Parameter, size: int) -> Tensor:
        """Return the first ``size`` elements of a weight's gradient in its buffer."""
        flat, start = self._views[id(weight)]
        return flat[start : start + size]

    def start_step(self) -> None:
        """Clear the gradients of the previous step."""
        self._open = False
        for flat in self.flats:
            flat.zero_()
        for bucket in self.buckets:
            bucket.reset()

    def open(self) -> None:
        """Mark the start of the step's last micro-batch."""
        self._open = self._early

    def reduce(self) -> None:
        """Reduce the buffers to the sums over all ranks."""
        if self._early:
            for bucket in self.buckets:
                bucket.send()
        for bucket in self.buckets:
            bucket.finish()

    def gather(self) -> None:
        """Copy the new values of all ranks into the weights, bucket by bucket."""
        for bucket in self.buckets:
            if bucket.parts == 1:
                continue
            whole = bucket.gathered()  # the previous one is freed only now
            place = 0
            for member in bucket.members:
                weight = member.weight
                weight.copy_(whole[place : place + weight.size].reshape(weight.shape))
                place += member.padded


def make_zeros(name: str, size: int, dtype: mindspore.Type) -> Parameter:
    """Create a parameter that is not trained."""
    return Parameter(initializer("zeros", (size,), dtype), name=name, requires_grad=False)


class LooseGradients:
    """The gradients of all weights of a stage, accumulated as in MindSpeed-Core-MS r0.1.0 without DDP.

    ``GradAccumulator`` (training/grad_handler.py) permanently keeps one sum per gradient, in the gradient's number format. With
    mixed precision the optimizer has a hook on every weight, which keeps a second sum, float32, on the weight until the next
    step and returns it as the gradient (``Float16OptimizerWithFloat16Params``, core/optimizer/optimizer.py).
    """

    def __init__(self, entries: Sequence[BucketWeight], config: TrainingConfig) -> None:
        # In a pipeline, and for a single micro-batch, only the gradients themselves are kept.
        self._keeps = config.batch.micro_batch_num > 1 and config.parallelism.pipeline == 1
        self._mixed = config.precision.mixed
        self._sums: dict[int, Tensor] = {}
        self._wide: dict[int, Tensor] = {}
        # Without mixed precision the averages over all ranks outlive their step, as in a run of the real code.
        self._averages: list[Tensor] = []
        for entry in entries if self._mixed else ():
            entry.weight.register_hook(self._widens(entry.weight))

    def _widens(self, weight: Parameter) -> Callable[[Tensor], Tensor]:
        def hook(gradient: Tensor) -> Tensor:
            before = self._wide.get(id(weight))
            total = gradient.astype(mindspore.float32) if before is None else mint.add(before, gradient)
            self._wide[id(weight)] = total
            return total

        return hook

    def start_step(self) -> None:
        """Clear the gradients of the previous step; permanent memory stays."""
        self._wide.clear()
        for total in self._sums.values():
            total.zero_()
        if not self._keeps:
            self._sums.clear()

    def take(self, weights: Sequence[Parameter], gradients: Sequence[Tensor]) -> None:
        """Add the gradients of one micro-batch."""
        self._averages.clear()
        for weight, gradient in zip(weights, gradients, strict=True):
            if id(weight) in self._sums:
                self._sums[id(weight)].add_(gradient)
            elif self._keeps:
                self._sums[id(weight)] = mint.zeros_like(gradient).add_(gradient)
            else:
                self._sums[id(weight)] = gradient

    def of(self, entry: BucketWeight) -> Tensor:
        """Return a weight's gradient over all ranks as the optimizer needs it; this also replaces the stored one."""
        sums = self._wide if self._mixed else self._sums
        total = sums[id(entry.weight)]
        if entry.group.size > 1:
            total = mint.div(sum_over_ranks(total, entry.group), entry.group.size)
        if self._mixed:
            sums[id(entry.weight)] = total
        else:
            self._averages.append(total)
        return total

    def tensors(self) -> list[Tensor]:
        """Return the permanent tensors."""
        return list(self._sums.values())


class ArrivingGradients:
    """The gradients of a single device, each accumulated on arrival, as in MindFormers' dynamic graph.

    A hook converts a gradient to float32 (``_register_grad_hooks`` of pynative/trainer/trainer.py, MindFormers 2.1) and
    ``backward`` adds it to that of the previous micro-batches, into new memory (``AddExt``, as a trace of MindSpore 2.10
    shows): one weight at a time, not all of them after the backward pass.
    """

    def __init__(self, entries: Sequence[BucketWeight], dtype: mindspore.Type) -> None:
        self._sums: dict[int, Tensor] = {}
        for entry in entries:
            # Two hooks: while one runs, MindSpore keeps its input.
            entry.weight.register_hook(lambda gradient: gradient.astype(dtype))
            entry.weight.register_hook(self._adds(entry.weight))

    def _adds(self, weight: Parameter) -> Callable[[Tensor], Tensor]:
        def hook(gradient: Tensor) -> Tensor:
            before = self._sums.get(id(weight))
            self._sums[id(weight)] = gradient if before is None else mint.add(before, gradient)
            return Tensor(0, weight.dtype)

        return hook

    def start_step(self) -> None:
        """Discard the gradients of the previous step."""
        self._sums.clear()

    def take(self, weights: Sequence[Parameter], gradients: Sequence[Tensor]) -> None:
        """Do nothing: the hooks have added them."""

    def of(self, entry: BucketWeight) -> Tensor:
        """Return a weight's gradient, and forget it."""
        return self._sums.pop(id(entry.weight))

    def tensors(self) -> list[Tensor]:
        """Return no tensors: nothing is permanent."""
        return []
