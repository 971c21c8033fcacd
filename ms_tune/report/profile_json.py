"""What ``ms-tune profile --json`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.diagnostics import Severity
from ms_tune.readers.scopes import ScopePass

if TYPE_CHECKING:
    from ms_tune.profile.result import ProfileReport, RankTimes
    from ms_tune.readers.profile_tables import Kernels
    from ms_tune.report.console import Console

VERSION = 1


def report_json(report: ProfileReport, top: int, console: Console) -> dict[str, object]:
    """The whole object."""
    return {
        "version": VERSION,
        "sources": [str(source) for source in report.sources],
        "verdict": report.verdict.bound.value,
        "evidence": [console.say(one) for one in report.verdict.evidence],
        "next": [console.say(one) for one in report.verdict.next_steps],
        "shares": {cause.value: share for cause, share in report.shares.items()},
        "identity_error_us": report.identity_error_us,
        "imbalance": report.imbalance,
        "ranks": [_rank(rank, top) for rank in report.ranks],
        "gaps": [
            {
                "rank": gap.rank,
                "timestamp_us": gap.start,
                "microseconds": gap.microseconds,
                "cause": gap.cause.value,
                "before": gap.before or None,
                "after": gap.after or None,
                "host": gap.host or None,
            }
            for gap in report.gaps
        ],
        "collectives": [
            {
                "name": one.name,
                "count": one.count,
                "point_to_point": one.point_to_point,
                "elapsed_us": one.elapsed,
                "transit_us": one.transit,
                "waiting_us": one.elapsed - one.transit,
            }
            for one in report.collectives
        ],
        "problems": [
            {
                "id": problem.id,
                "serious": problem.severity is Severity.ERROR,
                "message": console.say(problem.message),
                "hint": console.say(problem.help) if problem.help else None,
            }
            for problem in report.problems
        ],
    }


def _rank(rank: RankTimes, top: int) -> dict[str, object]:
    return {
        "rank": rank.rank,
        "folder": str(rank.folder),
        "level": rank.level or None,
        "steps": rank.steps,
        "microseconds": rank.whole,
        "times_us": {cause.value: time for cause, time in rank.times.items()},
        "identity_error_us": rank.error,
        "queues": {name: {"kernels": count, "busy": share} for name, (count, share) in rank.queues.items()},
        "idle_linked": rank.linked,
        "kernels": _kernels(rank.kernels, top) if rank.kernels else None,
    }


def _kernels(kernels: Kernels, top: int) -> dict[str, object]:
    return {
        "count": kernels.count,
        "microseconds": kernels.microseconds,
        "below_10_us": kernels.tiny,
        "ai_cpu": kernels.ai_cpu,
        "ai_cpu_us": kernels.ai_cpu_microseconds,
        "types": [
            {
                "name": one.name,
                "core": one.core,
                "count": one.count,
                "microseconds": one.microseconds,
                "shapes": [
                    {"inputs": shape.inputs, "count": shape.count, "microseconds": shape.microseconds}
                    for shape in one.shapes
                ],
            }
            for one in kernels.types[:top]
        ],
        "layers": [
            {
                "name": one.name,
                "count": one.count,
                **{f"{name.value}_us": one.microseconds.get(name, 0.0) for name in ScopePass},
            }
            for one in kernels.layers
        ],
    }
