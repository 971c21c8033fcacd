"""Measure runs from training logs: split files into runs, join ranks, compare with a baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import eq
from pathlib import Path
from statistics import median

from ms_tune.diagnostics import Diagnostic, Severity
from ms_tune.errors import NoStepsError, UsageError
from ms_tune.facts.devices import fastest_peak, find_peak, peaks
from ms_tune.metrics.figures import (
    CONFIDENCE,
    Given,
    Inputs,
    bound_median,
    check_log,
    check_run,
    collect_inputs,
    compute_card_rate,
    find_impossible_figures,
    make_throughput_figures,
    make_utilisation_figures,
    measure_steps,
)
from ms_tune.metrics.health import check_health, is_restart
from ms_tune.metrics.job import SMALL_BUBBLE, JobFacts, read_job, read_logged_job
from ms_tune.metrics.result import (
    ENOUGH,
    Convention,
    Counted,
    Figure,
    MetricsReport,
    MetricsRequest,
    Ranks,
    RunComparison,
    RunMetrics,
    StepCurve,
)
from ms_tune.readers.lines import ByteCounter, find_logs
from ms_tune.readers.logged_steps import LoggedTraining, RankSteps, TrainingLog
from ms_tune.readers.step_lines import StepForm, form_of_pattern
from ms_tune.readers.step_tables import is_event_folder
from ms_tune.readers.training_log import read_training_log
from ms_tune.records import Record
from ms_tune.text import Message, msg

_POINTS = 500
_TRAINERS_FILES = (
    "trainer_log.jsonl",
    "logging.jsonl",
    "trainer_state.json",
)  # in LLaMA-Factory's, ms-swift's, any folder
# Published MFU of large runs: 30 % (Pangu Ultra MoE on Ascend, arXiv:2505.04519) to 56 % (A100, arXiv:2205.05198).
_LOW_MFU, _HIGH_MFU = 0.3, 0.5
_SUMMARY_DIGITS = 0.005  # relative error of the quotient of two rates with three digits
_MUCH_RECOMPUTE = 0.1  # recomputed operations relative to the model's


class _Source(Record):
    """The runs of one log, or of a folder's logs: the k-th runs of all ranks together."""

    path: Path
    runs: tuple[LoggedTraining, ...]
    problems: tuple[Diagnostic, ...]


def measure_runs(
    *logs: str | Path,
    request: MetricsRequest | None = None,
    baseline: str | Path | None = None,
    on_bytes: Callable[[int, int], None] = lambda _done, _all: None,
) -> MetricsReport:
    """Measure step time, throughput and utilization of real runs from their training logs.

    A figure has no value if an input is missing (it names the options for it) or if it is impossible (see the
    problems).

    Args:
        logs: Logs, or folders of ranks' logs.
        request: Inputs that the logs lack: devices, sizes, the chip.
        baseline: A log, or a folder of logs, to compare with.
        on_bytes: Called with the bytes read so far and the bytes of all files.

    Returns:
        The runs, a comparison of the longest one with the longest of the baseline, and problems of the files. Times are
        seconds, shares are parts of 1, and operations are TFLOP/s.

    Raises:
        TraceError: A log is unreadable, or contains no step time.
        UsageError: The chip is unknown.
        ConfigError: The config is unreadable, or a size that the operations depend on is missing.

    Example::

        run = ms_tune.measure_runs("worker_7.log").runs[-1]
        print(run.times.median, run.times.mad, [problem.id for problem in run.problems])

        report = ms_tune.measure_runs("deterministic.log", baseline="usual.log")
        if report.comparison is not None:
            print(report.comparison.ratio, report.comparison.low, report.comparison.high)
    """
    request = request or MetricsRequest()
    peak = _device_peak(request)
    job = _job_facts(request)
    pattern = form_of_pattern(request.pattern) if request.pattern else None
    sources = _read_sources([Path(log) for log in (*logs, baseline) if log is not None], on_bytes, pattern)
    problems = tuple(problem for source in sources for problem in source.problems)
    before = replace(
        request, cards=request.baseline_cards or request.cards, batch=request.baseline_batch or request.batch
    )
    compared = sources.pop() if baseline is not None else None
    given = Given(request, peak, job)
    runs = [run for source in sources for run in _measure_source(source, given)]
    given = given._replace(request=before, job=job if before.cards == request.cards else _job_facts(before))
    others = _measure_source(compared, given) if compared else []
    comparison = _compare_longest(runs, others)
    problems += tuple(_check_comparison(comparison, given.request)) if comparison else ()
    return MetricsReport(tuple(runs), tuple(others), comparison, problems)


def _job_facts(request: MetricsRequest) -> JobFacts | None:
    if request.config is None:
        return None
    return read_job(request.config, request.version, request.cards, request.model_config)


def _device_peak(request: MetricsRequest) -> tuple[float, Message] | None:
    if request.peak_tflops is not None:
        return request.peak_tflops, msg("metrics.source.option")
    if request.chip is None:
        return None
    found = find_peak(request.chip)
    if found is None:
        known = ", ".join(one.name for one in peaks())
        raise UsageError(msg("metrics.chip", chip=request.chip, known=known), msg("metrics.chip.hint"))
    return found.tflops, msg(f"metrics.source.chip.{found.basis}", chip=found.name)


def _read_sources(
    paths: Sequence[Path], on_bytes: Callable[[int, int], None], pattern: StepForm | None
) -> list[_Source]:
    files = {path: _find_files(path) for path in paths}
    total = sum(file.stat().st_size for some in files.values() for file in some if file.is_file())
    count, found = ByteCounter(total, on_bytes).add, []
    for path in paths:
        logs = _read_logs_with_steps(files[path], count, pattern)
        problems = tuple(problem for log in logs for problem in check_log(log))
        found.append(_Source(path, _join_ranks([log.runs for log in logs], [log.rank for log in logs]), problems))
    return found


def _find_files(path: Path) -> list[Path]:
    if is_event_folder(path):
        return [path]
    own = next((path / name for name in _TRAINERS_FILES if (path / name).is_file()), None)
    return [own] if own else find_logs(path)


def _read_logs_with_steps(
    files: Sequence[Path], count: Callable[[int], None], pattern: StepForm | None
) -> list[TrainingLog]:
    # Only the last rank of Megatron logs steps.
    found, without = [], None
    for file in files:
        try:
            found.append(read_training_log(file, count, pattern))
        except NoStepsError as error:
            without = without or error
    if without is not None and not found:
        raise without
    return found


def _join_ranks(runs: Sequence[Sequence[LoggedTraining]], ranks: Sequence[int | None]) -> tuple[LoggedTraining, ...]:
    if len(runs) == 1:
        return tuple(runs[0])
    whole = []
    for place in range(max(map(len, runs))):
        parts = [(some[place], rank) for some, rank in zip(runs, ranks, strict=True) if place < len(some)]
        one = LoggedTraining(total=parts[0][0].total, repeated=parts[0][0].repeated)
        one.samples, one.speed, one.gpu = parts[0][0].samples, parts[0][0].speed, parts[0][0].gpu
        one.settings = next((part.settings for part, _ in parts if any(part.settings)), one.settings)
        for part, rank in parts:
            one.ranks.extend(replace(steps, rank=rank) if steps.rank is None else steps for steps in part.ranks)
            one.memory.update(part.memory)
            one.remarks.extend(part.remarks)
        whole.append(one)
    return tuple(whole)


def _measure_source(source: _Source, given: Given) -> list[RunMetrics]:
    found = [_measure_run(source.path, number, run, given) for number, run in enumerate(source.runs, start=1)]
    # A run that went wrong, and was then continued from a checkpoint, is past.
    for place, (run, after) in enumerate(zip(source.runs, source.runs[1:], strict=False)):
        if found[place].is_broken and is_restart(run, after) and after.ranks[0].last > run.ranks[0].last:
            mild = (
                one._replace(severity=Severity.WARNING) if one.severity is Severity.ERROR else one
                for one in found[place].health
            )
            found[place] = replace(found[place], health=tuple(mild))
    return found


def _measure_run(source: Path, number: int, run: LoggedTraining, given: Given) -> RunMetrics:
    steps = _choose_main_rank(run)
    times = measure_steps(steps, run.remarks)
    step_seconds = times.median if times.median is not None else (1 / run.speed if run.speed > 0 else None)
    job = given.job or read_logged_job(run.settings, source)
    inputs = collect_inputs(steps, step_seconds, run.settings, given._replace(job=job))
    if inputs.batch.value is None and run.speed > 0 and run.samples > 0:
        inputs = _with_batch_of_summary(inputs, run.samples / run.speed)
    convention, ascend = given.request.convention, steps.form.ascend and not run.gpu
    fastest = fastest_peak(ascend=ascend)
    figures = [*make_throughput_figures(inputs), *make_utilisation_figures(inputs, convention, fastest)]
    if job is not None and job.stages is not None:
        stages, chunks, micro_batches = job.stages
        formula = msg("metrics.formula.bubble", stages=stages, chunks=chunks, micro_batches=micro_batches)
        figures.append(Figure("bubble", job.bubble, formula))
    rate = compute_card_rate(inputs, inputs.model_flops).value
    losses = [loss for loss in steps.loss if math.isfinite(loss)]
    return RunMetrics(
        source=source,
        run=number,
        form=steps.form.name,
        steps=steps.seen,
        first_step=steps.number[0],
        last_step=steps.last,
        times=times,
        ranks=_compare_ranks(run),
        figures=tuple(figures),
        counted_otherwise=_other_conventions(job, convention, figures),
        losses=(losses[0], losses[-1]) if losses else None,
        memory=tuple(run.memory[rank] for rank in sorted(run.memory)) or steps.memory,
        health=tuple(check_health(run, _choose_watched_rank(run, steps), times)),
        about_steps=tuple(check_run(run, steps, times)),
        impossible=tuple(find_impossible_figures(steps.form, inputs, rate, fastest, ascend=ascend)),
        mean_seconds=step_seconds if times.median is None else None,
        judgement=tuple(_judge_figures(figures, job)),
        curve=_thin_curve(steps, {one.step for one in times.outliers}),
        ordered=tuple(sorted(time for time in steps.seconds[1:] if time > 0)),
    )


def _with_batch_of_summary(inputs: Inputs, batch: float) -> Inputs:
    # Both rates are printed with three decimals.
    whole = round(batch)
    exact = whole and abs(batch - whole) <= _SUMMARY_DIGITS * whole
    found = float(whole) if exact else batch
    return inputs._replace(batch=inputs.batch._replace(value=found, source=msg("metrics.source.summary")))


def _judge_figures(figures: Sequence[Figure], job: JobFacts | None) -> Iterator[Message]:
    values = {figure.name: figure.value for figure in figures}
    mfu, hfu, bubble = values.get("mfu"), values.get("hfu"), values.get("bubble")
    if mfu is not None:
        word = "low" if mfu < _LOW_MFU else "typical" if mfu <= _HIGH_MFU else "high"
        yield msg(f"metrics.judge.mfu.{word}", low=f"{_LOW_MFU:.0%}", high=f"{_HIGH_MFU:.0%}")
    if bubble is not None and bubble > SMALL_BUBBLE and job is not None and job.stages is not None:
        if job.relief is None:
            yield msg("metrics.judge.bubble", bubble=f"{bubble:.0%}")
        else:
            setting, now, many, then = job.relief
            sizes = {"setting": setting, "now": now, "many": many, "then": f"{then:.0%}"}
            yield msg("metrics.judge.relief", bubble=f"{bubble:.0%}", **sizes)
    if mfu and hfu and hfu / mfu - 1 > _MUCH_RECOMPUTE:
        yield msg("metrics.judge.recompute", share=f"{hfu / mfu - 1:.0%}")


def _other_conventions(job: JobFacts | None, chosen: Convention, figures: Sequence[Figure]) -> tuple[Counted, ...]:
    mfu = next((figure.value for figure in figures if figure.name == "mfu"), None)
    if job is None or mfu is None:
        return ()
    each = mfu / job.work.model[chosen]
    shares = [(one, job.work.model[one] * each, job.work.hardware.get(one, math.inf) * each) for one in Convention]
    return tuple(
        Counted(one, model if model <= 1 else None, hardware if hardware <= 1 else None)
        for one, model, hardware in shares
        if one is not chosen
    )


def _choose_main_rank(run: LoggedTraining) -> RankSteps:
    # Prefer the rank with the most steps, then with the most operations logged, then with the most losses.
    def completeness(steps: RankSteps) -> tuple[int, int, int]:
        return (
            steps.seen,
            sum(map(eq, steps.tflops, steps.tflops)),  # NaN, which equals nothing, marks values that are not logged
            sum(map(eq, steps.loss, steps.loss)),
        )

    return max(run.ranks, key=completeness)


def _choose_watched_rank(run: LoggedTraining, main: RankSteps) -> RankSteps:
    # Only the last stage knows the loss, and may log a step less than the others when it fails.
    def concern(steps: RankSteps) -> tuple[int, int]:
        return sum(trouble.count for trouble in steps.troubles.values()), sum(map(eq, steps.loss, steps.loss))

    return max((main, *run.ranks), key=concern)


def _compare_ranks(run: LoggedTraining) -> Ranks:
    able = [steps for steps in run.ranks if any(time > 0 for time in steps.seconds[1:])]
    if len(able) < 2:  # noqa: PLR2004 - one rank cannot be compared
        return Ranks(len(run.ranks))
    medians = [(median(time for time in steps.seconds[1:] if time > 0), steps.rank) for steps in able]
    slowest = max(medians, key=lambda one: one[0])
    return Ranks(len(run.ranks), min(medians, key=lambda one: one[0])[0], *slowest)


def _thin_curve(steps: RankSteps, kept: set[int]) -> StepCurve:
    every = max(-(-len(steps) // _POINTS), 1)
    places = [place for place in range(len(steps)) if place % every == 0 or steps.number[place] in kept]
    return StepCurve(
        tuple(steps.number[place] for place in places),
        *(
            tuple(column[place] if math.isfinite(column[place]) else None for place in places)
            for column in (steps.seconds, steps.loss)
        ),
    )


def _compare_longest(runs: Sequence[RunMetrics], baseline: Sequence[RunMetrics]) -> RunComparison | None:
    able = [run for run in runs if run.times.median is not None]
    others = [run for run in baseline if run.times.median is not None]
    if not able or not others:
        return None
    run, before = max(able, key=lambda one: one.times.count), max(others, key=lambda one: one.times.count)
    assert run.times.median is not None  # noqa: S101 - those without are left out above
    assert before.times.median is not None  # noqa: S101 - as above
    # Both medians are in their intervals at once with 95 % if each is with half of the remaining 5 %.
    each, low, high = (1 + CONFIDENCE) / 2, None, None
    if run.times.low is not None and before.times.low is not None:
        mine, theirs = bound_median(run.ordered, each), bound_median(before.ordered, each)
        low, high = (mine[0] / theirs[1], mine[1] / theirs[0]) if mine and theirs else (None, None)
    enough = min(run.times.count, before.times.count) >= ENOUGH
    apart = run.ordered[0] > before.ordered[-1] or run.ordered[-1] < before.ordered[0]
    return RunComparison(
        run,
        before,
        run.times.median / before.times.median,
        low,
        high,
        *_linearity_figures(run, before),
        separate=enough and apart,
    )


def _check_comparison(comparison: RunComparison, request: MetricsRequest) -> Iterator[Diagnostic]:
    if comparison.is_broken:
        yield Diagnostic("broken-comparison", Severity.ERROR, msg("metrics.problem.comparison"))
    if comparison.linearity is None and request.baseline_cards is not None:
        sides = ((comparison.run, ""), (comparison.baseline, "baseline-"))
        options = [
            option.replace("--", f"--{side}")
            for run, side in sides
            for option in (run.figure("samples_per_second_per_card") or Figure("", 0, msg(""))).missing
        ]
        yield Diagnostic.note(
            "no-linearity", msg("metrics.problem.linearity", options=", ".join(dict.fromkeys(options)))
        )


def _linearity_figures(run: RunMetrics, before: RunMetrics) -> tuple[Figure | None, Figure | None]:
    mine, theirs = run.value("samples_per_second_per_card"), before.value("samples_per_second_per_card")
    if not mine or not theirs:
        return None, None
    figure = Figure("linearity", mine / theirs, msg("metrics.formula.linearity"))
    whole, machine = run.value("samples_per_second"), before.value("samples_per_second")
    if not whole or not machine:
        return figure, None
    cards = whole / mine
    return figure, Figure("linearity_guide", whole / (machine * cards), msg("metrics.formula.linearity-guide"))
