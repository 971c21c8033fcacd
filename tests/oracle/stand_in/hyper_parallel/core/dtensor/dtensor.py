"""Define tensors of which every rank has a part: here the part is the tensor, and knows its split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mindspore
from hyper_parallel import _refused
from hyper_parallel.core.dtensor.placement_types import Placement, Shard
from mindspore import Tensor, mint

if TYPE_CHECKING:
    from hyper_parallel.core.dtensor.device_mesh import DeviceMesh


class DTensor(Tensor):  # type: ignore[misc] # MindSpore has no types
    """This rank's part of a tensor.

    MindFormers takes a weight's part (``to_local``) before it computes. Here that is the weight itself, so that nothing is
    copied and gradients reach the weight. The shape is that of the part.
    """

    device_mesh: DeviceMesh
    placements: tuple[Placement, ...]

    def __new__(cls, data: Tensor, *_: object, **__: object) -> DTensor:  # noqa: PYI034 - a subclass of Parameter, too
        made: DTensor = Tensor.__new__(cls)
        Tensor.__init__(made, data)  # MindSpore's Parameter reads the number format before it calls ``__init__``
        if isinstance(data, DTensor):
            made.device_mesh, made.placements = data.device_mesh, data.placements
        return made

    def __init__(self, data: Tensor, *_: object, **__: object) -> None:
        """Accept the arguments; the data are complete."""

    @property
    def local_shape(self) -> tuple[int, ...]:
        """Return the part's shape."""
        return tuple(self.shape)

    @property
    def layout(self) -> object:
        """Return the layout, which MindFormers logs."""
        return (self.device_mesh.mesh_dim_names, self.placements)

    def to_local(self) -> Tensor:
        """Return the part."""
        return self

    @staticmethod
    def from_local(part: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
        """Return a tensor from its part."""
        return _as_part(DTensor(part), mesh, placements)


class SkipDTensorDispatch:
    """A context manager in which operators use tensors unchanged, as they always do here."""

    def __init__(self, no_skip: object = None) -> None:
        """Accept the operators that must not be skipped."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


def distribute_tensor(tensor: Tensor, device_mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    """Return this rank's part of a tensor that has no memory yet."""
    assert tensor.is_meta, "only a weight that has no memory yet can be cut"
    shape = list(tensor.shape)
    for axis, placement in enumerate(placements):
        if isinstance(placement, Shard):
            assert shape[placement.dim] % device_mesh.size(axis) == 0, (shape, placement, device_mesh.shape)
            shape[placement.dim] //= device_mesh.size(axis)
    with mindspore.DeviceCtx("meta"):
        return _as_part(DTensor(mint.empty(shape, dtype=tensor.dtype, device="meta")), device_mesh, placements)


def _as_part(made: DTensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    made.device_mesh, made.placements = mesh, tuple(placements)
    return made


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class that was made just now
    return _refused.thing(__name__, name)
