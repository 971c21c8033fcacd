"""Which small dryruns the memory table needs: few sizes of three stages, for each kind of recompute."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ms_tune.dialects.stage import make_name, share_out
from ms_tune.dryrun.prepare import prepare_run
from ms_tune.dryrun.request import Setting
from ms_tune.dryrun.settings import with_settings
from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.errors import MsTuneError, UnsupportedError
from ms_tune.fit.job import full_first_lists, uniform_lists
from ms_tune.fit.measure import Probe
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.dryrun.prepare import LoadedConfig
    from ms_tune.dryrun.request import PreparedRun
    from ms_tune.fit.job import PlannedJob
    from ms_tune.normalize.sapp_lists import SappLists
    from ms_tune.normalize.sapp_lists import Table as Rows
    from ms_tune.text import Message

_TWO_SIZES = (
    RecomputeMode.NONE,
    RecomputeMode.FULL,
    RecomputeMode.SWAP,
)  # the others need one: what a stage holds anyhow is known by then
_LEAST = 2  # layers of a cell, if it has so many
_SOME = 5  # layers of a cell of which some are recomputed, if it has so many


@dataclass(frozen=True, slots=True)
class JobLayers:
    """The layers of a job, by what they are made of."""

    counts: dict[LayerKind, int]  # how many there are of each, in the order of the model
    whole: tuple[int, ...]  # layers of each stage
    least: tuple[int, ...]  # layers of each stage's smallest run (:func:`probe_sizes`)
    compiled: bool = False  # it is a static graph: each small run takes long

    @property
    def main(self) -> LayerKind:
        """What most layers are made of."""
        return max(self.counts, key=lambda make: self.counts[make])

    @property
    def alike(self) -> bool:
        """Whether few runs must do: a static graph whose layers are all the same."""
        return self.compiled and len(self.counts) == 1


def count_job_layers(job: PlannedJob) -> JobLayers:
    """The layers of a job; nothing is run."""
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
    # The fewest layers of a stage to which one more in each chunk adds layers of what most are made of, and no others. A small
    # run has one of each kind that a stage has (ms_tune.dialects.stage.resize_stage): the difference of a run with one layer
    # with experts and one that has a dense layer beside it is what the dense one holds.
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
    """The first, one in the middle, the last; and the last but one, which tells how those in the middle differ."""
    return tuple(dict.fromkeys(stage for stage in (0, 1, stages - 2, stages - 1) if 0 <= stage < stages))


def middle_stage(last: int) -> int:
    """A stage that is not the last, and not the first where there is another."""
    return min(1, max(last - 1, 0))


def probe_sizes(chunks: int, whole: int, least: int) -> tuple[int, int]:
    """Two numbers of layers that differ by one in each chunk: two and three, or one and two where there are no more.

    A layer that is alone in its cell is its first and its last at once, and in the dynamic graph the line through it is another
    one. In a static graph it is not (seen with MindFormers 1.9 on MindSpore 2.9), and each layer takes long to compile: one and two.
    """
    few = min(least, whole - chunks)
    if few < chunks:
        raise UnsupportedError(msg("fitting.few-layers", layers=whole), msg("fitting.few-layers.hint"))
    return few, few + chunks


def plan_probes(job: PlannedJob, model: JobLayers, kinds: Sequence[RecomputeMode]) -> tuple[list[Probe], list[Message]]:
    """The probes of a job, and what to tell of kinds of recompute that its config cannot say."""
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
            both = probe_sizes(job.chunks, model.whole[stage], model.least[stage])
            wanted = both[: _count_probe_sizes(job, kind, stage, alike=model.alike)]
            needed = kind is RecomputeMode.NONE
            found += [Probe(kind.value, loaded, stage, layers, needed, model.main, kind) for layers in wanted]
        found += _plan_dense_probes(job, model, kind)
    return found, notes


def _count_probe_sizes(job: PlannedJob, kind: RecomputeMode, stage: int, *, alike: bool) -> int:
    # How many sizes of a stage are run with a kind of recompute. In a static graph whose layers are all alike what a layer
    # keeps of a micro-batch is the same on every stage, to the last kilobyte, and a run takes long: the first stage tells it,
    # and the last one whether another moment decides there. What comes on top in the middle is told by
    # :func:`probes_of_first_chunk`, if there is more than one chunk.
    full = kind is RecomputeMode.FULL
    if kind in _TWO_SIZES and stage in ((0,) if full and alike and job.chunks > 1 else _line_stages(job.stages)):
        return 2
    return int(kind is RecomputeMode.NONE or stage == 0 or (stage == job.stages - 1 and (full or not alike)))


def probes_with_some_recomputed(job: PlannedJob) -> list[Probe]:
    """Probes in which one layer of each cell is recomputed in full, and two are, and the others are not; none where cells are small.

    The others keep more than what comes on top while a layer is computed once more, if there are three. Of a static graph none
    either: there runs in which all layers are recomputed tell the same, and each layer takes long to compile.
    """
    size = _cell_probe_size(job)
    found = []
    for some in (1, 2) if size else ():
        counts = [[_scale_recomputed(size, some, count) for count in row] for row in job.placement]
        loaded = config_of_main_layers(job, full_first_lists(job.placement, counts))
        found += [Probe(f"some {some}", loaded, stage, size * job.chunks) for stage in _line_stages(job.stages)]
    return found


def probes_with_some_of_first_chunk(job: PlannedJob) -> list[Probe]:
    """The same with two recomputed layers in the first chunk alone; none where there is one chunk.

    A recomputed layer may hold more in one chunk than in another beside what is in flight. Seen with MindSpeed-Core-MS: what enters a
    layer of the first chunk is there twice for some of its micro-batches, and once in the last chunk.
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
    # Layers of each cell in runs of which some are recomputed; 0 where there are no such runs.
    least = 0 if job.compiled else min(map(min, job.placement))
    return min(_SOME, least) if least > _LEAST else 0


def _scale_recomputed(size: int, some: int, count: int) -> int:
    # How many of a cell's layers are recomputed, so that a small run with so many of them has as many as are wanted. A small
    # run has one of each kind that a stage has, and of the others their share (ms_tune.dialects.stage.resize_stage).
    return 1 if some == 1 else (some * count + size // 2) // size


def probes_of_first_chunk(job: PlannedJob, model: JobLayers, stages: Sequence[int] | None = None) -> list[Probe]:
    """Probes in which the layers of the first chunk are recomputed in full, and no others; none where there is one chunk.

    Of all stages with a line of their own where none are named.
    """
    if job.chunks == 1:
        return []
    counts: Rows = [list(row) if not chunk else [0] * len(row) for chunk, row in enumerate(job.placement)]
    loaded = config_of_main_layers(job, full_first_lists(job.placement, counts))
    return [
        Probe("first chunk", loaded, stage, probe_sizes(job.chunks, model.whole[stage], model.least[stage])[1])
        for stage in (_line_stages(job.stages) if stages is None else stages)
    ]


def _line_stages(stages: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys((0, min(1, stages - 1), stages - 1)))


def _plan_dense_probes(job: PlannedJob, model: JobLayers, kind: RecomputeMode) -> Iterator[Probe]:
    # Layers without experts, where most have them: the first stage with nothing else.
    if model.main is LayerKind.DENSE or LayerKind.DENSE not in model.counts:
        return
    # Its last chunk's layers stand behind those that the other stages have of the chunks before.
    dense = _with_dense_first(job.loaded, sum(map(sum, job.placement[:-1])) + job.placement[-1][0])
    if dense is job.loaded:
        return  # no key says how many are
    try:
        made = job._replace(loaded=dense).for_small_runs(uniform_lists(job.placement, kind.value))
    except MsTuneError:
        return  # the kind is of what experts do
    both = probe_sizes(job.chunks, model.whole[0], (1 if job.compiled else _LEAST) * job.chunks)
    for layers in both if kind in _TWO_SIZES else both[:1]:
        yield Probe(f"dense {kind.value}", made, 0, layers, kind is RecomputeMode.NONE, LayerKind.DENSE, kind)


def config_of_main_layers(job: PlannedJob, lists: SappLists) -> LoadedConfig:
    """The config for a small run about what most layers are made of: one layer is of another make, where some are.

    With as many as the job has, a run of few layers may have more of them than of the others, and how many depends on its size.
    Patterns of recompute are named by what layers are made of, so that the lists come last.
    """
    return job._replace(loaded=_with_dense_first(job.loaded, 1)).for_small_runs(lists)


def _with_dense_first(loaded: LoadedConfig, layers: int) -> LoadedConfig:
    # The config with so many dense layers before those with experts; as it is where it has none, or no key says how many.
    field = loaded.job.model.field("first_k_dense_replace")
    if field.path is None or field.value in (None, 0):
        return loaded
    try:
        setting = Setting(field.path, str(layers))
        return loaded.with_source(with_settings(loaded.source, [setting], loaded.dialect))
    except MsTuneError:
        return loaded
