"""What a user asks of the trace of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRequest:
    """What a run is judged by.

    Attributes:
        chip: The device's name.
        device_bytes: The device's memory as sold.
        reserve_bytes: What to set aside beside what is known; None for what was set aside in the run.
    """

    chip: str | None = None
    device_bytes: int | None = None
    reserve_bytes: int | None = None

    @property
    def names_device(self) -> bool:
        """Whether the user names a device."""
        return self.chip is not None or self.device_bytes is not None


@dataclass(frozen=True, slots=True)
class MemoryRequest(JudgedRequest):
    """How closely to look at which ranks, judged by what :class:`JudgedRequest` says.

    Attributes:
        ranks: The ranks to look at; empty for all.
        limit_bytes: What the pool may take, whatever the device.
        with_graph: Whether to read ``tracker_graph.ir``, which takes longest.
    """

    ranks: frozenset[int] = frozenset()
    limit_bytes: int | None = None
    with_graph: bool = True


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
