"""What is said about a snapshot of PyTorch's allocator as JSON; sizes are bytes. docs/memory-snapshot.md describes every key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.pools.torch_what_if import Cache, TorchOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.footprint.torch_report import (
        CodeLocation,
        GrowthCause,
        OomReport,
        PlaceChange,
        Survivors,
        TorchRemedy,
        TorchReport,
    )
    from ms_tune.memory.what_if import TorchWhatIf
    from ms_tune.report.console import Console

VERSION = 1


def report_json(report: TorchReport, remedies: Sequence[TorchRemedy], console: Console, top: int) -> dict[str, object]:
    """The object that ``ms-tune memory SNAPSHOT --json`` prints."""
    return {
        "version": VERSION,
        "kind": "torch-snapshot",
        "source": str(report.snapshot.path),
        "device": report.device.number,
        "devices": [device.number for device in report.snapshot.devices],
        "events": len(report.device.events),
        "unknown_actions": dict(report.device.events.unknown),
        "timed": report.snapshot.timed,
        "replay": replay_json(report, console),
        **_peaks_json(report),
        "event": report.event,
        "contents": [_place_json(place) for place in report.contents],
        "cached_bytes": report.cached_bytes,
        "survivors": [_survivors_json(each, top) for each in report.survivors[:top]],
        "remedies": [_remedy_json(remedy, console) for remedy in remedies],
        "step_ends": list(report.step_ends),
        "step_growth": [
            {
                "where": each.location or None,
                "bytes_per_step": each.bytes_per_step,
                "bytes": list(each.bytes_after_steps),
            }
            for each in report.step_growth
        ],
        **_growths_json(report.causes, top),
        "out_of_memory": [_shortage_json(each) for each in report.shortages[:top]],
    }


def _peaks_json(report: TorchReport) -> dict[str, object]:
    return {
        "peak_bytes": report.peak_bytes,
        "peak_event": report.peak_event,
        "requested_peak_bytes": report.requested_peak_bytes,
        "requested_peak_event": report.requested_peak_event,
        "reserved_peak_bytes": report.reserved_peak_bytes,
        "reserved_peak_event": report.reserved_peak_event,
    }


def _survivors_json(each: Survivors, top: int) -> dict[str, object]:
    return {
        "where": each.location or None,
        "bytes": each.bytes,
        "count": each.count,
        "events": list(each.events[:top]),
        "leak": each.leak,
    }


def _remedy_json(remedy: TorchRemedy, console: Console) -> dict[str, object]:
    return {
        "name": remedy.name,
        "of": "reserved" if remedy.lowers_reserved else "used",
        "title": console.say(remedy.title),
        "bytes_freed": remedy.bytes_freed,
        "peak_after_bytes": remedy.peak_after,
        "price": console.say(remedy.price),
        "how": remedy.how,
    }


def _growths_json(causes: Sequence[GrowthCause], top: int) -> dict[str, object]:
    fragments = [cause for cause in causes if cause.is_fragmentation]
    largest = sorted(causes, key=lambda cause: (-cause.taken_bytes, cause.event))
    return {
        "growths": len(causes),
        "growths_by_fragments": len(fragments),
        "growths_by_fragments_bytes": sum(cause.taken_bytes for cause in fragments),
        "largest_growths": [_cause_json(cause) for cause in largest[:top]],
    }


def _shortage_json(each: OomReport) -> dict[str, object]:
    return {
        "event": each.event,
        "wanted_bytes": each.wanted_bytes,
        "device_free_bytes": each.device_free,
        "reserved_bytes": each.reserved,
        "used_bytes": each.used,
    }


def replay_json(report: TorchReport, console: Console) -> dict[str, object]:
    """How exact the replay is, and under which settings."""
    reason, settings = report.refused_because, report.replay.settings
    return {
        "allocations": report.replay.allocations,
        "differences": report.replay.differences,
        "refused_because": console.say(reason) if reason is not None else None,
        "first_difference_event": report.replay.first.event if report.replay.first is not None else None,
        "settings": {
            "npu": bool(settings.padding),
            "expandable_segments": settings.expandable,
            "max_split_bytes": settings.max_split,
            "roundup_power2_divisions": list(settings.roundup),
        },
    }


def _cause_json(cause: GrowthCause) -> dict[str, object]:
    return {
        "event": cause.event,
        "taken_bytes": cause.taken_bytes,
        "wanted_bytes": cause.wanted_bytes,
        "free_bytes": cause.free_bytes,
        "largest_free_bytes": cause.largest_hole,
        "fragments": cause.is_fragmentation,
    }


def _place_json(place: CodeLocation) -> dict[str, object]:
    return {
        "where": place.location or None,
        "before_recording": place.before,
        "category": place.category or None,
        "bytes": place.bytes,
        "count": place.count,
    }


def what_if_json(result: TorchWhatIf, console: Console) -> dict[str, object]:
    """The object that ``ms-tune memory what-if SNAPSHOT --json`` prints."""
    report = result.report
    return {
        "version": VERSION,
        "kind": "torch-snapshot-what-if",
        "source": str(report.snapshot.path),
        "device": report.device.number,
        "replay": replay_json(report, console),
        "reserved_peak_bytes": report.reserved_peak_bytes,
        "error_of_start_bytes": result.error_bytes,
        "limit_bytes": result.limit,
        "outcomes": [_outcome_json(outcome) for outcome in result.outcomes],
    }


def _outcome_json(outcome: TorchOutcome) -> dict[str, object]:
    settings = outcome.settings
    return {
        "recorded": outcome.recorded,
        "expandable_segments": settings.expandable,
        "max_split_bytes": settings.max_split,
        "roundup_power2_divisions": list(settings.roundup),
        "garbage_collection_threshold": settings.collect_above,
        "empty_cache": outcome.cache is not Cache.KEPT,
        "cache": outcome.cache.value,
        "reserved_start_bytes": outcome.start_bytes,
        "reserved_peak_bytes": outcome.peak_bytes,
        "reserved_end_bytes": outcome.end_bytes,
        "over_limit": outcome.is_over,
        "reserved_curve": [list(point) for point in outcome.curve],
    }


def comparison_json(
    before: TorchReport, after: TorchReport, changes: Sequence[PlaceChange], console: Console
) -> dict[str, object]:
    """The object that ``ms-tune memory diff --json`` prints about two snapshots."""

    def short(report: TorchReport) -> dict[str, object]:
        return {
            "source": str(report.snapshot.path),
            "device": report.device.number,
            "replay": replay_json(report, console),
            "compared": report.content_measure,
            "compared_bytes": report.content_bytes,
            "compared_event": report.event if len(report.device.events) else None,
            "peak_bytes": report.peak_bytes,
            "requested_peak_bytes": report.requested_peak_bytes,
            "reserved_peak_bytes": report.reserved_peak_bytes,
        }

    return {
        "version": VERSION,
        "kind": "torch-snapshot-diff",
        "before": short(before),
        "after": short(after),
        "changes": [
            {
                "where": change.location or None,
                "before_recording": change.earlier,
                "before_bytes": change.before,
                "after_bytes": change.after,
                "change_bytes": change.change_bytes,
            }
            for change in changes
        ],
    }
