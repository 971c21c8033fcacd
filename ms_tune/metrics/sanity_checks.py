"""What makes the figures of a run doubtful: formulas that cannot be true, runs mixed up, clocks too coarse, lines damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.diagnostics import START, Diagnostic, Severity, whole_line
from ms_tune.metrics.figures import shown
from ms_tune.readers.step_lines import Form
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.metrics.figures import Inputs
    from ms_tune.metrics.steps import StepTimes
    from ms_tune.readers.logged_steps import LoggedTraining, RankSteps, TrainingLog
    from ms_tune.text import Message

_SAME_WORK = 0.01  # of the operations of a step, that its figures may differ by
_ENOUGH = 6  # steps behind the first: with fewer, no interval of 95 % holds the median


def of_file(log: TrainingLog) -> Iterator[Diagnostic]:
    """Doubts about a log as a whole."""
    if log.damaged_count:
        yield Diagnostic.note(
            "damaged-lines",
            msg("metrics.problem.damaged", count=log.damaged_count, line=log.damaged[0], file=log.path.name),
            location=whole_line(log.damaged[0]),
        )
    if log.dropped:
        yield Diagnostic.note("steps-left-out", msg("metrics.problem.dropped", count=log.dropped, file=log.path.name))
    repeated = [run for run in log.runs if run.repeated]
    if repeated or (log.orphans > 1 and len(log.runs) > 1):
        yield Diagnostic(
            "mixed-runs",
            Severity.ERROR,
            msg("metrics.problem.mixed-file", file=log.path.name, runs=len(log.runs)),
            msg("metrics.problem.mixed-file.hint"),
            location=whole_line(repeated[0].ranks[0].line[0]) if repeated else START,
        )
    elif len(log.runs) > 1:
        yield Diagnostic.note("several-runs", msg("metrics.problem.several", file=log.path.name, runs=len(log.runs)))
    last = log.runs[-1]
    if log.cut_off and (not last.total or last.ranks[0].number[-1] < last.total):
        yield Diagnostic.note("truncated", msg("metrics.problem.truncated", file=log.path.name))


def of_run(run: LoggedTraining, steps: RankSteps, times: StepTimes) -> Iterator[Diagnostic]:
    """Doubts about a run."""
    if times.count < 1:
        yield Diagnostic.note("too-few-steps", msg("metrics.problem.one-step"), msg("metrics.problem.few.hint"))
    elif times.count < _ENOUGH:
        yield Diagnostic.note(
            "few-steps", msg("metrics.problem.few", count=times.count), msg("metrics.problem.few.hint")
        )
    if steps.whole_ms:
        yield Diagnostic.note("coarse-clock", msg("metrics.problem.whole-ms"))
    if times.averaged > 1:
        yield Diagnostic.note("averaged-steps", msg("metrics.problem.averaged", count=times.averaged))
    batches = sorted({*steps.batch} - {0})
    if len(batches) > 1:
        yield Diagnostic.note("sizes-changed", msg("metrics.problem.sizes", least=batches[0], most=batches[-1]))
    if run.total and steps.number[-1] < run.total and not run.repeated and len(steps) > 1:
        yield Diagnostic.note("unfinished", msg("metrics.problem.unfinished", last=steps.number[-1], total=run.total))
    yield from _changed_work(steps, changed_sizes=len(batches) > 1)


def impossible(form: Form, inputs: Inputs, rate: float | None, fastest: float) -> Iterator[Diagnostic]:
    """Figures that no device reaches.

    Args:
        form: Who wrote the log.
        inputs: What the figures are made of.
        rate: TFLOP/s of a card by the config's model, if there is one.
        fastest: Peak of the fastest device that is known, in TFLOP/s, where nobody names one.
    """
    peak = inputs.peak.value
    limit = peak or fastest
    for known in (inputs.logged, inputs.counted, inputs.hardware):
        if known.value is not None and known.value > limit:
            text = "metrics.problem.impossible" if peak else "metrics.problem.impossible-any"
            yield Diagnostic(
                "impossible-mfu",
                Severity.ERROR,
                msg(text, tflops=shown(known.value), peak=shown(limit)),
                _why_impossible(form, known.value, inputs.cards.value, limit),
            )
            break
    if rate is not None and rate > limit:
        yield Diagnostic(
            "impossible-mfu",
            Severity.ERROR,
            msg("metrics.problem.impossible-config", tflops=shown(round(rate, 1)), peak=shown(limit)),
            msg("metrics.problem.impossible-config.hint"),
        )


def _why_impossible(form: Form, tflops: float, cards: float | None, peak: float) -> Message:
    if form is Form.STATIC and cards and tflops / cards <= peak:
        return msg("metrics.problem.impossible.cards", tflops=shown(round(tflops / cards, 2)))
    return msg("metrics.problem.impossible.hint")


def _changed_work(steps: RankSteps, *, changed_sizes: bool) -> Iterator[Diagnostic]:
    """Operations of a step, from the log's own rate and time: they are the same in each step of a run."""
    least, most, line = None, None, None
    unit = 0.0005 if steps.whole_ms and steps.form.value == "mindformers" else 0.05
    for seconds, tflops, place in zip(steps.seconds, steps.tflops, steps.line, strict=True):
        if not tflops > unit:
            continue
        low, high = seconds * (tflops - unit), seconds * (tflops + unit)
        # What is known of a step's work are bounds: half a unit of the last digit to both sides.
        if most is None or high < most[1]:
            most = (low, high)
        if least is None or low > least[0]:
            least = (low, high)
            line = place
    if least is None or most is None or least[0] <= most[1] * (1 + _SAME_WORK):
        return
    change = least[0] / most[1] - 1
    location = whole_line(line) if line else START
    if changed_sizes:
        text = msg("metrics.problem.work-sizes", change=f"{change:.1%}")
        yield Diagnostic.note("flops-changed", text, location=location)
    else:
        yield Diagnostic(
            "mixed-runs",
            Severity.ERROR,
            msg("metrics.problem.work", change=f"{change:.1%}"),
            msg("metrics.problem.work.hint"),
            location=location,
        )
