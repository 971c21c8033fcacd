"""What is asked of ``fit`` with a config."""

from __future__ import annotations

from dataclasses import dataclass, field

from ms_tune.dryrun.request import DryrunRequest
from ms_tune.enums import RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.planning.search import Effort
from ms_tune.planning.time_scale import Clock
from ms_tune.text import msg


@dataclass(frozen=True, slots=True)
class ConfigFitRequest:
    """What a plan is asked for.

    Attributes:
        dryrun: The config, its job and its device.
        kinds: Kinds of recompute that a plan may use.
        effort: How long to search.
        seed: Where the search's random numbers begin.
        verify: Whether the plan is simulated before it is handed over.
        allow_tight: Whether a plan is good enough that fits only without fragments, or only inside the reserve.
        clock: What was measured.
        swap_bandwidth: Bytes a second that go to the host, and as many that come back; with the kind ``swap`` only.
    """

    dryrun: DryrunRequest = field(default_factory=DryrunRequest)
    kinds: tuple[RecomputeMode, ...] = tuple(kind for kind in RecomputeMode if kind is not RecomputeMode.SWAP)
    effort: Effort = Effort.NORMAL
    seed: int = 1
    verify: bool = True
    allow_tight: bool = False
    clock: Clock = field(default_factory=Clock)
    swap_bandwidth: int | None = None

    def __post_init__(self) -> None:
        """Refuse swap of which nothing tells what it takes.

        Raises:
            UsageError: Swap is one of the kinds and no bandwidth is given, or the other way round.
        """
        if RecomputeMode.SWAP in self.kinds and self.swap_bandwidth is None:
            raise UsageError(msg("fitting.swap.bandwidth"), msg("fitting.swap.bandwidth.hint"))
        if RecomputeMode.SWAP not in self.kinds and self.swap_bandwidth is not None:
            raise UsageError(msg("fitting.swap.kind"), msg("fitting.swap.kind.hint"))
