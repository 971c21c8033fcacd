"""The same requests with another one of two alike freed first: what an order of execution that nobody knows may change.

A static graph's order is a sort of its operators, and operators without an order between them change places from one
build to the next. Where two blocks of one size are asked for one behind the other, either may be the one that lives longer, and from there on
the pool's holes are others: of a stage of Qwen3-32B (MindFormers 1.9, 4 layers) two blocks of 16,896 bytes make 18,842 MiB or
19,392 MiB of the footprint, and nothing else does.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from ms_tune.pools.workload import workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.pools.workload import Workload

_MOST_EVENTS = 150_000  # that are replayed in other orders: each replay takes as long as the first


def exchanged(work: Workload) -> Iterator[Workload]:
    """The requests with twins exchanged: one half of them, and then the other, so that each pair has either order.

    Args:
        work: The requests, without releases; nothing is made of too many.
    """
    pairs = _twins(work)
    if not pairs or len(work.schedule) > _MOST_EVENTS:
        return
    chosen = random.Random(0)  # noqa: S311 - any half
    half = [chosen.random() < 0.5 for _ in pairs]  # noqa: PLR2004 - a half
    for taken in (half, [not one for one in half]):
        ends = {block: request.end for block, request in enumerate(work.requests)}
        for (one, other), swap in zip(pairs, taken, strict=True):
            if swap:
                ends[one], ends[other] = ends[other], ends[one]
        yield workload(request._replace(end=ends[block]) for block, request in enumerate(work.requests))


def _twins(work: Workload) -> list[tuple[int, int]]:
    """Blocks that are asked for one behind the other, alike in all but how long they live; each once."""
    found: list[tuple[int, int]] = []
    taken: set[int] = set()
    for one, other in zip(work.schedule, work.schedule[1:], strict=False):
        if one < 0 or other < 0 or one in taken:
            continue
        first, second = work.requests[one], work.requests[other]
        alike = first._replace(start=0, end=None) == second._replace(start=0, end=None)
        if alike and first.batch == 1 and first.end != second.end:
            found.append((one, other))
            taken |= {one, other}
    return found
