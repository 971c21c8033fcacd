"""Checks of how tokens are routed to experts, and of what experts ask of the parallel split.

Megatron-LM core_r0.8.0 and core_v0.12.1: ``TransformerConfig.__post_init__``, ``ModelParallelConfig.__post_init__``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.facts.megatron import releases_on
from ms_tune.lint.checks.megatron import command_in
from ms_tune.lint.checks.megatron_sizes import at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.dialects.check_context import CheckContext, Violation

_GROUPS, _CHOSEN = "moe_router_num_groups", "moe_router_group_topk"


def groups(context: CheckContext) -> Iterator[Violation]:
    """Experts are in equal groups, of which a token's are chosen first: at most as many as there are."""
    _, command = command_in(context)
    chosen, number, every = (command.integer(one) for one in (_CHOSEN, _GROUPS, "num_experts"))
    if not chosen or command.release not in releases_on("core_v0.12.1") or not command.surely_not("deprecated_n_group"):
        return
    if command.surely_not(_GROUPS):
        yield at(command, (_CHOSEN,), {}, "missing")
    elif number and every and every % number:
        yield at(command, (_GROUPS,), {"number": number, "experts": every}, "uneven")
    elif number and chosen > number:
        yield at(command, (_CHOSEN,), {"number": chosen, "groups": number})


def sequence(context: CheckContext) -> Iterator[Violation]:
    """Where experts and tensors are shared out over ranks, the sequence has to be, too."""
    _, command = command_in(context)
    tensor, ranks = command.integer("tensor_model_parallel_size"), command.integer("expert_model_parallel_size")
    if tensor and tensor > 1 and ranks and ranks > 1 and command.surely_not("sequence_parallel"):
        yield at(command, ("expert_model_parallel_size",), {"tensor": tensor, "ranks": ranks})
