"""What a user asks of the trace of a run."""

from __future__ import annotations

from dataclasses import dataclass

from ms_tune.footprint.request import JudgedRequest


@dataclass(frozen=True, slots=True)
class WhatIfRequest(JudgedRequest):
    """What to replay of a run's allocations beside other settings of the pool, judged by what :class:`JudgedRequest` says.

    Attributes:
        rank: The rank; None for the first.
        max_memory: Bytes that the pool may take of the device; None for what it may take where the run is judged.
        remove: Blocks to leave out: a content, or the name of a parameter.
        shard: Blocks to share out.
        parts: Over how many ranks; None for two.
        recompute_layers: How many layers to recompute in full.
    """

    rank: int | None = None
    max_memory: int | None = None
    remove: str | None = None
    shard: str | None = None
    parts: int | None = None
    recompute_layers: int | None = None


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """How to plan the addresses of blocks.

    Attributes:
        rank: The rank of a run; None for the first.
        capacity: Bytes that the blocks should fit in.
        seconds: How long to search; None for what suits the number of blocks.
    """

    rank: int | None = None
    capacity: int | None = None
    seconds: float | None = None
