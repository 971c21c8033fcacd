"""What-ifs on the trace itself: blocks freed sooner, tensors taken away or sharded, layers recomputed or swapped."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import TYPE_CHECKING

from ms_tune.pools.pool import ALIGNMENT
from ms_tune.pools.replay import replay_workload
from ms_tune.pools.settings import Inferred, pool_for
from ms_tune.pools.workload import Workload, make_workload

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What is known about the requests of a workload, one entry for each."""

    last_use: Sequence[int | None]  # tick of the last task that touched the block; None if unknown
    content: Sequence[str]  # what it holds, such as `activations`
    name: Sequence[str]  # of the parameter or operator
    layer: Sequence[str]  # the layer of the model that allocated it, such as `layers.3`; empty if unknown
    forward: Sequence[bool]  # whether the forward pass allocated it
    backward: Sequence[bool]  # whether the backward pass did


@dataclass(frozen=True, slots=True)
class TraceChange:
    """A changed workload."""

    name: str  # `freed-after-last-use`, `remove`, `shard` or `recompute`
    subject: str  # the category, the pattern of names, or the number of layers; empty if it is about all
    parts: int  # into how many parts the subject is sharded; 0 if it is not
    changed: int  # how many requests differ
    work: Workload
    by_content: bool = False  # whether the subject is a category


@dataclass(frozen=True, slots=True)
class Scenario:
    """A changed workload, and what the pool of the run makes of it."""

    change: TraceChange  # what was changed
    # Peaks in bytes.
    used: int
    actual: int
    reserved: int
    fits: bool  # whether the pool never needs more than it may take


def free_after_last_use(work: Workload, facts: TraceFacts) -> TraceChange:
    """Every block that is ever freed is freed just after the last task that touched it."""
    requests, changed = [], 0
    for request, last in zip(work.requests, facts.last_use, strict=True):
        end = request.end
        if end is not None and last is not None and request.start <= last < end - 1:
            end = last + 1
            changed += 1
        requests.append(request._replace(end=end, batch=1))
    return TraceChange("freed-after-last-use", "", 0, changed, make_workload(requests, work.releases))


def shard_blocks(work: Workload, facts: TraceFacts, group: str, parts: int) -> TraceChange:
    """The blocks of a group split over so many ranks; taken away if ``parts`` is 0.

    A group is a category, such as ``optimizer_state``, or a pattern of names, such as ``adam_v.*``.
    """
    by_content = group in facts.content
    requests, changed = [], 0
    for request, held, name in zip(work.requests, facts.content, facts.name, strict=True):
        size = request.size
        if held == group if by_content else fnmatchcase(name, group):
            changed += 1
            size = -(-size // (parts * ALIGNMENT)) * ALIGNMENT if parts else 0
        if size:
            requests.append(request._replace(size=size, batch=1))
    changed_work = make_workload(requests, work.releases)
    return TraceChange("shard" if parts else "remove", group, parts, changed, changed_work, by_content=by_content)


def layers_with(work: Workload, facts: TraceFacts, content: str) -> list[str]:
    """The repeated layers of the model that hold blocks of a category, in order of their number.

    Scope paths number other things, too, such as micro-batches; the layers are those with the most bytes.
    """
    weight: dict[str, int] = {}
    found: dict[str, set[int]] = {}
    for request, layer, held in zip(work.requests, facts.layer, facts.content, strict=True):
        family, _, number = layer.rpartition(".")
        if held == content and family and number.isdecimal():
            weight[family] = weight.get(family, 0) + request.size
            found.setdefault(family, set()).add(int(number))
    if not weight:
        return []
    family = max(weight, key=lambda name: weight[name])
    return [f"{family}.{number}" for number in sorted(found[family])]


def recompute_layers(work: Workload, facts: TraceFacts, content: str, layers: Collection[str]) -> TraceChange:
    """The activations of some layers given up when the forward pass leaves the layer, and back for its backward pass.

    The last activation of a layer in each forward pass is kept: the next layer starts from it. Recomputing and swapping
    are the same in this respect; the memory that recomputing needs for a moment beyond the activations is not counted.
    """
    starts = [request.start for request in work.requests]
    leaves = _layer_leaves(starts, facts)
    runs = _backward_runs(starts, facts)
    lives: list[tuple[int, int, int]] = []  # request, when it goes, when it comes back
    outputs: dict[tuple[str, int], int] = {}
    for index, request in enumerate(work.requests):
        layer = facts.layer[index]
        if layer not in layers or facts.content[index] != content or request.end is None:
            continue
        away = leaves.leave_after(request.start, layer)
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


def replay_change(change: TraceChange, inferred: Inferred, total: int) -> Scenario:
    """Replay a changed workload in the pool of the run."""
    result = replay_workload(change.work, pool_for(inferred.settings, older=inferred.older))
    return Scenario(
        change=change,
        used=result.used_peak,
        actual=result.actual_peak,
        reserved=result.reserved_peak,
        fits=not result.is_over and result.reserved_peak <= total,
    )


class _Leaves:
    """When the forward pass goes on to another layer."""

    def __init__(self, ticks: list[int], layers: list[str]) -> None:
        self._ticks = ticks
        self._layers = layers
        self._next = [0] * len(ticks)  # position of the next entry with another layer
        for at in range(len(ticks) - 1, -1, -1):
            following = at + 1
            same = following < len(ticks) and layers[following] == layers[at]
            self._next[at] = self._next[following] if same else following

    def leave_after(self, tick: int, layer: str) -> int | None:
        """The first tick after this one at which the forward pass allocates for another layer."""
        at = bisect_right(self._ticks, tick)
        if at < len(self._ticks) and self._layers[at] == layer:
            at = self._next[at]
        return self._ticks[at] if at < len(self._ticks) else None


def _layer_leaves(starts: Sequence[int], facts: TraceFacts) -> _Leaves:
    told = [index for index, forward in enumerate(facts.forward) if forward and facts.layer[index]]
    return _Leaves([starts[index] for index in told], [facts.layer[index] for index in told])


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
