"""Cache results of earlier runs of ``ms-tune fit``, figures of small runs and whole tables, under keys of all that they depend on.

A table is valid for any recompute lists and any limit. Its key is made of the job without recomputation and the simulator.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ms_tune.dryrun.cann_sim.environment import simulated_by
from ms_tune.dryrun.prepare import prepare_run
from ms_tune.dryrun.request import DryrunRequest, PreparedRun
from ms_tune.dryrun.rundir import write_json
from ms_tune.enums import RecomputeMode
from ms_tune.errors import MsTuneError
from ms_tune.fit.job import FOLDER, PlannedJob, table_name, uniform_lists
from ms_tune.native import cache_root
from ms_tune.planning.costs import Costs, costs_of
from ms_tune.planning.table import MOST_BYTES, CostTable
from ms_tune.planning.table_file import MOST_TEXT, read_table, table_json
from ms_tune.records import plain_data
from ms_tune.version import __version__

_FORM = 7  # version of the file format
_MAX_FILES = 4096  # files
_ENVIRONMENT = ("MS_ALLOC_CONF", "MS_DEV_RUNTIME_CONF", "MS_DEV_GRAPH_KERNEL_FLAGS", "ENABLE_LAZY_INLINE_NO_PIPELINE")
_FILE_KIND = "table 1"  # kind of file, with its format version


@dataclass(frozen=True, slots=True)
class CachedTable:
    """A table from an earlier run."""

    table: CostTable  # its present plan is the one that run found and verified; its limit is the one of that run
    fragment_bytes: tuple[int, ...]  # the most that any dryrun of each stage needed beyond the peak of the table
    needs: tuple[int, ...] = ()  # footprints of the simulated stages of that plan

    @property
    def costs(self) -> Costs:
        """Return the costs of its plans."""
        return costs_of(self.table)


def write_cached_table(job: PlannedJob, kept: CachedTable) -> None:
    """Cache a table for :func:`read_cached_table`, with estimated times and without swap, as both depend on other inputs than the job."""
    try:
        file = _table_file(job)
    except MsTuneError:
        return
    facts = {"table": table_json(kept.table), "fragments": list(kept.fragment_bytes), "needs": list(kept.needs)}
    write_cache(file, facts)


def read_cached_table(job: PlannedJob) -> CachedTable | None:
    """Return the table that an earlier run made of this job, or None without a valid one."""
    try:
        file = _table_file(job)
        with file.open(encoding="utf-8") as opened:
            found = json.loads(opened.read(MOST_TEXT))
        table = read_table(json.dumps(found["table"]), str(file))
        fragments, needs = (tuple(int(size) for size in found[name]) for name in ("fragments", "needs"))
    except (MsTuneError, OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    sane = len(fragments) == table.stages and all(0 <= size <= MOST_BYTES for size in (*fragments, *needs))
    # A small run can have fewer micro-batches than the job, so compare with the table's own number.
    wanted = (job.stages, job.chunks, job.first.pipeline.micro_batches)
    return (
        CachedTable(table, fragments, needs)
        if sane and (table.stages, table.chunks, table.micro_batches) == wanted
        else None
    )


def _table_file(job: PlannedJob) -> Path:
    here = simulated_by()
    bare = job.with_lists(uniform_lists(job.placement, RecomputeMode.NONE.value))
    file = cache_file(prepare_run(job.request._replace(stage=0, layers=None), bare), job.request, here, _FILE_KIND)
    return file.with_name(f"{table_name(job)}{file.name}")


def cache_file(run: PreparedRun, request: DryrunRequest, here: str, what: str = "") -> Path:
    """Return the cache file for a run's figures, or for another kind of data (``what``), by all inputs on which they depend."""
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
    return cache_root() / FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()}.json"


def write_cache(file: Path, facts: Mapping[str, object]) -> None:
    """Write facts to the cache and delete the oldest files beyond the limit; a cache that cannot be written is ignored."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, dict(facts))
        old = sorted(file.parent.glob("*.json"), key=lambda one: one.stat().st_mtime)
        for one in old[:-_MAX_FILES]:
            one.unlink(missing_ok=True)
    except OSError:
        return
