"""Compare the memory of a config or a launch script before and after a change, and find the key or line that caused it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from ms_tune.diagnostics import KeyPath
from ms_tune.dryrun.prepare import LoadedConfig
from ms_tune.errors import MsTuneError
from ms_tune.estimate.memory import Estimate, Outlook
from ms_tune.records import Any, Record
from ms_tune.source.yaml import MISSING, source_of
from ms_tune.verdict.outcome import Fit
from ms_tune.workflows.check.advice import changed_keys
from ms_tune.workflows.check.config import InspectedConfig
from ms_tune.workflows.check.result import Blame, MemoryDifference, StageVerdict, worst_stage

_MOST_KEYS = 64  # changed keys to revert one by one
_MOST_PAIRED = 8  # maximum number of keys to revert in pairs


def compare_configs(before: InspectedConfig, after: InspectedConfig) -> MemoryDifference | None:
    """Compare the memory of the stage that is fullest after the change; None if it is unknown on one side."""
    was, now = before.memory.estimate, after.memory.estimate
    if before.verdicts and after.verdicts:
        change = _compare_dryruns(before.verdicts, after.verdicts)
    else:
        change = _compare_estimates(was, now) if was is not None and now is not None else None
    if change is None or change.outcome == "less":
        return change
    return change._replace(blame=_find_blame(before, after, change.stage))


def compare_scripts(was: str, now: str, estimate: Callable[[str], Estimate | None]) -> MemoryDifference | None:
    """Compare two texts of a launch script, by reverting each changed line alone; None if memory is unknown on one side."""
    before, after = estimate(was), estimate(now)
    if before is None or after is None:
        return None
    found = _compare_estimates(before, after)
    lines = now.splitlines(keepends=True)
    changes = list(_changed_lines(was.splitlines(keepends=True), lines))[:_MOST_KEYS]
    if found.outcome == "less" or not changes:
        return found

    def freed(change: _LineChange) -> int:
        other = estimate("".join((*lines[: change.first], *change.old, *lines[change.first + len(change.new) :])))
        return found.after_bytes - _stage_bytes(other, found.stage, found.after_bytes)

    less = list(map(freed, changes))
    best = changes[less.index(max(less))]
    key, old, new = _read_change(best)
    share = _blamed_share(max(less), found.after_bytes - found.before_bytes)
    alone = max(less) > 0 or len(changes) == 1
    return found._replace(blame=Blame(key, min(best.first + 1, len(lines)), old, new, share, alone=alone))


def _compare_estimates(was: Estimate, now: Estimate) -> MemoryDifference:
    stage = now.fullest
    old = was.stages[min(stage.stage, len(was.stages) - 1)].peak_bytes
    was_over, is_over = (one.outlook is Outlook.OVER for one in (was, now))
    outcome = "more" if stage.peak_bytes > old else "less"
    if is_over and (outcome == "more" or not was_over):
        outcome = "still" if was_over else "over"
    return MemoryDifference(stage.stage, old, stage.peak_bytes, now.limit.bytes, outcome, estimated=True, blame=None)


class _LineChange(Record):
    """Changed lines of a text: index of the first line, old lines and new lines."""

    first: int
    old: Sequence[str]
    new: Sequence[str]


def _changed_lines(was: Sequence[str], now: Sequence[str]) -> Iterator[_LineChange]:
    # Yield the changed lines, each with its old line: the one at the same place if the number of lines is equal, else the most
    # similar one.
    import difflib  # noqa: PLC0415 - seldom asked for

    for tag, a, b, c, d in difflib.SequenceMatcher(None, was, now).get_opcodes():
        if tag == "equal":
            continue
        left = list(was[a:b])
        for number in range(c, d):
            old = [left[0]] if len(left) == d - number else difflib.get_close_matches(now[number], left, n=1)
            yield _LineChange(number, old, now[number : number + 1])
            for one in old:
                left.remove(one)
        if left:
            yield _LineChange(c, left, ())


def _read_change(change: _LineChange) -> tuple[KeyPath, str | None, str | None]:
    # Return the option or variable if only its value changed, with both values; else the whole lines, without a name.
    old, new = (" ".join(one).replace("\\\n", " ").split() for one in (change.old, change.new))
    places = [at for at, (before, after) in enumerate(zip(old, new, strict=False)) if before != after]
    if len(old) == len(new) and len(places) == 1:
        at = places[0]
        name, _, value = new[at].partition("=")
        if at and new[at - 1].startswith("-"):
            return (new[at - 1],), old[at], new[at]
        if old[at].startswith(f"{name}="):
            return (name,), old[at].removeprefix(f"{name}="), value
    return (), " ".join(old) or None, " ".join(new) or None


def _stage_bytes(estimate: Estimate | None, stage: int, otherwise: int) -> int:
    return otherwise if estimate is None or stage >= len(estimate.stages) else estimate.stages[stage].peak_bytes


def _blamed_share(freed: int, added: int) -> float | None:
    return min(freed / added, 1.0) if added > 0 and freed > 0 else None


def _compare_dryruns(before: Sequence[StageVerdict], after: Sequence[StageVerdict]) -> MemoryDifference | None:
    now, was = worst_stage(after), worst_stage(before)
    same = next((one for one in before if one.stage == now.stage), was)
    if now.verdict.need is None or same.verdict.need is None or now.verdict.limit is None:
        return None
    old, new = same.verdict.need.peak_bytes, now.verdict.need.peak_bytes
    outcome = "more" if new > old else "less"
    if now.verdict.severity > was.verdict.severity:
        outcome = "over" if now.verdict.outcome is Fit.DOES_NOT_FIT else "tight"
    elif outcome == "more" and now.verdict.outcome is Fit.DOES_NOT_FIT:
        outcome = "still"
    return MemoryDifference(now.stage, old, new, now.verdict.limit.bytes, outcome, estimated=False, blame=None)


def _find_blame(before: InspectedConfig, after: InspectedConfig, stage: int) -> Blame | None:
    # Revert each changed key alone, and blame the one that lowers the stage's memory most, or a pair if none does alone.
    if after.loaded is None or before.loaded is None:
        return None
    now, was = after.loaded.source, before.loaded.source
    keys = tuple(changed_keys(now.data, was.data, ()))[:_MOST_KEYS]
    estimate, old = after.memory.estimate, before.memory.estimate
    if not keys or (estimate is None and len(keys) > 1):  # without an estimate, they cannot be distinguished
        return None
    chosen: tuple[KeyPath, ...] = keys[:1]
    share, alone = None, True
    if estimate is not None:
        peak = estimate.stages[stage].peak_bytes

        def freed(back: tuple[KeyPath, ...]) -> int:
            return peak - _bytes_without(after, {key: was.get(key, MISSING) for key in back}, stage, peak)

        chosen, less = _find_largest(keys, freed)
        alone = less > 0 or len(keys) == 1
        share = (
            _blamed_share(less, peak - _stage_bytes(old, min(stage, len(old.stages) - 1), 0))
            if old is not None
            else None
        )
    # A number is clearer than the list that had to change with it.
    best = min(chosen, key=lambda key: isinstance(now.get(key, MISSING), (list, dict, str)))
    value, other = now.get(best, MISSING), was.get(best, MISSING)
    return Blame(
        path=best,
        line=after.loaded.original.nearest(best).value.line,
        old=None if other is MISSING else other,
        new=None if value is MISSING else value,
        share=share,
        alone=alone,
        together=tuple(key for key in chosen if key != best),
    )


def _find_largest(
    keys: Sequence[KeyPath], freed: Callable[[tuple[KeyPath, ...]], int]
) -> tuple[tuple[KeyPath, ...], int]:
    # Return the key whose reversion lowers the stage's memory most, with the bytes; a pair of keys if none does alone. The number
    # of layers and the list that places them change together: if only one is reverted, the framework refuses the config.
    for size in (1, 2) if len(keys) <= _MOST_PAIRED else (1,):
        sizes = {back: freed(back) for back in combinations(keys, size)}
        best, less = max(sizes.items(), key=lambda one: one[1], default=((), 0))
        if less > 0:
            return best, less
    return tuple(keys[:1]), 0


def _bytes_without(after: InspectedConfig, back: Mapping[KeyPath, object], stage: int, peak: int) -> int:
    # Return the stage's memory with some keys reverted, or the current one if that config is invalid.
    assert after.loaded is not None  # noqa: S101 - its memory is known
    data = copy.deepcopy(after.loaded.source.data)
    for key, value in back.items():
        place: Any = data
        for name in key[:-1]:
            place = place.setdefault(name, {}) if isinstance(place, dict) else place[name]
        if value is MISSING:
            place.pop(key[-1], None)
        else:
            place[key[-1]] = copy.deepcopy(value)
    try:
        loaded: LoadedConfig = after.loaded.with_source(source_of(data, after.loaded.source.path))
        found = after.estimate_other(loaded)
    except MsTuneError:
        return peak
    return _stage_bytes(found, stage, peak)
