"""What ``ms-tune metrics --json`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.diagnostics import START, Severity

if TYPE_CHECKING:
    from ms_tune.diagnostics import Diagnostic
    from ms_tune.metrics.result import Figure, MetricsReport, RunComparison, RunMetrics
    from ms_tune.metrics.steps import StepTimes
    from ms_tune.report.console import Console

VERSION = 1

# Keys of every run; null where a figure is not there.
_FIGURES = (
    *("samples_per_second", "samples_per_second_per_card", "tokens_per_second", "tokens_per_second_per_card"),
    *("tflops_logged", "tflops_per_card", "mfu", "hfu", "bubble"),
)


def report_json(report: MetricsReport, console: Console) -> dict[str, object]:
    """The whole object."""
    return {
        "version": VERSION,
        "runs": [_run(run, console) for run in report.runs],
        "baseline": [_run(run, console) for run in report.baseline],
        "comparison": _comparison(report.comparison, console) if report.comparison else None,
        "problems": [_problem(problem, console) for problem in report.problems],
    }


def _run(run: RunMetrics, console: Console) -> dict[str, object]:
    return {
        "source": str(run.source),
        "run": run.number,
        "form": run.form.value,
        "steps": run.steps,
        "first_step": run.first_step,
        "last_step": run.last_step,
        "step_seconds": _times(run.times),
        "ranks": {
            "count": run.ranks.count,
            "fastest_median": run.ranks.fastest,
            "slowest_median": run.ranks.slowest,
            "slowest": run.ranks.slowest_rank,
        },
        **dict.fromkeys(_FIGURES),
        **{figure.name: figure.value for figure in run.figures},
        "mfu_counted_otherwise": {one.convention.value: one.mfu for one in run.counted_otherwise},
        "hfu_counted_otherwise": {one.convention.value: one.hfu for one in run.counted_otherwise},
        "figures": [_figure(figure, console) for figure in run.figures],
        "loss": {"first": run.losses[0], "last": run.losses[1]} if run.losses else None,
        "memory": [
            {
                "rank": one.rank,
                "allocated_bytes": one.allocated,
                "max_allocated_bytes": one.max_allocated,
                "reserved_bytes": one.reserved or None,
                "max_reserved_bytes": one.max_reserved or None,
            }
            for one in run.memory
        ],
        "problems": [_problem(problem, console) for problem in run.problems],
        "curve": {
            "step": list(run.curve.number),
            "seconds": list(run.curve.seconds),
            "loss": list(run.curve.loss),
        },
    }


def _times(times: StepTimes) -> dict[str, object]:
    return {
        "count": times.count,
        "median": times.median,
        "mad": times.mad,
        "interval": None if times.low is None else [times.low, times.high],
        "first": times.first,
        "shortest": times.shortest,
        "longest": times.longest,
        "mean": times.mean,
        "resolution": times.resolution,
        "averaged_over": times.averaged,
        "outliers": [
            {"step": one.number, "line": one.line, "seconds": one.seconds, "beside": list(one.kinds)}
            for one in times.outliers
        ],
        "outlier_count": times.outlier_count,
    }


def _figure(figure: Figure, console: Console) -> dict[str, object]:
    return {
        "name": figure.name,
        "value": figure.value,
        "formula": console.say(figure.formula),
        "inputs": [console.say(one) for one in figure.inputs],
        "missing": list(figure.missing),
    }


def _problem(problem: Diagnostic, console: Console) -> dict[str, object]:
    return {
        "id": problem.id,
        "serious": problem.severity is Severity.ERROR,
        "message": console.say(problem.message),
        "hint": console.say(problem.help) if problem.help else None,
        "line": problem.location.line if problem.location != START else None,
    }


def _comparison(comparison: RunComparison, console: Console) -> dict[str, object]:
    return {
        "run": {"source": str(comparison.run.source), "run": comparison.run.number},
        "baseline": {"source": str(comparison.baseline.source), "run": comparison.baseline.number},
        "ratio": comparison.ratio,
        "interval": None if comparison.low is None else [comparison.low, comparison.high],
        "confidence": 0.95,
        "told_apart": comparison.told,
        "linearity": comparison.linearity.value if comparison.linearity else None,
        "linearity_guide": comparison.guide.value if comparison.guide else None,
        "figures": [_figure(one, console) for one in (comparison.linearity, comparison.guide) if one],
    }
