"""Read a config's layout, and rewrite a config for another one, with all dependent sizes and without recomputation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ms_tune.diagnostics import KeyPath
from ms_tune.dryrun.prepare import LoadedConfig
from ms_tune.dryrun.request import PreparedRun, Setting
from ms_tune.dryrun.settings import with_settings
from ms_tune.enums import Dialect
from ms_tune.estimate.memory import KeptBytes, graph_of
from ms_tune.facts.query import load
from ms_tune.fit.job import layer_offsets, write_lists
from ms_tune.normalize.sapp_lists import SappLists
from ms_tune.planning.layouts import Layout
from ms_tune.records import Record
from ms_tune.source.edit_values import with_settings as with_values
from ms_tune.source.yaml import MISSING, SourceFile, parse_source


class LayoutKeys(Record):
    """Config keys that define the layout in one dialect."""

    sizes: Mapping[str, KeyPath]  # by layout field; fields without a key follow from the others
    sequence: KeyPath  # true: activations between layers are split over the TP ranks
    # Keys of selective recomputation: of operators, of communication.
    selects: tuple[tuple[KeyPath, ...], tuple[KeyPath, ...]]
    # Key that shards the optimizer state over the DP ranks; None if it is always sharded.
    sharded: KeyPath | None
    needs_sequence: bool  # the framework refuses TP without sequence parallelism
    # Keys that assign layers to stages other than by an offset, each with the value that leaves this to the framework.
    places: Mapping[KeyPath, object]


_COMPARED = 2  # CP ranks
_INTERLEAVE: KeyPath = ("parallel", "pipeline_config", "pipeline_interleave")


def read_layout(loaded: LoadedConfig, run: PreparedRun) -> Layout:
    """Return the layout of a config, of which a stage was prepared as ``run``."""
    split, keys = run.split, layout_keys(loaded.dialect)
    size = loaded.source.get(keys.sizes["size"], 1)
    micro_batches = run.pipeline.micro_batches
    if loaded.dialect is Dialect.MINDFORMERS and split.pipeline == 1:
        micro_batches = 1  # no gradient accumulation there without a pipeline
    return Layout(
        tensor=split.tensor,
        pipeline=split.pipeline,
        chunks=run.pipeline.chunks,
        context=split.context,
        expert=split.expert,
        size=size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else 1,
        data=split.data,
        micro_batches=micro_batches,
    )


@cache
def layout_keys(dialect: Dialect) -> LayoutKeys:
    """Return the layout keys of a dialect."""
    found = load("layouts")[dialect.value]
    select, comm = (tuple(map(_split_key, found[kind])) for kind in ("select", "comm"))
    return LayoutKeys(
        sizes={field: _split_key(key) for field, key in found["sizes"].items()},
        sequence=_split_key(found["sequence"]),
        selects=(select, comm),
        sharded=None if found["sharded"] is None else _split_key(found["sharded"]),
        needs_sequence=found["needs_sequence"],
        places={_split_key(key): value for key, value in found["places"].items()},
    )


def _split_key(key: str) -> KeyPath:
    return tuple(key.split("."))


def is_sequence_parallel(loaded: LoadedConfig) -> bool:
    """Return whether activations between layers are split over the TP ranks."""
    return loaded.source.get(layout_keys(loaded.dialect).sequence, False) is True


def shards_weights(loaded: LoadedConfig, layout: Layout) -> bool:
    """Return whether ranks with the same weights shard them: always in the dynamic graph."""
    key = layout_keys(loaded.dialect).sharded
    chosen = loaded.dialect is Dialect.MINDFORMERS_PYNATIVE or (key is not None and loaded.source.get(key) is True)
    return chosen and layout.data * layout.context > 1


def graph_of_layout(loaded: LoadedConfig, layout: Layout) -> KeptBytes:
    """Return the bytes that the graph of a config's network keeps in a layout."""
    shards = shards_weights(loaded, layout)
    graph = graph_of(loaded.job.model, loaded.dialect, layout.tensor, shards=shards)
    if layout.context == 1:
        return graph
    # CP was compared on static graphs with two ranks; the memory for exchanging keys and values is not modelled.
    compared = (
        loaded.dialect is Dialect.MINDFORMERS and layout.context == _COMPARED and not loaded.job.model.facts.legacy
    )
    return graph._replace(ratios=(0.85, 1.25) if compared else (0.75, 1.5))


def can_accumulate(dialect: Dialect, layout: Layout) -> bool:
    """Return whether the framework can run this many micro-batches; MindFormers' static graph accumulates gradients only with PP."""
    return dialect is not Dialect.MINDFORMERS or layout.pipeline > 1 or layout.micro_batches == 1


def with_samples(loaded: LoadedConfig, samples: int) -> LoadedConfig:
    """Return the config with another global batch, if it has a key for it; the file is unchanged."""
    key = layout_keys(loaded.dialect).sizes.get("samples")
    return loaded if key is None else loaded.with_source(_apply_values(loaded, {key: samples}))


def with_layout(loaded: LoadedConfig, layout: Layout, layers: int, *, shards: bool = False) -> LoadedConfig:
    """Return the config with another layout, an even split of layers and no recomputation; the file is unchanged.

    ``shards``: ranks with the same weights shard their optimizer states.
    """
    keys, source = layout_keys(loaded.dialect), loaded.source
    wanted: dict[KeyPath, object] = {}
    for field, path in keys.sizes.items():
        size, now = getattr(layout, field), source.get(path, MISSING)
        if now in (MISSING, None) and (size == 1 or field == "samples"):
            continue
        if size != now and not (field == "data" and now == -1):
            wanted[path] = size
    if loaded.dialect is Dialect.MINDFORMERS and layout.chunks > 1:
        wanted[_INTERLEAVE] = True
    if layout.tensor > 1 and keys.needs_sequence:
        wanted[keys.sequence] = True
    if shards and keys.sharded is not None and layout.data * layout.context > 1:
        wanted[keys.sharded] = True
    wanted.update({path: value for path, value in keys.places.items() if source.get(path) is not None})
    source = _apply_values(loaded, wanted)
    nothing = [[0] * layout.pipeline for _ in range(layout.chunks)]
    select, comm = (nothing if any(source.get(path) is not None for path in paths) else None for paths in keys.selects)
    lists = SappLists(layer_offsets(split_evenly(layers, layout)), nothing, select, comm, swap=nothing)
    return write_lists(loaded.with_source(source), lists)


def _apply_values(loaded: LoadedConfig, wanted: Mapping[KeyPath, object]) -> SourceFile:
    # Set existing keys first, including values that follow them through an anchor; then add the missing ones.
    source = loaded.source
    there = {path: value for path, value in wanted.items() if source.get(path, MISSING) is not MISSING}
    settings = [Setting(path, "null" if value is None else str(value)) for path, value in there.items()]
    source = with_settings(source, settings, loaded.dialect)
    text, _ = with_values(source, {path: value for path, value in wanted.items() if path not in there})
    return parse_source(text, source.path)


def split_evenly(layers: int, layout: Layout) -> list[list[int]]:
    """Return the layers per cell (chunks x stages): an even split, with the remainder on middle stages first."""
    cells = layout.pipeline * layout.chunks
    rest = layers % cells
    inner = [cell for cell in range(cells) if 0 < cell % layout.pipeline < layout.pipeline - 1]
    order = [*inner, *(cell for cell in range(cells) if cell not in inner)]
    more = set(order[:rest])
    flat = [layers // cells + (cell in more) for cell in range(cells)]
    return [flat[start : start + layout.pipeline] for start in range(0, cells, layout.pipeline)]
