"""The result of ``dryrun`` as one JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ms_tune.dryrun.result import DryrunResult
    from ms_tune.render.console import Console

VERSION = 1


def to_json(result: DryrunResult, console: Console) -> dict[str, object]:
    """The object that ``ms-tune dryrun --json`` prints; sizes are bytes. docs/dryrun.md describes every key."""
    run = result.run
    return {
        "version": VERSION,
        "run": str(result.folder),
        "trace": str(result.trace),
        "backend": result.backend.value,
        "simulation_level": 1,
        "mindspore": result.mindspore,
        "mindformers": result.mindformers,
        "config": run.config_name,
        "dialect": run.dialect.value,
        "model": console.say(run.model),
        "world_size": run.world_size,
        "rank": run.rank,
        "stage": run.stage,
        "pipeline_stages": run.stages,
        "layers": run.layers,
        "peak_bytes": result.peak.bytes,
        "footprint_bytes": result.peak.footprint_bytes,
        "limit_bytes": result.limit.bytes,
        "device_bytes": result.limit.device_bytes,
        "verdict": result.verdict.value,
        "categories_at_peak": {category.value: size for category, size in result.attribution.categories.items()},
        "stages": [_stage(result)],
        "largest": [
            {
                "bytes": holder.bytes,
                "count": holder.count,
                "operator": holder.operator,
                "category": holder.category.value,
                "where": holder.where,
                "name": holder.name,
            }
            for holder in result.attribution.largest
        ],
        "changes": [{"key": change.key, "before": change.before, "after": change.after} for change in run.changes],
        "not_included": [console.say(message) for message in result.not_included],
        "warnings": [console.say(message) for message in result.warnings],
        "seconds": round(result.seconds, 3),
    }


def _stage(result: DryrunResult) -> dict[str, object]:
    """What was found for one pipeline stage; the simulated one is the only one of its list."""
    return {
        "stage": result.run.stage,
        "rank": result.run.rank,
        "layers": result.run.layers,
        "peak_bytes": result.peak.bytes,
        "footprint_bytes": result.peak.footprint_bytes,
        "categories_at_peak": {category.value: size for category, size in result.attribution.categories.items()},
        "verdict": result.verdict.value,
    }
