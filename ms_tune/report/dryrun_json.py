"""Convert results of ``dryrun`` to JSON, with sizes in bytes; docs/dryrun.md describes every key."""

from __future__ import annotations

from ms_tune.dryrun.command_result import CommandResult, RankResult
from ms_tune.dryrun.compare import ComparedRank, RealComparison
from ms_tune.dryrun.launcher import LOG
from ms_tune.dryrun.launchers.job import LaunchedJob
from ms_tune.dryrun.result import DryrunResult, Reading, StageResult, SweepResult
from ms_tune.encode import record_json
from ms_tune.report.dryrun_check import split_json
from ms_tune.report.words import verdict_json

VERSION = 1
_FIGURES = (  # null if unknown
    *("trace", "peak_bytes", "footprint_bytes", "device_bytes", "categories_at_peak", "layers", "full_layers"),
    *("verdict_about", "extrapolated_peak_bytes", "extrapolated_footprint_bytes", "extrapolated_categories_at_peak"),
    *("extrapolated_from_layers", "theory"),
)
_LAYER_FIGURES = ("bytes_per_layer", "activation_bytes_per_layer")


def dryrun_json(result: DryrunResult) -> dict[str, object]:
    """Return the figures of the worst stage, and ``stages`` with those of all; level 0 gives no figures."""
    worst = result.worst if result.stages else None
    run = worst.run if worst else result.runs[0]
    return {
        "version": VERSION,
        "run": result.folder,
        "backend": result.backend,
        "simulation_level": result.level,
        "config": run.config_name,
        "assumptions": {"devices": run.world_size, "devices_source": run.devices_source, **run.split._asdict()},
        **record_json(run, "dialect", "model", "standing", "world_size", "rank", "stage"),
        "settings": {one.name: one.raw for one in result.settings},
        "pipeline_stages": run.stages,
        **(_stage_figures_json(worst) if worst else dict.fromkeys((*_FIGURES, *_LAYER_FIGURES))),
        **verdict_json(result.verdict),
        "layers": run.layers,
        "contents": (worst.contents or None) if worst else None,
        "stages": [_stage_json(stage) for stage in result.stages],
        "skipped_stages": result.skipped,
        "imbalance": round(result.imbalance, 4) if worst else None,
        "largest": _largest_holders(worst.reading) if worst else [],
        "changes": [record_json(change, "key", "before", "after") for change in run.changes],
        **record_json(result, "mindspore", "mindformers", "not_included", "warnings"),
        "seconds": round(result.seconds, 3),
    }


def _figures_json(one: StageResult | RankResult) -> dict[str, object]:
    whole, limit = one.extrapolation, one.verdict.limit
    return {
        "trace": one.reading.trace,
        **record_json(one.reading, "peak_bytes", "footprint_bytes"),
        **verdict_json(one.verdict),
        "device_bytes": limit.device.card_bytes if limit else None,
        "verdict_about": "extrapolated_peak_bytes" if whole else "peak_bytes",
        "categories_at_peak": one.reading.contents,
        "full_layers": one.full_layers,
        "extrapolated_peak_bytes": whole and whole.peak_bytes,
        "extrapolated_footprint_bytes": whole and whole.need.footprint_bytes,
        "extrapolated_categories_at_peak": (whole.contents or None) if whole else None,
        "extrapolated_from_layers": whole and whole.from_layers,
        "theory": {
            pair.content: {
                "bytes": pair.expected,
                "measured_bytes": pair.measured,
                "difference": None if pair.difference is None else round(pair.difference, 6),
            }
            for pair in one.theory
        }
        or None,
    }


def _stage_figures_json(stage: StageResult) -> dict[str, object]:
    whole = stage.extrapolation
    added = (whole and whole.layer_bytes, stage.layer_activations or 0)
    return {**_figures_json(stage), **dict(zip(_LAYER_FIGURES, added, strict=True))}


def _stage_json(stage: StageResult) -> dict[str, object]:
    run = stage.run
    return {
        **_stage_figures_json(stage),
        **record_json(run, "stage", "rank", "layers"),
        "kinds": {kind.label: count for kind, count in run.kinds.items()},
        "phases": stage.phases,
        "micro_batches_in_flight": run.in_flight[0] if run.in_flight else None,
        "micro_batches_in_flight_by_chunk": run.in_flight or None,
        "layer_activation_bytes": stage.layer_activations,
        "contents": stage.contents or None,
        "seconds": round(stage.reading.seconds, 3),
    }


def _largest_holders(reading: Reading) -> list[dict[str, object]]:
    return [
        {
            **record_json(holder, "bytes", "count", "operator", "category", "where"),
            "name": _shared_name(reading, holder.rows),
        }
        for holder in reading.report.peak.holders[:5]
    ]


def _shared_name(reading: Reading, rows: tuple[int, ...]) -> str | None:
    names = {reading.name_of(row) for row in rows}
    return names.pop() if len(names) == 1 else None


def command_json(result: CommandResult) -> dict[str, object]:
    """Return the figures of the worst rank, and ``ranks`` with all."""
    worst = result.worst
    return {
        "version": VERSION,
        "run": result.folder,
        "exit_code": result.code,
        "simulation_level": result.level,
        **(_rank_json(worst) if worst else dict.fromkeys(_FIGURES)),
        **verdict_json(result.verdict),
        "ranks": [
            {**record_json(rank, "rank", "stage", "job"), "pid": rank.process and rank.process.pid, **_rank_json(rank)}
            for rank in result.ranks
        ],
        "jobs": [_job_json(job) for job in result.jobs],
        "largest": _largest_holders(worst.reading) if worst else [],
        "problems": [problem for problem, _ in result.problems],
        **record_json(result, "command", "backend", "warnings", "reads", "bounds", "support"),
        "processes": [
            {"command": one.arguments, **record_json(one, "pid", "folder", "ended")} for one in result.processes
        ],
        "seconds": round(result.seconds, 3),
    }


def _rank_json(rank: RankResult) -> dict[str, object]:
    return {**_figures_json(rank), "layers": rank.layers}


def _job_json(job: LaunchedJob) -> dict[str, object]:
    return {
        "job": job.number,
        "devices": job.world,
        **record_json(job, "launcher", "program", "changes", "problem"),
        "split": split_json(job) or None,
        "ranks": [
            {"rank": one.rank, "stage": one.stage, "exit_code": one.code, "log": one.folder / LOG} for one in job.ranks
        ],
    }


def variants_json(result: SweepResult[DryrunResult] | SweepResult[CommandResult]) -> dict[str, object]:
    """Return the results of a sweep, one object per variant."""

    def result_json(found: DryrunResult | CommandResult) -> dict[str, object]:
        return dryrun_json(found) if isinstance(found, DryrunResult) else command_json(found)

    return {
        "version": VERSION,
        "run": result.folder,
        "variants": [
            {
                "settings": {one.name: one.raw for one in variant.settings},
                "error": variant.error and variant.error.message,
                "result": result_json(variant.result) if variant.result else None,
            }
            for variant in result.variants
        ],
    }


def real_json(comparison: RealComparison) -> dict[str, object]:
    """Return the JSON object of ``--compare-real``."""
    return {
        "version": VERSION,
        **record_json(comparison, "simulated", "real", "only_real", "only_simulated"),
        "ranks": [_real_rank_json(pair) for pair in comparison.pairs],
    }


def _real_rank_json(pair: ComparedRank) -> dict[str, object]:
    peak, footprint = pair.figures[:2]
    return {
        **record_json(pair, "rank", "notes"),
        "said_by": pair.real.words,
        "file": pair.real.path,
        "line": pair.real.line,
        "after_steps": pair.real.steps,
        "simulated_peak_bytes": peak.simulated,
        "real_peak_bytes": peak.real,
        "difference_bytes": peak.difference,
        "simulated_footprint_bytes": footprint.simulated,
        "real_footprint_bytes": footprint.real,
        "figures": [
            {"name": figure.name, "simulated_bytes": figure.simulated, "real_bytes": figure.real}
            for figure in pair.figures
        ],
        "simulated_verdict": verdict_json(pair.simulated.verdict),
        "real_verdict": verdict_json(pair.real_verdict),
    }
