"""Run small dryruns for the memory table, and cache their figures under a key of everything they depend on."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ms_tune.dialects.stage import StageLayerKind, kinds_from_json, kinds_to_json
from ms_tune.dryrun.cann_sim.environment import simulated_by
from ms_tune.dryrun.job import MindFormersJob
from ms_tune.dryrun.prepare import LoadedConfig, prepare_run
from ms_tune.dryrun.request import DryrunRequest, PreparedRun
from ms_tune.dryrun.result import Reading
from ms_tune.dryrun.run import simulate_each
from ms_tune.dryrun.task import Observer
from ms_tune.enums import LayerKind, MemoryCategory, RecomputeMode
from ms_tune.errors import MsTuneError, TooFewLayersError, UncutLayersError, UnsupportedError
from ms_tune.fit.table_cache import cache_file, write_cache
from ms_tune.text import msg

_PERSISTENT = (MemoryCategory.WEIGHTS, MemoryCategory.OPTIMIZER_STATE, MemoryCategory.GRADIENTS)


@dataclass(frozen=True, slots=True)
class Probe:
    """A small dryrun: one stage of a variant of the job, with few layers."""

    name: str  # the recompute mode of its layers, or another purpose
    loaded: LoadedConfig  # the config of this variant
    stage: int
    layers: int
    needed: bool = False  # the table cannot be built without it: if it fails, all others are cancelled
    # Its layer kind and recompute mode, if the probe measures one kind.
    make: LayerKind = LayerKind.UNKNOWN
    recompute: RecomputeMode = RecomputeMode.NONE


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Measured memory of one stage."""

    stage: int
    kinds: Mapping[StageLayerKind, int]  # number of layers by kind
    in_flight: tuple[int, ...] | None  # micro-batches in flight per chunk; None if unknown
    phase_peaks: Mapping[str, int]  # peak of each phase of the training step, in bytes
    # Weights, optimizer state and gradients at each of these peaks, in bytes.
    phase_persistent: Mapping[str, int]
    footprint_bytes: int = 0  # peak device memory reserved by the pool, in bytes
    swapped_bytes: int = 0  # bytes copied to the host per micro-batch

    @property
    def peak(self) -> int:
        """Return the highest peak of all phases, in bytes."""
        return max(self.phase_peaks.values())

    @property
    def layers(self) -> int:
        """Return the number of layers of the stage."""
        return sum(self.kinds.values())

    @property
    def cells(self) -> Mapping[tuple[int, LayerKind], int]:
        """Return the number of layers by chunk and layer kind, for all recompute modes."""
        found: Counter[tuple[int, LayerKind]] = Counter()
        for kind, count in self.kinds.items():
            found[kind.cell] += count
        return found


def measure_probes(
    request: DryrunRequest, probes: Sequence[Probe], observer: Observer
) -> tuple[RunFigures | MsTuneError, ...]:
    """Return the figures of each probe, cached or from a run, or the error that prevents them."""
    found: dict[int, RunFigures | MsTuneError] = {}
    left: dict[int, _PendingProbe] = {}
    here = simulated_by()
    for number, probe in enumerate(probes):
        asked = request._replace(stages=(probe.stage,), layers=probe.layers, fewest_layers=False, extrapolate=False)
        try:
            run = prepare_run(asked._replace(stage=probe.stage), probe.loaded)
        except MsTuneError as error:
            if probe.needed and isinstance(error, TooFewLayersError | UncutLayersError):
                # The error refers to ``--layers``, which the user did not set.
                raise UnsupportedError(
                    msg("fitting.not-small", reason=error.message), msg("fitting.not-small.hint")
                ) from error
            if probe.needed:
                raise
            found[number] = error
            continue
        one = _PendingProbe(asked, probe.loaded, run, cache_file(run, asked, here), probe.needed)
        kept = _read_figures(one.file)
        if kept is None:
            left[number] = one
        else:
            found[number] = kept
    if left:
        _run_pending(left, found, observer)
    return tuple(found[number] for number in range(len(probes)))


class _PendingProbe(NamedTuple):
    """A probe without cached figures."""

    request: DryrunRequest
    loaded: LoadedConfig
    run: PreparedRun
    file: Path
    needed: bool


def _run_pending(
    left: dict[int, _PendingProbe], found: dict[int, RunFigures | MsTuneError], observer: Observer
) -> None:
    # Run probes; cache each result at once, so that nothing is lost if the user stops the rest.
    numbers = list(left)

    def record_run(place: int, reading: Reading) -> None:
        number = numbers[place]
        found[number] = figures = read_figures(left[number].run, reading)
        write_cache(left[number].file, {**asdict(replace(figures, kinds={})), "kinds": kinds_to_json(figures.kinds)})

    def stop(place: int, error: MsTuneError) -> None:
        if left[numbers[place]].needed:
            raise error

    done = simulate_each([(one.request, one.loaded) for one in left.values()], observer, record_run, stop)
    for number, variant in zip(numbers, done.variants, strict=True):
        if variant.error is not None:
            found[number] = variant.error
    if not any(isinstance(found[number], MsTuneError) for number in numbers):
        # Traces of small runs can go now; those of the plan are kept.
        shutil.rmtree(done.folder, ignore_errors=True)


def read_figures(run: PreparedRun, reading: Reading) -> RunFigures:
    """Extract the figures of a stage's run."""
    moments = {phase: peak for phase, peak in reading.phase_peaks.items() if phase is not None}
    if not moments:
        moments = dict(reading.phase_peaks)  # type: ignore[arg-type] # under None only
    persistent = {}
    for phase, peak in moments.items():
        contents = reading.report.breakdown_at(peak.tick).contents
        persistent[_phase_name(phase)] = sum(contents[content] for content in _PERSISTENT)
    peaks = {_phase_name(phase): peak.bytes for phase, peak in moments.items()}
    swapped = 0  # for jobs whose layers cannot swap
    if isinstance(run.job, MindFormersJob):
        swapped = reading.report.host_moved_bytes // (run.job.batches * run.pipeline.micro_batches)
    sizes = (peaks, persistent, reading.footprint_bytes, swapped)
    return RunFigures(run.stage, run.layer_counts, run.in_flight, *sizes)


def _phase_name(phase: Any) -> str:  # noqa: ANN401 - a phase or None
    return "step" if phase is None else str(phase.value)


def _read_figures(file: Path) -> RunFigures | None:
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        in_flight = kept["in_flight"]
        return RunFigures(
            int(kept["stage"]),
            kinds_from_json(kept["kinds"]),
            None if in_flight is None else tuple(map(int, in_flight)),
            {str(phase): int(size) for phase, size in kept["phase_peaks"].items()},
            {str(phase): int(size) for phase, size in kept["phase_persistent"].items()},
            int(kept["footprint_bytes"]),
            int(kept["swapped_bytes"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
