"""The result of ``dryrun`` as one JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.report.words import by_name, verdict_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ms_tune.dryrun.request import PreparedRun
    from ms_tune.dryrun.result import BesideTheory, DryrunResult, Reading, StageResult
    from ms_tune.report.console import Console

VERSION = 1
_LARGEST = 5


def dryrun_json(result: DryrunResult, console: Console) -> dict[str, object]:
    """The object that ``ms-tune dryrun --json`` prints; sizes are bytes. docs/dryrun.md describes every key.

    What is about one stage is about the worst; ``stages`` has all of them. At level 0 there are no figures.
    """
    worst = result.worst if result.stages else None
    run = worst.run if worst else result.runs[0]
    return {
        "version": VERSION,
        "run": str(result.folder),
        "trace": str(worst.reading.trace) if worst else None,
        "backend": result.backend.value,
        "simulation_level": result.level,
        "mindspore": result.mindspore,
        "mindformers": result.mindformers,
        "config": run.config_name,
        "dialect": run.dialect.value,
        "assumptions": _assumptions_json(run, console),
        "model": console.say(run.model),
        "standing": [console.say(message) for message in run.standing],
        "settings": {".".join(map(str, setting.path)): setting.raw for setting in result.settings},
        "world_size": run.world_size,
        "rank": run.rank,
        "stage": run.stage,
        "pipeline_stages": run.stages,
        "layers": run.layers,
        **(
            _figures_json(worst, console)
            if worst
            else {**dict.fromkeys(_FIGURES), **verdict_json(result.verdict, console)}
        ),
        "contents": by_name(worst.contents) if worst and worst.contents else None,
        "stages": [_stage_json(stage, console) for stage in result.stages],
        "skipped_stages": list(result.skipped),
        "imbalance": round(result.imbalance, 4) if worst else None,
        "largest": largest_holders(worst.reading) if worst else [],
        "changes": [{"key": change.key, "before": change.before, "after": change.after} for change in run.changes],
        "not_included": [console.say(message) for message in result.not_included],
        "warnings": [console.say(message) for message in result.warnings],
        "seconds": round(result.seconds, 3),
    }


_FIGURES = (
    *("peak_bytes", "footprint_bytes", "device_bytes", "verdict_about", "categories_at_peak"),
    *("full_layers", "extrapolated_peak_bytes", "extrapolated_categories_at_peak"),
    *("extrapolated_from_layers", "bytes_per_layer", "activation_bytes_per_layer", "theory"),
)


def _figures_json(stage: StageResult, console: Console) -> dict[str, object]:
    whole = stage.extrapolation
    return {
        "peak_bytes": stage.reading.peak_bytes,
        "footprint_bytes": stage.reading.footprint_bytes,
        **verdict_json(stage.verdict, console),
        "device_bytes": stage.verdict.limit.device.card_bytes if stage.verdict.limit else None,
        "verdict_about": "extrapolated_peak_bytes" if whole else "peak_bytes",
        "categories_at_peak": by_name(stage.reading.contents),
        "full_layers": stage.full_layers,
        "extrapolated_peak_bytes": whole.peak_bytes if whole else None,
        "extrapolated_categories_at_peak": by_name(whole.contents) if whole and whole.contents else None,
        "extrapolated_from_layers": list(whole.from_layers) if whole else None,
        "bytes_per_layer": whole.layer_bytes if whole else None,
        "activation_bytes_per_layer": stage.layer_activations or 0,
        "theory": theory_json(stage.theory),
    }


def _assumptions_json(run: PreparedRun, console: Console) -> dict[str, object]:
    return {
        "devices": run.world_size,
        "devices_source": console.say(run.devices_source),
        **run.split._asdict(),
    }


def theory_json(pairs: Iterable[BesideTheory]) -> dict[str, object] | None:
    """What lives for the whole run, by category; None where theory is not known."""
    return {
        pair.content: {
            "bytes": pair.expected,
            "measured_bytes": pair.measured,
            "difference": None if pair.difference is None else round(pair.difference, 6),
        }
        for pair in pairs
    } or None


def _stage_json(stage: StageResult, console: Console) -> dict[str, object]:
    run = stage.run
    return {
        "stage": run.stage,
        "rank": run.rank,
        "layers": run.layers,
        **_figures_json(stage, console),
        "kinds": {kind.label: count for kind, count in run.kinds.items()},
        "phases": {phase.value: size for phase, size in stage.phases.items()},
        "micro_batches_in_flight": run.in_flight[0] if run.in_flight else None,
        "micro_batches_in_flight_by_chunk": list(run.in_flight) if run.in_flight else None,
        "layer_activation_bytes": stage.layer_activations,
        "contents": by_name(stage.contents) if stage.contents else None,
        "trace": str(stage.reading.trace),
        "seconds": round(stage.reading.seconds, 3),
    }


def largest_holders(reading: Reading) -> list[dict[str, object]]:
    """The largest holders at the peak."""
    return [
        {
            "bytes": holder.bytes,
            "count": holder.count,
            "operator": holder.operator,
            "category": holder.category.value,
            "where": holder.where,
            "name": _shared_name(reading, holder.rows),
        }
        for holder in reading.report.peak.holders[:_LARGEST]
    ]


def _shared_name(reading: Reading, rows: tuple[int, ...]) -> str | None:
    """The parameter's name with ``*`` for the layer's number, if all of the rows share it."""
    names = {reading.name_of(row) for row in rows}
    return names.pop() if len(names) == 1 else None
