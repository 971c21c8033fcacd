"""What real runs did, and why they are slow: figures from logs, verdicts from profiles.

Nothing is run and nothing is guessed: a figure of which an input is missing has the value None and names the options that
would tell it, and one that cannot be true is None with a problem that says why. All results are frozen dataclasses:

* :class:`~ms_tune.metrics.result.MetricsReport` has ``runs``, in the order of the logs;
* :class:`~ms_tune.metrics.result.RunMetrics` has ``times``, ``figures`` by name, ``problems`` and a ``curve``;
* :class:`~ms_tune.metrics.result.RunComparison` has the ratio of two medians with its interval;
* :class:`~ms_tune.profile.result.ProfileReport` has ``verdict``, ``shares``, ``ranks``, ``gaps`` and ``problems``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ms_tune.metrics.result import MetricsReport, MetricsRequest
    from ms_tune.planning.time_scale import Clock
    from ms_tune.profile.result import ProfileReport


def metrics(
    logs: str | Path | Sequence[str | Path],
    *,
    request: MetricsRequest | None = None,
    baseline: str | Path | None = None,
    on_bytes: Callable[[int, int], None] = lambda _done, _all: None,
) -> MetricsReport:
    """Step time, throughput and utilisation of real runs, from their training logs.

    Args:
        logs: A log, several, or folders of ranks' logs.
        request: What the logs do not tell: cards, sizes, the device.
        baseline: A log, or a folder of logs, to compare with.
        on_bytes: Told the bytes read so far, and the bytes of all files.

    Returns:
        The runs, the longest of them beside the longest of the baseline, and doubts about the files. Times are seconds,
        shares are parts of 1, and operations are 10^12 a second.

    Raises:
        TraceError: A log cannot be read, or no line of it tells how long a step took.
        UsageError: The device is not known.

    Example::

        run = api.metrics("worker_7.log").runs[-1]
        print(run.times.median, run.times.mad, [problem.id for problem in run.problems])

        report = api.metrics("deterministic.log", baseline="usual.log")
        if report.comparison is not None:
            print(report.comparison.ratio, report.comparison.low, report.comparison.high)
    """
    from ms_tune.metrics.result import MetricsRequest  # noqa: PLC0415 - as above
    from ms_tune.metrics.run import measure_runs  # noqa: PLC0415 - start-up time

    paths = [logs] if isinstance(logs, (str, Path)) else logs
    return measure_runs(
        [Path(path) for path in paths], request or MetricsRequest(), Path(baseline) if baseline else None, on_bytes
    )


def profile(
    sources: str | Path | Sequence[str | Path],
    *,
    gaps: int = 10,
    on_bytes: Callable[[int, int], None] = lambda _done, _all: None,
) -> ProfileReport:
    """Why a step takes as long as it does, from what Ascend's profilers exported as text.

    Args:
        sources: Exports (``*_ascend_ms``, ``*_ascend_pt``), folders above them, or a cluster's step table.
        gaps: How many of the longest gaps to tell.
        on_bytes: Told the bytes of time lines read so far, and of all.

    Raises:
        TraceError: There is no export.

    Example::

        report = api.profile("prof/")
        print(report.verdict.bound.value, {cause.value: share for cause, share in report.shares.items()})
    """
    from ms_tune.profile.run import analyse_profiles  # noqa: PLC0415 - start-up time

    paths = [sources] if isinstance(sources, (str, Path)) else sources
    return analyse_profiles([Path(path) for path in paths], gaps, on_bytes)


def measured_step(source: str | Path) -> float:
    """The seconds of a step by a training log (median of its longest run) or by an Ascend profile (mean of its ranks).

    Args:
        source: A log, a folder of logs, or an export of a profiler.

    Raises:
        TraceError: It cannot be read.
        UsageError: It has one step only, or its steps are not to be believed: runs are mixed, or a file is cut off.

    Example::

        seconds = api.measured_step("worker_7.log")
    """
    seconds = measured_clock(source).step_seconds
    assert seconds is not None  # noqa: S101 - a log or a profile without one is refused
    return seconds


def measured_clock(source: str | Path) -> Clock:
    """What ``fit --calibrate SOURCE`` takes: the step of :func:`measured_step`, and of a profile the kernels of its layers.

    Args:
        source: A log, a folder of logs, or an export of a profiler.

    Raises:
        TraceError: It cannot be read.
        UsageError: As for :func:`measured_step`.

    Example::

        report = api.fit("table.json", request=FitRequest(clock=api.measured_clock("prof/")))
        print(report.clock.times, report.clock.notes)
    """
    from ms_tune.workflows.step_clock import clock_of  # noqa: PLC0415 - start-up time

    return clock_of(Path(source))
