"""What would help where nothing fits, and what a table does not tell: it knows no optimizer, no sequence parallelism, no swap."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.dryrun.prepare import prepare
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.estimate.flops import widths_of
from ms_tune.estimate.memory import RankShare, layer_activations
from ms_tune.fit.layouts import keys_of, layout_of, sequence_parallel
from ms_tune.fit.table import in_flight_of
from ms_tune.planning.explain import PlanRemedy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.fit.job import PlannedJob
    from ms_tune.planning.fit import FitReport


def with_remedies(report: FitReport, job: PlannedJob, fragments: Sequence[int] = ()) -> FitReport:
    """A report of nothing that fits, with what the job's config could do beside: what costs no computation comes first.

    Args:
        report: The report.
        job: The job.
        fragments: What its table sets aside for each stage's fragments.
    """
    if report.shortage is None or report.nearest is None:
        return report
    over = report.shortage.over_bytes
    found = [PlanRemedy(name, size, size >= over) for name, size in _freed(report, job, fragments) if size > 0]
    free = [one for one in found if one.name != "swap"]
    rest = [one for one in found if one.name == "swap"]
    return replace(report, remedies=(*free, *report.remedies, *rest))


def _freed(report: FitReport, job: PlannedJob, fragments: Sequence[int]) -> Iterator[tuple[str, int]]:
    """By name what each would free on the stage that is over the limit most, at most."""
    assert report.shortage is not None  # noqa: S101 - the caller has looked
    assert report.nearest is not None  # noqa: S101 - as above
    stage = report.shortage.stage
    run = prepare(replace(job.request, stage=stage, layers=None), job.loaded)
    if fragments:
        yield "vmm", fragments[stage]
    dialect, ranks = job.loaded.dialect, run.split.data * run.split.context
    key = keys_of(dialect).sharded
    if key is not None and ranks > 1 and job.loaded.source.get(key) is not True:
        yield "optimizer", run.theory.get("optimizer_state", 0) * (ranks - 1) // ranks
    cells = report.nearest.cells[stage :: job.stages]
    held = [in_flight_of(job, stage, chunk) for chunk in range(job.chunks)]
    kinds = {
        kind: sum(cell.get(kind, 0) * count for cell, count in zip(cells, held, strict=True)) for kind in RecomputeMode
    }
    if run.split.tensor > 1 and not sequence_parallel(job.loaded):
        yield (
            "sequence",
            _by_sequence(job, float(kinds[RecomputeMode.FULL]), float(sum(kinds.values()) - kinds[RecomputeMode.FULL])),
        )
    if _can_swap(report, job):
        # What is kept of micro-batches that are not at their backward pass can wait on the host.
        more = {
            kind: sum(cell.get(kind, 0) * (count - 1) for cell, count in zip(cells, held, strict=True))
            for kind in kinds
        }
        layer = max(report.table.layers, key=lambda one: one.count)
        yield (
            "swap",
            round(sum(count * layer.recompute[kind].activation_bytes for kind, count in more.items() if count)),
        )


def _can_swap(report: FitReport, job: PlannedJob) -> bool:
    """Whether swap is something that the plans of the table do not have: the dynamic graph refuses it with several stages."""
    if RecomputeMode.SWAP in report.table.kinds:
        return False
    return job.loaded.dialect is Dialect.MINDFORMERS or (
        job.loaded.dialect is Dialect.MINDFORMERS_PYNATIVE and job.stages == 1
    )


def _by_sequence(job: PlannedJob, full: float, others: float) -> int:
    """What splitting activations between layers over the tensor-parallel ranks frees, by closed forms."""
    widths = widths_of(job.loaded.job.model)
    if widths is None:
        return 0
    layout = layout_of(job.loaded, job.first)
    tokens = widths.tokens * layout.size // layout.context
    before, after = (
        layer_activations(widths, RankShare(tokens, layout.tensor, sequence, layout.context), experts=False)
        for sequence in (False, True)
    )
    return round(full * (before.full - after.full) + others * (before.none - after.none))
