"""What a user asks of the trace of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """How closely to look at which ranks.

    Attributes:
        ranks: The ranks to look at; empty for all.
        limit_bytes: What MindSpore may use, where the log does not count.
        with_graph: Whether to read ``tracker_graph.ir``, which takes longest.
    """

    ranks: frozenset[int] = frozenset()
    limit_bytes: int | None = None
    with_graph: bool = True
