"""What is said about a snapshot of PyTorch's allocator as JSON; sizes are bytes. docs/memory-snapshot.md describes every key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.encode import as_json, record_json
from ms_tune.pools.torch_what_if import Cache, TorchOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.footprint.torch_blocks import StepGrowth
    from ms_tune.footprint.torch_report import (
        CodeLocation,
        GrowthCause,
        PlaceChange,
        Survivors,
        TorchRemedy,
        TorchReport,
    )
    from ms_tune.memory.what_if import TorchWhatIf
    from ms_tune.pools.torch_space import TorchSettings
    from ms_tune.report.console import Console

VERSION = 1
_PEAKS = (
    *("peak_bytes", "peak_event", "requested_peak_bytes", "requested_peak_event"),
    *("reserved_peak_bytes", "reserved_peak_event"),
)
_CAUSE = ("event", "taken_bytes", "wanted_bytes", "free_bytes", "largest_free_bytes", "fragments")


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
        **record_json(report, *_PEAKS),
        "event": report.event,
        "contents": [
            _line_json(each, "before_recording", "category", "bytes", "count") | {"category": each.category or None}
            for each in report.contents
        ],
        "cached_bytes": report.cached_bytes,
        "survivors": [
            _line_json(each, "bytes", "count", "events", "leak") | {"events": list(each.events[:top])}
            for each in report.survivors[:top]
        ],
        "remedies": [_remedy_json(remedy, console) for remedy in remedies],
        "step_ends": list(report.step_ends),
        "step_growth": [_line_json(each, "bytes_per_step", "bytes") for each in report.step_growth],
        **_growths_json(report.causes, top),
        "out_of_memory": as_json(report.shortages[:top]),
    }


def _line_json(each: CodeLocation | Survivors | StepGrowth | PlaceChange, *names: str) -> dict[str, object]:
    """What a line of the script holds; null where there is no line."""
    return {"where": each.where or None, **record_json(each, *names)}


def _remedy_json(remedy: TorchRemedy, console: Console) -> dict[str, object]:
    return {
        "name": remedy.name,
        "of": "reserved" if remedy.lowers_reserved else "used",
        "title": console.say(remedy.title),
        **record_json(remedy, "bytes_freed", "peak_after_bytes"),
        "price": console.say(remedy.price),
        "how": remedy.how,
    }


def _growths_json(causes: Sequence[GrowthCause], top: int) -> dict[str, object]:
    fragments = [cause for cause in causes if cause.fragments]
    largest = sorted(causes, key=lambda cause: (-cause.taken_bytes, cause.event))
    return {
        "growths": len(causes),
        "growths_by_fragments": len(fragments),
        "growths_by_fragments_bytes": sum(cause.taken_bytes for cause in fragments),
        "largest_growths": [record_json(cause, *_CAUSE) for cause in largest[:top]],
    }


def replay_json(report: TorchReport, console: Console) -> dict[str, object]:
    """How exact the replay is, and under which settings."""
    reason, settings = report.refused_because, report.replay.settings
    return {
        **record_json(report.replay, "allocations", "differences"),
        "refused_because": console.say(reason) if reason is not None else None,
        "first_difference_event": report.replay.first.event if report.replay.first is not None else None,
        "settings": {"npu": bool(settings.padding), **_settings_json(settings)},
    }


def _settings_json(settings: TorchSettings) -> dict[str, object]:
    return {
        "expandable_segments": settings.expandable,
        "max_split_bytes": settings.max_split,
        "roundup_power2_divisions": list(settings.roundup),
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
    return {
        "recorded": outcome.recorded,
        **_settings_json(outcome.settings),
        "garbage_collection_threshold": outcome.settings.collect_above,
        "empty_cache": outcome.cache is not Cache.KEPT,
        "cache": outcome.cache.value,
        **record_json(outcome, "reserved_start_bytes", "reserved_peak_bytes", "reserved_end_bytes"),
        **record_json(outcome, "over_limit", "reserved_curve"),
    }


def comparison_json(
    before: TorchReport, after: TorchReport, changes: Sequence[PlaceChange], console: Console
) -> dict[str, object]:
    """The object that ``ms-tune memory diff --json`` prints about two snapshots."""
    names = ("before_recording", "before_bytes", "after_bytes", "change_bytes")
    return {
        "version": VERSION,
        "kind": "torch-snapshot-diff",
        "before": _side_json(before, console),
        "after": _side_json(after, console),
        "changes": [_line_json(change, *names) for change in changes],
    }


def _side_json(report: TorchReport, console: Console) -> dict[str, object]:
    return {
        "source": str(report.snapshot.path),
        "device": report.device.number,
        "replay": replay_json(report, console),
        "compared": report.content_measure,
        "compared_bytes": report.content_bytes,
        "compared_event": report.event if len(report.device.events) else None,
        **record_json(report, "peak_bytes", "requested_peak_bytes", "reserved_peak_bytes"),
    }
