"""Infer the pool settings under which a trace of MindSpore was recorded: those whose replay matches it everywhere.

``memory_block.csv`` does not state the pool's configuration, nor when the script called ``empty_cache``. A wrong guess
shows at the first block after a unit of the wrong size; the size of the difference gives the next guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from ms_tune.pools.mindspore_pool import (
    DEFAULT_SIZE,
    PAGE,
    SIMULATED_DEVICE,
    MindSporeBestFitPool,
    MindSporePool,
    MindSporeSettings,
    Vmm,
    align_up,
    size_in_bytes,
)
from ms_tune.pools.pool import (
    ALIGNMENT,
    Divergence,
    Mismatches,
    Placing,
    Pool,
    Replay,
    compare_with_trace,
    find_divergence,
    replay_workload,
)
from ms_tune.pools.workload import Workload, add_release
from ms_tune.records import Record
from ms_tune.units import GIB

OLDER_POOL = "BestFitAscendMemoryPool"
_USUAL = (2, 1, 4, 8, 16, 32, 3, 5, 6, 10, 12, 20, 24, 30)  # GiB; common sizes, tried if addresses do not determine one
_LARGEST = 256 * GIB  # bytes of a unit; no device has more memory
_MAX_GUESSES = 800  # per kind of guess
_MAX_ROWS = 1_000_000  # rows replayed per kind of guess: some seconds


class Inferred(Record):
    """The settings that best explain a trace."""

    work: Workload  # the workload, with the calls of `empty_cache` found in the trace if the settings explain it
    settings: MindSporeSettings
    older: bool  # whether the older pool of MindSpore was used
    placing: Placing  # how the pool placed its units
    replay: Replay  # the replay under the settings
    mismatches: Mismatches  # differences from the trace; none if the settings are right
    # The settings that made no difference in this run, so other values explain it as well: `init_size`,
    # `increase_size`, `set_memory` (whether it was called).
    undecided: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Guess:
    settings: MindSporeSettings
    releases: tuple[int, ...] = ()  # ticks at which `empty_cache` was called
    changes: int = field(default=0, compare=False)  # number of settings changed so far


def make_pool(settings: MindSporeSettings, *, older: bool) -> Pool:
    """Return a new MindSpore pool; with vmm always the newer version, because the older one does not support it."""
    return MindSporeBestFitPool(settings) if older and settings.vmm is Vmm.OFF else MindSporePool(settings)


def infer_settings(work: Workload, pool_name: str, total: int | None = None) -> Inferred:
    """Return the settings that reproduce the most rows before the first mismatch; the most likely among equals.

    ``total`` is the number of bytes of the device that the pool could use, if the log states it.
    """
    search = _SettingSearch(work, older=pool_name == OLDER_POOL, total=total)
    best = search.find_best_guess(Placing.TOP_DOWN, search.likely_settings())
    if not search.explained and maps_pages(work):
        best = search.find_best_guess(Placing.MAPPED, [replace(best[1].settings, init=None, increase=None, vmm=Vmm.ON)])
    for placing in (Placing.TOP_DOWN, Placing.ANYWHERE):
        if not search.explained and best[2] is not Placing.MAPPED:
            best = max(best, search.find_best_guess(placing, search.usual_settings()), key=lambda found: found[0])
    return search.replay_in_full(*best[1:])


def maps_pages(work: Workload) -> bool:
    """Return whether every footprint in the trace is a multiple of the page size, which practically only happens under vmm."""
    footprints = [row.actual for row in work.recorded if row.actual is not None]
    return bool(footprints) and not any(actual % PAGE for actual in footprints)


class _SettingSearch:
    """A search that derives new guesses from failed ones, those with fewest changes and most explained rows first."""

    def __init__(self, work: Workload, *, older: bool, total: int | None) -> None:
        self._work, self._older, self._total = work, older, total
        self._rows = len(work.requests)
        self._replayed = 0
        self.explained = False

    def likely_settings(self) -> Iterator[MindSporeSettings]:
        # `set_memory` was never called, or called without sizes.
        never = MindSporeSettings(small_pool=self._work.small_pool, total=self._total or SIMULATED_DEVICE)
        yield never
        yield replace(never, init=DEFAULT_SIZE, increase=DEFAULT_SIZE)

    def usual_settings(self) -> Iterator[MindSporeSettings]:
        never, default = self.likely_settings()
        yield never
        for init in _USUAL:
            yield from (replace(default, init=init * GIB, increase=size * GIB) for size in _USUAL)

    def find_best_guess(self, placing: Placing, starts: Iterable[MindSporeSettings]) -> tuple[int, _Guess, Placing]:
        # Return the guess that explains the most rows, and their number; sets `explained`.
        best = (-1, _Guess(MindSporeSettings()), placing)
        known: set[_Guess] = set()
        queue: list[tuple[int, int, int, list[_Guess]]] = [(0, 0, 0, [_Guess(settings) for settings in starts])]
        self._replayed = 0
        while queue and len(known) < _MAX_GUESSES and self._replayed < max(_MAX_ROWS, 4 * self._rows):
            _, reached, _, guesses = heappop(queue)
            for guess in guesses:
                if guess in known:
                    continue
                known.add(guess)
                found, pool = self._replay_guess(guess, placing)
                if found.row > best[0]:
                    best = (found.row, guess, placing)
                if found.row == self._rows:
                    self.explained = True
                    return best
                if guess.releases and found.row <= -reached:
                    continue  # the release did not help
                for changes, following in self._next_guesses(guess, found, pool, placing):
                    heappush(queue, (guess.changes + changes, -found.row, len(known) + changes, following))
        return best

    def _fresh_run(self, guess: _Guess) -> tuple[Workload, Pool]:
        work = self._work
        for tick in guess.releases:
            work = add_release(work, tick)
        return work, make_pool(guess.settings, older=self._older)

    def _replay_guess(self, guess: _Guess, placing: Placing) -> tuple[Divergence, Pool]:
        work, pool = self._fresh_run(guess)
        found = find_divergence(work, pool, placing)
        self._replayed += found.row
        return found, pool

    def _next_guesses(
        self, guess: _Guess, found: Divergence, pool: Pool, placing: Placing
    ) -> Iterator[tuple[int, list[_Guess]]]:
        requests = self._work.requests
        now = requests[found.row].start
        before = requests[found.row - 1].start + 1 if found.row else 0
        ticks = [tick for tick in dict.fromkeys((now, before)) if tick not in guess.releases]
        yield 0, [replace(guess, releases=(*guess.releases, tick)) for tick in ticks]
        if placing is Placing.TOP_DOWN and found.shift:
            resized = _resize_units(guess.settings, found, pool, fixed_total=self._total is not None)
            yield 1, [replace(guess, settings=settings, changes=guess.changes + 1) for settings in resized]

    def replay_in_full(self, guess: _Guess, placing: Placing) -> Inferred:
        work, pool = self._fresh_run(guess)
        result = replay_workload(work, pool)
        mismatches = compare_with_trace(work, result, placing)
        return Inferred(
            work=self._work if mismatches.total else work,
            settings=guess.settings,
            older=self._older,
            placing=placing,
            replay=result,
            mismatches=mismatches,
            undecided=() if mismatches.total else tuple(self._find_undecided(guess, placing)),
        )

    def _find_undecided(self, guess: _Guess, placing: Placing) -> Iterator[str]:
        settings = guess.settings
        init, increase = settings.init, settings.increase
        if init is None or increase is None:
            others = [
                ("set_memory", replace(settings, init=DEFAULT_SIZE, increase=size)) for size in (DEFAULT_SIZE, GIB)
            ]
        else:
            others = [
                ("init_size", replace(settings, init=init + GIB)),
                # Values below the default behave like the default, so they are not worth reporting.
                ("init_size", replace(settings, init=max(init - GIB, DEFAULT_SIZE) if init > DEFAULT_SIZE else init)),
                ("increase_size", replace(settings, increase=increase + GIB)),
                ("increase_size", replace(settings, increase=max(increase, init // 2))),
            ]
        changed = [(name, replace(guess, settings=other)) for name, other in others if other != settings]
        names = [name for name, other in changed if self._replay_guess(other, placing)[0].row == self._rows]
        yield from dict.fromkeys(names)


def _resize_units(
    settings: MindSporeSettings, found: Divergence, pool: Pool, *, fixed_total: bool
) -> Iterator[MindSporeSettings]:
    units, growths = pool.state.units, pool.state.growths
    wrong = units.index(pool.state.unit_of(found.address))
    init, increase = settings.init or DEFAULT_SIZE, settings.increase or DEFAULT_SIZE
    for at, (unit, growth) in enumerate(zip(units, growths, strict=True)):
        size = unit.size + (found.shift if at <= wrong else -found.shift)
        if not ALIGNMENT <= size <= _LARGEST:
            continue
        for whole in _steps_as_written(size, growth.request_bytes):
            yield replace(settings, init=init, increase=whole)
        yield replace(settings, init=_cut_to_tenths(2 * size), increase=increase)
        if not fixed_total and at == wrong:
            # The unit was all the memory left on the device, or all except the 1 GiB reserved for the persistent part.
            reserved = growth.reserved_bytes - growth.unit_bytes
            for total in (reserved + size, reserved + size + GIB):
                yield replace(settings, total=_cut_to_tenths(total))
                yield replace(settings, total=total)


def _steps_as_written(size: int, wanted: int) -> Iterator[int]:
    # Yield sizes such as `3.5GB` of which a multiple, just large enough for a request, makes up a unit.
    for parts in range(1, 17):
        step = size_in_bytes(round(size / parts / GIB, 2))
        if step and align_up(step * parts) == size and wanted > step * (parts - 1):
            yield step


def _cut_to_tenths(size: int) -> int:
    # Cut a size down to tenths of a GiB, if that is enough for the same number of units.
    return size_in_bytes(size * 10 // GIB / 10) or size
