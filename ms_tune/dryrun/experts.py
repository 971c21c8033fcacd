"""How many tokens the experts of one rank get where a router's choice is not known: as even as it comes out."""

from __future__ import annotations

from itertools import accumulate


def shared_out(
    tokens: int, experts: int, ranks: int, own: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Share a rank's tokens out over all experts; the first ones get one more than the others where it must be.

    The tokens are those of one rank, each once for every expert that it is sent to; ``own`` is the rank's place among all.
    Return, for each of the rank's experts, where its tokens end among all that the rank receives, sorted by expert; the
    tokens sent to each rank; and those received from each.
    """
    each, more = divmod(tokens, experts)
    counts = [each + (expert < more) for expert in range(experts)]
    local = experts // ranks
    groups = [counts[start : start + local] for start in range(0, experts, local)]
    ends = tuple(accumulate(ranks * count for count in groups[own]))
    return ends, tuple(map(sum, groups)), (sum(groups[own]),) * ranks
