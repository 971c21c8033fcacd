"""Split the weights of a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyper_parallel.core.dtensor.dtensor import distribute_tensor
from mindspore import Parameter, nn

if TYPE_CHECKING:
    from hyper_parallel.core.dtensor.device_mesh import DeviceMesh
    from hyper_parallel.core.shard.sharding_plan import ShardingPlan


def shard_module(module: nn.Cell, device_mesh: DeviceMesh, sharding_plan: ShardingPlan) -> nn.Cell:
    """Replace the weights that the plan names with the parts of this rank."""
    cells = dict(module.cells_and_names())
    for path, placements in sharding_plan.plan.items():
        cell_path, _, name = path.rpartition(".")
        cell = cells[cell_path]
        before = getattr(cell, name)
        part = distribute_tensor(before, device_mesh, placements)
        setattr(cell, name, Parameter(part, name=before.name, requires_grad=before.requires_grad))
    return module
