"""Tokens for experts where MindFormers' own simulation cannot give every expert the same number.

In simulation nobody knows where a router sends its tokens, so MindFormers (1.8 to 2.1) gives every expert as many as the
next, and refuses a config where that does not come out (``__post_init__`` in parallel_core/transformer_config.py): 160 or
192 experts and sequences of 4096 tokens, say, which train on devices all the same. Here the first experts get one token
more than the others. Configs that MindFormers simulates itself are left to it.
"""

from __future__ import annotations

import os
from functools import wraps
from typing import TYPE_CHECKING

import mindspore
from mindformers.parallel_core.training_graph.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher
from mindformers.parallel_core.transformer_config import TransformerConfig
from mindspore import Tensor, ops

from ms_tune.dryrun.experts import shared_out

if TYPE_CHECKING:
    from collections.abc import Callable

_LEVEL = "MS_SIMULATION_LEVEL"
_EVEN = "preprocess_with_dryrun"
_DISPATCHER = "alltoall"


def serve_any_number_of_experts() -> None:
    """Let MindFormers simulate a mixture of experts whose number does not divide the tokens of a sequence."""
    if not hasattr(MoEAlltoAllTokenDispatcher, _EVEN):  # MindFormers 1.6 reads the router's answer
        return
    TransformerConfig.__post_init__ = _without_the_check(TransformerConfig.__post_init__)


def _without_the_check(settle: Callable[[TransformerConfig], None]) -> Callable[[TransformerConfig], None]:
    @wraps(settle)
    def settle_in_simulation(config: TransformerConfig) -> None:
        experts = config.num_moe_experts
        if not experts or config.seq_length % experts == 0 or config.moe_token_dispatcher_type != _DISPATCHER:
            settle(config)
            return
        level = os.environ.pop(_LEVEL)  # what tells MindFormers to check, and to switch its dispatcher over
        try:
            settle(config)
        finally:
            os.environ[_LEVEL] = level
        config.is_dryrun = True
        setattr(MoEAlltoAllTokenDispatcher, _EVEN, _preprocess)

    return settle_in_simulation


def _preprocess(self: MoEAlltoAllTokenDispatcher, permuted_input: Tensor) -> object:
    """Take the place of ``preprocess_with_dryrun``: ends of the experts' tokens, tokens sent to and received from ranks."""
    return _splits(permuted_input.shape[1], self.expert_num, self.ep, self.rank_id % self.ep)


@ops.constexpr  # type: ignore[untyped-decorator]
def _splits(tokens: int, experts: int, ranks: int, own: int) -> tuple[Tensor, ...]:
    shares = shared_out(tokens, experts, ranks, own)
    return tuple(Tensor(list(numbers), mindspore.int64) for numbers in (shares.ends, shares.sent, shares.received))
