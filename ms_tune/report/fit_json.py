"""Convert results of ``fit`` to JSON: a table, a config, layouts, a step time; docs/fit.md describes every key."""

from __future__ import annotations

from ms_tune.encode import record_json
from ms_tune.fit.costs import TimeExplanation
from ms_tune.fit.predict import Cluster
from ms_tune.fit.rank import LayoutCandidate
from ms_tune.fit.result import ConfigFit, VerifiedStage, VerifyRound
from ms_tune.fit.search import SearchFit
from ms_tune.fit.step_time import StepTime
from ms_tune.planning.fit import EvaluatedPlan, FitReport
from ms_tune.planning.layouts import Layout
from ms_tune.report import fit_config, fit_text
from ms_tune.report.fit_text import TIME_PARTS


def table_fit_json(report: FitReport) -> dict[str, object]:
    """Return the plan of a table."""
    plan, table = report.planned, report.table
    values: dict[str, object] = {
        "fits": plan is not None,
        "plan": plan and plan.plan.to_json(),
        **record_json(plan, "time", "peak_bytes", "bubble"),
        **record_json(report, "lower_bound", "optimal", "gap", "effort", "seed", "alternatives"),
        "stopped": bool(report.stopped),
        "limit_bytes": table.limit_bytes,
        "relative_time": plan and report.relative_time(plan.time),
        "seconds_of_step": plan and _seconds_json(report, plan.time),
        "reference": {"is_present_plan": report.has_present, **_plan_json(report.reference)},
        "verified": False,
        "why": fit_text.reasons_of(report),
        "notes": fit_text.notes_of(report),
    }
    if plan is not None:
        values["binding_stage"] = report.binding_stage
        values["critical_cells"] = [
            {"chunk": cell // table.stages, "stage": cell % table.stages, "share": share}
            for cell, share in report.critical
        ]
        values["time_with_one_gib_more"] = report.one_gib_more
    return {**values, **_shortage_json(report), "table": report.table_data}


def _shortage_json(report: FitReport) -> dict[str, object]:
    if report.shortage is None or report.nearest is None:
        return {}
    shortage = record_json(report.shortage, "stage", "over_bytes", "at_least_bytes")
    return {"shortage": shortage, "nearest": _plan_json(report.nearest), "remedies": report.remedies}


def _seconds_json(report: FitReport, time: float) -> dict[str, float | None] | None:
    after = report.seconds(time)
    if after is None:
        return None
    now, bound = report.seconds(report.reference.time), report.seconds(report.lower_bound)
    return {"plan": after, "reference": now, "lower_bound": bound, "measured": report.clock.step_seconds}


def _plan_json(plan: EvaluatedPlan) -> dict[str, object]:
    return {"plan": plan.plan.to_json(), **record_json(plan, "time", "peak_bytes")}


def explanation_json(found: TimeExplanation) -> dict[str, object]:
    """Return the report of ``--explain --json``; the parts add up to 1."""
    return {
        **record_json(found.table, "stages", "chunks", "micro_batches", "order"),
        **record_json(found.parts, *TIME_PARTS, "busy"),
        "seconds_of_step": found.seconds,
        "costs_known": found.costs.known,
        "cells": [{kind: count for kind, count in cell.items() if count} for cell in found.cells],
    }


def config_fit_json(found: ConfigFit) -> dict[str, object]:
    """Return the plan of a config: that of its table, with the results of its dryruns."""
    one, fits = found.last, found.chosen is not None
    values = table_fit_json(one.report)
    return {
        **values,
        **({} if found.lacking is None else _shortage_json(found.lacking)),
        "fits": fits,
        "plan": values["plan"] if fits else None,
        "why": fit_config.plan_reasons(found),
        "verified": bool(one.verified),
        "device_limit_bytes": found.limit.bytes,
        "limit_source": found.limit.source,
        **record_json(found, "reserve_bytes", "fragment_bytes", "least_fragment_bytes"),
        "predicted_peak_bytes": one.peak_bytes,
        "stages": [_stage_json(stage) for stage in one.verified],
        "stands_for": one.stands_for,
        "rounds": [_round_json(each) for each in found.rounds],
        "idle_kinds": found.idle,
        "changed_values": found.changed,
        "diff": fit_config.diff_of_plan(found) if found.changed else "",
        "notes": fit_config.plan_notes(found),
        "predicted": found.predicted and _prediction_json(found.predicted.step, found.predicted.cluster),
        "seconds": {"table": found.seconds[0], "plans": found.seconds[1]},
    }


def _round_json(one: VerifyRound) -> dict[str, object]:
    plan = one.report.planned
    return {
        "plan": plan and plan.plan.to_json(),
        "time": plan and plan.time,
        "stages": [_stage_json(stage) for stage in one.verified],
        "relieved": [stage.stage for stage in one.relieved],
        "kept": one.kept,
    }


def _stage_json(one: VerifiedStage) -> dict[str, object]:
    return {
        **record_json(one, "stage", "predicted_bytes", "peak_bytes", "footprint_bytes", "error"),
        **record_json(one.verdict, "reserve_bytes", "sentence"),
        "verdict": one.verdict.outcome,
    }


def search_json(found: SearchFit) -> dict[str, object]:
    """Return the report of ``--search --json``."""
    return {
        **record_json(found, "devices", "samples"),
        "stopped": bool(found.stopped),
        "now": _layout_json(found.now),
        "limit_bytes": found.limit.bytes,
        "ranking": [_candidate_json(found, one) for one in found.ranking.candidates],
        **record_json(found.ranking, "present", "pruned"),
        "refused": [{"reason": reason, "count": count} for reason, count in fit_config.list_refusals(found)],
        "tried": [
            {
                **_candidate_json(found, one.candidate),
                "error": one.error,
                "plan_relative_time": None if one.step is None else found.relative_time(one.step),
                "plan_predicted": one.step and _prediction_json(one.step, found.ranking.cluster),
                "plan_estimated_bytes": one.estimated_bytes,
                "fit": one.fit and config_fit_json(one.fit),
            }
            for one in found.tried
        ],
        "chosen": None if found.chosen is None else found.tried.index(found.chosen),
        "diff": "" if found.best is None else fit_config.diff_of_plan(found.best),
        "notes": fit_config.search_notes(found),
    }


def _layout_json(layout: Layout) -> dict[str, object]:
    return record_json(layout, "data", "tensor", "pipeline", "chunks", "context", "expert", "size", "micro_batches")


def _candidate_json(found: SearchFit, one: LayoutCandidate) -> dict[str, object]:
    estimate = one.estimate
    figures = record_json(estimate, "peak_bytes", "recomputed", "least_bytes")
    predicted = {"predicted": _prediction_json(estimate.step, found.ranking.cluster)}
    return {
        "layout": _layout_json(one.layout),
        "estimate": {"relative_time": found.relative_time(estimate.step), **figures, **predicted},
    }


def _prediction_json(step: StepTime, cluster: Cluster) -> dict[str, object]:
    return {
        **record_json(step, "seconds", "bubble", "sent_seconds", "tokens_per_second", "mfu"),
        "device": cluster.speed.name,
        "device_assumed": cluster.assumed,
        "from_measured_step": cluster.scale is not None,
    }
