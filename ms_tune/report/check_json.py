"""One screen about a job as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ms_tune.report.check_words import against, memory, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.report.console import Console
    from ms_tune.workflows.check.result import Overview


def overviews_json(overviews: Sequence[Overview], console: Console) -> dict[str, Any]:
    """All files, in the order in which they were named."""
    return {"files": [_overview(one, console) for one in overviews]}


def _overview(one: Overview, console: Console) -> dict[str, Any]:
    told = memory(one)
    return {
        "file": str(one.path),
        **asdict(one.subject),
        "assumptions": _assumptions(one, console),
        "memory": None if told is None else console.say(told),
        "estimate": _estimate(one),
        "no_estimate_because": None if one.no_estimate_because is None else console.say(one.no_estimate_because),
        "stages": [
            {
                "stage": stage.stage,
                "verdict": None if verdict.outcome is None else verdict.outcome.value,
                "sentence": console.say(verdict.sentence),
                "peak_bytes": None if verdict.need is None else verdict.need.peak_bytes,
                "footprint_bytes": None if verdict.need is None else verdict.need.footprint_bytes,
                "reserve_bytes": verdict.reserve_bytes,
                "limit_bytes": None if verdict.limit is None else verdict.limit.bytes,
            }
            for stage, verdict in ((stage, stage.verdict) for stage in one.stages)
        ],
        "counts": {severity.value: count for severity, count in one.counts.items()},
        "fixable": one.fixable,
        "matters": [
            {
                "severity": matter.severity.value,
                "id": matter.id,
                "name": matter.name,
                "file": str(matter.path),
                "line": matter.line,
                "message": sentence(matter, console),
            }
            for matter in one.matters
        ],
        "change": None
        if one.change is None
        else {
            "name": one.change.name,
            "text": console.say(one.change.text),
            "bytes_freed": one.change.freed_bytes,
            "enough": one.change.enough,
        },
        "against": _against(one, console),
        "next": list(one.next),
    }


def _assumptions(one: Overview, console: Console) -> dict[str, Any] | None:
    seen = one.assumptions
    if seen is None:
        return None
    return {
        "devices": seen.devices,
        "devices_source": console.say(seen.source),
        **asdict(seen.split),
        "chunks": seen.chunks,
        "micro_batches": seen.micro_batches,
    }


def _estimate(one: Overview) -> dict[str, Any] | None:
    found = one.estimate
    if found is None:
        return None
    return {
        "outlook": found.outlook.value,
        "stage": found.fullest.stage,
        "peak_bytes": found.fullest.peak_bytes,
        "limit_bytes": found.limit.bytes,
        "reserve_bytes": found.reserve_bytes,
        "simulated_peaks_were": list(found.seen_range),
        "stages": [{**asdict(stage), "peak_bytes": stage.peak_bytes} for stage in found.stages],
    }


def _against(one: Overview, console: Console) -> dict[str, Any] | None:
    found = one.against
    if found is None:
        return None
    blame = found.blame
    return {
        "outcome": found.outcome,
        "stage": found.stage,
        "before_bytes": found.before_bytes,
        "after_bytes": found.after_bytes,
        "limit_bytes": found.limit_bytes,
        "estimated": found.estimated,
        "text": against(found, console),
        "key": ".".join(map(str, blame.path)) if blame is not None and blame.alone else None,
        "with": [".".join(map(str, path)) for path in blame.together] if blame is not None else [],
        "line": None if blame is None else blame.line,
    }
