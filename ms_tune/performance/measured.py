"""One step time from whatever was measured: for what is worked out from it, a doubtful one is worse than none.

A log tells the median of its longest run, the first step apart. A profile tells the mean of its ranks' steps; a profiler slows
the host down, the more the closer it looks, so that a log is to be preferred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.errors import UsageError
from ms_tune.performance.metrics import measured
from ms_tune.performance.profile import profiled
from ms_tune.performance.request import MetricsRequest
from ms_tune.texts import msg
from ms_tune.trace.profile_export import holds_profile

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ms_tune.performance.result import Problem

# Doubts about other figures than the step time.
_OTHER = ("impossible-mfu",)


def step_of(source: Path) -> float:
    """The seconds of a step.

    Raises:
        TraceError: The source cannot be read.
        UsageError: It tells no step, or none that is to be believed.
    """
    if holds_profile(source):
        report = profiled([source], 0)
        _refuse(report.problems)
        times = [rank.whole / rank.steps / 1e6 for rank in report.ranks if rank.whole]
        if not times:
            raise UsageError(msg("metrics.step.none", why=msg("profile.verdict.empty")))
        return sum(times) / len(times)
    logs = measured([source], MetricsRequest())
    run = max(logs.runs, key=lambda one: one.times.count)
    _refuse([*logs.problems, *run.problems])
    if run.times.median is None:
        raise UsageError(msg("metrics.step.none", why=msg("metrics.problem.one-step")))
    return run.times.median


def _refuse(problems: Iterable[Problem]) -> None:
    for problem in problems:
        if problem.serious and problem.id not in _OTHER:
            raise UsageError(msg("metrics.step.none", why=problem.message), problem.hint)
