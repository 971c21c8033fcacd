"""The memory table that an earlier ``ms-tune fit`` of a job made: read from the cache, nothing is run.

The table holds for any lists of recompute and any limit. It is kept by what the job is when its layers recompute nothing, and by
all that simulated it (:func:`ms_tune.fit.measure.kept_at`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ms_tune.dryrun.cann_sim.environment import simulated_by
from ms_tune.dryrun.prepare import prepare
from ms_tune.enums import RecomputeMode
from ms_tune.errors import MsTuneError
from ms_tune.fit.job import uniform
from ms_tune.fit.measure import keep, kept_at
from ms_tune.planning.table import MOST_BYTES
from ms_tune.planning.table_file import MOST_TEXT, read_table, table_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ms_tune.fit.job import PlannedJob
    from ms_tune.planning.table import CostTable

_WHAT = "table 1"  # and its form


@dataclass(frozen=True, slots=True)
class KeptTable:
    """A table of an earlier run."""

    table: CostTable  # the table, without a present plan; its limit is that of then
    fragment_bytes: tuple[int, ...]  # what each stage is to set aside for fragments


def keep_table(job: PlannedJob, table: CostTable, fragments: Sequence[int]) -> None:
    """Keep a table for :func:`kept_table`.

    Args:
        job: The job.
        table: Its table, with times as arithmetic has them and without swap: what that takes is none of the job's facts.
        fragments: What each stage is to set aside for fragments.
    """
    try:
        file = _file(job)
    except MsTuneError:
        return
    keep(file, {"table": table_json(replace(table, present=None)), "fragments": list(fragments)})


def kept_table(job: PlannedJob) -> KeptTable | None:
    """The table that an earlier run made of a job; None where there is none that still holds."""
    try:
        file = _file(job)
        with file.open(encoding="utf-8") as opened:
            found = json.loads(opened.read(MOST_TEXT))
        table = read_table(json.dumps(found["table"]), str(file))
        fragments = tuple(int(size) for size in found["fragments"])
    except (MsTuneError, OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    sane = len(fragments) == table.stages and all(0 <= size <= MOST_BYTES for size in fragments)
    # A small run may have fewer micro-batches than the job: whether these are as many is asked of the table itself.
    wanted = (job.stages, job.chunks, job.first.pipeline.micro_batches)
    return KeptTable(table, fragments) if sane and (table.stages, table.chunks, table.micro_batches) == wanted else None


def _file(job: PlannedJob) -> Path:
    """Where the table is kept.

    Raises:
        MsTuneError: This machine cannot simulate, or the config cannot say that layers recompute nothing.
    """
    here = simulated_by()
    bare = job.with_lists(uniform(job.placement, RecomputeMode.NONE.value))
    return kept_at(prepare(replace(job.request, stage=0, layers=None), bare), job.request, here, _WHAT)
