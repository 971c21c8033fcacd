"""Distribute tokens over the experts of one rank as evenly as possible, if the router's choices are unknown."""

from __future__ import annotations

from itertools import accumulate


def shared_out(
    tokens: int, experts: int, ranks: int, own: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Distribute a rank's tokens over all experts; the first experts get one more if they do not divide evenly.

    The tokens are those of one rank, counted once per expert that they are sent to; ``own`` is the index of the rank.
    Return, for each of the rank's experts, the end of its tokens among all that the rank receives, sorted by expert;
    the tokens sent to each rank; and those received from each rank.
    """
    each, more = divmod(tokens, experts)
    counts = [each + (expert < more) for expert in range(experts)]
    local = experts // ranks
    groups = [counts[start : start + local] for start in range(0, experts, local)]
    ends = tuple(accumulate(ranks * count for count in groups[own]))
    return ends, tuple(map(sum, groups)), (sum(groups[own]),) * ranks
