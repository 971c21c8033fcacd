"""Gradients that lie in no common buffer: of MindSpeed-Core-MS without DDP, and of MindFormers on a single device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore
from mindspore import Parameter, Tensor, mint

from .parallel import summed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ms_tune.dialects.job_parts import TrainingConfig

    from .buckets import BucketWeight


class LooseGradients:
    """The gradients of all weights of a stage, as MindSpeed-Core-MS r0.1.0 adds them up without DDP.

    ``GradAccumulator`` (training/grad_handler.py) keeps one sum of each gradient for good, in the gradient's number format.
    With mixed precision the optimizer has a hook on every weight, which keeps a second sum, float32, on the weight until the
    next step and hands it on as the gradient (``Float16OptimizerWithFloat16Params``, core/optimizer/optimizer.py).

    Args:
        entries: The weights, with the ranks that have copies of them.
        config: The config.
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
            total = mint.div(summed(total, entry.group), entry.group.size)
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

    Args:
        entries: The weights.
        dtype: Number format of the sums.
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
