"""Megatron-LM core 0.12's token dispatcher: tokens are spread over the experts evenly, since simulation has no scores.

How many tokens go to an expert follows from the router's values. Every expert is given as many, tokens x top-k / experts,
and what Megatron computes of that number (``preprocess``: splits for each rank, counts for each local expert) follows from it
by :mod:`finite_checks`. Nothing else of the dispatcher is changed.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .. import bounds, finite_checks  # noqa: TID252 - the hook's package has another name in a program
from . import tell

if TYPE_CHECKING:
    from ms_tune.dryrun.child.hook.process import HookedProcess

_GATHERS = ("gather_from_sequence_parallel_region", "_gather_along_first_dim")


def gathers(module: Any, _process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Let what is gathered of tensors that are known be known, too (``megatron.core.tensor_parallel.mappings``)."""
    for name in _GATHERS:
        gather = getattr(module, name, None)
        if gather is not None:
            setattr(module, name, _known(gather))


def _known(gather: Any) -> Any:  # noqa: ANN401 - a function
    @functools.wraps(gather)
    def gather_known(tensor: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        value = finite_checks.value_of(tensor)
        found = gather(tensor, *arguments, **named)
        return found if value is None else finite_checks.with_value(found, value)

    return gather_known


def permutation(module: Any, _process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Have a permutation give as many tokens as it is told (``megatron.core.transformer.moe.moe_utils``)."""
    permute = module.permute

    @functools.wraps(permute)
    def permute_evenly(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the function takes them
        tokens = named.get("num_out_tokens")
        if not isinstance(tokens, int):
            return permute(*arguments, **named)
        with bounds.at_most(tokens):
            return permute(*arguments, **named)

    module.permute = permute_evenly


def dispatcher(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Spread the tokens of every dispatcher of ``megatron.core.transformer.moe.token_dispatcher`` and of those made of it.

    MindSpeed puts other functions in the place of their methods, so that whichever is there when it is called is given
    a routing map that knows how many tokens each expert has.
    """
    base = module.MoETokenDispatcher

    def spread(dispatcher: Any, routing_map: Any) -> Any:  # noqa: ANN401 - tensors
        preprocess = type(dispatcher).preprocess
        share, rest = divmod(routing_map.shape[0] * dispatcher.config.moe_router_topk, dispatcher.num_experts)
        if rest or getattr(dispatcher, "drop_and_pad", False):
            return preprocess(dispatcher, routing_map)
        tell(process, "even-experts", tokens=share)
        return preprocess(dispatcher, _Counted(routing_map, share))

    def __new__(cls: Any, *_arguments: Any, **_named: Any) -> Any:  # noqa: ANN401, N807 - as the class is called
        made = object.__new__(cls)
        if hasattr(cls, "preprocess"):
            made.preprocess = functools.partial(spread, made)
        return made

    base.__new__ = __new__


class _Counted:
    """A routing map whose sum over the tokens is known: so many for each expert."""

    def __init__(self, routing_map: Any, share: int) -> None:  # noqa: ANN401 - a tensor
        self._map, self._share = routing_map, share

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the tensor has
        return getattr(self._map, name)

    def sum(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as a tensor's
        """The number of each expert's tokens."""
        return finite_checks.with_value(self._map.sum(*arguments, **named), self._share)


def grouped_product(module: Any, _process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Hand the grouped product its list of ends: sums of what is known of each expert's tokens.

    MindSpeed v2.2.0's ``mindspeed/mindspore/core/transformer/moe/grouped_gemm_util.py`` adds them up on the device and reads
    the list back.
    """
    module.torch = _Torch(module.torch)


class _Torch:
    """``torch`` as one module of MindSpeed's sees it."""

    def __init__(self, torch: Any) -> None:  # noqa: ANN401 - a module without types
        self._torch = torch

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever is asked for
        return getattr(self._torch, name)

    def cumsum(self, tensor: Any, dim: int) -> Any:  # noqa: ANN401 - as the function takes it
        """As ``torch.cumsum``, but for a tensor whose elements are known: its reader wants no more than a list."""
        value = finite_checks.value_of(tensor)
        return self._torch.cumsum(tensor, dim=dim) if value is None else _Sums(value, tensor.shape[0])


class _Sums:
    """The sums of so many equal numbers, one after the other."""

    def __init__(self, value: int, count: int) -> None:
        self._sums = [value * number for number in range(1, count + 1)]

    def tolist(self) -> list[int]:
        """The sums."""
        return self._sums
