"""Tensors of which every rank has a part: here the part is the tensor, and knows how it was cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mindspore
from hyper_parallel import _refused
from hyper_parallel.core.dtensor.placement_types import Shard
from mindspore import Tensor, mint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hyper_parallel.core.dtensor.device_mesh import DeviceMesh
    from hyper_parallel.core.dtensor.placement_types import Placement


class DTensor(Tensor):  # type: ignore[misc] # MindSpore has no types
    """This rank's part of a tensor.

    MindFormers takes a weight's part (``to_local``) before it computes. Here that is the weight itself, so that nothing is
    copied and gradients come to the weight. Its shape is the part's.
    """

    device_mesh: DeviceMesh
    placements: tuple[Placement, ...]

    def __new__(cls, data: Tensor, *_: object, **__: object) -> DTensor:  # noqa: PYI034 - a subclass of Parameter, too
        made: DTensor = Tensor.__new__(cls)
        Tensor.__init__(made, data)  # MindSpore's Parameter asks for the number format before it calls ``__init__``
        if isinstance(data, DTensor):
            made.device_mesh, made.placements = data.device_mesh, data.placements
        return made

    def __init__(self, data: Tensor, *_: object, **__: object) -> None:
        """Everything is there."""

    @property
    def local_shape(self) -> tuple[int, ...]:
        """The part's shape."""
        return tuple(self.shape)

    @property
    def layout(self) -> object:
        """What MindFormers logs."""
        return (self.device_mesh.mesh_dim_names, self.placements)

    def to_local(self) -> Tensor:
        """The part."""
        return self

    @staticmethod
    def from_local(part: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
        """A tensor by its part."""
        return _as_part(DTensor(part), mesh, placements)


class SkipDTensorDispatch:
    """A block in which operators take tensors as they are, as they do here everywhere."""

    def __init__(self, no_skip: object = None) -> None:
        """Take the operators that are not to be skipped."""

    def __enter__(self) -> None:
        """Nothing is to be switched off."""

    def __exit__(self, *_: object) -> None:
        """Nothing is to be switched on."""


def distribute_tensor(tensor: Tensor, device_mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    """This rank's part of a tensor that has no memory yet."""
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
