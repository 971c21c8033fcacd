"""Under which settings a trace of MindSpore was recorded: those whose replay differs from it nowhere.

``memory_block.csv`` does not say how the pool was configured, nor when the script called ``empty_cache``. A wrong guess
shows at the first block of the first unit that it makes too large or too small, and by how much: that is the next guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from ms_tune.pools.mindspore_pool import (
    DEFAULT_SIZE,
    PAGE,
    SIMULATED_DEVICE,
    MindSporeBestFitPool,
    MindSporePool,
    MindSporeSettings,
    Vmm,
    align_up,
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


OLDER_POOL = "BestFitAscendMemoryPool"
_USUAL = (2, 1, 4, 8, 16, 32, 3, 5, 6, 10, 12, 20, 24, 30)  # GiB; what people write, where addresses tell nothing
_LARGEST = 256 * GIB  # of a unit; no device has more memory
_MAX_GUESSES = 800  # of one kind
_MAX_ROWS = 1_000_000  # replayed for one kind of guesses: some seconds


class Inferred(Record):
    """The settings that explain a trace best."""

    work: Workload  # the workload, with the releases that the trace shows
    settings: MindSporeSettings
    older: bool  # whether it was MindSpore's older pool
    placing: Placing  # where the pool put its units
    replay: Replay  # the replay under the settings
    mismatches: Mismatches  # where it differs from the trace; nowhere if the settings are right
    first_difference: int | None  # the first row that differs; None if none does
    # The settings that made no difference in this run, so that others explain it as well: `init_size`, `increase_size`,
    # `set_memory` (whether it was called).
    undecided: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Guess:
    settings: MindSporeSettings
    releases: tuple[int, ...] = ()  # ticks at which `empty_cache` was called
    changes: int = field(default=0, compare=False)  # how many settings were changed to come here


def make_pool(settings: MindSporeSettings, *, older: bool) -> Pool:
    """A fresh pool of MindSpore's; the older one knows no vmm."""
    return MindSporeBestFitPool(settings) if older and settings.vmm is Vmm.OFF else MindSporePool(settings)


def infer_settings(work: Workload, pool_name: str, total: int | None = None) -> Inferred:
    """The settings that reproduce the most rows before the first mismatch; the likeliest among equals.

    ``total`` is what the pool could take of the device in bytes, if the log tells.
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
    """Whether every footprint in the trace is a whole number of pages, as under vmm and hardly ever else."""
    told = [row.actual for row in work.recorded if row.actual is not None]
    return bool(told) and not any(actual % PAGE for actual in told)


class _SettingSearch:
    """Tries guesses, and makes new ones of where they fail: those with fewest changes and most rows explained first."""

    def __init__(self, work: Workload, *, older: bool, total: int | None) -> None:
        self._work, self._older, self._total = work, older, total
        self._rows = len(work.requests)
        self._replayed = 0
        self.explained = False

    def likely_settings(self) -> Iterator[MindSporeSettings]:
        # `set_memory` never called, or called without sizes.
        never = MindSporeSettings(small_pool=self._work.small_pool, total=self._total or SIMULATED_DEVICE)
        yield never
        yield replace(never, init=DEFAULT_SIZE, increase=DEFAULT_SIZE)

    def usual_settings(self) -> Iterator[MindSporeSettings]:
        never, default = self.likely_settings()
        yield never
        for init in _USUAL:
            yield from (replace(default, init=init * GIB, increase=size * GIB) for size in _USUAL)

    def find_best_guess(self, placing: Placing, starts: Iterable[MindSporeSettings]) -> tuple[int, _Guess, Placing]:
        # The guess that explains most rows, and how many; sets `explained`.
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
            work=work,
            settings=guess.settings,
            older=self._older,
            placing=placing,
            replay=result,
            mismatches=mismatches,
            first_difference=self._replay_guess(guess, placing)[0].row if mismatches.total else None,
            undecided=() if mismatches.total else tuple(self._find_undecided(guess, placing)),
        )

    def _find_undecided(self, guess: _Guess, placing: Placing) -> Iterator[str]:
        settings = guess.settings
        init, increase = settings.init, settings.increase
        if init is None or increase is None:
            others = [("set_memory", replace(settings, init=DEFAULT_SIZE, increase=DEFAULT_SIZE))]
        else:
            others = [
                ("init_size", replace(settings, init=init + GIB)),
                # Anything below the default makes no difference to the default; that is not worth telling.
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
        for whole in filter(None, map(_size_as_written, _unit_sizes(size, growth.request_bytes))):
            yield replace(settings, init=init, increase=whole)
        yield replace(settings, init=_cut_to_tenths(2 * size), increase=increase)
        if not fixed_total and at == wrong:
            # The unit was all that was left of the device, or all but the 1 GiB that is kept for the persistent part.
            held = growth.reserved_bytes - growth.unit_bytes
            for total in (held + size, held + size + GIB):
                yield replace(settings, total=_cut_to_tenths(total))
                yield replace(settings, total=total)


def _unit_sizes(size: int, wanted: int) -> Iterator[int]:
    # Sizes of which a multiple, just large enough for a request, makes up a unit.
    yield size
    for parts in range(2, 17):
        whole = size // parts
        if whole * parts == size and wanted > whole * (parts - 1):
            yield whole


def _size_as_written(size: int) -> int | None:
    # What somebody wrote as `3.5GB` who got units of a size; None if two decimals do not do.
    written = int(round(size / GIB, 2) * GIB)
    return written if written and align_up(written) == size else None


def _cut_to_tenths(size: int) -> int:
    # A size cut down to tenths of a GiB, of which as many units are the same.
    return int(size * 10 // GIB / 10 * GIB) or size
