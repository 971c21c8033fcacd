"""How many tokens the experts of one rank get where a router's choice is not known: as even as it comes out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Shares:
    """The tokens that one rank sends and receives; tokens that are sent to two experts count twice."""

    # For each of the rank's experts, where its tokens end among all that the rank receives, sorted by expert.
    ends: tuple[int, ...]
    sent: tuple[int, ...]  # tokens sent to each rank
    received: tuple[int, ...]  # tokens received from each rank


def shared_out(tokens: int, experts: int, ranks: int, own: int) -> Shares:
    """Share a rank's tokens out over all experts; the first ones get one more than the others where it must be.

    The tokens are those of one rank, each once for every expert that it is sent to; ``own`` is the rank's place among all.
    """
    each, more = divmod(tokens, experts)
    counts = [each + (expert < more) for expert in range(experts)]
    local = experts // ranks
    groups = [counts[start : start + local] for start in range(0, experts, local)]
    return Shares(
        ends=tuple(accumulate(ranks * count for count in groups[own])),
        sent=tuple(map(sum, groups)),
        received=(sum(groups[own]),) * ranks,
    )
