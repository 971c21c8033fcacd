"""Define groups of ranks, and communication with gradients.

Every function is a real collective of ``mint.distributed`` in a group that MindSpore's simulation knows; its gradient is the
inverse collective. Activations are ``(sequence, batch, …)``, so parts of a sequence are joined along axis 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from mindspore import Tensor, mint, ops
from mindspore.common._grad_function import _Function
from mindspore.communication import create_group
from mindspore.mint import distributed

if TYPE_CHECKING:
    from ms_tune.reference.job import RankGroups


_Call: TypeAlias = "Callable[[Tensor, RankGroup], Tensor]"
# The context that MindSpore passes from the forward to the backward part of a function; it accepts any attribute.
Saved: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class RankGroup:
    """A group of ranks that communicate: MindSpore's name for it, its size, and this rank's index in it."""

    name: str
    size: int
    place: int


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of this rank; each corresponds to the field of the same name in :class:`ms_tune.reference.job.RankGroups`."""

    tensor: RankGroup
    ulysses: RankGroup
    ring: RankGroup
    data: RankGroup
    shards: RankGroup
    copies: RankGroup
    expert: RankGroup
    expert_data: RankGroup
    expert_shards: RankGroup
    expert_copies: RankGroup
    ranks: RankGroups


def make_groups(ranks: RankGroups) -> Groups:
    """Create the groups in MindSpore; groups of one rank are not created."""
    made: dict[tuple[int, ...], str] = {}

    def group(members: tuple[int, ...]) -> RankGroup:
        if len(members) > 1 and members not in made:
            made[members] = f"{len(members)}-ranks-{members[0]}-{members[1]}-{members[-1]}"
            create_group(made[members], list(members))
        return RankGroup(made.get(members, ""), len(members), members.index(ranks.rank))

    names = [field.name for field in fields(Groups) if field.name != "ranks"]
    return Groups(ranks=ranks, **{name: group(getattr(ranks, name)) for name in names})


def gather_parts(x: Tensor, group: RankGroup) -> Tensor:
    """Return the parts of all ranks, joined along axis 0; without a gradient."""
    whole = mint.empty((x.shape[0] * group.size, *x.shape[1:]), dtype=x.dtype)
    distributed.all_gather_into_tensor(whole, x.contiguous(), group=group.name)
    return whole


def scatter_sum(x: Tensor, group: RankGroup) -> Tensor:
    """Return this rank's part, along axis 0, of the sum over all ranks; without a gradient."""
    part = mint.empty((x.shape[0] // group.size, *x.shape[1:]), dtype=x.dtype)
    distributed.reduce_scatter_tensor(part, x.contiguous(), group=group.name)
    return part


def _exchange_parts(x: Tensor, group: RankGroup) -> Tensor:
    # Exchange equal parts of axis 0 with all ranks; without a gradient.
    received = mint.empty(x.shape, dtype=x.dtype)
    distributed.all_to_all_single(received, x.contiguous(), group=group.name)
    return received


def sum_over_ranks(x: Tensor, group: RankGroup) -> Tensor:
    """Return the sum over all ranks; without a gradient."""
    if group.size == 1:
        return x
    total = x.clone()
    distributed.all_reduce(total, group=group.name)
    return total


class _Collective(_Function):
    """A collective whose gradient is another one; the tensors in ``kept`` stay until the backward pass."""

    @staticmethod
    def forward(  # noqa: PLR0913, PLR0917 - the inputs of the operation
        ctx: Saved, x: Tensor, group: RankGroup, there: _Call, back: _Call, kept: str
    ) -> Tensor:
        ctx.group, ctx.back = group, back
        y = there(x, group)
        if kept:
            ctx.save_for_backward(*({"x": x, "y": y}[name] for name in kept))
        return y

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        return ctx.back(gradient, ctx.group), None, None, None, None


def _viewed_sum(x: Tensor, group: RankGroup) -> Tensor:
    return x.view(x.shape) if group.size == 1 else sum_over_ranks(x, group)


def _own_part(x: Tensor, group: RankGroup) -> Tensor:
    size = x.shape[0] // group.size
    part = x[size * group.place : size * (group.place + 1)]
    # In the framework, (b, s) is split along s: the part of a single sample is contiguous, those of several are copied.
    return part if x.shape[1] == 1 else mint.clone(part)


def gather(x: Tensor, group: RankGroup, *, keeps: bool = False) -> Tensor:
    """All-gather along axis 0; backward: reduce-scatter.

    ``keeps``, here and below: the exchanged tensor stays until the backward pass. In MindSpore a ``Cell`` with a ``bprop``
    keeps its input and output whether it needs them or not (``core/tensor_parallel/mappings.py``).
    """
    return x if group.size == 1 else _Collective.apply(x, group, gather_parts, scatter_sum, "x" if keeps else "")


def scatter(x: Tensor, group: RankGroup, *, keeps: bool = False) -> Tensor:
    """Reduce-scatter along axis 0; backward: all-gather.

    ``keeps``: the part stays until then. After row-parallel projections MindFormers' dynamic graph calls MindSpore's own operator
    (``RowwiseParallel`` of ``pynative/distributed/style.py``, 2.1), which keeps its output for its gradient without using it.
    """
    return x if group.size == 1 else _Collective.apply(x, group, scatter_sum, gather_parts, "y" if keeps else "")


def cut_sequence(x: Tensor, group: RankGroup) -> Tensor:
    """Return this rank's part along axis 0 of a tensor on all ranks; backward: all-gather. Both stay until then."""
    return x if group.size == 1 else _Collective.apply(x, group, _own_part, gather_parts, "xy")


def local_part(x: Tensor, group: RankGroup, axis: int) -> Tensor:
    """Return this rank's part along an axis of a tensor on all ranks; backward: zeros around its gradient.

    As in HyperParallel's ``chunk`` (``platform/mindspore/platform.py`` at fdd0a80).
    """
    return x if group.size == 1 else ops.Split(axis, group.size)(x)[group.place]


def gather_last(x: Tensor, group: RankGroup) -> Tensor:
    """All-gather along the last axis, with a copy to reorder the result; backward: reduce-scatter."""
    if group.size == 1:
        return x
    return mint.cat(ops.Split(0, group.size)(gather(x, group)), dim=-1)


def reduce(x: Tensor, group: RankGroup, *, keeps: bool = False) -> Tensor:
    """All-reduce; backward: the gradient passes unchanged."""
    kept = "xy" if keeps else ""
    return x if group.size == 1 and not keeps else _Collective.apply(x, group, _viewed_sum, lambda y, _: y, kept)


def share_gradient(x: Tensor, group: RankGroup, *, keeps: bool = False) -> Tensor:
    """Return the tensor unchanged; backward: all-reduce of its gradient."""
    if group.size == 1:
        return reduce(x, group, keeps=keeps)
    return _Collective.apply(x, group, lambda y, _: y.view(y.shape), sum_over_ranks, "")


def exchange(x: Tensor, group: RankGroup) -> Tensor:
    """All-to-all of equal parts of axis 0; backward: the same."""
    return x if group.size == 1 else _Collective.apply(x, group, _exchange_parts, _exchange_parts, "")
