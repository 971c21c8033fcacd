"""Judge the health of a run from its steps: NaN losses, skipped steps, spikes, and figures that drift.

An error marks a broken run: its last losses are NaN, most of its steps are skipped, its steps become slow, its loss
leaves the lowest level for good. A warning is worth a look.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from ms_tune.diagnostics import START, Diagnostic, Severity, whole_line
from ms_tune.metrics.result import StepTimes, Trend
from ms_tune.readers.logged_steps import LoggedTraining, RankSteps, TrainingLog
from ms_tune.text import Message, msg
from ms_tune.units import GIB, gib

_MOST_POINTS = 300  # medians of so many parts represent a longer series
_FEW_POINTS = 8  # with fewer, Kendall's tau has no normal distribution
_SURE, _VERY_SURE = 0.01, 0.001  # p-values
_MUCH, _TOO_MUCH = 1.05, 1.5  # growth of the step time: a warning, an error
_COMPILES = 1.5  # a first step that takes so many times as long as the others compiles and warms up
_MANY_SKIPPED, _LASTING_SKIPPED = 0.1, 5  # share of all steps; steps at the end
_LOSS_SCALE = 50  # steps in which fp16 finds its loss scale
_LASTING_NORM = 3
_FEW_ZEROS = 3
_SIGMA = 1.4826  # standard deviation of a normal distribution, in median absolute deviations
_HUGE = 10  # a spike among few losses exceeds all so many times
_WINDOW, _SPIKE_SIGMAS, _SPIKE_SHARE = 20, 8.0, 0.25  # a spike exceeds the median of the steps before it by both
_PARTS, _LEAST_LOSSES = 10, 30  # parts of a run whose losses are compared
_RISEN, _DIVERGED = 1.5, 2.0
_MEMORY_GROWS, _LEAST_GROWTHS = 1.02, 3
_FEW_RUNS = -3.0  # standard deviations by which steps above and below the median alternate too seldom


def find_trend(values: Sequence[float]) -> Trend | None:
    """Return the trend of values, for long series of the medians of equal parts; None with too few values."""
    if len(values) > _MOST_POINTS:
        size = len(values) / _MOST_POINTS
        cuts = [round(part * size) for part in range(_MOST_POINTS + 1)]
        values = [median(values[begin:end]) for begin, end in pairwise(cuts)]
    count = len(values)
    if count < _FEW_POINTS:
        return None
    rises = falls = 0
    slopes = []
    for place, value in enumerate(values):
        for later in range(place + 1, count):
            change = values[later] - value
            rises += change > 0
            falls += change < 0
            slopes.append(change / (later - place))
    pairs = count * (count - 1) / 2
    ties = sum(many * (many - 1) / 2 for many in Counter(values).values())
    if ties == pairs:
        return Trend(0.0, 1.0, values[0], values[-1])
    tied = sum(many * (many - 1) * (2 * many + 5) for many in Counter(values).values())
    spread = math.sqrt((count * (count - 1) * (2 * count + 5) - tied) / 18)
    tau = (rises - falls) / math.sqrt(pairs * (pairs - ties))
    return Trend(tau, math.erfc(abs(rises - falls) / spread / math.sqrt(2)), *_find_levels(values, median(slopes)))


def _find_levels(values: Sequence[float], slope: float) -> tuple[float, float]:
    # At both ends of the line through the values (Theil and Sen), or of the values if these differ more (a jump).
    middle = median(value - slope * place for place, value in enumerate(values))
    line = middle, middle + slope * (len(values) - 1)
    tenth = max(len(values) // 10, 1)
    ends = median(values[:tenth]), median(values[-tenth:])
    return max(line, ends, key=lambda pair: abs(pair[1] - pair[0]) if min(pair) > 0 else -1.0)


def has_compilation(seconds: Sequence[float], middle: float | None) -> bool:
    """Return whether the first step takes much longer than the others."""
    return bool(middle) and bool(seconds) and seconds[0] > _COMPILES * (middle or 0)


def are_dependent(values: Sequence[float]) -> bool:
    """Return whether steps above and below the median follow each other in long runs (test of Wald and Wolfowitz)."""
    middle = median(values)
    sides = [value > middle for value in values if value != middle]
    above, below = sum(sides), len(sides) - sum(sides)
    count = above + below
    if min(above, below) < _FEW_POINTS:
        return False
    runs = 1 + sum(one != other for one, other in pairwise(sides))
    expected = 2 * above * below / count + 1
    spread = math.sqrt((expected - 1) * (expected - 2) / (count - 1))
    return (runs - expected) / spread < _FEW_RUNS


def check_health(run: LoggedTraining, steps: RankSteps, times: StepTimes) -> Iterator[Diagnostic]:
    """Yield the faults of a run, the worst first."""
    found = [*_check_losses(steps), *_check_skipped(run, steps), *_check_memory(steps)]
    # In reinforcement learning responses grow, and the loss of a policy has no level.
    learns = "generation" not in steps.form.notes
    found += _check_step_time(times, Severity.ERROR if learns else Severity.WARNING)
    if learns:
        found += [*_check_level(steps), *_check_spikes(steps), *_check_zeros(steps)]
    yield from sorted(found, key=lambda one: one.severity.rank)


def _problem(name: str, severity: Severity, message: Message, line: int = 0) -> Diagnostic:
    return Diagnostic(name, severity, message, location=whole_line(line) if line else START)


def _check_losses(steps: RankSteps) -> Iterator[Diagnostic]:
    for name, text_id in (("nan", "nan-loss"), ("inf", "infinite-loss")):
        trouble = steps.troubles.get(name)
        if trouble is None or (name == "inf" and "nan" in steps.troubles and not trouble.lasting):
            continue
        sizes = {"count": trouble.count, "step": trouble.step, "last": trouble.last, "lasting": trouble.lasting}
        if trouble.lasting:
            yield _problem(text_id, Severity.ERROR, msg(f"metrics.health.{name}.end", **sizes), trouble.line)
        else:
            severity = Severity.ERROR if trouble.count > _MANY_SKIPPED * steps.seen else Severity.WARNING
            yield _problem(text_id, severity, msg(f"metrics.health.{name}.some", **sizes), trouble.line)
    norm = steps.troubles.get("norm")
    if norm is not None and "nan" not in steps.troubles:
        severity = Severity.ERROR if norm.lasting >= _LASTING_NORM else Severity.WARNING
        text = msg("metrics.health.norm", count=norm.count, step=norm.step, last=norm.last)
        yield _problem("nan-norm", severity, text, norm.line)


def _check_skipped(run: LoggedTraining, steps: RankSteps) -> Iterator[Diagnostic]:
    for name in ("skipped", "overflow"):
        trouble = steps.troubles.get(name)
        count, lasting, step, line = (
            (trouble.count, trouble.lasting, trouble.step, trouble.line) if trouble else (0,) * 4
        )
        remarks = [remark for remark in run.remarks if remark.kind == name and "skipped" not in steps.troubles]
        if len(remarks) > count:
            count, step, line = len(remarks), remarks[0].step, remarks[0].line
        if count:
            whole = max(steps.last - steps.number[0] + 1, steps.seen, count)
            many = count > max(1, _MANY_SKIPPED * whole) or lasting >= _LASTING_SKIPPED
            severity = Severity.ERROR if many else Severity.WARNING
            if trouble is not None and not lasting and trouble.last <= _LOSS_SCALE:
                severity = Severity.INFO  # the loss scale of fp16 is found by skipping steps
            text = msg(f"metrics.health.{name}", count=count, share=f"{count / whole:.1%}", step=step)
            yield _problem(f"{name}-steps", severity, text, line)


def _known_losses(steps: RankSteps) -> list[tuple[float, int]]:
    return [(loss, place) for place, loss in enumerate(steps.loss) if math.isfinite(loss)]


def _check_spikes(steps: RankSteps) -> Iterator[Diagnostic]:
    losses, spikes = _known_losses(steps), []
    for at in range(1, len(losses)):
        loss, place = losses[at]
        if not loss > (1 + _SPIKE_SHARE / 2) * losses[at - 1][0] > 0:  # most steps cannot be spikes
            continue
        before = sorted(one for one, _ in losses[max(at - _WINDOW, 0) : at])
        if at < _WINDOW and loss < _HUGE * before[-1]:
            continue
        middle = median(before)
        spread = _SIGMA * median(sorted(abs(one - middle) for one in before))
        if before[0] > 0 and loss > middle + max(_SPIKE_SIGMAS * spread, _SPIKE_SHARE * middle):
            spikes.append((loss / middle, loss, middle, place))
    if spikes:
        _, loss, middle, place = max(spikes)
        sizes = {"before": f"{middle:.4g}", "loss": f"{loss:.4g}", "step": steps.number[place]}
        text = msg("metrics.health.spikes", count=len(spikes), **sizes)
        yield _problem("loss-spikes", Severity.WARNING, text, steps.line[place])


def _check_level(steps: RankSteps) -> Iterator[Diagnostic]:
    # The lowest tenth of the run, and the last one, must not overlap.
    losses = _known_losses(steps)
    if len(losses) < _LEAST_LOSSES or min(losses)[0] <= 0:
        return
    cuts = [round(part * len(losses) / _PARTS) for part in range(_PARTS + 1)]
    parts = [losses[begin:end] for begin, end in pairwise(cuts)]
    levels = [median(loss for loss, _ in part) for part in parts]
    best = levels.index(min(levels))
    if levels[-1] > _RISEN * levels[best] and min(parts[-1])[0] > max(parts[best])[0]:
        severity = Severity.ERROR if levels[-1] > _DIVERGED * levels[best] else Severity.WARNING
        place = parts[best][-1][1]
        levels_text = {"low": f"{levels[best]:.4g}", "high": f"{levels[-1]:.4g}"}
        text = msg("metrics.health.diverged", step=steps.number[place], **levels_text)
        yield _problem("loss-diverged", severity, text, steps.line[place])


def _check_zeros(steps: RankSteps) -> Iterator[Diagnostic]:
    # A loss that becomes exactly 0 is one that Hugging Face's Trainer filters out, as it is NaN, or of skipped steps.
    losses = _known_losses(steps)
    count = next((place for place, (loss, _) in enumerate(reversed(losses)) if loss), len(losses))
    if _FEW_ZEROS <= count < len(losses) and "norm" not in steps.troubles:
        place = losses[-count][1]
        text = msg("metrics.health.zero", count=count, step=steps.number[place])
        yield _problem("zero-loss", Severity.WARNING, text, steps.line[place])


def _check_step_time(times: StepTimes, worst: Severity) -> Iterator[Diagnostic]:
    trend = times.trend
    if trend is None or trend.p >= _SURE:
        if times.dependent:
            yield Diagnostic.note("dependent-steps", msg("metrics.health.dependent"))
        return
    growth = trend.last / trend.first
    sizes = {"first": f"{trend.first:.4g}", "last": f"{trend.last:.4g}"}
    sizes |= {"tau": f"{trend.tau:.2f}", "p": f"= {trend.p:.1g}" if trend.p >= 1e-6 else "< 1e-6"}  # noqa: PLR2004 - digits
    if growth < _MUCH:
        yield Diagnostic.note("step-time-drifts", msg("metrics.health.drifts", **sizes))
        return
    severity = worst if growth >= _TOO_MUCH else Severity.WARNING
    yield _problem("step-time-grows", severity, msg("metrics.health.grows", times=f"{growth:.1f}", **sizes))


def _check_memory(steps: RankSteps) -> Iterator[Diagnostic]:
    column = steps.allocated if any(map(math.isfinite, steps.allocated)) else steps.reserved
    known = [(size, place) for place, size in enumerate(column) if math.isfinite(size)]
    later = known[len(known) // 4 :]  # caches fill in the first steps
    trend = find_trend([size for size, _ in later])
    if trend is None or trend.p >= _VERY_SURE or trend.tau <= 0 or not later[0][0]:
        return
    growths = sum(after > one for (one, _), (after, _) in pairwise(later))
    if later[-1][0] > _MEMORY_GROWS * later[0][0] and growths >= _LEAST_GROWTHS:
        (first, begin), (last, end) = later[0], later[-1]
        sizes = {"first": gib(round(first * GIB)), "last": gib(round(last * GIB))}
        text = msg("metrics.health.memory", begin=steps.number[begin], end=steps.number[end], **sizes)
        yield _problem("memory-grows", Severity.WARNING, text, steps.line[end])


def find_restarts(log: TrainingLog) -> Iterator[Diagnostic]:
    """Yield the restarts of a job: runs that begin again at or before the end of the run before them."""
    restarts = [(one, after) for one, after in pairwise(log.runs) if is_restart(one, after)]
    if restarts:
        again = sum(max(one.ranks[0].last - after.ranks[0].number[0] + 1, 0) for one, after in restarts)
        last = restarts[-1][1].ranks[0]
        text = msg("metrics.health.restarts", file=log.path.name, count=len(restarts), again=again, step=last.number[0])
        yield _problem("restarted", Severity.WARNING, text, last.line[0])


def is_restart(run: LoggedTraining, after: LoggedTraining) -> bool:
    """Return whether a run continues another one from one of its checkpoints."""
    one, other = run.ranks[0], after.ranks[0]
    begins = one.number[0] < other.number[0] <= one.last + 1
    return begins and not after.repeated and run.total == after.total and one.form is other.form
