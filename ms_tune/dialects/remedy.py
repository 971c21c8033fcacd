"""Search for changes with which the framework accepts a config that it refuses.

The dialects' own modules (:mod:`ms_tune.dialects.mindformers.write`, :mod:`~ms_tune.dialects.mindspeed_ms.write` and
:mod:`~ms_tune.dialects.mindformers_pynative.write`) propose values where the framework stops. A proposal counts only if
the same rules then get further; the remedy is the changes with which they succeed, without unnecessary ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ms_tune.dialects import FrameworkStop
from ms_tune.enums import ChangeKind
from ms_tune.errors import MsTuneError
from ms_tune.records import Any
from ms_tune.source.edit import ValueChange, is_merged, same_data, spell
from ms_tune.source.yaml import MISSING, SourceFile, Values
from ms_tune.text import Message, msg
from ms_tune.units import whole_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects import JobView, LayerPlan

    Propose: TypeAlias = Callable[[JobView], Iterable[Values]]  # MISSING takes a key away

_ROUNDS = 12  # maximum successive refusals
# Problems that a proposal must not introduce: the framework accepts it, but the layers do not add up to the model.
_WORSE = {
    "offset-repeated",
    "cell-negative",
    "no-chunks",
    "layers-beyond",
    "layers-missing",
    "layers-twice",
    "layers-out-of-order",
}


def find_remedy(job: JobView) -> tuple[ValueChange, ...]:
    """Return the changes with which the framework accepts the config; empty if no proposal succeeds."""
    plan = job.plan
    propose: Propose = job.part("write").propose
    worse = _WORSE - {problem.id for problem in plan.problems}
    current = job
    touched: set[KeyPath] = set()
    seen = {plan.failure}
    for _ in range(_ROUNDS):
        step = None
        for proposal in _proposals(propose, current):
            trial = _with(current, proposal)
            outcome = _outcome(trial)
            if outcome is None or outcome.failure in seen:
                continue
            if _passes(outcome, worse):
                changed, needed = _least(job.source, trial, {*touched, *proposal}, worse)
                return tuple(_changes(job.source, changed.source, needed))
            if step is None and outcome.failure is not None:
                step = (trial, outcome, proposal)
        if step is None:
            return ()
        current, plan, proposal = step
        touched |= proposal.keys()
        seen.add(plan.failure)
    return ()


def _proposals(propose: Propose, job: JobView) -> list[Values]:
    found = []
    try:
        for one in propose(job):
            found += [one] if one else []
    except (MsTuneError, FrameworkStop, TypeError, ValueError, AttributeError, LookupError, OverflowError):
        pass
    return found


def guess_number(value: object) -> int:
    """Return the positive whole number that a value may represent; 1 if none."""
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    return whole_number(text) or 1


def guess_flag(value: object) -> bool:
    """Return whether a value that is not a Boolean may mean true."""
    return str(value).strip().lower() in {"1", "true", "on"}


def describe(changes: Iterable[ValueChange]) -> Message:
    """Describe the changes in words."""
    kept = [one for one in changes if one.kind is not ChangeKind.REMOVE_KEY]
    values = "; ".join(f"{_format_path(one.path)}: {spell(one.value)}" for one in kept)
    gone = ", ".join(_format_path(one.path) for one in changes if one.kind is ChangeKind.REMOVE_KEY)
    if values and gone:
        return msg("normalize.remedy.both", values=values, keys=gone)
    return msg("normalize.remedy.set", values=values) if values else msg("normalize.remedy.remove", keys=gone)


def _format_path(path: KeyPath) -> str:
    return "".join(f"[{item}]" if isinstance(item, int) else f".{item}" for item in path)[1:]


def _passes(plan: LayerPlan, worse: set[str]) -> bool:
    return plan.failure is None and plan.formative is not None and worse.isdisjoint(one.id for one in plan.problems)


def _outcome(job: JobView) -> LayerPlan | None:
    try:
        return job.plan
    except MsTuneError:
        return None


def _with(job: JobView, proposal: Values) -> JobView:
    """Return the job with other config values; positions are still those of the original text."""
    data: Any = job.source.data
    for path, value in proposal.items():
        data = _put(data, path, value)
    return job.with_source(job.source.replace(data=data))


def _put(data: Any, path: KeyPath, value: object) -> Any:  # noqa: ANN401 - any config value
    head, rest = path[0], path[1:]
    if isinstance(data, list) and isinstance(head, int):
        return [(_put(item, rest, value) if rest else value) if at == head else item for at, item in enumerate(data)]
    data = dict(data) if isinstance(data, dict) else {}
    if rest:
        data[head] = _put(data.get(head), rest, value)
    elif value is MISSING:
        data.pop(head, None)
    else:
        data[head] = value
    return data


def _least(source: SourceFile, trial: JobView, touched: set[KeyPath], worse: set[str]) -> tuple[JobView, set[KeyPath]]:
    for path in sorted(touched, key=lambda one: (-len(one), str(one))):
        if _is_new_name(source, trial.source, path, touched):
            continue
        less = _with(trial, {path: source.get(path, MISSING)})
        outcome = _outcome(less)
        if outcome is not None and _passes(outcome, worse):
            trial, touched = less, touched - {path}
    return trial, touched


def _is_new_name(source: SourceFile, trial: SourceFile, path: KeyPath, touched: set[KeyPath]) -> bool:
    """Return whether a key is the new name of a removed one: dropping it would lose its author's values."""
    gone = any(one[:-1] == path[:-1] and trial.get(one, MISSING) is MISSING for one in touched)
    return gone and source.get(path, MISSING) is MISSING and trial.get(path, MISSING) is not MISSING


def _changes(source: SourceFile, trial: SourceFile, touched: set[KeyPath]) -> Iterator[ValueChange]:
    touched = {_own(source, path) for path in touched}
    # A section that loses all of its keys is removed itself.
    touched = {path[:-1] if len(path) > 1 and trial.get(path[:-1]) == {} else path for path in touched}
    tops = [path for path in touched if not any(path[:end] in touched for end in range(1, len(path)))]
    for path in sorted(tops, key=str):
        while len(path) > 1 and source.get(path[:-1], MISSING) is MISSING:
            path = path[:-1]  # noqa: PLW2901 - a missing section is added whole
        old, new = source.get(path, MISSING), trial.get(path, MISSING)
        if new is MISSING:
            yield ValueChange(ChangeKind.REMOVE_KEY, path)
        elif old is MISSING:
            yield ValueChange(ChangeKind.ADD_KEY, path, new)
        else:
            yield from _settings(source, path, old, new)


def _own(source: SourceFile, path: KeyPath) -> KeyPath:
    """Return a path, or the first of its parents that YAML shares with another place through an alias or merge."""
    for end in range(1, len(path)):
        position = source.position(path[:end])
        if position is not None and (position.value != position.definition or is_merged(source, path[:end])):
            return path[:end]
    return path


def _settings(source: SourceFile, path: KeyPath, old: object, new: object) -> Iterator[ValueChange]:
    alone = _own(source, (*path, 0)) == (*path, 0)
    if alone and isinstance(old, list) and isinstance(new, list) and len(old) == len(new) > 0:
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _settings(source, (*path, index), one, other)
    elif not same_data(old, new):
        yield ValueChange(ChangeKind.SET_VALUE, path, new)
