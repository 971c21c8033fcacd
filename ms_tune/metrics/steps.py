"""The times of steps in a few figures: median, spread, and what stands out. The first step compiles and is kept apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import sub
from statistics import NormalDist, median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.readers.logged_steps import RankSteps, Remark

CONFIDENCE = 0.95
_SIGMA = 1.4826  # of a normal distribution, in median absolute deviations
_FAR, _FAR_SHARE = 6.0, 0.05  # deviations, and of the median, from which a step stands out
_APART = 1.5  # units of the clock
_MOST_OUTLIERS = 20
_MANY = 5000  # values, from which the binomial distribution is as good as normal


@dataclass(frozen=True, slots=True)
class Outlier:
    """A step that took much longer than the others."""

    number: int  # its counter
    line: int  # its line in the log
    seconds: float  # how long it took
    kinds: tuple[str, ...]  # what happened beside it: `checkpoint`, `evaluation`


@dataclass(frozen=True, slots=True)
class StepTimes:
    """How long the steps of a run took, in seconds; all but ``first`` without the first step."""

    count: int  # steps that count
    median: float | None  # of these; None if there is none
    mad: float | None  # their median absolute deviation
    low: float | None  # of an interval that holds the true median with 95 %; None with fewer steps than it takes
    high: float | None  # see above
    first: float  # the first step
    shortest: float | None
    longest: float | None
    mean: float | None  # their mean, outliers and all: what a long run takes
    outliers: tuple[Outlier, ...]  # the slowest of those that stand out
    outlier_count: int  # how many do
    resolution: float  # seconds of the log's smallest unit
    averaged: int  # steps that one line stands for


def step_times(steps: RankSteps, remarks: Sequence[Remark]) -> StepTimes:
    """The figures of a run's steps."""
    times = list(steps.seconds[1:])
    ordered = sorted(times)
    middle = median(ordered) if ordered else None
    spread = median(sorted(abs(time - middle) for time in ordered)) if middle is not None else None
    low, high = median_interval(ordered, CONFIDENCE) or (None, None)
    outliers = _find_outliers(steps, middle, spread, remarks) if middle is not None and spread is not None else []
    outliers.sort(key=lambda one: -one.seconds)
    return StepTimes(
        count=len(times),
        median=middle,
        mad=spread,
        low=low,
        high=high,
        first=steps.seconds[0],
        shortest=ordered[0] if ordered else None,
        longest=ordered[-1] if ordered else None,
        mean=math.fsum(ordered) / len(ordered) if ordered else None,
        outliers=tuple(sorted(outliers[:_MOST_OUTLIERS], key=lambda one: one.number)),
        outlier_count=len(outliers),
        resolution=_clock_resolution(steps),
        averaged=steps_per_line(steps),
    )


def _clock_resolution(steps: RankSteps) -> float:
    return 0.001 if steps.whole_ms else 0.0001


def steps_per_line(steps: RankSteps) -> int:
    """How many steps a line stands for: what the counter usually rises by."""
    rises = [*map(sub, steps.number[1:], steps.number)]
    return max(int(median(rises)), 1) if rises else 1


def median_interval(ordered: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """An interval that holds the true median of ordered values with at least this probability, whatever the distribution is.

    It lies between the two order statistics of the sign test, the innermost that are far enough apart. None where not even the
    smallest and the largest value are.
    """
    count = len(ordered)
    if count > _MANY:
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(count) / 2
        place = math.floor(count / 2 - reach) - 1
        return ordered[place], ordered[count - 1 - place]
    # Probability that at most k of the values lie below the median, in logarithms: 2^-n sum of C(n, i).
    tail, place = 0.0, -1
    for k in range((count - 1) // 2 + 1):
        term = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) - count * math.log(2)
        tail += math.exp(term)
        if 2 * tail > 1 - confidence:
            break
        place = k
    return (ordered[place], ordered[count - 1 - place]) if place >= 0 else None


def _find_outliers(steps: RankSteps, middle: float, spread: float, remarks: Sequence[Remark]) -> list[Outlier]:
    # Of times in whole milliseconds two neighbours may be as good as equal.
    limit = middle + max(_FAR * _SIGMA * spread, _FAR_SHARE * middle, _APART * _clock_resolution(steps))
    beside: dict[int, set[str]] = {}
    for remark in remarks:
        beside.setdefault(remark.step, set()).add(remark.kind)
    found = []
    for place in range(1, len(steps)):
        if steps.seconds[place] > limit:
            number = steps.number[place]
            # What is told between two steps is in the time of the one behind, or of the one before where that waits.
            kinds = beside.get(steps.number[place - 1], set()) | beside.get(number, set())
            found.append(Outlier(number, steps.line[place], steps.seconds[place], tuple(sorted(kinds))))
    return found
