"""Cross-entropy in float32, of whole logits or of the tensor-parallel parts of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mindspore
from mindspore import Tensor, mint
from mindspore.common._grad_function import _Function
from mindspore.mint import distributed

from .parallel import Saved, gather, summed

if TYPE_CHECKING:
    from .parallel import Group


def cross_entropy(logits: Tensor, labels: Tensor, group: Group, split: bool) -> Tensor:  # noqa: FBT001 - as it is called
    """The mean loss.

    Args:
        logits: ``(tokens, words)``; this rank's words only, if there is more than one rank.
        labels: ``(tokens,)``.
        group: The tensor-parallel ranks.
        split: Compute from the parts; otherwise the logits of all ranks are gathered first.
    """
    if group.size > 1 and not split:
        parts = gather(logits, group).reshape(group.size, *logits.shape)
        logits = mint.permute(parts, (1, 0, 2)).reshape(logits.shape[0], -1)
    elif group.size > 1:
        return mint.mean(_SplitCrossEntropy.apply(logits.astype(mindspore.float32), labels, group))
    return mint.nn.functional.cross_entropy(logits.astype(mindspore.float32), labels)


class _SplitCrossEntropy(_Function):
    """The loss of every token, as ``VocabParallelCrossEntropy`` of Megatron-LM and MindSpeed-Core-MS r0.1.0.

    The softmax of this rank's words is kept for the backward pass and becomes the gradient in place.
    """

    @staticmethod
    def forward(ctx: Saved, logits: Tensor, labels: Tensor, group: Group) -> Tensor:
        maximum = mint.max(logits, dim=-1, keepdim=True)[0]
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
