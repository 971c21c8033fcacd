"""Read the step time, and layer times, from a training log or a profile; reject doubtful measurements.

A log gives the median of its longest run, without the first step. A profile gives the mean of its ranks' steps. A profiler slows
the host down, the more the more it records, so a log is preferable; its kernel times are not affected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.errors import UsageError
from ms_tune.metrics.run import measure_runs
from ms_tune.planning.time_scale import Clock, ProfiledLayer
from ms_tune.profile.result import ProfileReport, RankTimes
from ms_tune.profile.run import analyse_profiles
from ms_tune.readers.profile_export import contains_profile
from ms_tune.readers.scopes import ScopePass
from ms_tune.text import Message, msg

_MS = 1000.0  # microseconds


def measure_clock(source: Path) -> Clock:
    """Return the step time from a training log or a profile, and from a profile also the kernel times of its layers."""
    if contains_profile(source):
        return _read_profile_clock(analyse_profiles(source, gaps=0))
    logs = measure_runs(source)
    run = max(logs.runs, key=lambda one: one.times.count)
    _refuse_errors([*logs.problems, *run.about_steps])
    if run.times.median is None:
        raise UsageError(msg("metrics.step.none", why=msg("metrics.problem.one-step")))
    return Clock(run.times.median)


def _refuse_errors(problems: Iterable[Diagnostic]) -> None:
    for problem in problems:
        if problem.severity is Severity.ERROR:
            raise UsageError(msg("metrics.step.none", why=problem.message), problem.help)


def _read_profile_clock(report: ProfileReport) -> Clock:
    _refuse_errors(report.problems)
    times = [rank.microseconds / rank.steps / 1e6 for rank in report.ranks if rank.microseconds]
    if not times:
        raise UsageError(msg("metrics.step.none", why=msg("profile.verdict.empty")))
    notes = [rank.whole_capture.message for rank in report.ranks if rank.whole_capture is not None]
    seen, more = _mean_layers(report.ranks)
    return Clock(sum(times) / len(times), layers=seen, notes=(*notes, *more))


def _mean_layers(ranks: Sequence[RankTimes]) -> tuple[tuple[ProfiledLayer, ...], list[Message]]:
    # Return the layers of the longest layer list, each averaged over the ranks that have it, and notes about omitted layers.
    lists: dict[tuple[str, str], dict[int, list[ProfiledLayer]]] = {}
    for rank in ranks:
        for layer in rank.kernels.layers if rank.kernels is not None else ():
            each = [layer.microseconds.get(one, 0.0) / rank.steps / _MS for one in ScopePass]
            lists.setdefault(layer.cells, {}).setdefault(layer.number, []).append(ProfiledLayer(layer.number, *each))
    if not lists:
        kernels = any(rank.kernels is not None for rank in ranks)
        return (), [msg("metrics.step.no-scopes" if kernels else "metrics.step.no-kernels")]
    longest = max(
        lists, key=lambda name: sum(one.forward + one.backward for own in lists[name].values() for one in own)
    )
    means = []
    for number, own in sorted(lists[longest].items()):
        sums = [sum(getattr(one, name) for one in own) for name in ("forward", "backward", "twice")]
        means.append(ProfiledLayer(number, *(total / len(own) for total in sums)))
    whole = tuple(one for one in means if one.backward > 0 and one.forward + one.twice > 0)
    notes = []
    if len(whole) < len(means):
        numbers = ", ".join(str(one.number) for one in means if one not in whole)
        notes.append(msg("metrics.step.half-layers", numbers=numbers))
    others = sorted(set(lists) - {longest})
    if others:
        names = ", ".join(".".join(one).strip(".") for one in others)
        notes.append(msg("metrics.step.other-lists", names=names, used=".".join(longest).strip(".")))
    return whole, notes
