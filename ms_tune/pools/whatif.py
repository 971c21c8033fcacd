"""What the same requests would have taken of the device under other settings of MindSpore's pool."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ms_tune.pools.advice import lines_for
from ms_tune.pools.causes import Causes, causes_of
from ms_tune.pools.mindspore_pool import DEFAULT_SIZE, PAGE, Vmm
from ms_tune.pools.replay import replay
from ms_tune.pools.settings import pool_for
from ms_tune.units import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ms_tune.pools.advice import Lines
    from ms_tune.pools.mindspore_pool import MindSporeSettings
    from ms_tune.pools.replay import Replay
    from ms_tune.pools.settings import Inferred
    from ms_tune.pools.workload import Workload

INCREASES = (1, 2, 4, 8, 16, 32)  # GiB
INITS = (4, 8, 16, 32)  # GiB
WASTE_LIMIT = 0.03  # of what is reserved; above it the recorded setting is a finding


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What a pool takes under one setting."""

    name: str  # the setting in a few characters, such as `increase_size=4GB`; `recorded` for that of the run
    settings: MindSporeSettings
    # Peaks in bytes. `reserved` is what the device loses.
    used: int
    actual: int
    reserved: int
    fits: bool  # whether the pool never needs more than the device has
    recorded: bool = False  # whether the run had this setting
    advisable: bool = True  # whether the user can choose it: `vmm floor` is a limit, not a setting

    @property
    def waste(self) -> float:
        """The share of what is reserved that is never in use."""
        return 1 - self.used / self.reserved if self.reserved else 0.0

    @property
    def lines(self) -> Lines:
        """What to write where for this setting."""
        return lines_for(self.settings)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """All settings side by side."""

    pool: str  # what the trace calls the pool
    inferred: Inferred  # the settings of the run, as the replay found them, and where the replay differs from the trace
    total: int  # bytes that the pool may take of the device
    outcomes: tuple[ReplayOutcome, ...]  # the settings, that of the run first
    best: ReplayOutcome | None  # the one that fits and reserves least; None if none fits
    best_without_vmm: ReplayOutcome | None  # the same where the device or the driver has no vmm
    causes: Causes  # why the pool of the run reserved what it did

    @property
    def recorded(self) -> ReplayOutcome:
        """The setting of the run."""
        return self.outcomes[0]

    @property
    def wasteful(self) -> bool:
        """Whether the run's setting wastes more than :data:`WASTE_LIMIT`."""
        return self.recorded.waste > WASTE_LIMIT


def what_if(
    pool: str,
    inferred: Inferred,
    total: int | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> WhatIf:
    """Replay a workload under every setting that users choose between.

    Args:
        pool: What the trace calls the pool.
        inferred: The requests, the settings of the run and its replay.
        total: Bytes that the pool may take of the device; None: what it could take in the run.
        on_progress: Told how many settings are done, of how many.
    """
    work, limit = inferred.work, total or inferred.settings.total
    base = replace(inferred.settings, total=limit, simulated=False)
    candidates = list(_candidates(base, older=inferred.older))
    outcomes = [_outcome("recorded", inferred.replay, inferred.settings, limit, recorded=True)]
    for done, (name, settings) in enumerate(candidates):
        on_progress(done, len(candidates))
        result = replay(work, pool_for(settings, older=inferred.older and settings.vmm is Vmm.OFF))
        outcomes.append(_outcome(name, result, settings, limit))
        if settings.vmm is Vmm.ON:
            floor = used_pages(work, result) * PAGE
            outcomes.append(
                ReplayOutcome("vmm floor", settings, result.used_peak, floor, floor, floor <= limit, advisable=False)
            )
    on_progress(len(candidates), len(candidates))
    return WhatIf(
        pool=pool,
        inferred=inferred,
        total=limit,
        outcomes=tuple(outcomes),
        best=_best(outcomes),
        best_without_vmm=_best([outcome for outcome in outcomes if outcome.settings.vmm is Vmm.OFF]),
        causes=causes_of(work, inferred.replay),
    )


def _candidates(base: MindSporeSettings, *, older: bool) -> Iterator[tuple[str, MindSporeSettings]]:
    """Each setting changed alone; ``set_memory`` brings its defaults for what is not named."""
    yield "vmm", replace(base, vmm=Vmm.ON, init=None, increase=None, small_pool=False)
    init, increase = base.init or DEFAULT_SIZE, base.increase or DEFAULT_SIZE
    for size in INCREASES:
        yield f"increase_size={size}GB", replace(base, init=init, increase=size * GIB)
    for size in INITS:
        yield f"init_size={size}GB", replace(base, init=size * GIB, increase=increase)
    if not older:
        name = "small_pool off" if base.small_pool else "small_pool"
        yield name, replace(base, small_pool=not base.small_pool)


def _outcome(
    name: str, result: Replay, settings: MindSporeSettings, limit: int, *, recorded: bool = False
) -> ReplayOutcome:
    fits = not result.over and result.reserved_peak <= limit
    return ReplayOutcome(name, settings, result.used_peak, result.actual_peak, result.reserved_peak, fits, recorded)


def _best(outcomes: list[ReplayOutcome]) -> ReplayOutcome | None:
    """The setting that fits and reserves least; among equals what the run had, then the first."""
    fitting = [outcome for outcome in outcomes if outcome.fits and outcome.advisable]
    return min(fitting, key=lambda outcome: outcome.reserved, default=None)


def used_pages(work: Workload, result: Replay) -> int:
    """How many pages hold a live byte when most bytes are in use: what vmm cannot give back even then."""
    peak = result.used.index(result.used_peak) if result.used else 0
    tick = work.requests[peak].start if work.requests else 0
    spans = sorted(
        (address // PAGE, (address + request.size - 1) // PAGE)
        for request, address in zip(work.requests, result.addresses, strict=True)
        if request.start <= tick and (request.end is None or request.end > tick)
    )
    pages, beyond = 0, -1
    for first, last in spans:
        pages += max(last - max(first, beyond + 1) + 1, 0)
        beyond = max(beyond, last)
    return pages
