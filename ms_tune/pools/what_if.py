"""Replay a run's requests in MindSpore's pool under other settings or with other blocks, and explain the reserved memory.

Blocks can be freed sooner, removed or sharded, layers recomputed or swapped; settings are formatted as lines to write.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import pairwise
from operator import attrgetter, itemgetter

from ms_tune.pools.mindspore_pool import DEFAULT_SIZE, PAGE, SIMULATED_DEVICE, MindSporeSettings, Vmm
from ms_tune.pools.pool import ALIGNMENT, PoolGrowth, PoolUnit, Replay, replay_workload
from ms_tune.pools.settings import Inferred, make_pool, maps_pages
from ms_tune.pools.workload import Request, Workload, make_workload
from ms_tune.records import Record
from ms_tune.units import GIB

INCREASES = (1, 2, 4, 8, 16, 32)  # GiB
INITS = (4, 8, 16, 32)  # GiB
WASTE_LIMIT = 0.03  # share of the reserved memory; above it the recorded setting is a finding


class Lines(Record):
    """The lines to write for a setting, by place; None if there is nothing to write."""

    script: str | None  # for the training script
    config: str | None  # for a MindFormers config, which cannot set `init_size`
    environment: str | None  # for the shell


def write_lines(settings: MindSporeSettings) -> Lines:
    """Return the lines to write for a setting.

    Names and forms are those of ``mindspore/runtime/memory.py`` (2.10), of MindFormers 1.9's ``core/context/build_context.py``,
    which passes ``mempool_block_size`` on as ``increase_size``, and of ``MS_ALLOC_CONF``.
    """
    init, increase = settings.init, settings.increase
    # MindSpore's own limits are not whole GiB.
    limit = settings.total if settings.total != SIMULATED_DEVICE and settings.total % GIB == 0 else None
    script = config = None
    if init is not None or increase is not None:
        sizes = {"init_size": init or DEFAULT_SIZE, "increase_size": increase or DEFAULT_SIZE, "max_size": limit}
        written = ", ".join(f'{name}="{size / GIB:g}GB"' for name, size in sizes.items() if size)
        script = f"ms.runtime.set_memory({written})"
    if increase is not None and init == DEFAULT_SIZE:
        # Without max_device_memory MindFormers 1.9 passes 1024GB, which is the default of max_size.
        keys = {"max_device_memory": limit, "mempool_block_size": increase}
        written = ", ".join(f'{key}: "{size / GIB:g}GB"' for key, size in keys.items() if size)
        config = f"context: {{{written}}}"
    chosen = {"enable_vmm:True": settings.vmm is Vmm.ON, "enable_small_pool:True": settings.small_pool}
    options = ",".join(option for option, on in chosen.items() if on)
    return Lines(script, config, f"export MS_ALLOC_CONF={options}" if options else None)


class Pin(Record):
    """A unit at the time when most bytes are in use: its occupancy, and the block that keeps it from being released."""

    unit: PoolUnit
    touched_bytes: int  # bytes of it that were ever used, during the whole trace
    live_at_peak_bytes: int  # bytes of it in use at the peak
    # Index of the live block in it with the longest lifetime, the largest among equals; None if it is empty.
    request: int | None


class Causes(Record):
    """The reasons why the pool of a run reserved more than was in use."""

    growths: tuple[PoolGrowth, ...]  # every growth, with the largest free block at that time
    # The growths at which the free bytes would have sufficed, had they been contiguous.
    missed: tuple[PoolGrowth, ...]
    spilled_bytes: int  # bytes of persistent requests served from the common part
    untouched_bytes: int  # bytes that were reserved but never used: the ends of the units
    idle_at_peak_bytes: int  # bytes of touched ranges that were free when most bytes were in use
    pins: tuple[Pin, ...]  # the units, those with most idle touched bytes first


def explain_replay(work: Workload, result: Replay) -> Causes:
    """Return why the pool of a replay reserved more than was in use."""
    pins = _pinned_units(work, result)
    return Causes(
        growths=result.growths,
        missed=tuple(growth for growth in result.growths if growth.free_bytes >= growth.request_bytes),
        spilled_bytes=result.spilled,
        untouched_bytes=result.reserved_peak - result.actual_peak,
        idle_at_peak_bytes=sum(pin.touched_bytes - pin.live_at_peak_bytes for pin in pins),
        pins=tuple(sorted(pins, key=lambda pin: pin.live_at_peak_bytes - pin.touched_bytes)),
    )


def _live_at_peak(work: Workload, result: Replay) -> Iterator[tuple[int, Request, int]]:
    if not work.requests:
        return
    tick = work.requests[result.used.index(result.used_peak)].start
    for index, (request, address) in enumerate(zip(work.requests, result.addresses, strict=True)):
        if request.start <= tick and (request.end is None or request.end > tick):
            yield index, request, address


def _pinned_units(work: Workload, result: Replay) -> list[Pin]:
    peak = result.used.index(result.used_peak) if work.requests else 0
    kept = [unit for unit in result.units if unit.released is None or unit.released >= peak]
    units = sorted(kept, key=lambda unit: unit.base)
    bases = [unit.base for unit in units]
    live = [0] * len(units)
    longest: list[tuple[float, int, int] | None] = [None] * len(units)
    for index, request, address in _live_at_peak(work, result):
        at = bisect_right(bases, address) - 1
        live[at] += request.size
        key = (float("inf") if request.end is None else request.end, request.size, index)
        longest[at] = max(longest[at] or key, key)
    return [
        Pin(unit, unit.high - unit.low, live[at], None if found is None else found[2])
        for at, (unit, found) in enumerate(zip(units, longest, strict=True))
    ]


class TraceChange(Record):
    """A changed workload."""

    name: str  # `freed-after-last-use`, `remove`, `shard` or `recompute`
    subject: str  # the category, the name pattern, or the number of layers; empty if it applies to all blocks
    parts: int  # number of shards of the subject; 0 if it is not sharded
    changed: int  # number of requests that differ
    work: Workload
    by_content: bool = False  # whether the subject is a category


class ReplayOutcome(Record):
    """The memory of a pool under one setting, or with other blocks under the setting of the run."""

    name: str  # a short form of the setting, such as `increase_size=4GB`; `recorded` for that of the run
    settings: MindSporeSettings
    # Peaks in bytes. `reserved` is the memory taken from the device. None if no known setting explains the trace, and it does
    # not record the value.
    used_bytes: int
    actual_bytes: int | None
    reserved_bytes: int | None
    fits: bool  # whether the pool always fits in the device's memory
    recorded: bool = False  # whether the run had this setting
    advisable: bool = True  # whether the user can choose it: `vmm floor` is a lower bound, not a setting
    change: TraceChange | None = None  # the change of the blocks, if any

    @property
    def waste_share(self) -> float | None:
        """Return the share of the reserved memory that is never in use; None if unknown."""
        return 1 - self.used_bytes / self.reserved_bytes if self.reserved_bytes else None

    @property
    def setting_lines(self) -> Lines:
        """Return the lines to write for this setting."""
        return write_lines(self.settings)


class WhatIf(Record):
    """The comparison of all settings."""

    pool: str  # the pool's name in the trace
    inferred: Inferred  # the inferred settings of the run, and where the replay differs from the trace
    total: int  # bytes of the device that the pool can use
    outcomes: tuple[ReplayOutcome, ...]  # the settings, with that of the run first
    best: ReplayOutcome | None  # the one that fits and reserves least; None if none fits
    best_without_vmm: ReplayOutcome | None  # the same without vmm, for devices or drivers that do not support it
    causes: Causes | None  # why the pool of the run reserved this much; None if no known setting explains the trace

    @property
    def recorded_outcome(self) -> ReplayOutcome:
        """Return the outcome of the run's own setting."""
        return self.outcomes[0]


def what_if(
    pool: str,
    inferred: Inferred,
    total: int | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> WhatIf:
    """Replay a workload under all settings that users choose between, limited to ``total`` bytes or as in the run."""
    work, limit = inferred.work, total or inferred.settings.total
    known = MindSporeSettings(small_pool=work.small_pool) if inferred.mismatches.total else inferred.settings
    base = replace(known, total=limit, simulated=False)
    candidates = list(_settings_to_try(base, older=inferred.older))
    outcomes = [_recorded_outcome(inferred, limit)]
    for done, (name, settings) in enumerate(candidates):
        on_progress(done, len(candidates))
        result = replay_workload(work, make_pool(settings, older=inferred.older))
        outcomes.append(_make_outcome(name, result, settings, limit))
        if settings.vmm is Vmm.ON:
            floor = count_used_pages(work, result) * PAGE
            outcomes.append(
                ReplayOutcome("vmm floor", settings, result.used_peak, floor, floor, floor <= limit, advisable=False)
            )
    on_progress(len(candidates), len(candidates))
    return WhatIf(
        pool=pool,
        inferred=inferred,
        total=limit,
        outcomes=tuple(outcomes),
        best=_best_outcome(outcomes),
        best_without_vmm=_best_outcome([outcome for outcome in outcomes if outcome.settings.vmm is Vmm.OFF]),
        causes=None if inferred.mismatches.total else explain_replay(work, inferred.replay),
    )


def _settings_to_try(base: MindSporeSettings, *, older: bool) -> Iterator[tuple[str, MindSporeSettings]]:
    # set_memory uses its defaults for sizes that are not given
    yield "vmm", replace(base, vmm=Vmm.ON, init=None, increase=None, small_pool=False)
    init, increase = base.init or DEFAULT_SIZE, base.increase or DEFAULT_SIZE
    for size in INCREASES:
        yield f"increase_size={size}GB", replace(base, init=init, increase=size * GIB)
    for size in INITS:
        yield f"init_size={size}GB", replace(base, init=size * GIB, increase=increase)
    if not older:
        name = "small_pool off" if base.small_pool else "small_pool"
        yield name, replace(base, small_pool=not base.small_pool)


def _make_outcome(
    name: str, result: Replay, settings: MindSporeSettings, limit: int, *, recorded: bool = False
) -> ReplayOutcome:
    fits = not result.is_over and result.reserved_peak <= limit
    return ReplayOutcome(name, settings, result.used_peak, result.actual_peak, result.reserved_peak, fits, recorded)


def _recorded_outcome(inferred: Inferred, limit: int) -> ReplayOutcome:
    outcome = _make_outcome("recorded", inferred.replay, inferred.settings, limit, recorded=True)
    if not inferred.mismatches.total:
        return outcome
    # The replay is a guess. Under vmm the footprint is what is reserved.
    rows = inferred.work.recorded
    used = max((row.used for row in rows if row.used is not None), default=outcome.used_bytes)
    actual = max((row.actual for row in rows if row.actual is not None), default=None)
    reserved = actual if maps_pages(inferred.work) else None
    return outcome._replace(used_bytes=used, actual_bytes=actual, reserved_bytes=reserved, fits=False)


def _best_outcome(outcomes: list[ReplayOutcome]) -> ReplayOutcome | None:
    fitting = [outcome for outcome in outcomes if outcome.fits and outcome.advisable]
    return min(fitting, key=lambda outcome: outcome.reserved_bytes or 0, default=None)


def count_used_pages(work: Workload, result: Replay) -> int:
    """Count the pages with live bytes when most bytes are in use: even vmm cannot release these."""
    spans = sorted(
        (address // PAGE, (address + request.size - 1) // PAGE) for _, request, address in _live_at_peak(work, result)
    )
    pages, beyond = 0, -1
    for first, last in spans:
        pages += max(last - max(first, beyond + 1) + 1, 0)
        beyond = max(beyond, last)
    return pages


class TraceFacts(Record):
    """Known facts about the requests of a workload, one entry per request."""

    last_use: Sequence[int | None]  # tick of the last task that used the block; None if unknown
    content: Sequence[str]  # its category, such as `activations`
    name: Sequence[str]  # the parameter or operator
    layer: Sequence[str]  # the layer of the model that allocated it, such as `layers.3`; empty if unknown
    forward: Sequence[bool]  # whether the forward pass allocated it
    backward: Sequence[bool]  # whether the backward pass did


def free_after_last_use(work: Workload, facts: TraceFacts) -> TraceChange:
    """Free every block that is ever freed right after the last task that used it."""
    requests, changed = [], 0
    for request, last in zip(work.requests, facts.last_use, strict=True):
        end = request.end
        if end is not None and last is not None and request.start <= last < end - 1:
            end = last + 1
            changed += 1
        requests.append(request._replace(end=end, batch=1))
    return TraceChange("freed-after-last-use", "", 0, changed, make_workload(requests, work.releases))


def shard_blocks(work: Workload, facts: TraceFacts, group: str, parts: int) -> TraceChange:
    """Shard the blocks of a group over ``parts`` ranks, or remove them if ``parts`` is 0.

    A group is a category, such as ``optimizer_state``, or a name pattern, such as ``adam_v.*``.
    """
    by_content = group in facts.content
    requests, changed = [], 0
    for request, category, name in zip(work.requests, facts.content, facts.name, strict=True):
        size = request.size
        if category == group if by_content else fnmatchcase(name, group):
            changed += 1
            size = -(-size // (parts * ALIGNMENT)) * ALIGNMENT if parts else 0
        if size:
            requests.append(request._replace(size=size, batch=1))
    changed_work = make_workload(requests, work.releases)
    return TraceChange("shard" if parts else "remove", group, parts, changed, changed_work, by_content=by_content)


def list_layers_with(work: Workload, facts: TraceFacts, content: str) -> list[str]:
    """Return the repeated layers of the model that have blocks of a category, in numerical order.

    Scope paths also number other things, such as micro-batches; the family with the most bytes is taken as the layers.
    """
    weight: dict[str, int] = {}
    found: dict[str, set[int]] = {}
    for request, layer, category in zip(work.requests, facts.layer, facts.content, strict=True):
        family, _, number = layer.rpartition(".")
        if category == content and family and number.isdecimal():
            weight[family] = weight.get(family, 0) + request.size
            found.setdefault(family, set()).add(int(number))
    if not weight:
        return []
    family = max(weight, key=lambda name: weight[name])
    return [f"{family}.{number}" for number in sorted(found[family])]


def recompute_layers(work: Workload, facts: TraceFacts, content: str, layers: Collection[str]) -> TraceChange:
    """Free the activations of some layers after the forward pass of the layer, until its backward pass.

    The last activation of a layer in each forward pass is kept: the next layer starts from it. Recomputation and
    swapping are the same in this respect; transient memory of recomputation beyond the activations is not counted.
    """
    starts = [request.start for request in work.requests]
    forward = [(starts[index], facts.layer[index]) for index, passes in enumerate(facts.forward) if passes]
    forward = [(tick, layer) for tick, layer in forward if layer]
    # Positions where the forward pass enters another layer, and its end.
    leaves = [at for at, ((_, one), (_, other)) in enumerate(pairwise(forward), 1) if one != other] + [len(forward)]
    runs = _backward_runs(starts, facts)
    lives: list[tuple[int, int, int]] = []  # request, tick of its removal, tick of its return
    outputs: dict[tuple[str, int], int] = {}
    for index, request in enumerate(work.requests):
        layer = facts.layer[index]
        if layer not in layers or facts.content[index] != content or request.end is None:
            continue
        at = bisect_right(forward, request.start, key=itemgetter(0))
        if at < len(forward) and forward[at][1] == layer:
            at = leaves[bisect_right(leaves, at)]
        away = forward[at][0] if at < len(forward) else None
        run = runs.get(layer, [])
        at = bisect_left(run, request.end) - 1
        if away is not None and at >= 0 and away < run[at]:
            lives.append((index, away, run[at]))
            outputs[layer, away] = index
    kept = set(outputs.values())
    requests = [request._replace(batch=1) for request in work.requests]
    extra = []
    for index, away, back in lives:
        if index not in kept:
            extra.append(requests[index]._replace(start=back))
            requests[index] = requests[index]._replace(end=away)
    ordered = sorted([*requests, *extra], key=attrgetter("start"))
    return TraceChange("recompute", str(len(layers)), 0, len(extra), make_workload(ordered, work.releases))


def replay_change(change: TraceChange, inferred: Inferred, total: int) -> ReplayOutcome:
    """Replay a changed workload in the pool of the run."""
    result = replay_workload(change.work, make_pool(inferred.settings, older=inferred.older))
    outcome = _make_outcome(change.name, result, inferred.settings, total)._replace(change=change)
    return outcome._replace(actual_bytes=None, reserved_bytes=None) if inferred.mismatches.total else outcome


def _backward_runs(starts: Sequence[int], facts: TraceFacts) -> dict[str, list[int]]:
    runs: dict[str, list[int]] = {}
    previous = ""
    for index, backward in enumerate(facts.backward):
        layer = facts.layer[index]
        if backward and layer:
            if layer != previous:
                runs.setdefault(layer, []).append(starts[index])
            previous = layer
    return runs
