"""What earlier runs of ``ms-tune fit`` found, kept by everything that it depends on: figures of small runs, and whole tables.

A table holds for any lists of recompute and any limit. It is kept by what the job is when its layers recompute nothing, and by
all that simulated it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.dryrun.cann_sim.environment import simulated_by
from ms_tune.dryrun.prepare import prepare_run
from ms_tune.dryrun.rundir import write_json
from ms_tune.enums import RecomputeMode
from ms_tune.errors import MsTuneError
from ms_tune.fit.job import uniform_lists
from ms_tune.native import cache_root
from ms_tune.planning.table import MOST_BYTES
from ms_tune.planning.table_file import MOST_TEXT, read_table, table_json
from ms_tune.records import plain_data
from ms_tune.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ms_tune.dryrun.request import DryrunRequest, PreparedRun
    from ms_tune.fit.job import PlannedJob
    from ms_tune.planning.table import CostTable

_FOLDER, _FORM = "fit", 6  # in the cache; the form of what is kept
_MOST_KEPT = 4096  # files
_ENVIRONMENT = ("MS_ALLOC_CONF", "MS_DEV_RUNTIME_CONF", "MS_DEV_GRAPH_KERNEL_FLAGS", "ENABLE_LAZY_INLINE_NO_PIPELINE")
_WHAT = "table 1"  # and its form


@dataclass(frozen=True, slots=True)
class CachedTable:
    """A table of an earlier run."""

    table: CostTable  # the table, without a present plan; its limit is that of then
    fragment_bytes: tuple[int, ...]  # what each stage is to set aside for fragments


def write_cached_table(job: PlannedJob, table: CostTable, fragments: Sequence[int]) -> None:
    """Keep a table for :func:`read_cached_table`: its times by arithmetic and without swap, of which the job tells nothing."""
    try:
        file = _table_file(job)
    except MsTuneError:
        return
    write_cache(file, {"table": table_json(table._replace(present=None)), "fragments": list(fragments)})


def read_cached_table(job: PlannedJob) -> CachedTable | None:
    """The table that an earlier run made of a job; None where there is none that still holds."""
    try:
        file = _table_file(job)
        with file.open(encoding="utf-8") as opened:
            found = json.loads(opened.read(MOST_TEXT))
        table = read_table(json.dumps(found["table"]), str(file))
        fragments = tuple(int(size) for size in found["fragments"])
    except (MsTuneError, OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    sane = len(fragments) == table.stages and all(0 <= size <= MOST_BYTES for size in fragments)
    # A small run may have fewer micro-batches than the job: whether these are as many is asked of the table itself.
    wanted = (job.stages, job.chunks, job.first.pipeline.micro_batches)
    return (
        CachedTable(table, fragments) if sane and (table.stages, table.chunks, table.micro_batches) == wanted else None
    )


def _table_file(job: PlannedJob) -> Path:
    here = simulated_by()
    bare = job.with_lists(uniform_lists(job.placement, RecomputeMode.NONE.value))
    return cache_file(prepare_run(job.request._replace(stage=0, layers=None), bare), job.request, here, _WHAT)


def cache_file(run: PreparedRun, request: DryrunRequest, here: str, what: str = "") -> Path:
    """Where the figures of a run, or ``what`` else is kept of it, lie: by all that they depend on."""
    facts = {
        "form": _FORM,
        "ms_tune": __version__,
        "here": here,
        "job": plain_data(run.job),
        "files": run.files,
        "rank": run.rank,
        "world_size": run.world_size,
        "level": request.level,
        "environment": {name: os.environ.get(name) for name in _ENVIRONMENT},
    }
    if what:
        facts["what"] = what
    text = json.dumps(facts, sort_keys=True, default=str)
    return cache_root() / _FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def write_cache(file: Path, facts: Mapping[str, object]) -> None:
    """Keep facts in the cache, and no more files than there may be; where it cannot be written they are found again the next time."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, dict(facts))
        old = sorted(file.parent.glob("*.json"), key=lambda one: one.stat().st_mtime)
        for one in old[:-_MOST_KEPT]:
            one.unlink(missing_ok=True)
    except OSError:
        return
