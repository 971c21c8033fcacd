"""Convert results of `memory` and its subcommands to JSON, sizes in bytes; keys: docs/memory.md, memory-snapshot.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ms_tune.encode import record_json
from ms_tune.footprint.breakdown import PeakBreakdown
from ms_tune.footprint.phases import Phase
from ms_tune.footprint.result import MemoryReport, RankReport
from ms_tune.footprint.torch_blocks import StepGrowth
from ms_tune.footprint.torch_report import (
    CodeLocation,
    LineChange,
    Survivors,
    TorchRemedy,
    TorchReport,
)
from ms_tune.footprint.torch_runs import Calibration, RankPeaks
from ms_tune.memory.diff import Comparison, RankComparison
from ms_tune.memory.what_if import TorchWhatIf, WhatIfReport
from ms_tune.pools.settings import Inferred
from ms_tune.pools.torch_replay import TorchOutcome
from ms_tune.pools.torch_space import TorchSettings
from ms_tune.pools.what_if import ReplayOutcome
from ms_tune.readers.oom_log import Cause, FailureReport, MemoryFailure
from ms_tune.report.words import verdict_json
from ms_tune.text import Message, msg
from ms_tune.verdict.outcome import Fit

VERSION = 1
_CURVE = ("peak_bytes", "peak_tick", "footprint_bytes")
_CHANGE = (
    *("operator", "where", "category", "before_bytes", "after_bytes", "change_bytes"),
    *("before_count", "after_count"),
)
_FAILURE = (
    *("rank", "device", "path", "framework", "line", "wanted_bytes", "limit_bytes", "free_bytes", "used_bytes"),
    *("held_bytes", "available_bytes", "outside_bytes", "cause", "short_bytes", "text"),
)
_FINDING = ("id", "name", "severity", "rank", "bytes", "message", "help")


def report_json(report: MemoryReport, top: int) -> dict[str, object]:
    """Return the object of ``ms-tune memory --json``: the rank with the highest peak, then a summary of every rank."""
    worst = report.worst
    return {
        "version": VERSION,
        "source": report.source,
        **rank_json(worst),
        **breakdown_json(worst.peak, top),
        **verdict_json(worst.verdict),
        "findings": [
            record_json(finding, *_FINDING) | {"stack": _stack_json(finding.stack)} for finding in report.all_findings
        ],
        "ranks": [
            {"rank": rank.rank, "stage": stage, "trace": rank.files.blocks}
            | record_json(rank.curve, *_CURVE)
            | {"categories_at_peak": rank.peak.contents}
            | verdict_json(rank.verdict)
            | {"findings": [finding.name for finding in rank.findings]}
            for rank, stage in zip(report.ranks, report.stages, strict=True)
        ],
    }


def _stack_json(stack: Sequence[tuple[str, int, str]]) -> list[str]:
    return [f"{file}:{line}:{function}" for file, line, function in stack]


def rank_json(rank: RankReport) -> dict[str, object]:
    """Return everything about one rank except the breakdown of its peak (:func:`breakdown_json`)."""
    joined, theory, lives = rank.join, rank.theory, rank.lifetimes
    return {
        "rank": rank.rank,
        "trace": rank.files.blocks,
        **_layers_json(rank),
        **_dry_run_json(rank),
        **record_json(rank.curve, *_CURVE),
        "fragmentation_bytes": max(0, rank.curve.footprint_bytes - rank.curve.peak_bytes),
        **_rows_json(rank),
        "curve_mismatches": len(rank.curve.mismatches),
        "joined_rows": joined.joined_rows if joined else 0,
        "joinable_rows": joined.joinable_rows if joined else 0,
        "categories_at_peak": rank.peak.contents,
        **record_json(lives, "peak_if_freed_after_last_use", "late_frees", "spike_bytes", "peak_without_spikes"),
        "growth": [
            record_json(each, "operator", "where", "category", "bytes_per_step") | {"stack": _stack_json(each.stack)}
            for each in lives.growth
        ],
        "steps": len(rank.steps.ends),
        "step_ends": rank.steps.ends,
        "steps_by": rank.steps.evidence,
        "holes_at_peak": {"largest_bytes": rank.map.largest_hole, "free_bytes": rank.map.free_bytes},
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
        "remedies": rank.remedies,
        "held_at_peak": [one._asdict() | {"phase": phase_name(one.phase)} for one in rank.held_at_peak],
        "activations_by_layer": rank.activations,
    }


def _layers_json(rank: RankReport) -> dict[str, object]:
    # Layers that the figures are about and that the stage has; both unknown if the trace is not a sample of `dryrun`.
    whole, scaled = rank.extrapolation, rank.scaled_from
    layers, full = (whole[0], whole[0]) if whole is not None else rank.sample or (None, None)
    return {
        "layers": layers,
        "full_layers": full,
        "extrapolated_from_layers": whole and whole[1],
        "remedies_scaled_from_layers": scaled and scaled[1],
    }


def _dry_run_json(rank: RankReport) -> dict[str, object]:
    # Only of a dry-run of HyperParallel.
    if rank.placed is None:
        return {}
    sizes = record_json(rank.placed, "expandable_bytes", "unlisted_bytes", "later_peak_bytes", "later_reserved_bytes")
    said = {} if rank.dry_run is None else record_json(rank.dry_run, "parallel", "stages", "limitations", "failure")
    return {"dry_run": {"variable": rank.placed.settings.variable, **sizes, **said}}


def phase_name(phase: Phase | None) -> str:
    """Return a phase's name; ``unknown`` for None."""
    return phase.value if phase is not None else "unknown"


def _rows_json(rank: RankReport) -> dict[str, object]:
    refused = rank.refused_rows()
    return {
        "rows": len(rank.table) + rank.host_rows,
        **record_json(rank, "host_rows", "host_bytes"),
        "rows_dropped": rank.table.dropped_count,
        "dropped": [
            {"file": file, "line": row.line, "reason": row.reason.id}
            for file, (_, rows) in refused.items()
            for row in rows
        ],
        "dropped_by_file": {file: count for file, (count, _) in refused.items()},
        "rows_unreleased": rank.table.unreleased,
        "truncated": rank.table.truncated,
    }


def breakdown_json(parts: PeakBreakdown, top: int) -> dict[str, object]:
    """Return the breakdown of the memory at one tick."""
    return {
        "largest": [
            record_json(holder, "bytes", "count", "operator", "where", "category") | {"tensor": holder.tensor or None}
            for holder in parts.holders[:top]
        ],
        "by_parameter": parts.parameters[:top],
        "by_operator": parts.operators[:top],
        "by_line": parts.lines[:top],
        "by_layer": parts.layers[:top],
    }


def comparison_json(comparison: Comparison) -> dict[str, object]:
    """Return the object of ``ms-tune memory diff --json``."""
    return {
        "version": VERSION,
        "ranks": [pair_json(pair, len(pair.changes)) for pair in comparison.ranks],
        **record_json(comparison, "only_before", "only_after"),
    }


def pair_json(pair: RankComparison, most: int) -> dict[str, object]:
    """Return a rank's comparison of both runs, with the ``most`` largest changes."""
    return {
        "rank": pair.after.rank,
        "before_bytes": pair.before.curve.peak_bytes,
        "after_bytes": pair.after.curve.peak_bytes,
        "change_bytes": pair.change_bytes,
        "categories": pair.contents,
        "changes": [record_json(change, *_CHANGE) for change in pair.changes[:most]],
    }


def failures_json(report: FailureReport, source: Path) -> dict[str, object]:
    """Return the object of ``ms-tune memory LOG --json`` for out-of-memory logs: the first failure, then all."""
    first = report.first
    return {
        "version": VERSION,
        "kind": "out-of-memory",
        "source": source,
        **_failure_json(first),
        "job": report.job or None,
        "inference": report.is_inference,
        "phase": report.phase or None,
        "remedies": [
            {
                "name": one.name,
                "title": msg(f"oom.remedy.{one.name}"),
                "price": msg(f"oom.price.{one.name}"),
                "bytes_freed": None,
                "peak_after_bytes": None,
                "how": one.how,
            }
            for one in report.remedies
            if not one.is_set
        ],
        "already_set": [one.how for one in report.remedies if one.is_set],
        "how_to_trace": trace_text(report),
        "first_known": report.is_ordered,
        "failures": [_failure_json(failure) for failure in report.failures],
    }


def _failure_json(failure: MemoryFailure) -> dict[str, object]:
    return {
        **record_json(failure, *_FAILURE),
        "operator": failure.operator or None,
        "where": failure.where or None,
        "process": failure.process or None,
    }


def trace_text(report: FailureReport) -> Message | None:
    """Return how to record a trace of such a run; None if it would not help."""
    if report.first.cause in (Cause.HOST, Cause.NOT_MEMORY, Cause.OTHERS) or not report.family:
        return None
    return msg(f"oom.trace.{report.family}")


def what_if_json(report: WhatIfReport) -> dict[str, object]:
    """Return the object of ``ms-tune memory what-if --json``."""
    result = report.result
    recorded, *others = result.outcomes
    return {
        "version": VERSION,
        **record_json(report, "rank", "limit_by"),
        "extrapolated_from_layers": report.extrapolation and report.extrapolation[1],
        "pool": result.pool,
        "rows": report.allocation_count,
        **verdict_json(report.verdict),
        "recorded": _outcome_json(recorded, report),
        "settings": [{"setting": one.name, **_outcome_json(one, report)} for one in others],
        "inferred_settings": None if result.causes is None else _settings_json(result.inferred),
        "mismatches": result.inferred.mismatches,
        "best": _best_json(result.best, report),
        "best_without_vmm": _best_json(result.best_without_vmm, report),
        "causes": _causes_json(report),
        "scenarios": [
            {
                "scenario": one.name,
                **record_json(one.change, "subject", "parts"),
                "changed_rows": one.change and one.change.changed,
                **_outcome_json(one, report),
            }
            for one in report.scenarios
        ],
        "findings": [record_json(report.finding, *_FINDING)] if report.finding else [],
        "seconds": round(report.seconds, 3),
    }


def _outcome_json(outcome: ReplayOutcome, report: WhatIfReport) -> dict[str, object]:
    verdict = report.verdict_about(outcome)
    found = verdict.outcome if verdict is not None else None
    fits = None if found is None else found is Fit.FITS
    return {**record_json(outcome, "used_bytes", "actual_bytes", "reserved_bytes"), "fits": fits, "verdict": found}


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
        "made_no_difference": inferred.undecided,
    }


def _best_json(outcome: ReplayOutcome | None, report: WhatIfReport) -> dict[str, object] | None:
    if outcome is None:
        return None
    return {"setting": outcome.name, **_outcome_json(outcome, report), **outcome.setting_lines._asdict()}


def _causes_json(report: WhatIfReport) -> dict[str, object] | None:
    causes = report.result.causes
    return causes and {
        **record_json(causes, "spilled_bytes", "untouched_bytes", "idle_at_peak_bytes"),
        "growths": [
            {
                "row": growth.request,
                "name": None if growth.request is None else report.names[growth.request],
                **record_json(growth, "part", "unit_bytes", "reserved_bytes", "request_bytes", "free_bytes"),
                "largest_hole_bytes": growth.largest_hole,
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


def snapshot_json(
    report: TorchReport, remedies: Sequence[TorchRemedy], top: int, ranks: Sequence[RankPeaks] = ()
) -> dict[str, object]:
    """Return the object of ``ms-tune memory SNAPSHOT --json``; of a folder with the peaks of all its ranks."""
    fragments = [cause for cause in report.causes if cause.fragments]
    largest = sorted(report.causes, key=lambda cause: (-cause.taken_bytes, cause.event))
    return {
        "version": VERSION,
        "kind": "torch-snapshot",
        **_snapshot_of(report),
        "devices": [device.number for device in report.snapshot.devices],
        "events": len(report.device.events),
        "unknown_actions": report.device.events.unknown,
        "timed": report.snapshot.timed,
        **record_json(report, "peak_bytes", "peak_event", "requested_peak_bytes", "requested_peak_event"),
        **record_json(report, "reserved_peak_bytes", "reserved_peak_event", "event", "cached_bytes", "step_ends"),
        "contents": [
            _line_json(each, "before_recording", "bytes", "count") | {"category": each.category or None}
            for each in report.contents
        ],
        "survivors": [
            _line_json(each, "bytes", "count", "leak") | {"events": each.events[:top]}
            for each in report.survivors[:top]
        ],
        "remedies": remedies,
        "step_growth": [_line_json(each, "bytes_per_step", "bytes") for each in report.step_growth],
        "growths": len(report.causes),
        "growths_by_fragments": len(fragments),
        "growths_by_fragments_bytes": sum(cause.taken_bytes for cause in fragments),
        "largest_growths": [
            record_json(cause, "event", "taken_bytes", "wanted_bytes", "free_bytes", "largest_free_bytes", "fragments")
            for cause in largest[:top]
        ],
        "out_of_memory": report.shortages[:top],
        "ranks": [
            record_json(one, "rank", "path", "peak_bytes", "reserved_peak_bytes", "is_exact")
            | {"error": one.error.message if one.error else None}
            for one in ranks
        ],
    }


def _line_json(each: CodeLocation | Survivors | StepGrowth | LineChange, *names: str) -> dict[str, object]:
    return {"where": each.where or None, **record_json(each, *names)}


def _snapshot_of(report: TorchReport) -> dict[str, object]:
    first, settings = report.replay.first, report.replay.settings
    replay = {
        **record_json(report.replay, "allocations", "differences", "uncertain_bytes"),
        "refused_because": report.refused_because,
        "first_difference_event": first.event if first is not None else None,
        "settings": {"npu": bool(settings.padding), **_torch_settings_json(settings)},
    }
    return {"source": report.snapshot.path, "device": report.device.number, "replay": replay}


def _torch_settings_json(settings: TorchSettings) -> dict[str, object]:
    return {
        "expandable_segments": settings.expandable,
        "max_split_bytes": settings.max_split,
        "roundup_power2_divisions": settings.roundup,
    }


def torch_what_if_json(result: TorchWhatIf) -> dict[str, object]:
    """Return the object of ``ms-tune memory what-if SNAPSHOT --json``."""
    return {
        "version": VERSION,
        "kind": "torch-snapshot-what-if",
        **_snapshot_of(result.report),
        "reserved_peak_bytes": result.report.reserved_peak_bytes,
        "error_of_start_bytes": result.error_bytes,
        "limit_bytes": result.limit,
        "outcomes": [_torch_outcome_json(outcome) for outcome in result.outcomes],
    }


def _torch_outcome_json(outcome: TorchOutcome) -> dict[str, object]:
    return {
        **record_json(outcome, "recorded", "cache", "reserved_start_bytes", "reserved_peak_bytes"),
        **record_json(outcome, "reserved_end_bytes", "over_limit", "reserved_curve"),
        **_torch_settings_json(outcome.settings),
        "garbage_collection_threshold": outcome.settings.collect_above,
        "empty_cache": outcome.cache.value != "kept",
    }


def calibration_json(found: Calibration, dry_run: Path, log: Path) -> dict[str, object]:
    """Return the object of ``ms-tune memory diff --json`` for a dry-run and a training log."""
    names = ("logical_bytes", "replayed_bytes", "measured_bytes", "rest_bytes")
    return {"version": VERSION, "kind": "dry-run-diff", "before": dry_run, "after": log, **record_json(found, *names)}


def torch_comparison_json(
    before: TorchReport, after: TorchReport, changes: Sequence[LineChange], found: Calibration | None
) -> dict[str, object]:
    """Return the object of ``ms-tune memory diff --json`` for two snapshots."""
    names = ("before_recording", "before_bytes", "after_bytes", "change_bytes")
    return {
        "version": VERSION,
        "kind": "torch-snapshot-diff",
        "before": _compared_json(before),
        "after": _compared_json(after),
        "changes": [_line_json(change, *names) for change in changes],
        "rest_bytes": found.rest_bytes if found else None,
    }


def _compared_json(report: TorchReport) -> dict[str, object]:
    return {
        **_snapshot_of(report),
        "compared": report.content_measure,
        "compared_bytes": report.content_bytes,
        "compared_event": report.event if len(report.device.events) else None,
        **record_json(report, "peak_bytes", "requested_peak_bytes", "reserved_peak_bytes"),
    }
