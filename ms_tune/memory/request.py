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


@dataclass(frozen=True, slots=True)
class TorchWhatIfRequest:
    """What to replay."""

    device: int | None = None  # the device's number; None for the one with the most events
    expandable: bool | None = None  # `expandable_segments`; None as recorded
    max_split: int | None = None  # `max_split_size_mb` in bytes; None as recorded
    roundup: int | None = None  # `roundup_power2_divisions`; None as recorded
    keep_cache: bool = False  # whether the script's calls of `empty_cache` are left out
    empty_each_step: bool = False  # whether it is called after each training step
    collect_above: float | None = None  # `garbage_collection_threshold`, a share of `limit`; None: not set
    limit: int | None = None  # bytes of the device that the allocator may take; None: no limit

    @property
    def names_settings(self) -> bool:
        """Whether a setting is asked for."""
        named = (self.expandable, self.max_split, self.roundup, self.collect_above)
        return self.keep_cache or self.empty_each_step or any(each is not None for each in named)
