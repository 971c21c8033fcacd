"""The ends of the pipeline without layers: whether the framework takes that, and what the stage holds less then.

MindSpeed-Core-MS wants a layer in every cell (``num_layer_list``); MindFormers' static graph does not.

Layers of a chunk share what is there once however many they are: a mask, what kernels keep for themselves. Small runs have layers in
every chunk, so that what their stages hold anyhow has all of it. Only the first and the last cell of a plan may be empty
(:mod:`ms_tune.planning.plan`), and a run of each tells what is not there then. Seen with MindSpore 2.9 and MindFormers 1.9: 84 MiB of a
chunk of Qwen3's layers, whatever they recompute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.enums import RecomputeMode
from ms_tune.errors import MsTuneError
from ms_tune.fit.job import uniform
from ms_tune.fit.lines import phases_alike
from ms_tune.fit.measure import Probe
from ms_tune.fit.probes import of_most, sizes
from ms_tune.planning.costs import costs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dryrun.prepare import LoadedConfig
    from ms_tune.fit.job import PlannedJob
    from ms_tune.fit.measure import RunFigures
    from ms_tune.fit.measured import Measured
    from ms_tune.fit.probes import ProbedModel
    from ms_tune.planning.table import CostTable


def emptied_probes(job: PlannedJob, model: ProbedModel) -> list[Probe]:
    """Runs of the first stage without layers in its first chunk, and of the last one without any in its last; nothing is recomputed.

    None where stages have one chunk: a stage without layers is not run small.
    """
    found = []
    for stage in (0, job.stages - 1) if job.chunks > 1 else ():
        loaded = _written(job, stage)
        if loaded is not None:
            # The other cells keep a layer each: with one in this stage's, too, there would be fewer layers than cells, which is refused.
            _, more = sizes(job.chunks, model.whole[stage], model.least[stage])
            found.append(Probe("emptied", loaded, stage, more - more // job.chunks))
    return found


def _written(job: PlannedJob, stage: int) -> LoadedConfig | None:
    """The config with an end of the pipeline emptied; None where the framework refuses that."""
    if job.stages == 1:
        return None
    try:
        return of_most(job, uniform(_emptied(job, stage), RecomputeMode.NONE.value))
    except MsTuneError:
        return None


def _emptied(job: PlannedJob, stage: int) -> list[list[int]]:
    """The placement with the layers of an end of the pipeline in the cell beside it."""
    counts = [list(row) for row in job.placement]
    chunk, other = (0, 1) if stage == 0 else (job.chunks - 1, stage - 1)
    counts[chunk][other] += counts[chunk][stage]
    counts[chunk][stage] = 0
    return counts


def with_ends(table: CostTable, job: PlannedJob, measured: Measured, runs: Sequence[RunFigures]) -> CostTable:
    """The table with what is known of its ends.

    Args:
        table: The table.
        job: The job.
        measured: What other small runs held.
        runs: What runs with an empty end held.
    """
    head, tail = (_written(job, stage) is None for stage in (0, job.stages - 1))
    table = replace(table, head=replace(table.head, filled=head), tail=replace(table.tail, filled=tail))
    costs = costs_of(replace(table, update=None))
    for figures in runs:
        plain = measured.highest(measured.model.main, RecomputeMode.NONE, figures.stage)
        few = measured.few(measured.model.main, RecomputeMode.NONE, figures.stage)
        if plain is None or few is None:
            continue
        # While weights are updated other things are there; that moment has a row of its own.
        seen = [figures.peaks[phase] for phase in phases_alike(figures, few, plain.lasting)]
        counts = _emptied(job, figures.stage)
        there = dict.fromkeys(range(job.chunks), 0)
        for (chunk, _), count in figures.cells.items():
            there[chunk] += count
        beside = 1 if figures.stage == 0 else figures.stage - 1
        for chunk, count in there.items():  # the layers that the run does not have lie elsewhere
            counts[chunk][beside] += counts[chunk][figures.stage] - count
            counts[chunk][figures.stage] = count
        state = costs.state([{RecomputeMode.NONE: count} for row in counts for count in row])
        foretold = int(costs.peaks(state[None])[0, figures.stage])
        less = max(foretold - max(seen, default=foretold), 0)
        if figures.stage == 0:
            table = replace(table, head=replace(table.head, empty_bytes=less))
        else:
            table = replace(table, tail=replace(table.tail, empty_bytes=less))
    return table
