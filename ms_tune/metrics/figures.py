"""Compute the figures of a run (step times, throughput, utilization) with their inputs, and find problems.

The first step includes compilation and is kept separate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist, median

from ms_tune.diagnostics import START, Diagnostic, Severity, whole_line
from ms_tune.metrics.health import are_dependent, find_restarts, find_trend, has_compilation, is_restart
from ms_tune.metrics.job import JobFacts
from ms_tune.metrics.result import ENOUGH, Convention, Figure, MetricsRequest, Outlier, StepTimes
from ms_tune.readers.logged_settings import LoggedSettings
from ms_tune.readers.logged_steps import LoggedTraining, RankSteps, Remark, TrainingLog
from ms_tune.readers.step_lines import StepForm
from ms_tune.records import Record
from ms_tune.text import Message, msg

CONFIDENCE = 0.95
_NO_TREND = 0.01  # p-value
_SIGMA = 1.4826  # standard deviation of a normal distribution, in median absolute deviations
_FAR, _FAR_SHARE = 6.0, 0.05  # an outlier exceeds the median by 6 deviations and by 5 % of the median
_MIN_CLOCK_UNITS = 1.5  # units of the clock by which an outlier exceeds the median at least
_MOST_OUTLIERS = 20
_SHORT, _SEVERAL = 3, 9  # steps of a run, number of such runs: mixed lines, not restarts
_MANY = 5000  # values from which the normal distribution replaces the binomial distribution


def measure_steps(steps: RankSteps, remarks: Sequence[Remark]) -> StepTimes:
    """Return the step times of a run."""
    times = [time for time in steps.seconds[1:] if time > 0]  # NaN, which is not logged, is not above 0
    ordered = sorted(times)
    middle = median(ordered) if ordered else None
    spread = median(sorted(abs(time - middle) for time in ordered)) if middle is not None else None
    compiles = has_compilation(steps.seconds, middle)
    trend = find_trend(times if compiles else [*steps.seconds[:1], *times])
    # The interval of the median assumes steps that do not depend on each other.
    dependent = bool(times) and are_dependent(times)
    usable = not dependent and (trend is None or trend.p >= _NO_TREND)
    low, high = (bound_median(ordered, CONFIDENCE) if usable else None) or (None, None)
    if low is not None and high is not None and steps.form.unit >= 1:  # differences of a clock of whole seconds
        low, high = max(low - _clock_resolution(steps), 0.0), high + _clock_resolution(steps)
    outliers = _find_outliers(steps, middle, spread, remarks) if middle is not None and spread is not None else []
    outliers.sort(key=lambda one: -one.seconds)
    return StepTimes(
        count=len(times),
        median=middle,
        mad=spread,
        low=low,
        high=high,
        first=steps.seconds[0] if steps.seconds[0] > 0 else None,
        compiles=compiles,
        trend=trend,
        dependent=dependent,
        shortest=ordered[0] if ordered else None,
        longest=ordered[-1] if ordered else None,
        mean=math.fsum(ordered) / len(ordered) if ordered else None,
        outliers=tuple(sorted(outliers[:_MOST_OUTLIERS], key=lambda one: one.step)),
        outlier_count=len(outliers),
        resolution=_clock_resolution(steps),
        averaged_over=steps.steps_per_line,
    )


def _clock_resolution(steps: RankSteps) -> float:
    return steps.form.unit / (steps.steps_per_line if steps.form.unit >= 1 else 1)


def bound_median(ordered: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """Return an interval that contains the true median with at least this probability, for any distribution.

    Its ends are the two order statistics of the sign test, the innermost ones far enough apart; None with too few
    values.
    """
    count = len(ordered)
    if count > _MANY:
        reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(count) / 2
        place = math.floor(count / 2 - reach) - 1
        return ordered[place], ordered[count - 1 - place]
    # Probability that at most k values are below the median, in logarithms: 2^-n sum of C(n, i).
    tail, place = 0.0, -1
    for k in range((count - 1) // 2 + 1):
        term = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) - count * math.log(2)
        tail += math.exp(term)
        if 2 * tail > 1 - confidence:
            break
        place = k
    return (ordered[place], ordered[count - 1 - place]) if place >= 0 else None


def _find_outliers(steps: RankSteps, middle: float, spread: float, remarks: Sequence[Remark]) -> list[Outlier]:
    # Times in whole milliseconds that differ by one unit may be almost equal.
    limit = middle + max(_FAR * _SIGMA * spread, _FAR_SHARE * middle, _MIN_CLOCK_UNITS * _clock_resolution(steps))
    remarked: dict[int, set[str]] = {}
    for remark in remarks:
        remarked.setdefault(remark.step, set()).add(remark.kind)
    found = []
    for place in range(1, len(steps)):
        if steps.seconds[place] > limit:
            number = steps.number[place]
            # A remark between two steps counts in the time of the next step, or of the step before if that one waits.
            kinds = remarked.get(steps.number[place - 1], set()) | remarked.get(number, set())
            found.append(Outlier(number, steps.line[place], steps.seconds[place], tuple(sorted(kinds))))
    return found


_EXACT = 1e15  # below this, floats represent whole numbers exactly
_LARGE = 100_000  # from which decimals are omitted
_SAME_WORK = 0.01  # relative tolerance for the operations of a step


class FigureInput(Record):
    """An input of the figures and its source."""

    name: str  # the last part of its text's id
    value: float | None  # the number; None if unknown
    source: Message | None = None  # its source
    option: str = ""  # the option that provides it
    by_user: bool = False  # whether the user gave it, which takes precedence over tokens counted in a log

    def describe_input(self) -> Message:
        """Return the input as a line for the user."""
        return msg(f"metrics.input.{self.name}", value=format_number(self.value), source=self.source or "")


class Inputs(Record):
    """All inputs of the figures of a run; the texts of their names describe them."""

    step: FigureInput
    batch: FigureInput
    tokens: FigureInput
    step_tokens: FigureInput
    cards: FigureInput
    peak: FigureInput
    rate: FigureInput
    samples: FigureInput
    token_rate: FigureInput
    mfu: FigureInput
    logged: FigureInput
    counted: FigureInput
    hardware: FigureInput
    model_flops: FigureInput
    hardware_flops: FigureInput


def format_number(value: float | None) -> str:
    """Format a number for people."""
    if value is None:
        return "-"
    whole = abs(value) < _EXACT and (value == int(value) or abs(value) >= _LARGE)
    return f"{value:,.0f}" if whole else f"{value:,.6g}"


class Given(Record):
    """What is known of the runs besides their logs."""

    request: MetricsRequest
    peak: tuple[float, Message] | None  # of a device, in TFLOP/s, with its source
    job: JobFacts | None


def collect_inputs(steps: RankSteps, step_seconds: float | None, settings: LoggedSettings, given: Given) -> Inputs:
    """Collect the inputs of a run's figures, preferably from the user, then from the log, then from the config.

    ``step_seconds`` is the median step.
    """
    request, peak, job = given
    log, option = msg("metrics.source.log"), msg("metrics.source.option")
    config = msg("metrics.source.config") if request.config is not None else log
    batches = {*steps.batch} - {0}
    batch = float(batches.pop()) if len(batches) == 1 else (None if batches else settings.batch)

    def first(
        name: str, option_name: str, said: float | None, logged: float | None, written: float | None = None
    ) -> FigureInput:
        candidates = ((said, option), (logged, log), (written, config))
        value, source = next(((value, source) for value, source in candidates if value is not None), (None, None))
        return FigureInput(name, value, source, option_name, said is not None)

    count = request.convention
    model, hardware = (job.work.model[count], job.work.hardware.get(count)) if job else (None, None)

    return Inputs(
        step=first("step", "", None, step_seconds),
        batch=first("batch", "--gbs", request.batch, batch, job.batch if job and not batches else None),
        tokens=first("tokens", "--seq", request.tokens, settings.tokens, job.tokens if job else None),
        step_tokens=first("step-tokens", "", None, _count_step_tokens(steps)),
        cards=first("cards", "--cards", request.cards, settings.cards, job.cards if job else None),
        peak=FigureInput("peak", peak[0] if peak else None, peak[1] if peak else None, "--chip"),
        rate=first("rate", "", None, _median_logged(steps.rate)),
        samples=first("samples", "", None, _median_logged(steps.samples)),
        token_rate=first("token-rate", "", None, _median_logged(steps.token_rate)),
        mfu=first("mfu", "", None, _median_logged(steps.mfu)),
        logged=first("logged", "", None, _median_logged(steps.tflops)),
        counted=first("counted", "", None, _median_logged(steps.counted)),
        hardware=first("hardware", "", None, _median_logged(steps.hardware)),
        model_flops=first("model-flops", "--config", None, None, model),
        hardware_flops=first("hardware-flops", "--config", None, None, hardware),
    )


def make_throughput_figures(inputs: Inputs) -> Iterator[Figure]:
    """Yield samples/s and tokens/s, over all cards and per card."""
    step, batch, cards, tokens = inputs.step, inputs.batch, inputs.cards, inputs.tokens
    if inputs.samples.value is not None and (batch.value is None or step.value is None):
        described = (inputs.samples.describe_input(),)
        yield Figure("samples_per_second", inputs.samples.value, msg("metrics.formula.samples-logged"), described)
    else:
        yield _quotient_figure("samples_per_second", "metrics.formula.samples", [batch], [step])
    if inputs.rate.value is not None and (batch.value is None or cards.value is None):
        yield Figure(
            "samples_per_second_per_card",
            inputs.rate.value,
            msg("metrics.formula.rate"),
            (inputs.rate.describe_input(),),
        )
    else:
        yield _quotient_figure("samples_per_second_per_card", "metrics.formula.samples-card", [batch], [cards, step])
    if inputs.step_tokens.value is not None and tokens.option and not tokens.by_user:
        top, formula = [inputs.step_tokens], "metrics.formula.step-tokens"
    else:
        top, formula = [batch, tokens], "metrics.formula.tokens"
    yield _quotient_figure("tokens_per_second", formula, top, [step])
    if inputs.token_rate.value is not None and not tokens.by_user:
        described = (inputs.token_rate.describe_input(),)
        logged = msg("metrics.formula.token-rate")
        yield Figure("tokens_per_second_per_card", inputs.token_rate.value, logged, described)
    elif inputs.rate.value is not None and tokens.value is not None and (batch.value is None or cards.value is None):
        yield _quotient_figure("tokens_per_second_per_card", "metrics.formula.tokens-rate", [inputs.rate, tokens], [])
    else:
        yield _quotient_figure("tokens_per_second_per_card", f"{formula}-card", top, [cards, step])


def make_utilisation_figures(inputs: Inputs, convention: Convention, fastest: float) -> Iterator[Figure]:
    """Yield TFLOP/s per card and their share of the peak: of the named device, else of the fastest known one.

    They are computed from the config's model, if there is a config; else from the framework's count of operations, or
    its formula. Above the peak, which no device can exceed, both have no value.
    """
    logged = inputs.counted if inputs.counted.value is not None else inputs.logged
    if logged.value is not None:
        yield Figure("tflops_logged", logged.value, msg(f"metrics.formula.{logged.name}"), (logged.describe_input(),))
    model = compute_card_rate(inputs, inputs.model_flops)
    hardware = compute_card_rate(inputs, inputs.hardware_flops)
    if inputs.model_flops.value is None:
        model, hardware = logged, inputs.hardware
        inner, made_of = msg(f"metrics.formula.{logged.name}"), [logged]
    else:
        inner = msg("metrics.formula.model", convention=msg(f"metrics.convention.{convention.value}"))
        made_of = [inputs.model_flops, *_list_rate_inputs(inputs)]
    parts = tuple(part.describe_input() for part in made_of if part.value is not None)
    missing = _missing_options(inputs, model)
    limit = inputs.peak.value or fastest
    possible = model.value if model.value is not None and model.value <= limit else None
    if inputs.mfu.value is not None:
        described = (inputs.mfu.describe_input(),)
        yield Figure("mfu_logged", inputs.mfu.value, msg("metrics.formula.mfu-logged"), described)
    yield Figure("tflops_per_card", possible, inner, parts, missing)
    yield _share_of_peak("mfu", model, inputs.peak, missing)
    if hardware.value is not None:
        yield _share_of_peak("hfu", hardware, inputs.peak, ())


def _missing_options(inputs: Inputs, rate: FigureInput) -> tuple[str, ...]:
    if rate.value is not None:
        return ()
    if inputs.model_flops.value is None:
        return (inputs.model_flops.option,)
    return tuple(part.option for part in _list_rate_inputs(inputs) if part.value is None and part.option)


def _list_rate_inputs(inputs: Inputs) -> list[FigureInput]:
    given = inputs.step_tokens.value is not None and not inputs.tokens.by_user
    tokens = [inputs.step_tokens] if given else [inputs.batch, inputs.tokens]
    return [*tokens, inputs.cards, inputs.step]


def compute_card_rate(inputs: Inputs, flops: FigureInput) -> FigureInput:
    """Return the TFLOP/s per card; without a value if the operations, or another input, are unknown."""
    *tokens, cards, step = _list_rate_inputs(inputs)
    if flops.value is None or not cards.value or not step.value or any(not one.value for one in tokens):
        return FigureInput("model", None)
    whole = flops.value
    for one in tokens:
        whole *= one.value or 1
    return FigureInput("model", whole / cards.value / step.value / 1e12, flops.source)


def _share_of_peak(name: str, of: FigureInput, peak: FigureInput, missing: tuple[str, ...]) -> Figure:
    formula = msg(f"metrics.formula.{name}")
    if of.value is None or peak.value is None:
        return Figure(name, None, formula, (), (*missing, *((peak.option,) if peak.value is None else ())))
    value = of.value / peak.value
    return Figure(name, value if value <= 1 else None, formula, (of.describe_input(), peak.describe_input()))


def _quotient_figure(name: str, formula: str, top: Sequence[FigureInput], bottom: Sequence[FigureInput]) -> Figure:
    parts = [*top, *bottom]
    missing = tuple(part.option for part in parts if part.value is None and part.option)
    if any(not part.value for part in parts):
        return Figure(name, None, msg(formula), (), missing)
    value = 1.0
    for part in top:
        value *= part.value or 1
    for part in bottom:
        value /= part.value or 1
    return Figure(name, value, msg(formula), tuple(part.describe_input() for part in parts))


def _median_logged(column: Sequence[float]) -> float | None:
    values = [value for value in column[1:] if value == value]  # noqa: PLR0124 - NaN is a value that is not logged
    values = values or [value for value in column[:1] if value == value]  # noqa: PLR0124 - as above
    return median(values) if values else None


def _count_step_tokens(steps: RankSteps) -> float | None:
    pairs = zip(steps.tokens, steps.tokens[1:], steps.number, steps.number[1:], strict=False)
    rises = [(after - before) / (n - m) for before, after, m, n in pairs if 0 < before < after and n > m]
    return median(rises) if rises else None


def check_log(log: TrainingLog) -> Iterator[Diagnostic]:
    """Yield the problems of a log as a whole."""
    if log.damaged_count:
        yield Diagnostic.note(
            "damaged-lines",
            msg("metrics.problem.damaged", count=log.damaged_count, line=log.damaged[0], file=log.path.name),
            location=whole_line(log.damaged[0]),
        )
    if log.dropped:
        yield Diagnostic.note("steps-left-out", msg("metrics.problem.dropped", count=log.dropped, file=log.path.name))
    repeated = [run for run in log.runs if run.repeated]
    short = sum(run.ranks[0].seen <= _SHORT for run in log.runs)
    if repeated or (log.orphans > 1 and len(log.runs) > 1) or short > max(len(log.runs) / 2, _SEVERAL):
        yield Diagnostic(
            "mixed-runs",
            Severity.ERROR,
            msg("metrics.problem.mixed-file", file=log.path.name, runs=len(log.runs)),
            msg("metrics.problem.mixed-file.hint"),
            location=whole_line(repeated[0].ranks[0].line[0]) if repeated else START,
        )
    elif len(log.runs) > 1 and all(map(is_restart, log.runs, log.runs[1:])):
        yield from find_restarts(log)
    elif len(log.runs) > 1:
        yield from find_restarts(log)
        yield Diagnostic.note("several-runs", msg("metrics.problem.several", file=log.path.name, runs=len(log.runs)))
    last = log.runs[-1]
    if log.cut_off and (not last.total or last.ranks[0].last < last.total):
        yield Diagnostic.note("truncated", msg("metrics.problem.truncated", file=log.path.name))


def check_run(run: LoggedTraining, steps: RankSteps, times: StepTimes) -> Iterator[Diagnostic]:
    """Yield the problems of a run."""
    if times.median is None and len(steps) > 1:
        yield Diagnostic.note("no-step-times", msg("metrics.problem.no-times"), msg("metrics.problem.no-times.hint"))
    elif times.count < 1:
        yield Diagnostic.note("too-few-steps", msg("metrics.problem.one-step"), msg("metrics.problem.few.hint"))
    elif times.count < ENOUGH:
        yield Diagnostic.note(
            "few-steps", msg("metrics.problem.few", count=times.count), msg("metrics.problem.few.hint")
        )
    yield from _check_form(steps, times)
    if times.median is not None and times.averaged_over > 1 and "interval" not in steps.form.notes:
        yield Diagnostic.note("averaged-steps", msg("metrics.problem.averaged", count=times.averaged_over))
    batches = sorted({*steps.batch} - {0})
    if len(batches) > 1:
        yield Diagnostic.note("sizes-changed", msg("metrics.problem.sizes", least=batches[0], most=batches[-1]))
    if run.total and steps.last < run.total and not run.repeated and len(steps) > 1:
        yield Diagnostic.note("unfinished", msg("metrics.problem.unfinished", last=steps.last, total=run.total))
    yield from _changed_work(steps, changed_sizes=len(batches) > 1)


def _check_form(steps: RankSteps, times: StepTimes) -> Iterator[Diagnostic]:
    if times.median is not None and steps.form.whole_ms:
        yield Diagnostic.note("coarse-clock", msg("metrics.problem.whole-ms"))
    elif times.median is not None and steps.form.unit >= 1:
        yield Diagnostic.note("coarse-clock", msg("metrics.problem.whole-s", seconds=f"{times.resolution:.2g}"))
    for name in steps.form.notes:
        yield Diagnostic.note(name, msg(f"metrics.trap.{name}"))
    if steps.number[0] > max(2 * times.averaged_over, 2):
        yield Diagnostic.note("begins-late", msg("metrics.problem.begins", step=steps.number[0]))


def find_impossible_figures(
    form: StepForm, inputs: Inputs, rate: float | None, fastest: float, *, ascend: bool
) -> Iterator[Diagnostic]:
    """Yield the figures above the peak, by the log or by the config's model (``rate``, TFLOP/s per card)."""
    peak = inputs.peak.value
    limit = peak or fastest
    for known in (inputs.logged, inputs.counted, inputs.hardware):
        if known.value is not None and known.value > limit:
            text = "metrics.problem.impossible" if peak else "metrics.problem.impossible-any"
            text = "metrics.problem.impossible-ascend" if ascend and not peak else text
            yield Diagnostic(
                "impossible-mfu",
                Severity.ERROR,
                msg(text, tflops=format_number(known.value), peak=format_number(limit)),
                _why_impossible(form, known.value, inputs.cards.value, limit),
            )
            break
    if rate is not None and rate > limit:
        yield Diagnostic(
            "impossible-mfu",
            Severity.ERROR,
            msg("metrics.problem.impossible-config", tflops=format_number(round(rate, 1)), peak=format_number(limit)),
            msg("metrics.problem.impossible-config.hint"),
        )


def _why_impossible(form: StepForm, tflops: float, cards: float | None, peak: float) -> Message:
    if form.name == "mindformers" and cards and tflops / cards <= peak:
        return msg("metrics.problem.impossible.cards", tflops=format_number(round(tflops / cards, 2)))
    return msg("metrics.problem.impossible.hint")


def _changed_work(steps: RankSteps, *, changed_sizes: bool) -> Iterator[Diagnostic]:
    # By the log's own rate and time, the operations must be the same in each step of a run.
    if not (steps.form.strict or steps.form.name == "baseline"):  # others print averages, or the time of something else
        return
    least, most, line = None, None, None
    unit = 0.0005 if steps.form.name == "mindformers" else 0.05
    for seconds, tflops, place in zip(steps.seconds, steps.tflops, steps.line, strict=True):
        if not tflops > unit:
            continue
        low, high = seconds * (tflops - unit), seconds * (tflops + unit)
        # The operations of a step have bounds: half a unit of the last digit to both sides.
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
