"""Manage gradients of weights on one rank: float32, in ``main_grad``, until the optimizer's step.

HyperParallel's behaviour over several ranks is not here: a comparison would only test this stand-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import mindspore
from hyper_parallel.core.dtensor.dtensor import DTensor
from mindspore import Parameter, Tensor, nn, ops

if TYPE_CHECKING:
    from hyper_parallel.core.dtensor.device_mesh import DeviceMesh


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Number formats."""

    reduce_dtype: Any = None
    apply_grad_on_fp32_main_grad: bool = False


class HSDPModule:
    """The additional methods of a cell with managed weights."""

    managed: list[Parameter]

    def set_requires_all_reduce(self, wanted: bool) -> None:  # noqa: FBT001 - as it is called
        """Do nothing: there are no copies of the weights."""

    def set_reduce_op_type(self, kind: str) -> None:
        """Do nothing: there is no reduction."""

    def set_modules_to_forward_prefetch(self, modules: Sequence[nn.Cell]) -> None:
        """Do nothing: there is no gathering."""

    def set_modules_to_backward_prefetch(self, modules: Sequence[nn.Cell]) -> None:
        """Do nothing: there is no gathering."""

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for cell in self.cells_and_names():  # type: ignore[attr-defined] # the other class has it
            for weight in getattr(cell[1], "managed", ()):
                weight.main_grad = weight.grad = None


def fully_shard(
    module: nn.Cell,
    *,
    mesh: DeviceMesh,
    ignored_params: Iterable[Parameter] = (),
    **_: object,
) -> nn.Cell:
    """Manage the weights of a cell that are not managed yet."""
    if mesh.size() != 1:
        message = "this stand-in for HyperParallel shares no weights out over ranks"
        raise NotImplementedError(message)
    others = {id(weight) for weight in ignored_params}
    others |= {id(weight) for _, cell in module.cells_and_names() for weight in getattr(cell, "managed", ())}
    weights = [weight for weight in module.get_parameters() if id(weight) not in others and weight.requires_grad]
    for weight in weights:
        weight.register_hook(_keeps(weight))
    module.__class__ = _both(type(module))
    module.managed = weights
    return module


_classes: dict[type, type] = {}


def _both(kind: type) -> type:
    if kind not in _classes:
        _classes[kind] = type(kind.__name__, (HSDPModule, kind), {"__module__": kind.__module__})
    return _classes[kind]


def _keeps(weight: Parameter) -> Callable[[Tensor], Tensor]:
    def hook(gradient: Tensor) -> Tensor:
        wide = ops.cast(gradient, mindspore.float32) if gradient.dtype != mindspore.float32 else gradient
        before = getattr(weight, "main_grad", None)
        weight.main_grad = wide if before is None else before.add_(wide)
        return Tensor(0, gradient.dtype)  # instead of the value that MindSpore would keep in ``grad``

    return hook


__all__ = ["DTensor", "HSDPModule", "MixedPrecisionPolicy", "fully_shard"]
