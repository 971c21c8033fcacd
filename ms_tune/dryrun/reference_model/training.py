"""One training step as MindSpeed-Core-MS r0.1.0 does it, as far as memory goes.

Gradients of each micro-batch are added to buffers that live for the whole run. With mixed precision the optimizer
works on float32 copies of the weights (core/optimizer/optimizer.py, Float16OptimizerWithFloat16Params); the distributed
optimizer keeps only this rank's part of those copies and of the moments, gets its part of the gradients by
reduce-scatter and returns the new weights by all-gather (core/optimizer/distrib_optimizer.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore
from mindspore import Parameter, Tensor, mint
from mindspore.common.initializer import initializer
from mindspore.mint import distributed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ms_tune.config.model import TrainingConfig

    from .network import Transformer

_LEARNING_RATE = 1e-4  # its value changes nothing in simulation
DTYPES = {"float16": mindspore.float16, "bfloat16": mindspore.bfloat16, "float32": mindspore.float32}


class Trainer:
    """Runs training steps of a network.

    Args:
        network: The network with its loss.
        config: The neutral model of the user's config.
        data_parallel: Data-parallel ranks.
    """

    def __init__(self, network: Transformer, config: TrainingConfig, data_parallel: int) -> None:
        self.weights = list(network.trainable_params())
        self.micro_batches = config.batch.micro_batch_num
        self.data_parallel = data_parallel
        self.parts = data_parallel if config.optimizer.distributed else 1
        self.buffers = self._gradient_buffers(config) if config.optimizer.gradient_buffers else []
        self.main = self._main_copies(config) if config.precision.mixed or self.parts > 1 else []
        self.optimizer = mint.optim.AdamW(self.main or self.weights, lr=_LEARNING_RATE)
        self.forward_and_backward = mindspore.value_and_grad(network, None, self.weights)

    def _gradient_buffers(self, config: TrainingConfig) -> list[Parameter]:
        """Flat buffers, padded to a multiple of the parts, that a hook on each weight adds its gradient to."""
        dtype = DTYPES[config.precision.gradients.value]
        buffers = [_zeros(f"gradient.{weight.name}", self._padded_size(weight), dtype) for weight in self.weights]
        for weight, buffer in zip(self.weights, buffers, strict=True):
            weight.register_hook(_adds_to(buffer, weight))
        return buffers

    def _main_copies(self, config: TrainingConfig) -> list[Parameter]:
        """The optimizer's own copy of each weight, or of this rank's part of it."""
        dtype = mindspore.float32 if config.precision.mixed else DTYPES[config.precision.parameters.value]
        return [
            _zeros(f"main.{weight.name}", self._padded_size(weight) // self.parts, dtype) for weight in self.weights
        ]

    def _padded_size(self, weight: Parameter) -> int:
        return -(-int(weight.size) // self.parts) * self.parts

    def step(self, tokens: Tensor, labels: Tensor) -> None:
        """One step: every micro-batch forward and backward, gradients together, weights updated."""
        for buffer in self.buffers:
            buffer.zero_()
        gradients: list[Tensor] = list(self.buffers)
        for _ in range(self.micro_batches):
            _loss, latest = self.forward_and_backward(tokens, labels)
            if not gradients:
                gradients = list(latest)
            elif not self.buffers:
                for total, gradient in zip(gradients, latest, strict=True):
                    total.add_(gradient)
            del latest
        self.update(gradients)

    def update(self, gradients: list[Tensor]) -> None:
        """Reduce the gradients, step the optimizer, and bring the new values into the weights."""
        self.optimizer(tuple(self._reduce(i, gradient) for i, gradient in enumerate(gradients)))
        if not self.main:
            return
        for weight, main in zip(self.weights, self.main, strict=True):
            new = main.astype(weight.dtype)
            if self.parts > 1:
                whole = mint.empty((main.size * self.parts,), dtype=weight.dtype)
                distributed.all_gather_into_tensor(whole, new)
                new = whole
            weight.copy_(new[: weight.size].reshape(weight.shape))

    def _reduce(self, index: int, gradient: Tensor) -> Tensor:
        """The gradient of one weight over all ranks, as the optimizer wants it: shape, part, number format."""
        if self.parts > 1:
            whole = gradient.reshape(-1)
            part = mint.empty((whole.size // self.parts,), dtype=whole.dtype)
            distributed.reduce_scatter_tensor(part, whole)
            # As core/distributed/param_and_grad_buffer.py: the result goes back into this rank's part of the buffer.
            gradient = whole[: part.size]
            gradient.copy_(part)
        elif self.data_parallel > 1:
            distributed.all_reduce(gradient)
        target = self.main[index] if self.main else self.weights[index]
        size = target.size
        return gradient.reshape(-1)[:size].reshape(target.shape).astype(target.dtype)

    def tensors(self) -> dict[str, list[Tensor]]:
        """The tensors that live for the whole run, by category."""
        moments = [*self.optimizer.exp_avg, *self.optimizer.exp_avg_sq]
        return {"weights": self.weights, "optimizer_state": [*self.main, *moments], "gradients": self.buffers}


def _adds_to(buffer: Parameter, weight: Parameter) -> Callable[[Tensor], Tensor]:
    """A gradient hook as that of core/distributed/distributed_data_parallel.py: accumulate, and let go at once."""
    size, shape = weight.size, weight.shape

    def hook(gradient: Tensor) -> Tensor:
        buffer[:size].reshape(shape).add_(gradient)
        return Tensor(0, weight.dtype)

    return hook


def _zeros(name: str, size: int, dtype: mindspore.Type) -> Parameter:
    return Parameter(initializer("zeros", (size,), dtype), name=name, requires_grad=False)
