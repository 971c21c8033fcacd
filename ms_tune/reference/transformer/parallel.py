"""Groups of ranks, and communication that gradients flow back through.

Every function is a real collective of ``mint.distributed`` in a group that MindSpore's simulation knows; its gradient is
the collective that undoes it. Activations are ``(sequence, batch, …)``, so parts of a sequence join along axis 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from mindspore import Tensor, mint, ops
from mindspore.common._grad_function import _Function
from mindspore.communication import create_group
from mindspore.mint import distributed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ms_tune.reference.job import RankGroups


_Call: TypeAlias = "Callable[[Tensor, RankGroup], Tensor]"
# What MindSpore hands from the forward to the backward part of a function; it takes any attribute.
Saved: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks that communicate: MindSpore's name for them, how many, and the place of this rank among them."""

    name: str
    size: int
    place: int


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of this rank; each is that of the same name in :class:`ms_tune.reference.job.RankGroups`."""

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
    """Make the groups known to MindSpore; a rank alone needs none."""
    made: dict[tuple[int, ...], str] = {}

    def group(members: tuple[int, ...]) -> RankGroup:
        if len(members) > 1 and members not in made:
            made[members] = f"{len(members)}-ranks-{members[0]}-{members[1]}-{members[-1]}"
            create_group(made[members], list(members))
        return RankGroup(made.get(members, ""), len(members), members.index(ranks.rank))

    names = [field.name for field in fields(Groups) if field.name != "ranks"]
    return Groups(ranks=ranks, **{name: group(getattr(ranks, name)) for name in names})


def gather_parts(x: Tensor, group: RankGroup) -> Tensor:
    """The parts of all ranks, joined along axis 0; no gradient."""
    whole = mint.empty((x.shape[0] * group.size, *x.shape[1:]), dtype=x.dtype)
    distributed.all_gather_into_tensor(whole, x.contiguous(), group=group.name)
    return whole


def scatter_sum(x: Tensor, group: RankGroup) -> Tensor:
    """This rank's part, along axis 0, of the sum over all ranks; no gradient."""
    part = mint.empty((x.shape[0] // group.size, *x.shape[1:]), dtype=x.dtype)
    distributed.reduce_scatter_tensor(part, x.contiguous(), group=group.name)
    return part


def _exchange_parts(x: Tensor, group: RankGroup) -> Tensor:
    # Equal parts of axis 0, one from each rank; no gradient.
    received = mint.empty(x.shape, dtype=x.dtype)
    distributed.all_to_all_single(received, x.contiguous(), group=group.name)
    return received


def sum_over_ranks(x: Tensor, group: RankGroup) -> Tensor:
    """The sum over all ranks; no gradient."""
    if group.size == 1:
        return x
    total = x.clone()
    distributed.all_reduce(total, group=group.name)
    return total


class _Collective(_Function):
    """A collective whose gradient is another one; what ``kept`` names stays until the backward pass."""

    @staticmethod
    def forward(  # noqa: PLR0913, PLR0917 - one input each
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
    # There it is (b, s) that is cut along s: one sample's part lies in one piece, that of several is copied.
    return part if x.shape[1] == 1 else mint.clone(part)


def gather(x: Tensor, group: RankGroup, *, keeps: bool = False) -> Tensor:
    """All-gather along axis 0; backward: reduce-scatter.

    ``keeps``, here and below: what is exchanged stays until the backward pass. A ``Cell`` with a ``bprop`` has that effect
    in MindSpore, whether it needs its input and output there or not (``core/tensor_parallel/mappings.py``).
    """
    return x if group.size == 1 else _Collective.apply(x, group, gather_parts, scatter_sum, "x" if keeps else "")


def scatter(x: Tensor, group: RankGroup, *, keeps: bool = False) -> Tensor:
    """Reduce-scatter along axis 0; backward: all-gather.

    ``keeps``: the part stays until then. MindFormers' dynamic graph calls MindSpore's own operator behind row-parallel
    projections (``RowwiseParallel`` of ``pynative/distributed/style.py``, 2.1), which has its output at hand for its gradient
    without a use for it.
    """
    return x if group.size == 1 else _Collective.apply(x, group, scatter_sum, gather_parts, "y" if keeps else "")


def cut_sequence(x: Tensor, group: RankGroup) -> Tensor:
    """This rank's part along axis 0 of what all ranks have; backward: all-gather. Both stay until then."""
    return x if group.size == 1 else _Collective.apply(x, group, _own_part, gather_parts, "xy")


def own_part(x: Tensor, group: RankGroup, axis: int) -> Tensor:
    """This rank's part, along an axis, of what all ranks have; backward: zeros around its gradient.

    As HyperParallel's ``chunk`` (``platform/mindspore/platform.py`` at fdd0a80).
    """
    return x if group.size == 1 else ops.Split(axis, group.size)(x)[group.place]


def gather_last(x: Tensor, group: RankGroup) -> Tensor:
    """All-gather along the last axis: what comes of it is put in order by a copy; backward: reduce-scatter."""
    if group.size == 1:
        return x
    return mint.cat(ops.Split(0, group.size)(gather(x, group)), dim=-1)


def reduce(x: Tensor, group: RankGroup, *, keeps: bool = False) -> Tensor:
    """All-reduce; backward: as it comes."""
    kept = "xy" if keeps else ""
    return x if group.size == 1 and not keeps else _Collective.apply(x, group, _viewed_sum, lambda y, _: y, kept)


def share_gradient(x: Tensor, group: RankGroup, *, keeps: bool = False) -> Tensor:
    """As it is; backward: all-reduce."""
    if group.size == 1:
        return reduce(x, group, keeps=keeps)
    return _Collective.apply(x, group, lambda y, _: y.view(y.shape), sum_over_ranks, "")


def exchange(x: Tensor, group: RankGroup) -> Tensor:
    """All-to-all of equal parts of axis 0; backward: the same."""
    return x if group.size == 1 else _Collective.apply(x, group, _exchange_parts, _exchange_parts, "")
