"""Predict the steps of a job: its model, its device and links, and the user's own measurement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ms_tune.dryrun.prepare import LoadedConfig
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.estimate.flops import require_widths, widths_of
from ms_tune.estimate.step_time import SHARDED_WEIGHTS, Software
from ms_tune.facts.devices import DEFAULT_SPEED, Speed, find_speed
from ms_tune.fit.calibration_runs import count_job_layers
from ms_tune.fit.job import PlannedJob
from ms_tune.fit.layouts import is_sequence_parallel, read_layout, shards_weights
from ms_tune.fit.step_time import CellLayers, StepModel, StepTime
from ms_tune.source.yaml import parse_source
from ms_tune.text import msg

_MOST_RATE = 1e6


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices and links that a prediction is for."""

    speed: Speed
    assumed: bool = False  # the device was not named
    scale: float | None = None  # the user's measured step divided by its prediction: times are multiplied by it


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted step, and the measurements it is based on."""

    step: StepTime
    cluster: Cluster


def cluster_of(chip: str | None, file: tuple[str, str] | None = None) -> Cluster | None:
    """Return the devices of a name (None, or the family 910B: 910B2) and, over these, of a YAML file (text and its path).

    None if the links of that device are unknown.
    """
    named = chip is not None and chip.upper().removeprefix("ASCEND") != "910B"
    speed = find_speed(chip if chip is not None and named else DEFAULT_SPEED)
    if file is None:
        return None if speed is None else Cluster(speed, not named)
    values = dict(parse_source(file[0], Path(file[1])).data)
    base = values.pop("like", None)
    found = find_speed(base) if isinstance(base, str) else speed
    numbers = {name for name in Speed._fields if name not in ("name", "like", "mesh", "error")}
    wrong = [key for key, value in values.items() if key not in numbers or not _is_size(value)]
    if found is None or wrong or not values:
        known = ", ".join(("like", *sorted(numbers)))
        raise ConfigError(msg("seconds.cluster", key=str((wrong or ["like"])[0]), known=known), path=Path(file[1]))
    return Cluster(found._replace(name=Path(file[1]).name, **values))


def _is_size(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _MOST_RATE


def model_of_steps(job: PlannedJob, speed: Speed) -> StepModel:
    """Return the model of a job's steps; UnsupportedError if the model's sizes are unknown."""
    model = job.loaded.job.model
    counts = count_job_layers(job).counts
    makes = [make for make, count in counts.items() for _ in range(count)]
    return StepModel(require_widths(model), makes, speed, model.mtp_layers)


def software_of(loaded: LoadedConfig, *, shards: bool) -> Software:
    """Return the behaviour of a config's framework; ``shards``: ranks with the same weights shard their states."""
    return Software(
        flash=loaded.job.model.value("use_flash_attention") is not False,
        shards=SHARDED_WEIGHTS if shards and loaded.dialect is Dialect.MINDFORMERS_PYNATIVE else int(shards),
        overlaps=loaded.dialect is not Dialect.MINDSPEED_MS,
    )


def predict_plan(job: PlannedJob, cells: CellLayers, cluster: Cluster | None) -> Prediction | None:
    """Predict the step of a job with these layers in its cells.

    None if the device's links, the sizes of the model or its order of passes are unknown.
    """
    schedule = job.first.pipeline.schedule
    if cluster is None or schedule is None or widths_of(job.loaded.job.model) is None:
        return None
    layout = read_layout(job.loaded, job.first)
    software = software_of(job.loaded, shards=shards_weights(job.loaded, layout))
    model, sequence = model_of_steps(job, cluster.speed), is_sequence_parallel(job.loaded)
    step = model.predict(layout, schedule, cells, software, sequence=sequence)
    return Prediction(step.times(cluster.scale or 1.0), cluster)


def calibrate(job: PlannedJob, cells: CellLayers, cluster: Cluster | None, measured: float | None) -> Cluster | None:
    """Scale a cluster's speed so that the predicted step of a job's present layers equals the measured seconds."""
    found = predict_plan(job, cells, cluster) if measured is not None else None
    if found is None or measured is None:
        return cluster
    return replace(found.cluster, scale=measured / found.step.seconds)
