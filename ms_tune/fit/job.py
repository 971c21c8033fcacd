"""Read the job to plan: its config, its cells (a chunk of a stage each), and the current recompute mode of its layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ms_tune.dialects import LayerPlan, on_devices, recomputes
from ms_tune.dialects.mindformers.read import MICRO_BATCHES, is_parallel
from ms_tune.dryrun.prepare import LoadedConfig, load_config, prepare_run
from ms_tune.dryrun.request import DryrunRequest, PreparedRun, Setting
from ms_tune.dryrun.settings import with_settings
from ms_tune.enums import Dialect, RecomputeMode
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError
from ms_tune.normalize.run import normalize_recompute
from ms_tune.normalize.sapp_lists import SappLists
from ms_tune.normalize.sapp_lists import Table as Rows
from ms_tune.planning.schedule import few_micro_batches
from ms_tune.planning.table import CostTable, PlanLists, cells_of
from ms_tune.records import Record
from ms_tune.source.yaml import parse_source
from ms_tune.text import msg

Cells = tuple[tuple[int, ...], ...]  # chunks x stages
FOLDER = "fit"  # in the cache


def write_lists(loaded: LoadedConfig, lists: SappLists) -> LoadedConfig:
    """Return a config with other lists; its file is unchanged."""
    from ms_tune.normalize.sapp import merge_sapp  # noqa: PLC0415 - `check` reads this module and writes nothing

    return loaded.with_source(parse_source(merge_sapp(loaded.job, lists).text, loaded.source.path))


class PlannedJob(Record):
    """A job as defined by its config."""

    request: DryrunRequest  # what to simulate, and for which device
    loaded: LoadedConfig
    now: LayerPlan  # the current placement and recompute modes of its layers
    first: PreparedRun  # the first stage, prepared as a full run

    @property
    def placement(self) -> Cells:
        """Return the current layers per cell."""
        assert self.now.placement is not None  # noqa: S101 - read_job has looked
        return self.now.placement

    @property
    def stages(self) -> int:
        """Return the number of pipeline stages."""
        return len(self.placement[0])

    @property
    def chunks(self) -> int:
        """Return the number of chunks per stage."""
        return len(self.placement)

    @property
    def layers(self) -> int:
        """Return the number of layers of the model, without those for multi-token prediction."""
        return sum(map(sum, self.placement))

    def with_lists(self, lists: SappLists) -> LoadedConfig:
        """Return the config with other lists; the file is unchanged."""
        return write_lists(self.loaded, lists)

    @property
    def compiled(self) -> bool:
        """Return whether small runs mostly compile a graph that contains the passes of all micro-batches."""
        return self.loaded.dialect is Dialect.MINDFORMERS

    @property
    def few_micro_batches(self) -> int:
        """Return the number of micro-batches that suffices to measure a stage's memory in a static graph.

        Every dryrun of a dynamic graph has few micro-batches anyway (ms_tune.dryrun.shrink).
        """
        pipeline = self.first.pipeline
        if not self.compiled or pipeline.schedule is None:
            return pipeline.micro_batches
        return few_micro_batches(pipeline.schedule, self.stages, self.chunks, pipeline.micro_batches)

    def for_small_runs(self, lists: SappLists) -> LoadedConfig:
        """Return the config for a small run: with other lists, and no more micro-batches than needed to measure memory."""
        loaded = self.with_lists(lists)
        if self.few_micro_batches == self.first.pipeline.micro_batches:
            return loaded
        setting = Setting(MICRO_BATCHES, str(self.few_micro_batches))
        return loaded.with_source(with_settings(loaded.source, [setting], loaded.dialect))


def read_job(request: DryrunRequest, loaded: LoadedConfig | None = None) -> PlannedJob:
    """Read the job of a config."""
    loaded = loaded or load_config(request)
    now = normalize_recompute(loaded.job)
    if now.failure is not None:
        hint = now.problems[0].help if now.problems else None
        raise ConfigError(msg("fitting.refused", error=now.failure.text), hint, path=loaded.source.path)
    if now.placement is None or not now.layers:
        raise UnsupportedError(msg("fitting.no-layers"), msg("fitting.no-layers.hint"))
    _check_split(loaded, now)
    first = prepare_run(request._replace(stage=0, layers=None), loaded)
    return PlannedJob(request, loaded, on_devices(now, first.world_size), first)


def _check_split(loaded: LoadedConfig, now: LayerPlan) -> None:
    # Raise an error if the config sets stages that have no effect: MindFormers runs such a static graph as a whole on one device.
    # The lists of layers are still read for that number of stages, so a run would describe another job.
    stages = len(now.placement[0]) if now.placement else 1
    if loaded.dialect is not Dialect.MINDFORMERS or stages == 1:
        return
    if not is_parallel(loaded.source):
        detail, hint = msg("fitting.not-parallel", stages=stages), msg("fitting.not-parallel.hint")
        raise ConfigError(detail, hint, path=loaded.source.path)


def check_plannable(job: PlannedJob) -> None:
    """Raise an error if the recompute settings of a plan would have no effect on the job's layers."""
    if not recomputes(job.now.dialect, job.first.world_size):
        raise ConfigError(msg("fitting.one-device"), msg("fitting.one-device.hint"), path=job.loaded.source.path)


def check_writable(job: PlannedJob, kinds: Iterable[str]) -> None:
    """Raise an error if plan lists cannot be written to the config, before minutes of dryruns: try two plans that change every cell."""
    base, cells = job.layers // (job.stages * job.chunks), job.stages * job.chunks
    moved = [*([1, -1] * (cells // 2)), *([0] * (cells % 2))]
    now = [count - base for row in job.placement for count in row]
    tried = [uniform_lists(job.placement, kind) for kind in ("none", *kinds)]
    for way in (moved, moved[::-1]):
        flat = [count + more for count, more in zip(now, way, strict=True)]
        tried.append(
            tried[0]._replace(offset=[flat[first : first + job.stages] for first in range(0, cells, job.stages)])
        )
    for lists in tried:
        try:
            job.with_lists(lists)
        except ConfigError as error:
            error.hint = error.hint or msg("fitting.not-writable.hint")
            raise
        except MsTuneError:
            continue  # the framework refuses this mode, or so few layers in a cell


def layer_offsets(cells: Sequence[Sequence[int]]) -> Rows:
    """Return the offset of this placement: each cell's layers minus the even share."""
    base = sum(map(sum, cells)) // (len(cells) * len(cells[0]))
    return [[count - base for count in row] for row in cells]


def layer_offset_or_none(cells: Sequence[Sequence[int]]) -> Rows | None:
    """Return the offset of this placement, or None if all cells have as many layers (lists without an offset mean that)."""
    offset = layer_offsets(cells)
    return offset if any(map(any, offset)) else None


def uniform_lists(cells: Sequence[Sequence[int]], kind: str) -> SappLists:
    """Return lists in which every layer has the same recompute mode; the placement is kept."""
    everything: Rows = [list(row) for row in cells]
    nothing: Rows = [[0] * len(row) for row in cells]
    return SappLists(
        layer_offset_or_none(cells),
        everything if kind == "full" else nothing,
        everything if kind in ("full", "select", "both") else nothing,
        everything if kind in ("full", "comm", "both") else nothing,
        swap=everything if kind == "swap" else nothing,
    )


def full_first_lists(cells: Sequence[Sequence[int]], counts: Sequence[Sequence[int]]) -> SappLists:
    """Return lists that fully recompute ``counts`` layers of each cell and nothing else; the placement is kept."""
    full: Rows = [list(row) for row in counts]
    return SappLists(layer_offset_or_none(cells), full, full, full, swap=[[0] * len(row) for row in counts])


def read_present_plan(job: PlannedJob, table: CostTable) -> PlanLists | None:
    """Return the config's current plan as lists, or None if lists cannot express it (not the first layers of a cell)."""
    chunks, stages = job.chunks, job.stages
    counts = {name: [[0] * stages for _ in range(chunks)] for name in ("full", "select", "comm", "swap")}
    ranks: dict[tuple[int, int], int] = {}
    for layer in job.now.layers[: job.layers]:
        cell = (layer.chunk, layer.stage)
        rank = ranks[cell] = ranks.get(cell, 0) + 1
        full = layer.recompute is RecomputeMode.FULL
        swaps = bool(layer.swap) and not full
        parts_alone = all(swap.target for swap in layer.swap)
        if swaps and (parts_alone or layer.select_patterns or layer.comm_patterns):
            return None
        does = {"full": full, "select": full or bool(layer.select_patterns), "comm": full or bool(layer.comm_patterns)}
        for name, wanted in does.items():
            if not wanted:
                continue
            if counts[name][layer.chunk][layer.stage] != rank - 1:
                return None
            counts[name][layer.chunk][layer.stage] = rank
        if swaps:
            first = max(counts[name][layer.chunk][layer.stage] for name in ("full", "select", "comm"))
            if first + counts["swap"][layer.chunk][layer.stage] != rank - 1:
                return None
            counts["swap"][layer.chunk][layer.stage] += 1
    plan = PlanLists(
        *(
            tuple(map(tuple, rows))
            for rows in (layer_offsets(job.placement), counts["full"], counts["select"], counts["comm"])
        )
    )
    if any(map(any, counts["swap"])):
        plan = plan._replace(swap=tuple(map(tuple, counts["swap"])))
    try:
        cells_of(table, plan, str(job.loaded.source.path))
    except ConfigError:
        return None
    return plan


def lists_of_plan(job: PlannedJob, plan: PlanLists) -> SappLists:
    """Return a plan's lists to merge into the job's config; lists that neither the config nor the plan needs are omitted."""
    nothing = plan.recompute
    counts = tuple(map(tuple, job.now.placement or ()))
    base = job.layers // (job.stages * job.chunks)
    placed = tuple(tuple(base + more for more in row) for row in plan.offset)
    # With swap, the framework reads recompute lists as layer numbers: write all of them if swap is or was used.
    swaps = bool(plan.swap) or any(layer.swap for layer in job.now.layers)
    selects = swaps or any(layer.select_patterns for layer in job.now.layers)
    communicates = swaps or any(layer.comm_patterns for layer in job.now.layers)
    return SappLists(
        _row_lists(plan.offset) if placed != counts or any(map(any, plan.offset)) else None,
        _row_lists(plan.recompute),
        _row_lists(plan.select_recompute) if selects or plan.select_recompute != nothing else None,
        _row_lists(plan.select_comm_recompute) if communicates or plan.select_comm_recompute != nothing else None,
        swap=_row_lists(plan.swap or tuple((0,) * job.stages for _ in range(job.chunks))) if swaps else None,
    )


def _row_lists(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    return [list(row) for row in rows]


def table_name(job: PlannedJob) -> str:
    """Return the start of the names of the job's cached tables, for a quick look whether there is one."""
    sizes = (job.layers, job.stages, job.chunks, job.first.world_size, job.first.pipeline.micro_batches)
    return "-".join(map(str, ("table", *sizes, "")))
