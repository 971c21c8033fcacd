"""Define a grid of ranks with a name for each axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from mindspore.communication import create_group, get_rank
from mindspore.ops.communication import set_comm_ops_inplace

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FAKE = "fake"
_made: set[str] = set()


class DeviceMesh:
    """This rank's view of a grid of ranks.

    Args:
        ranks: The ranks of this rank's part of the grid, one axis for each name.
        names: The names of the axes.
        whole: All ranks of the original grid; its first axes are not in this part.
        without_groups: Axes without communication.
    """

    def __init__(
        self,
        ranks: NDArray[np.int64],
        names: Sequence[str],
        whole: NDArray[np.int64] | None = None,
        without_groups: Sequence[str] = (),
    ) -> None:
        self.mesh, self.mesh_dim_names = ranks, tuple(names)
        self._whole = ranks if whole is None else whole
        self._without = frozenset(without_groups)

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return self.mesh.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of ranks along every axis."""
        return self.mesh.shape

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return self.mesh.shape

    def size(self, axis: int | None = None) -> int:
        """Return the number of ranks along one axis, or in total."""
        return int(self.mesh.size if axis is None else self.mesh.shape[axis])

    def get_local_rank(self, axis: int | str | None = None) -> int:
        """Return this rank's index along an axis; the axis may be omitted if there is only one."""
        place = np.argwhere(self.mesh == get_rank())[0]
        return int(place[self._axis(axis)])

    def get_group(self, axis: int | str | None = None) -> str:
        """Return the group of the ranks along an axis through this rank."""
        number = self._axis(axis)
        place: list[int | slice] = [int(one) for one in np.argwhere(self.mesh == get_rank())[0]]
        place[number] = slice(None)
        return _group([int(rank) for rank in self.mesh[tuple(place)]])

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """Return the part of the grid along some axes that contains this rank."""
        wanted = (names,) if isinstance(names, str) else tuple(names)
        place: list[int | slice] = [int(one) for one in np.argwhere(self.mesh == get_rank())[0]]
        for name in wanted:
            place[self.mesh_dim_names.index(name)] = slice(None)
        return DeviceMesh(self.mesh[tuple(place)], wanted, self.mesh)

    def _axis(self, axis: int | str | None) -> int:
        if axis is None:
            assert self.ndim == 1, "which axis"
            return 0
        return self.mesh_dim_names.index(axis) if isinstance(axis, str) else axis

    def _unflatten(
        self,
        axis: int,
        sizes: Sequence[int],
        names: Sequence[str],
        backend_override: Mapping[str, str] | None = None,
    ) -> DeviceMesh:
        """Return the same ranks with one axis divided into several."""
        shape = (*self.shape[:axis], *sizes, *self.shape[axis + 1 :])
        called = (*self.mesh_dim_names[:axis], *names, *self.mesh_dim_names[axis + 1 :])
        without = [name for name, backend in (backend_override or {}).items() if backend == _FAKE]
        return DeviceMesh(self.mesh.reshape(shape), called, without_groups=without)

    def _flatten(self, name: str) -> DeviceMesh:
        """Return the same ranks along one axis."""
        return DeviceMesh(self.mesh.reshape(-1), (name,))


def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], *, mesh_dim_names: tuple[str, ...]) -> DeviceMesh:
    """Return a grid of all ranks.

    MindFormers' styles use the results of MindSpore's collectives, which MindSpore must be asked for; with experts
    MindFormers does it itself (``apply_moe_ep_tp``).
    """
    set_comm_ops_inplace(False)
    del device_type
    return DeviceMesh(np.arange(math.prod(mesh_shape)).reshape(mesh_shape), mesh_dim_names)


def _group(ranks: Sequence[int]) -> str:
    name = "ranks-" + "-".join(str(rank) for rank in ranks)
    if name not in _made:
        _made.add(name)
        create_group(name, list(ranks))
    return name
