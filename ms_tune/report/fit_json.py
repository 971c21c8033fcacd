"""The result of ``ms-tune fit`` as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.report import fit_text
from ms_tune.report.fit_text import TIME_PARTS
from ms_tune.text import render

if TYPE_CHECKING:
    from ms_tune.fit.costs import TimeExplanation
    from ms_tune.planning.fit import EvaluatedPlan, FitReport
    from ms_tune.text import Language, Message


def fit_report_json(report: FitReport, language: Language) -> dict[str, object]:
    """The report of ``--json``; sentences are in the user's language."""

    def said(messages: list[Message]) -> list[str]:
        return [render(message, language) for message in messages]

    plan = report.planned
    table = report.table
    values: dict[str, object] = {
        "fits": plan is not None,
        "plan": None if plan is None else plan.plan.to_json(),
        "time": None if plan is None else plan.time,
        "lower_bound": report.lower_bound,
        "optimal": report.optimal,
        "gap": report.gap,
        "peak_bytes": None if plan is None else list(plan.peak_bytes),
        "limit_bytes": table.limit_bytes,
        "bubble": None if plan is None else plan.bubble,
        "relative_time": None if plan is None else report.relative_time(plan.time),
        "seconds_of_step": None if plan is None else _seconds_json(report, plan.time),
        "reference": {"is_present_plan": report.has_present, **_plan_json(report.reference)},
        "effort": report.effort.value,
        "seed": report.seed,
        "stopped": report.stopped,
        "verified": False,
        "why": said(fit_text.reasons_of(report)),
        "alternatives": [{"name": other.name, "time": other.time} for other in report.alternatives],
        "notes": said(fit_text.notes_of(report)),
    }
    if plan is not None:
        values["binding_stage"] = report.binding_stage
        values["critical_cells"] = [
            {"chunk": cell // table.stages, "stage": cell % table.stages, "share": share}
            for cell, share in report.critical
        ]
        values["time_with_one_gib_more"] = report.one_gib_more
    values.update(shortage_json(report))
    values["table"] = report.table_data
    return values


def shortage_json(report: FitReport) -> dict[str, object]:
    """By how much nothing fits, and what would help; empty where something does."""
    if report.shortage is None or report.nearest is None:
        return {}
    short = report.shortage
    return {
        "shortage": {"stage": short.stage, "over_bytes": short.over_bytes, "at_least_bytes": short.at_least_bytes},
        "nearest": _plan_json(report.nearest),
        "remedies": [
            {"name": remedy.name, "freed_bytes": remedy.freed_bytes, "fits": remedy.fits} for remedy in report.remedies
        ],
    }


def _seconds_json(report: FitReport, time: float) -> dict[str, float | None] | None:
    """The step in seconds; null where nothing was measured."""
    after = report.seconds(time)
    if after is None:
        return None
    now, bound = report.seconds(report.reference.time), report.seconds(report.lower_bound)
    return {"plan": after, "reference": now, "lower_bound": bound, "measured": report.clock.step_seconds}


def _plan_json(plan: EvaluatedPlan) -> dict[str, object]:
    return {"plan": plan.plan.to_json(), "time": plan.time, "peak_bytes": list(plan.peak_bytes)}


def explanation_json(found: TimeExplanation) -> dict[str, object]:
    """The report of ``--explain --json``; parts add up to 1."""
    sizes = found.table
    return {
        "stages": sizes.stages,
        "chunks": sizes.chunks,
        "micro_batches": sizes.micro_batches,
        "order": sizes.order.value,
        **{name: getattr(found.parts, name) for name in TIME_PARTS},
        "busy": list(found.parts.busy),
        "seconds_of_step": found.seconds,
        "costs_known": found.costs.known,
        "cells": [{kind.value: count for kind, count in cell.items() if count} for cell in found.cells],
    }
