"""The norm of all gradients, and AdamW as the frameworks take its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore
from mindspore import mint

from ms_tune.reference.read import FUSED_ADAMW

from .buckets import zeros
from .linear import cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mindspore import Parameter, Tensor

    from ms_tune.dialects.job_parts import TrainingConfig

# Their values change nothing in simulation.
_RATE, _DECAY, _FIRST, _SECOND, _EPSILON = 1e-4, 0.1, 0.9, 0.95, 1e-8


def make_adamw(weights: Sequence[Parameter], config: TrainingConfig) -> AdamW | mint.optim.AdamW:
    """One operator for each weight, or several in MindFormers' dynamic graph unless the config asks for one."""
    if config.shape.legacy or config.optimizer.name == FUSED_ADAMW:
        return mint.optim.AdamW(weights, lr=_RATE)
    return AdamW(weights)


def clones(weights: Sequence[Parameter]) -> list[Tensor]:
    """Copies of the weights that are narrower than float32, which nobody uses and nobody lets go.

    ``_init_main_params`` of MindFormers 2.0 (pynative/optimizer/adamw.py) makes its float32 copies of ``clone()``, and MindSpore
    remembers what was cloned (``cloned_obj``); 2.1 does without.
    """
    return [mint.clone(weight) for weight in weights if weight.dtype != mindspore.float32]


def squared_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The sum of all gradients' squares, a scalar (``_calculate_global_grad_norm``, pynative/trainer/utils.py, MindFormers 2.1).

    The squares of one gradient after the other are alive, as large as it is.
    """
    return mint.sum(mint.stack([mint.sum(mint.square(cast(one, mindspore.float32))) for one in gradients]))


class AdamW:
    """AdamW, operator by operator, one weight after the other (``pynative/optimizer/adamw.py`` of MindFormers 2.1).

    What an operator comes to is alive beside what the ones before it came to: several tensors of the largest weight's size.

    Args:
        weights: What is updated.
    """

    def __init__(self, weights: Sequence[Parameter]) -> None:
        self.parameters = weights
        self.exp_avg = [zeros(f"adam_m.{weight.name}", int(weight.size), mindspore.float32) for weight in weights]
        self.exp_avg_sq = [zeros(f"adam_v.{weight.name}", int(weight.size), mindspore.float32) for weight in weights]
        for moment in (*self.exp_avg, *self.exp_avg_sq):
            moment.zero_()  # a new parameter is on the host

    def __call__(self, gradients: Sequence[Tensor]) -> None:
        """Update every weight."""
        for weight, gradient, first, second in zip(
            self.parameters, gradients, self.exp_avg, self.exp_avg_sq, strict=True
        ):
            _update(weight, gradient, first.view(weight.shape), second.view(weight.shape))


def _update(weight: Tensor, gradient: Tensor, first: Tensor, second: Tensor) -> None:
    wide = cast(gradient, mindspore.float32)
    decayed = cast(weight, mindspore.float32) * (1.0 - _RATE * _DECAY)
    first.copy_((first * _FIRST).add(wide * (1.0 - _FIRST)))
    second.copy_(mint.addcmul(second * _SECOND, wide, wide, value=1.0 - _SECOND))
    deviation = (second / (1.0 - _SECOND)).sqrt().add(_EPSILON)
    weight.copy_(cast(decayed - (first / deviation) * _RATE, weight.dtype))
