"""Cross-entropy in float32, of whole logits or of the tensor-parallel parts of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore
from mindspore import Tensor, mint
from mindspore.common._grad_function import _Function
from mindspore.mint import distributed

from .parallel import Saved, summed

if TYPE_CHECKING:
    from .parallel import RankGroup


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean loss from whole logits.

    Args:
        logits: ``(tokens, words)``.
        labels: ``(tokens,)``.
    """
    return mint.mean(_Picked.apply(_LogProbabilities.apply(logits), labels.reshape(-1, 1)))


def split_cross_entropy(logits: Tensor, labels: Tensor, group: RankGroup, *, legacy: bool) -> Tensor:
    """The mean loss from the parts of the logits, even if there is only one.

    Args:
        logits: ``(tokens, words of this rank)``.
        labels: ``(tokens,)``.
        group: The tensor-parallel ranks.
        legacy: As ``legacy/model/gpt_model.py`` of MindSpeed-Core-MS does it, otherwise as MindFormers' dynamic graph.
    """
    if legacy:
        return mint.mean(_SplitCrossEntropy.apply(logits.astype(mindspore.float32), labels, group))
    return mint.mean(_SplitByOperators.apply(logits, labels, group))


class _LogProbabilities(_Function):
    """Logarithms of the words' probabilities, negated, as MindFormers' dynamic graph computes them.

    Operator by operator (``_LogSoftmax`` of pynative/loss/loss.py, 2.1): four float32 tensors of the logits' size are
    alive at once, and the logits themselves stay for the backward pass.
    """

    @staticmethod
    def forward(ctx: Saved, logits: Tensor) -> Tensor:
        ctx.save_for_backward(logits)
        wide = logits.astype(mindspore.float32)
        shifted = wide - mint.max(wide, dim=1, keepdim=True)[0]
        powers = mint.exp(shifted)
        return mint.log(mint.sum(powers, dim=-1, keepdim=True)) - shifted

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> Tensor:
        (logits,) = ctx.saved_tensors
        return gradient.astype(logits.dtype)


class _Picked(_Function):
    """The loss of every token; its backward pass makes the gradient of both (``_NLLLoss`` there)."""

    @staticmethod
    def forward(ctx: Saved, negated: Tensor, labels: Tensor) -> Tensor:
        ctx.save_for_backward(negated, labels)
        return mint.gather(negated, 1, labels.astype(mindspore.int64)).reshape(-1)

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, None]:
        negated, labels = ctx.saved_tensors
        probabilities = mint.exp(mint.neg(negated))
        one = mint.zeros_like(labels, dtype=probabilities.dtype) - 1
        by_logits = mint.scatter_add(probabilities, 1, labels.astype(mindspore.int64), one)
        by_logits = by_logits * gradient.reshape(-1, 1)
        return by_logits, None


class _SplitCrossEntropy(_Function):
    """The loss of every token, as ``VocabParallelCrossEntropy`` of Megatron-LM and MindSpeed-Core-MS r0.1.0.

    The softmax of this rank's words is kept for the backward pass and becomes the gradient in place.
    """

    @staticmethod
    def forward(ctx: Saved, logits: Tensor, labels: Tensor, group: RankGroup) -> Tensor:
        maximum = mint.max(logits, dim=-1, keepdim=True)[0]
        if group.size > 1:
            distributed.all_reduce(maximum, "max", group=group.name)
        logits = logits - maximum
        own = labels - logits.shape[-1] * group.place
        absent = mint.logical_or(mint.lt(own, 0), mint.ge(own, logits.shape[-1]))
        own = mint.where(absent, mint.zeros_like(own), own).reshape(-1, 1).astype(mindspore.int64)
        predicted = mint.gather(logits, 1, own).reshape(-1).masked_fill(absent, 0.0)
        softmax = mint.exp(logits)
        total = summed(mint.sum(softmax, dim=-1, keepdim=True), group)
        softmax.div_(total)
        ctx.save_for_backward(softmax, absent, own)
        return mint.log(total).reshape(-1) - summed(predicted, group)

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, None, None]:
        softmax, absent, own = ctx.saved_tensors
        hit = (1.0 - absent.astype(softmax.dtype)).reshape(-1, 1)
        softmax.scatter_add_(1, own, -hit)
        return softmax.mul_(gradient.reshape(-1, 1)), None, None


class _SplitByOperators(_Function):
    """The loss of every token, as MindFormers' dynamic graph computes it (pynative/loss/loss.py, 2.0 and 2.1).

    The powers of this rank's words, float32, stay for the backward pass, which goes operator by operator: at its end what
    the last two came to, the probabilities and the powers are alive, four float32 tensors of the parts' size.
    """

    @staticmethod
    def forward(ctx: Saved, logits: Tensor, labels: Tensor, group: RankGroup) -> Tensor:
        ctx.dtype = logits.dtype
        wide = logits.astype(mindspore.float32)
        highest = mint.max(wide, dim=-1, keepdim=True)[0]
        if group.size > 1:
            distributed.all_reduce(highest, "max", group=group.name)
        powers = mint.exp(mint.sub(wide, highest))
        total = summed(mint.sum(powers, dim=-1, keepdim=True), group)
        own = labels - wide.shape[-1] * group.place
        here = mint.logical_and(mint.ge(own, 0), mint.lt(own, wide.shape[-1]))
        own = (own * here.astype(own.dtype)).reshape(-1, 1).astype(mindspore.int64)
        hit = here.astype(mindspore.float32).reshape(-1, 1)
        predicted = summed(mint.gather(wide, 1, own) * hit, group)
        ctx.save_for_backward(powers, total, own, hit)
        return (highest + mint.log(total) - predicted).reshape(-1)

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, None, None]:
        powers, total, own, hit = ctx.saved_tensors
        probabilities = mint.div(powers, total)
        by_logits = mint.scatter_add(probabilities, 1, own, mint.neg(hit))
        by_logits = by_logits * gradient.reshape(-1, 1)
        by_logits = by_logits * 1.0  # there: by the number of ranks
        return by_logits.astype(ctx.dtype), None, None
