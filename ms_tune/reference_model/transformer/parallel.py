"""Groups of ranks, and communication that gradients flow back through.

Every function is a real collective of ``mint.distributed`` in a group that MindSpore's simulation knows; its gradient is
the collective that undoes it. Activations are ``(sequence, batch, …)``, so parts of a sequence join along axis 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from mindspore import Tensor, mint
from mindspore.common._grad_function import _Function
from mindspore.communication import create_group
from mindspore.mint import distributed

if TYPE_CHECKING:
    from ms_tune.reference_model.ranks import RankGroups


# What MindSpore hands from the forward to the backward part of a function; it takes any attribute.
Saved: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that communicate: MindSpore's name for them, how many, and the place of this rank among them."""

    name: str
    size: int
    place: int


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of this rank (:class:`ms_tune.reference_model.ranks.RankGroups` says what each one is for)."""

    tensor: Group
    ulysses: Group
    ring: Group
    data: Group
    shards: Group
    expert: Group
    expert_data: Group
    expert_shards: Group
    # Ranks that hold copies of what this rank keeps of the weights; those with the other parts are `shards`.
    copies: Group
    expert_copies: Group  # the same for routed experts
    ranks: RankGroups


def make_groups(ranks: RankGroups) -> Groups:
    """Make the groups known to MindSpore; a rank alone needs none."""
    made: dict[tuple[int, ...], str] = {}

    def group(members: tuple[int, ...]) -> Group:
        if len(members) > 1 and members not in made:
            made[members] = f"{len(members)}-ranks-{members[0]}-{members[1]}-{members[-1]}"
            create_group(made[members], list(members))
        return Group(made.get(members, ""), len(members), members.index(ranks.rank))

    return Groups(
        tensor=group(ranks.tensor),
        ulysses=group(ranks.ulysses),
        ring=group(ranks.ring),
        data=group(ranks.data),
        shards=group(ranks.shards),
        expert=group(ranks.expert),
        expert_data=group(ranks.expert_data),
        expert_shards=group(ranks.expert_shards),
        copies=group(_copies(ranks.data, ranks.shards, ranks.rank)),
        expert_copies=group(_copies(ranks.expert_data, ranks.expert_shards, ranks.rank)),
        ranks=ranks,
    )


def _copies(everybody: tuple[int, ...], shards: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The ranks at the same place of every run of ranks that share out weights."""
    return everybody[shards.index(rank) :: len(shards)]


def gathered(x: Tensor, group: Group) -> Tensor:
    """The parts of all ranks, joined along axis 0; no gradient."""
    whole = mint.empty((x.shape[0] * group.size, *x.shape[1:]), dtype=x.dtype)
    distributed.all_gather_into_tensor(whole, x.contiguous(), group=group.name)
    return whole


def scattered(x: Tensor, group: Group) -> Tensor:
    """This rank's part, along axis 0, of the sum over all ranks; no gradient."""
    part = mint.empty((x.shape[0] // group.size, *x.shape[1:]), dtype=x.dtype)
    distributed.reduce_scatter_tensor(part, x.contiguous(), group=group.name)
    return part


def exchanged(x: Tensor, group: Group) -> Tensor:
    """Equal parts of axis 0, one from each rank; no gradient."""
    received = mint.empty(x.shape, dtype=x.dtype)
    distributed.all_to_all_single(received, x.contiguous(), group=group.name)
    return received


def summed(x: Tensor, group: Group) -> Tensor:
    """The sum over all ranks; no gradient."""
    if group.size == 1:
        return x
    total = x.clone()
    distributed.all_reduce(total, group=group.name)
    return total


class _Gather(_Function):
    @staticmethod
    def forward(ctx: Saved, x: Tensor, group: Group, keeps: bool) -> Tensor:  # noqa: FBT001 - one input each
        ctx.group = group
        if keeps:
            ctx.save_for_backward(x)
        return gathered(x, group)

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, None, None]:
        return scattered(gradient, ctx.group), None, None


class _Scatter(_Function):
    @staticmethod
    def forward(ctx: Saved, x: Tensor, group: Group, keeps: bool) -> Tensor:  # noqa: FBT001 - one input each
        ctx.group = group
        part = scattered(x, group)
        if keeps:
            ctx.save_for_backward(part)
        return part

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gathered(gradient, ctx.group), None, None


class _Cut(_Function):
    @staticmethod
    def forward(ctx: Saved, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        size = x.shape[0] // group.size
        part = x[size * group.place : size * (group.place + 1)]
        # There it is (b, s) that is cut along s: one sample's part lies in one piece, that of several is copied.
        part = part if x.shape[1] == 1 else mint.clone(part)
        ctx.save_for_backward(x, part)
        return part

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, None]:
        return gathered(gradient, ctx.group), None


class _Sum(_Function):
    @staticmethod
    def forward(ctx: Saved, x: Tensor, group: Group, keeps: bool) -> Tensor:  # noqa: FBT001 - one input each
        total = x.view(x.shape) if group.size == 1 else summed(x, group)
        if keeps:
            ctx.save_for_backward(x, total)
        return total

    @staticmethod
    def backward(_ctx: Saved, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient, None, None


class _Share(_Function):
    @staticmethod
    def forward(ctx: Saved, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return x.view(x.shape)

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, None]:
        return summed(gradient, ctx.group), None


class _Exchange(_Function):
    @staticmethod
    def forward(ctx: Saved, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return exchanged(x, group)

    @staticmethod
    def backward(ctx: Saved, gradient: Tensor) -> tuple[Tensor, None]:
        return exchanged(gradient, ctx.group), None


def gather(x: Tensor, group: Group, *, keeps: bool = False) -> Tensor:
    """All-gather along axis 0; backward: reduce-scatter.

    ``keeps``, here and below: what is exchanged stays until the backward pass. A ``Cell`` with a ``bprop`` has that effect
    in MindSpore, whether it needs its input and output there or not (``core/tensor_parallel/mappings.py``).
    """
    return x if group.size == 1 else _Gather.apply(x, group, keeps)


def scatter(x: Tensor, group: Group, *, keeps: bool = False) -> Tensor:
    """Reduce-scatter along axis 0; backward: all-gather.

    ``keeps``: the part stays until then. MindFormers' dynamic graph calls MindSpore's own operator behind row-parallel
    projections (``RowwiseParallel`` of ``pynative/distributed/style.py``, 2.1), which has its output at hand for its gradient
    without a use for it.
    """
    return x if group.size == 1 else _Scatter.apply(x, group, keeps)


def cut(x: Tensor, group: Group) -> Tensor:
    """This rank's part along axis 0 of what all ranks have; backward: all-gather. Both stay until then."""
    return x if group.size == 1 else _Cut.apply(x, group)


def reduce(x: Tensor, group: Group, *, keeps: bool = False) -> Tensor:
    """All-reduce; backward: as it comes."""
    return x if group.size == 1 and not keeps else _Sum.apply(x, group, keeps)


def share(x: Tensor, group: Group, *, keeps: bool = False) -> Tensor:
    """As it is; backward: all-reduce."""
    if group.size == 1:
        return _Sum.apply(x, group, keeps) if keeps else x
    return _Share.apply(x, group)


def exchange(x: Tensor, group: Group) -> Tensor:
    """All-to-all of equal parts of axis 0; backward: the same."""
    return x if group.size == 1 else _Exchange.apply(x, group)
