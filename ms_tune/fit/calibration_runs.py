"""Choose the small dryruns that the memory table is fitted from: a few sizes of three stages, for each recompute mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ms_tune.dialects.stage import make_name, share_out
from ms_tune.dryrun.prepare import LoadedConfig, prepare_run
from ms_tune.dryrun.request import PreparedRun, Setting
from ms_tune.dryrun.settings import with_settings
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.errors import MsTuneError, UnsupportedError
from ms_tune.fit.job import PlannedJob, full_first_lists, uniform_lists
from ms_tune.fit.measure import Probe
from ms_tune.normalize.sapp_lists import SappLists
from ms_tune.normalize.sapp_lists import Table as Rows
from ms_tune.text import Message, msg

_TWO_SIZES = (
    RecomputeMode.NONE,
    RecomputeMode.FULL,
    RecomputeMode.SWAP,
)  # the other modes need one size: the memory of a stage without layers is known by then
_LEAST = 2  # layers per cell (a chunk of a stage), if it has that many
_SOME = 5  # layers per cell in runs that recompute only some of them, if it has that many


@dataclass(frozen=True, slots=True)
class JobLayers:
    """Layers of a job, counted by layer kind."""

    counts: dict[LayerKind, int]  # number of layers of each kind, in model order
    per_stage: tuple[int, ...]  # layers per stage
    least: tuple[int, ...]  # layers of the smallest run of each stage (:func:`probe_sizes`)
    compiled: bool = False  # static graph: each small run takes long

    @property
    def main(self) -> LayerKind:
        """Return the most frequent layer kind."""
        return max(self.counts, key=lambda make: self.counts[make])

    @property
    def alike(self) -> bool:
        """Return whether few runs suffice: the job is a static graph, and all its layers are of one kind."""
        return self.compiled and len(self.counts) == 1


def count_job_layers(job: PlannedJob) -> JobLayers:
    """Count the layers of a job by kind; nothing is run."""
    runs = _prepare_stages(job, job.loaded)
    cells: dict[tuple[int, int], set[LayerKind]] = {}
    for run in runs:
        for kind in run.layer_counts:
            chunk, make = kind.cell
            cells.setdefault((chunk, run.stage), set()).add(make)
    order = [make for place in sorted(cells) for make in sorted(cells[place])]
    makes = list(dict.fromkeys(order))
    if order != sorted(order, key=makes.index):
        names = ", ".join(map(make_name, makes))
        raise UnsupportedError(msg("fitting.alternating", kinds=names), msg("fitting.alternating.hint"))
    counts = dict.fromkeys(makes, 0)
    for run in runs:
        for kind, count in run.layer_counts.items():
            counts[kind.make] += count
    model = JobLayers(counts, tuple(run.layers for run in runs), (), job.compiled)
    shown = _prepare_stages(job, _with_dense_first(job.loaded, 1)) if len(counts) > 1 else runs
    return replace(model, least=tuple(_fewest_layers_of(run, model.main, job) for run in shown))


def _prepare_stages(job: PlannedJob, loaded: LoadedConfig) -> list[PreparedRun]:
    return [prepare_run(job.request._replace(stage=stage, layers=None), loaded) for stage in range(job.stages)]


def _fewest_layers_of(run: PreparedRun, main: LayerKind, job: PlannedJob) -> int:
    # Return the smallest number of layers from which one more layer per chunk adds only layers of the most frequent kind. A small
    # run has one layer of each kind in the stage (ms_tune.dialects.stage.resize_stage). Comparing a run with one expert layer and
    # a run that also has a dense layer would measure the dense layer instead.
    cells: Counter[tuple[int, LayerKind]] = Counter()
    for kind, count in run.layer_counts.items():
        cells[kind.cell] += count
    counts, least = list(cells.values()), (1 if job.compiled else _LEAST) * job.chunks
    for few in range(least, run.layers - job.chunks + 1):
        steps = zip(cells, share_out(counts, few), share_out(counts, few + job.chunks), strict=True)
        if all(make is main or less == more for (_, make), less, more in steps):
            return few
    return least


def choose_probe_stages(stages: int) -> tuple[int, ...]:
    """Return the stages to probe: first, second, last, and last but one, which shows how the middle stages differ."""
    return tuple(dict.fromkeys(stage for stage in (0, 1, stages - 2, stages - 1) if 0 <= stage < stages))


def middle_stage(last: int) -> int:
    """Return a stage that is neither the first nor the last, or the first if there are only one or two."""
    return min(1, max(last - 1, 0))


def probe_sizes(chunks: int, whole: int, least: int) -> tuple[int, int]:
    """Return two numbers of layers that differ by one per chunk: two and three per chunk, or one and two if the stage has no more.

    In the dynamic graph, a layer alone in its cell is both first and last, and is not on the line that larger cells follow. In a
    static graph it is (seen with MindFormers 1.9 on MindSpore 2.9), and each layer takes long to compile: one and two.
    """
    few = min(least, whole - chunks)
    if few < chunks:
        raise UnsupportedError(msg("fitting.few-layers", layers=whole), msg("fitting.few-layers.hint"))
    return few, few + chunks


def plan_probes(job: PlannedJob, model: JobLayers, kinds: Sequence[RecomputeMode]) -> tuple[list[Probe], list[Message]]:
    """Return the probes of a job, and a message for each recompute mode that its config cannot express."""
    found: list[Probe] = []
    notes = []
    for kind in dict.fromkeys((RecomputeMode.NONE, *kinds)):
        try:
            loaded = config_of_main_layers(job, uniform_lists(job.placement, kind.value))
        except MsTuneError as error:
            if kind is RecomputeMode.NONE:
                raise
            notes.append(msg("fitting.kind-fails", kind=kind.value, reason=error.message))
            continue
        for stage in choose_probe_stages(job.stages):
            both = probe_sizes(job.chunks, model.per_stage[stage], model.least[stage])
            wanted = both[: _count_probe_sizes(job, kind, stage, alike=model.alike)]
            needed = kind is RecomputeMode.NONE
            found += [Probe(kind.value, loaded, stage, layers, needed, model.main, kind) for layers in wanted]
        found += _plan_dense_probes(job, model, kind)
    return found, notes


def _count_probe_sizes(job: PlannedJob, kind: RecomputeMode, stage: int, *, alike: bool) -> int:
    # Return in how many sizes a stage is run with a recompute mode. In a static graph whose layers are all alike, a layer keeps
    # the same memory per micro-batch on every stage, to the last kilobyte, and a run takes long. The first stage measures this;
    # the last one shows whether its peak is at another moment. With several chunks, :func:`probes_of_first_chunk` measures the
    # transient memory of the middle stages.
    full = kind is RecomputeMode.FULL
    if kind in _TWO_SIZES and stage in ((0,) if full and alike and job.chunks > 1 else _line_stages(job.stages)):
        return 2
    return int(kind is RecomputeMode.NONE or stage == 0 or (stage == job.stages - 1 and (full or not alike)))


def probes_with_some_recomputed(job: PlannedJob) -> list[Probe]:
    """Return probes in which one or two layers per cell are fully recomputed and the others are not; empty if cells are small.

    With three layers not recomputed, their activations exceed the transient memory of recomputing one. Static graphs need none of
    these probes: runs with all layers recomputed give the same result, and each layer takes long to compile.
    """
    size = _cell_probe_size(job)
    found = []
    for some in (1, 2) if size else ():
        counts = [[_scale_recomputed(size, some, count) for count in row] for row in job.placement]
        loaded = config_of_main_layers(job, full_first_lists(job.placement, counts))
        found += [Probe(f"some {some}", loaded, stage, size * job.chunks) for stage in _line_stages(job.stages)]
    return found


def probes_with_some_of_first_chunk(job: PlannedJob) -> list[Probe]:
    """Return probes in which two layers of only the first chunk are fully recomputed; empty with one chunk.

    A recomputed layer may use more memory in one chunk than in another, apart from the micro-batches in flight. Seen with
    MindSpeed-Core-MS: the input of a first-chunk layer exists twice for some micro-batches, and once in the last chunk.
    """
    size = _cell_probe_size(job)
    if not size or job.chunks == 1:
        return []
    counts: Rows = [
        [0 if chunk else _scale_recomputed(size, 2, n) for n in row] for chunk, row in enumerate(job.placement)
    ]
    loaded = config_of_main_layers(job, full_first_lists(job.placement, counts))
    return [Probe("some 2 of chunk 0", loaded, stage, size * job.chunks) for stage in _line_stages(job.stages)]


def _cell_probe_size(job: PlannedJob) -> int:
    # Return the layers per cell of runs that recompute some of them; 0 without such runs.
    least = 0 if job.compiled else min(map(min, job.placement))
    return min(_SOME, least) if least > _LEAST else 0


def _scale_recomputed(size: int, some: int, count: int) -> int:
    # Return how many layers of a full-size cell to recompute so that the small run recomputes ``some``. A small run has one layer
    # of each kind in the stage, and a proportional share of the rest (ms_tune.dialects.stage.resize_stage).
    return 1 if some == 1 else (some * count + size // 2) // size


def probes_of_first_chunk(job: PlannedJob, model: JobLayers, stages: Sequence[int] | None = None) -> list[Probe]:
    """Return probes in which all layers of only the first chunk are fully recomputed; empty with one chunk.

    ``stages`` defaults to the first, second and last stage.
    """
    if job.chunks == 1:
        return []
    counts: Rows = [list(row) if not chunk else [0] * len(row) for chunk, row in enumerate(job.placement)]
    loaded = config_of_main_layers(job, full_first_lists(job.placement, counts))
    return [
        Probe("first chunk", loaded, stage, probe_sizes(job.chunks, model.per_stage[stage], model.least[stage])[1])
        for stage in (_line_stages(job.stages) if stages is None else stages)
    ]


def _line_stages(stages: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys((0, min(1, stages - 1), stages - 1)))


def _plan_dense_probes(job: PlannedJob, model: JobLayers, kind: RecomputeMode) -> Iterator[Probe]:
    # Yield probes of the first stage with dense layers only, if most layers have experts.
    if model.main is LayerKind.DENSE or LayerKind.DENSE not in model.counts:
        return
    # The last chunk of the first stage comes after all layers of the earlier chunks, which must be dense too.
    dense = _with_dense_first(job.loaded, sum(map(sum, job.placement[:-1])) + job.placement[-1][0])
    if dense is job.loaded:
        return  # no key sets the number of dense layers
    try:
        made = job._replace(loaded=dense).for_small_runs(uniform_lists(job.placement, kind.value))
    except MsTuneError:
        return  # the mode recomputes parts of experts
    both = probe_sizes(job.chunks, model.per_stage[0], (1 if job.compiled else _LEAST) * job.chunks)
    for layers in both if kind in _TWO_SIZES else both[:1]:
        yield Probe(f"dense {kind.value}", made, 0, layers, kind is RecomputeMode.NONE, LayerKind.DENSE, kind)


def config_of_main_layers(job: PlannedJob, lists: SappLists) -> LoadedConfig:
    """Return the config for a small run of the most frequent layer kind; at most one layer has another kind.

    With as many dense layers as the job has, the share of dense layers in a small run would depend on its size. The recompute
    lists are merged last because recompute patterns depend on the layer kind.
    """
    return job._replace(loaded=_with_dense_first(job.loaded, 1)).for_small_runs(lists)


def _with_dense_first(loaded: LoadedConfig, layers: int) -> LoadedConfig:
    # Return the config with this number of dense layers before the expert layers, or unchanged if it has none or no key sets it.
    field = loaded.job.model.field("first_k_dense_replace")
    if field.path is None or field.value in (None, 0):
        return loaded
    try:
        setting = Setting(field.path, str(layers))
        return loaded.with_source(with_settings(loaded.source, [setting], loaded.dialect))
    except MsTuneError:
        return loaded
