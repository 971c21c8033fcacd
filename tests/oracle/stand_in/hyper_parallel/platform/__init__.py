"""The layer above the frameworks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mindspore.ops import communication

from hyper_parallel import _refused

if TYPE_CHECKING:
    from mindspore import Tensor


class _Platform(_refused.Module):
    """What modules ask for when they are imported."""

    @staticmethod
    def differentiable_all_reduce(value: Tensor, operation: str, group: str) -> Tensor:
        """The sum over a group, through which gradients flow."""
        return communication.all_reduce(value, operation, group)[0]


def get_platform() -> _Platform:
    """The one platform."""
    return _Platform(f"{__name__}.get_platform()")
