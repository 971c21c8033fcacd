"""The results of `memory` and its sub-commands as JSON; sizes are bytes. docs/memory.md describes every key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.encode import as_json, record_json
from ms_tune.footprint.remedies import DYNAMIC, STATIC, TORCH, ContentBytes, MemoryRemedy, Method, PeakMoment
from ms_tune.report.words import verdict_json
from ms_tune.text import Language
from ms_tune.verdict.outcome import Fit, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ms_tune.diagnostics import Diagnostic
    from ms_tune.footprint.breakdown import PeakBreakdown
    from ms_tune.footprint.lifetimes import Lifetimes
    from ms_tune.footprint.phases import Phase
    from ms_tune.footprint.result import MemoryReport, RankReport
    from ms_tune.memory.diff import Comparison
    from ms_tune.memory.what_if import WhatIfReport
    from ms_tune.pools.settings import Inferred
    from ms_tune.pools.what_if import ReplayOutcome, Scenario
    from ms_tune.readers.memory_log import MemoryFailure
    from ms_tune.report.console import Console

VERSION = 1
_CHANGE = (
    *("operator", "where", "category", "before_bytes", "after_bytes", "change_bytes"),
    *("before_count", "after_count"),
)
_FAILURE = (
    *("framework", "line", "wanted_bytes", "limit_bytes", "free_bytes", "used_bytes", "held_bytes"),
    *("cause", "short_bytes"),
)


def report_json(report: MemoryReport, console: Console, top: int) -> dict[str, object]:
    """The object that ``ms-tune memory --json`` prints: the rank that needs most, then every rank in short."""
    worst = report.worst
    return {
        "version": VERSION,
        "source": str(report.source),
        **_rank_json(worst, top, console.language),
        **verdict_json(worst.verdict, console),
        "findings": [
            _finding_json(finding, console) | {"stack": _stack_json(finding.stack)} for finding in report.all_findings
        ],
        "ranks": [
            {"rank": rank.rank, "stage": stage, "trace": str(rank.files.blocks)}
            | record_json(rank.curve, "peak_bytes", "peak_tick", "footprint_bytes")
            | {"categories_at_peak": as_json(rank.peak.contents)}
            | verdict_json(rank.verdict, console)
            | {"findings": [finding.name for finding in rank.findings]}
            for rank, stage in zip(report.ranks, report.stages, strict=True)
        ],
    }


def _stack_json(stack: Sequence[tuple[str, int, str]]) -> list[str]:
    return [f"{file}:{line}:{function}" for file, line, function in stack]


def _rank_json(rank: RankReport, top: int, language: Language) -> dict[str, object]:
    joined, theory = rank.join, rank.theory
    return {
        "rank": rank.rank,
        "trace": str(rank.files.blocks),
        **record_json(rank.curve, "peak_bytes", "peak_tick", "footprint_bytes"),
        "fragmentation_bytes": max(0, rank.curve.footprint_bytes - rank.curve.peak_bytes),
        **_rows_json(rank),
        "curve_mismatches": len(rank.curve.mismatches),
        "joined_rows": joined.joined_rows if joined else 0,
        "joinable_rows": joined.joinable_rows if joined else 0,
        "categories_at_peak": as_json(rank.peak.contents),
        **_lifetimes_json(rank.lifetimes),
        "steps": len(rank.steps.ends),
        "step_ends": list(rank.steps.ends),
        "step_bytes": list(rank.lifetimes.step_bytes),
        "steps_by": rank.steps.evidence.value,
        "holes_at_peak": {
            "free_bytes": rank.map.free_bytes,
            "largest_bytes": rank.map.largest_hole,
            "by_stream": as_json(rank.map.by_stream),
        },
        "padding_at_peak": rank.padding_at_peak(),
        "gradients_per_weight": theory.gradients_ratio,
        "optimizer_state_per_weight": theory.optimizer_ratio,
        "theory": {
            **record_json(theory, "weights_bytes", "parameters"),
            **{each.content.value: record_json(each, "bytes", "expected_bytes", "shards") for each in theory.states},
        },
        "recompute_saving_at_peak": rank.recompute.saving,
        "peak_if_recomputed": rank.recompute.peak,
        "phase_at_peak": phase_name(rank.phase_at_peak()),
        "peak_by_phase": {phase_name(phase): size for phase, size in rank.peak_by_phase().items()},
        "remedies": [_remedy_json(remedy, language) for remedy in rank.remedies],
        "held_at_peak": [_phase_json(held) for held in rank.held_at_peak],
        "highest": [_phase_json(moment) for moment in rank.moments],
        **breakdown_json(rank.peak, top),
        "activations_by_layer": as_json(rank.activations),
    }


def _remedy_json(remedy: MemoryRemedy, language: Language) -> dict[str, object]:
    return {
        "name": remedy.method.name,
        "title": remedy.title_text(language),
        **record_json(remedy, "bytes_freed", "peak_after_bytes"),
        "price": remedy.price_text(language),
        "how": remedy.how_text(language),
        "how_by_dialect": remedy.method.texts_by_dialect(language),
        "next": remedy.method.command,
    }


def _phase_json(told: ContentBytes | PeakMoment) -> dict[str, object]:
    return record_json(told, *told._fields) | {"phase": phase_name(told.phase)}


def phase_name(phase: Phase | None) -> str:
    """A phase as scripts read it; ``unknown`` where nothing tells."""
    return phase.value if phase is not None else "unknown"


def _rows_json(rank: RankReport) -> dict[str, object]:
    return {
        "rows": len(rank.table) + rank.host_rows,
        "host_rows": rank.host_rows,
        "host_bytes": rank.host_bytes,
        "rows_dropped": rank.table.dropped_count,
        "dropped": [
            {"file": file, "line": row.line, "reason": row.reason.id}
            for file, (_, rows) in rank.refused_rows().items()
            for row in rows
        ],
        "dropped_by_file": {file: count for file, (count, _) in rank.refused_rows().items()},
        "truncated": rank.table.truncated,
    }


def _lifetimes_json(lives: Lifetimes) -> dict[str, object]:
    names = ("late_free_bytes_ticks", "peak_if_freed_after_last_use", "never_freed_bytes", "never_freed", "late_frees")
    growth = [
        record_json(each, "operator", "where", "category", "bytes_per_step") | {"stack": _stack_json(each.stack)}
        for each in lives.growth
    ]
    return {**record_json(lives, *names), "growth": growth, **record_json(lives, "spike_bytes", "peak_without_spikes")}


def breakdown_json(parts: PeakBreakdown, top: int) -> dict[str, object]:
    """The memory at a tick, taken apart."""
    return {
        "largest": [
            record_json(holder, "bytes", "count", "operator", "where", "category") | {"tensor": holder.tensor or None}
            for holder in parts.holders[:top]
        ],
        "by_parameter": as_json(parts.parameters[:top]),
        "by_operator": as_json(parts.operators[:top]),
        "by_line": as_json(parts.lines[:top]),
        "by_layer": as_json(parts.layers[:top]),
    }


def _finding_json(finding: Diagnostic, console: Console) -> dict[str, object]:
    return {
        **record_json(finding, "id", "name", "severity", "rank", "bytes"),
        "message": console.say(finding.message),
        "help": console.say(finding.help) if finding.help else None,
    }


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """The object that ``ms-tune memory diff --json`` prints."""
    return {
        "version": VERSION,
        "ranks": [
            {
                "rank": pair.after.rank,
                "before_bytes": pair.before.curve.peak_bytes,
                "after_bytes": pair.after.curve.peak_bytes,
                "change_bytes": pair.change_bytes,
                "categories": as_json(pair.contents),
                "changes": [record_json(change, *_CHANGE) for change in pair.changes],
            }
            for pair in comparison.ranks
        ],
        "only_before": list(comparison.only_before),
        "only_after": list(comparison.only_after),
    }


def failure_json(failure: MemoryFailure, first: Sequence[Method], source: Path, console: Console) -> dict[str, object]:
    """The object that ``ms-tune memory LOG --json`` prints: what a log tells of memory that ran out."""
    place = 0 if console.language is Language.EN else 1
    return {
        "version": VERSION,
        "kind": "out-of-memory",
        "source": str(source),
        **record_json(failure, *_FAILURE),
        "operator": failure.operator or None,
        "where": failure.where or None,
        "remedies": [
            {
                "name": method.name,
                "title": method.title[place],
                "bytes_freed": None,
                "peak_after_bytes": None,
                "price": method.price[place],
                "how": how,
            }
            for method, how in methods_after(failure, first, console)
        ],
        "how_to_trace": console.text(trace_text(failure)),
    }


def methods_after(failure: MemoryFailure, first: Sequence[Method], console: Console) -> list[tuple[Method, str]]:
    """The methods that the framework of a failure has a way to do, and how."""
    dialects = TORCH if failure.is_of_torch else (*STATIC, *DYNAMIC)
    found = [(method, method.how_text(dialects, console.language)) for method in first]
    return [(method, how) for method, how in found if how]


def trace_text(failure: MemoryFailure) -> str:
    """The id of the text that says how to make a trace of such a run."""
    return "oom.trace.torch" if failure.is_of_torch else "oom.trace.mindspore"


def what_if_json(report: WhatIfReport, console: Console) -> dict[str, object]:
    """The object that the command prints."""
    result = report.result
    inferred = result.inferred
    return {
        "version": 1,
        "rank": report.rank,
        "pool": result.pool,
        "rows": report.allocation_count,
        "limit_by": report.limit_by,
        **verdict_json(report.verdict, console),
        "recorded": _outcome_json(result.recorded_outcome, report),
        "settings": [{"setting": outcome.name, **_outcome_json(outcome, report)} for outcome in result.outcomes[1:]],
        "inferred_settings": _settings_json(inferred),
        "mismatches": as_json(inferred.mismatches),
        "first_difference": inferred.first_difference,
        "best": _best_json(result.best, report),
        "best_without_vmm": _best_json(result.best_without_vmm, report),
        "causes": _causes_json(report),
        "scenarios": [
            _scenario_json(scenario) | _replay_verdict_json(verdict)
            for scenario, verdict in zip(report.scenarios, report.scenario_verdicts, strict=True)
        ],
        "findings": [_finding_json(report.finding, console)] if report.finding else [],
        "seconds": round(report.seconds, 3),
    }


def _outcome_json(outcome: ReplayOutcome, report: WhatIfReport) -> dict[str, object]:
    verdict = report.verdicts[report.result.outcomes.index(outcome)]
    return record_json(outcome, "used_bytes", "actual_bytes", "reserved_bytes") | _replay_verdict_json(verdict)


def _replay_verdict_json(verdict: Verdict | None) -> dict[str, object]:
    """What is said about one replay; nulls where there is no verdict."""
    found = verdict.outcome if verdict is not None else None
    return {"fits": None if found is None else found is Fit.FITS, "verdict": None if found is None else found.value}


def _settings_json(inferred: Inferred) -> dict[str, object]:
    settings = inferred.settings
    return {
        "set_memory": settings.init is not None,
        "init_size_bytes": settings.init,
        "increase_size_bytes": settings.increase,
        "max_size_bytes": settings.total,
        "small_pool": settings.small_pool,
        "vmm": settings.vmm.value == "on",
        "older_pool": inferred.older,
        "empty_cache_calls": len(inferred.work.releases),
        "made_no_difference": list(inferred.undecided),
    }


def _best_json(outcome: ReplayOutcome | None, report: WhatIfReport) -> dict[str, object] | None:
    if outcome is None:
        return None
    lines = record_json(outcome.setting_lines, "script", "config", "environment")
    return {"setting": outcome.name, **_outcome_json(outcome, report), **lines}


def _scenario_json(scenario: Scenario) -> dict[str, object]:
    change = scenario.change
    return {
        "scenario": change.name,
        "subject": change.subject,
        "parts": change.parts,
        "changed_rows": change.changed,
        **record_json(scenario, "used_bytes", "actual_bytes", "reserved_bytes"),
    }


def _causes_json(report: WhatIfReport) -> dict[str, object]:
    causes = report.result.causes
    return {
        **record_json(causes, "spilled_bytes", "untouched_bytes", "idle_at_peak_bytes"),
        "growths": [
            {
                "row": growth.request,
                "name": None if growth.request is None else report.names[growth.request],
                **record_json(growth, "part", "unit_bytes", "reserved_bytes", "request_bytes"),
                "largest_hole_bytes": growth.largest_hole,
                "free_bytes": growth.free_bytes,
            }
            for growth in causes.growths
        ],
        "units": [
            {
                "part": pin.unit.part,
                "bytes": pin.unit.size,
                **record_json(pin, "touched_bytes", "live_at_peak_bytes"),
                "held_by": None if pin.request is None else report.names[pin.request],
            }
            for pin in causes.pins
        ],
    }
