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
