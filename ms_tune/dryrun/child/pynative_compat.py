"""Answer requests of MindFormers' dynamic-graph trainer and HyperParallel that simulation cannot answer.

No other rank runs and nothing is computed: the members of groups, the input from the previous stage and the number of
tokens per expert are supplied here. On devices (``--real``) nothing is changed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import mindspore
import numpy as np
from mindspore import Tensor
from mindspore.communication import GlobalComm, _comm_helper, get_group_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

_RANKS_OF = "_get_group_ranks"
_RECEIVES = "recv_object_list"


def know_who_is_in_a_group() -> None:
    """Make ``get_process_group_ranks`` return all ranks of the job for the world group.

    In simulation MindSpore (2.9, 2.10) says "Group hccl_world_group doesn't include this rank".
    """
    ranks_of = _comm_helper._get_group_ranks  # noqa: SLF001 - called by the public function

    def answer(group: str) -> list[int]:
        if group == GlobalComm.WORLD_COMM_GROUP:
            return list(range(get_group_size()))
        known: list[int] = ranks_of(group)
        return known

    _replace_everywhere(_RANKS_OF, answer)


def receive_stage_input(shape: Sequence[int], dtype: str) -> None:
    """Let a later pipeline stage receive ``(tokens of this rank, samples, hidden size)`` in ``recv_object_list``."""
    handed = (tuple(shape), getattr(mindspore, dtype))

    def receive(object_list: list[Any], *_: object, **__: object) -> int:
        for number in range(len(object_list)):
            object_list[number] = [list(handed)]
        return 0

    _replace_everywhere(_RECEIVES, receive)


def spread_tokens_evenly(dispatcher: Any) -> None:  # noqa: ANN401 - a class of MindFormers, which has no types
    """Give every expert the same number of tokens.

    ``ExpertParallel`` (``pynative/distributed/expert_parallel.py``, 2.0 and 2.1) reads counts back from the device,
    which are 0 in simulation, and splits by them. The dispatcher of another release stays unchanged.
    """
    counted = getattr(dispatcher, "_count_tokens_per_expert", None)
    if counted is None:
        return
    even = _EvenCounts()

    @wraps(counted)
    def count(self: object, chosen: Any, experts: int) -> object:  # noqa: ANN401 - as above
        even.rows, even.experts = math.prod(chosen.shape), experts
        return counted(self, chosen, experts)

    if hasattr(dispatcher, "_derive_splits"):
        derived = dispatcher._derive_splits  # noqa: SLF001 - no public name
        dispatcher._derive_splits = staticmethod(  # noqa: SLF001 - as above
            lambda _read, experts, ways: derived([*even.counts().tolist() * 2], experts, ways)
        )
    elif hasattr(dispatcher, "_compute_token_splits"):
        computed = dispatcher._compute_token_splits  # noqa: SLF001 - as above

        # Sizes sent to and received from every rank, which are multiplied and read: host arrays here.
        @wraps(computed)
        def split(dispatcher: object, own: object, others: object, ways: int) -> tuple[Any, Any, Any]:
            sizes = even.counts().reshape(ways, -1).sum(axis=1)
            return sizes, sizes, computed(dispatcher, own, others, ways)[2]

        def order(_others: object, _ways: int) -> tuple[Tensor, Tensor]:
            rows = np.arange(even.rows, dtype=np.int32)
            return Tensor(rows), Tensor(rows)  # the places of the received rows, and back

        dispatcher._compute_token_splits, dispatcher._build_resort_index = split, staticmethod(order)  # noqa: SLF001 - as above
    else:
        return
    dispatcher._count_tokens_per_expert = count  # noqa: SLF001 - as above


class _EvenCounts:
    """The numbers of tokens per expert if all get the same number."""

    rows = experts = 0  # tokens, counted once per chosen expert

    def counts(self) -> NDArray[np.int64]:
        return np.diff(np.linspace(0, self.rows, self.experts + 1).astype(np.int64))


def _replace_everywhere(name: str, new: Callable[..., object]) -> None:
    # Replace a function of MindSpore in every module that imported it by name.
    for module in list(sys.modules.values()):
        thing = getattr(module, "__dict__", {}).get(name)
        if str(getattr(thing, "__module__", "")).startswith("mindspore.") and callable(thing):
            setattr(module, name, new)
