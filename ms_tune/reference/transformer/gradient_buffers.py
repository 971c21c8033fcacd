"""Gradient buffers of MindSpeed-Core-MS r0.1.0 and how they are reduced.

The weights of a chunk share one flat buffer for each set of data-parallel ranks, in reverse order; it is reduced in
buckets. Where reducing overlaps with the backward pass, a bucket goes out as soon as its last gradient of the step is there,
and what it was sent from and the result stay until the step's end (core/distributed/param_and_grad_buffer.py and
distributed_data_parallel.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import mindspore
from mindspore import Parameter, Tensor, mint
from mindspore.common.initializer import initializer
from mindspore.mint import distributed

from ms_tune.reference.transformer.parallel import sum_over_ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ms_tune.dialects.job_parts import Optimizer, TrainingConfig
    from ms_tune.reference.transformer.parallel import RankGroup

_LEAST_BUCKET, _BUCKET_PER_RANK = 40_000_000, 1_000_000  # elements; distributed_data_parallel.py, bucket_size


@dataclass(frozen=True, slots=True)
class BucketWeight:
    """A weight and the ranks that have copies of it."""

    weight: Parameter
    group: RankGroup
    parts: int  # parts into which the optimizer's state is cut

    @property
    def padded(self) -> int:
        """Elements, up to a multiple of the parts."""
        return -(-int(self.weight.size) // self.parts) * self.parts


@dataclass(slots=True)
class Bucket:
    """A part of a buffer that is reduced at once."""

    flat: Tensor  # the whole buffer
    start: int  # its first element there, up to `end`
    end: int
    group: RankGroup
    parts: int
    members: list[BucketWeight]  # the weights whose gradients it holds, in order
    _ready: int = 0
    _sent: list[Tensor] = field(default_factory=list)
    _result: Tensor | None = None

    def reset(self) -> None:
        """Forget the step before."""
        self._ready, self._result = 0, None

    def add_ready(self) -> None:
        """One more gradient of the step's last micro-batch is there."""
        self._ready += 1
        if self._ready == len(self.members):
            self.send()

    def send(self) -> None:
        """Start to reduce, unless that was done already."""
        if self.group.size == 1 or self._result is not None:
            return
        source = self.flat[self.start : self.end]
        if self.start:
            # Operators of communication take no part of a buffer: MindSpore copies it first.
            source = mint.clone(source)
            self._sent.append(source)
        if self.parts > 1:
            self._result = mint.empty((source.size // self.parts,), dtype=source.dtype)
            distributed.reduce_scatter_tensor(self._result, source, group=self.group.name)
        else:
            self._result = mint.clone(source)
            distributed.all_reduce(self._result, group=self.group.name)

    def finish(self) -> None:
        """Put the result back into the buffer."""
        self.send()
        if self._result is not None:
            self.flat[self.start : self.start + self._result.size].copy_(self._result)
            self._result = None
        self._sent.clear()

    def gathered(self) -> Tensor:
        """The new values of all its weights, of which every rank has a part (``distrib_optimizer.py``).

        As many elements as the bucket has, beside the weights themselves.
        """
        size = (self.end - self.start) // self.parts
        whole = mint.empty((self.end - self.start,), dtype=self.members[0].weight.dtype)
        own = whole[self.group.place * size : (self.group.place + 1) * size]
        if self.start and not self.group.place:
            own = mint.clone(own)  # there it is a part of one buffer with all weights, which MindSpore copies first
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
        # Made on the device: as a parameter it would begin as an array on the host, larger than many hosts' memory.
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
        # A gradient hook as that of core/distributed/distributed_data_parallel.py: accumulate, and let go at once.
        def hook(gradient: Tensor) -> Tensor:
            self.of(weight, int(weight.size)).reshape(weight.shape).add_(gradient)
            if self._open:
                bucket.add_ready()
            return Tensor(0, weight.dtype)

        return hook

    def of(self, weight: Parameter, size: int) -> Tensor:
        """The first elements of a weight's gradient."""
        flat, start = self._views[id(weight)]
        return flat[start : start + size]

    def start_step(self) -> None:
        """Forget the gradients of the step before."""
        self._open = False
        for flat in self.flats:
            flat.zero_()
        for bucket in self.buckets:
            bucket.reset()

    def open(self) -> None:
        """From here on the gradients are those of the step's last micro-batch."""
        self._open = self._early

    def reduce(self) -> None:
        """Have the sums over all ranks in the buffers."""
        if self._early:
            for bucket in self.buckets:
                bucket.send()
        for bucket in self.buckets:
            bucket.finish()

    def gather(self) -> None:
        """Bring the new values of all ranks into the weights, bucket after bucket."""
        for bucket in self.buckets:
            if bucket.parts == 1:
                continue
            whole = bucket.gathered()  # the one before is let go only now
            place = 0
            for member in bucket.members:
                weight = member.weight
                weight.copy_(whole[place : place + weight.size].reshape(weight.shape))
                place += member.padded


def make_zeros(name: str, size: int, dtype: mindspore.Type) -> Parameter:
    """A parameter that is not trained."""
    return Parameter(initializer("zeros", (size,), dtype), name=name, requires_grad=False)


class LooseGradients:
    """The gradients of all weights of a stage, as MindSpeed-Core-MS r0.1.0 adds them up without DDP.

    ``GradAccumulator`` (training/grad_handler.py) keeps one sum of each gradient for good, in the gradient's number format.
    With mixed precision the optimizer has a hook on every weight, which keeps a second sum, float32, on the weight until the
    next step and hands it on as the gradient (``Float16OptimizerWithFloat16Params``, core/optimizer/optimizer.py).
    """

    def __init__(self, entries: Sequence[BucketWeight], config: TrainingConfig) -> None:
        # In a pipeline, and for one micro-batch, nothing but the gradients themselves is kept.
        self._keeps = config.batch.micro_batch_num > 1 and config.parallelism.pipeline == 1
        self._mixed = config.precision.mixed
        self._sums: dict[int, Tensor] = {}
        self._wide: dict[int, Tensor] = {}
        # Without mixed precision the averages over all ranks outlive their step, as a run of the real code shows.
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
        """Forget the gradients of the step before; memory that is kept for good stays."""
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
        """A weight's gradient over all ranks, as the optimizer wants it; the weight has that one from here on."""
        held = self._wide if self._mixed else self._sums
        total = held[id(entry.weight)]
        if entry.group.size > 1:
            total = mint.div(sum_over_ranks(total, entry.group), entry.group.size)
        if self._mixed:
            held[id(entry.weight)] = total
        else:
            self._averages.append(total)
        return total

    def tensors(self) -> list[Tensor]:
        """What is kept for good."""
        return list(self._sums.values())


class ArrivingGradients:
    """The gradients of a single device, each added up as it comes, as MindFormers' dynamic graph does.

    A hook makes a gradient float32 (``_register_grad_hooks`` of pynative/trainer/trainer.py, MindFormers 2.1) and ``backward``
    adds it to that of the micro-batches before, into new memory (``AddExt``, as a trace of MindSpore 2.10 shows): one weight at a
    time, not all of them when the backward pass is over.
    """

    def __init__(self, entries: Sequence[BucketWeight], dtype: mindspore.Type) -> None:
        self._sums: dict[int, Tensor] = {}
        for entry in entries:
            # Two hooks: while one runs, MindSpore holds what it gave it.
            entry.weight.register_hook(lambda gradient: gradient.astype(dtype))
            entry.weight.register_hook(self._adds(entry.weight))

    def _adds(self, weight: Parameter) -> Callable[[Tensor], Tensor]:
        def hook(gradient: Tensor) -> Tensor:
            before = self._sums.get(id(weight))
            self._sums[id(weight)] = gradient if before is None else mint.add(before, gradient)
            return Tensor(0, weight.dtype)

        return hook

    def start_step(self) -> None:
        """Forget the gradients of the step before."""
        self._sums.clear()

    def take(self, weights: Sequence[Parameter], gradients: Sequence[Tensor]) -> None:
        """The hooks have taken them."""

    def of(self, entry: BucketWeight) -> Tensor:
        """A weight's gradient."""
        return self._sums.pop(id(entry.weight))

    def tensors(self) -> list[Tensor]:
        """Nothing is kept for good."""
        return []
