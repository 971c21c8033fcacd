"""What MindFormers' dynamic-graph trainer and HyperParallel ask on several devices and simulation cannot answer.

No other rank runs and nothing is computed: who takes part, what the stage before hands over and how many tokens go to
each expert come from here. On devices (``--real``) nothing is changed.
"""

from __future__ import annotations

import math
import sys
from functools import wraps
from typing import TYPE_CHECKING, Any

import mindspore
import numpy as np
from mindspore.communication import GlobalComm, _comm_helper, get_group_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_RANKS_OF = "_get_group_ranks"
_RECEIVES = "recv_object_list"


def know_who_is_in_a_group() -> None:
    """Have ``get_process_group_ranks`` name all ranks of the job, as it does for groups that the program made.

    In simulation MindSpore (2.9, 2.10) says "Group hccl_world_group doesn't include this rank".
    """
    ranks_of = _comm_helper._get_group_ranks  # noqa: SLF001 - what the public function calls

    def answer(group: str) -> list[int]:
        if group == GlobalComm.WORLD_COMM_GROUP:
            return list(range(get_group_size()))
        known: list[int] = ranks_of(group)
        return known

    _replace_everywhere(_RANKS_OF, answer)


def take_what_the_stage_before_hands_over(shape: Sequence[int], dtype: str) -> None:
    """Have a later pipeline stage go on with these shapes; it waits for them in ``recv_object_list``.

    Args:
        shape: What comes from the stage before: ``(tokens of this rank, samples, hidden size)``.
        dtype: Its number format.
    """
    handed = (tuple(shape), getattr(mindspore, dtype))

    def receive(object_list: list[Any], *_: object, **__: object) -> int:
        for number in range(len(object_list)):
            object_list[number] = [list(handed)]
        return 0

    _replace_everywhere(_RECEIVES, receive)


def spread_tokens_evenly(dispatcher: Any) -> None:  # noqa: ANN401 - a class of MindFormers, which has no types
    """Have every expert get as many tokens as the next one.

    ``ExpertParallel`` (``pynative/distributed/expert_parallel.py``, 2.1) reads counts back from the device, which are 0 in
    simulation, and cuts by them. A dispatcher of another release is left alone.
    """
    counted, derived = (
        getattr(dispatcher, "_count_tokens_per_expert", None),
        getattr(dispatcher, "_derive_splits", None),
    )
    if counted is None or derived is None:
        return
    rows = 0

    @wraps(counted)
    def count(self: object, chosen: Any, experts: int) -> object:  # noqa: ANN401 - as above
        nonlocal rows
        rows = math.prod(chosen.shape)
        return counted(self, chosen, experts)

    def derive(_read: object, experts: int, ways: int) -> object:
        counts = np.diff(np.linspace(0, rows, experts + 1).astype(int)).tolist()
        return derived([*counts, *counts], experts, ways)

    dispatcher._count_tokens_per_expert = count  # noqa: SLF001 - there is no other place
    dispatcher._derive_splits = staticmethod(derive)  # noqa: SLF001 - as above


def _replace_everywhere(name: str, new: Callable[..., object]) -> None:
    """Put a function into MindSpore's place in every module that has taken it by name."""
    places = [
        module for module in list(sys.modules.values()) if _of_mindspore(getattr(module, "__dict__", {}).get(name))
    ]
    for module in places:
        setattr(module, name, new)


def _of_mindspore(thing: object) -> bool:
    return str(getattr(thing, "__module__", "")).startswith("mindspore.") and callable(thing)
