"""Layers of one pipeline stage, and smaller stages that still contain each kind of layer.

Peak memory is a sum over layers: each layer's share depends on its kind (dense or with experts, its recomputation) and
on its chunk, because chunks of an interleaved pipeline have different numbers of micro-batches in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.records import Any, Record


class StageLayerKind(Record):
    """The properties that determine a layer's memory; layers of one kind need the same amount."""

    make: LayerKind
    recompute: RecomputeMode = RecomputeMode.NONE
    select: tuple[str, ...] = ()  # patterns of its recomputed modules
    remark: str = ""  # any other property that matters, in words, such as its swap
    # Its chunk, if the stage has several: they have different numbers of micro-batches in flight.
    chunk: int | None = None
    together: tuple[LayerKind, ...] = ()  # further layers that form one recomputed block with it

    @property
    def cell(self) -> tuple[int, LayerKind]:
        """Return the chunk and the kind of layer, regardless of recomputation."""
        return self.chunk or 0, self.make

    @property
    def label(self) -> str:
        """Return the kind in words for people and JSON; it is never parsed."""
        parts = [f"chunk {self.chunk}"] if self.chunk is not None else []
        parts.append(" + ".join(map(make_name, (self.make, *self.together))))
        parts += ["full recompute"] if self.recompute is RecomputeMode.FULL else []
        parts += ["select recompute " + " ".join(self.select)] if self.select else []
        parts += ["communication recompute"] if self.recompute in (RecomputeMode.COMM, RecomputeMode.BOTH) else []
        parts += [self.remark] if self.remark else []
        return ", ".join(parts)


def make_name(make: LayerKind) -> str:
    """Return the name of a layer kind for tables and texts."""
    return "moe" if make is LayerKind.EXPERTS else make.value


def kinds_to_json(kinds: Mapping[StageLayerKind, int]) -> list[dict[str, object]]:
    """Convert counts by kind to plain data for :func:`kinds_from_json`."""
    return [{**kind._asdict(), "count": count} for kind, count in kinds.items()]


def kinds_from_json(rows: Iterable[Mapping[str, Any]]) -> dict[StageLayerKind, int]:
    """Read counts by kind from :func:`kinds_to_json`."""
    return {
        StageLayerKind(
            make=LayerKind(row["make"]),
            recompute=RecomputeMode(row["recompute"]),
            select=tuple(map(str, row["select"])),
            remark=str(row["remark"]),
            chunk=None if row["chunk"] is None else int(row["chunk"]),
            together=tuple(map(LayerKind, row["together"])),
        ): int(row["count"])
        for row in rows
    }


class StageLayer(Record):
    """One layer of a stage."""

    number: int  # its number in the whole model, from 0
    experts: bool = False  # its feed-forward block is a mixture of experts
    # It is a multi-token prediction layer, after the last ordinary one.
    mtp: bool = False
    full: bool = False  # it is fully recomputed
    select: tuple[str, ...] = ()  # patterns of its recomputed modules
    communication: bool = False  # gathered inputs of its projections are gathered again instead of kept
    remark: str = ""  # any other property that affects its memory, in words, such as its swap

    @property
    def recompute(self) -> RecomputeMode:
        """Return how much of it is recomputed."""
        if self.full:
            return RecomputeMode.FULL
        if self.select:
            return RecomputeMode.BOTH if self.communication else RecomputeMode.SELECT
        return RecomputeMode.COMM if self.communication else RecomputeMode.NONE

    def kind_in(self, chunk: int | None) -> StageLayerKind:
        """Return its kind in a chunk of a stage; None for a stage with one chunk."""
        make = LayerKind.EXPERTS if self.experts else LayerKind.DENSE
        return StageLayerKind(make, self.recompute, () if self.full else self.select, self.remark, chunk)


class Chunk(Record):
    """One virtual-pipeline chunk of a stage."""

    layers: tuple[StageLayer, ...]  # its layers in order, multi-token prediction last
    embedding: bool = False  # it starts with the word embedding
    head: bool = False  # it ends with the output projection and the loss


class Stage(Record):
    """One pipeline stage."""

    number: int  # its number, from 0
    stages: int  # number of stages
    chunks: tuple[Chunk, ...]  # its chunks, in the order in which a micro-batch passes them

    @property
    def layers(self) -> int:
        """Return the number of ordinary layers (without multi-token prediction)."""
        return sum(not layer.mtp for chunk in self.chunks for layer in chunk.layers)

    @property
    def kinds(self) -> dict[StageLayerKind, int]:
        """Return the number of ordinary layers of each kind."""
        return {kind: len(layers) for kind, layers in self.layers_by_kind().items()}

    def layers_by_kind(self) -> dict[StageLayerKind, list[StageLayer]]:
        """Return the ordinary layers grouped by kind."""
        found: dict[StageLayerKind, list[StageLayer]] = {}
        for number, chunk in enumerate(self.chunks):
            for layer in chunk.layers:
                if not layer.mtp:
                    found.setdefault(layer.kind_in(number if len(self.chunks) > 1 else None), []).append(layer)
        return found


def stage_of(layers: Sequence[tuple[int, int, StageLayer]], index: int, stages: int, chunks: int) -> Stage:
    """Build one stage from a model's (chunk, stage, layer) triples."""
    parts = [[layer for chunk, stage, layer in layers if (chunk, stage) == (number, index)] for number in range(chunks)]
    return Stage(
        index,
        stages,
        tuple(
            Chunk(
                tuple(sorted(part, key=lambda layer: layer.number)),
                embedding=index == 0 and number == 0,
                head=index == stages - 1 and number == chunks - 1,
            )
            for number, part in enumerate(parts)
        ),
    )


def with_prediction(stage: Stage, count: int) -> Stage:
    """Return the stage with layers of multi-token prediction after the head's chunk, each of the kind of the model's last layer."""
    chunks = (
        chunk._replace(layers=(*chunk.layers, *[chunk.layers[-1]._replace(mtp=True)] * count))
        if chunk.head and chunk.layers
        else chunk
        for chunk in stage.chunks
    )
    return stage._replace(chunks=tuple(chunks))


def resize_stage(stage: Stage, layers: int) -> Stage:
    """Return the stage with ``layers`` ordinary layers: at least one of each kind if possible, the rest in proportion.

    Multi-token prediction layers are all kept and not counted. Within a kind the first layers stay. Additional layers
    are copies of the last layer of the most numerous kind.
    """
    groups = stage.layers_by_kind()
    kept = share_out([len(group) for group in groups.values()], layers)
    chunks = []
    for number, chunk in enumerate(stage.chunks):
        chosen = [
            layer
            for (kind, group), count in zip(groups.items(), kept, strict=True)
            if (kind.chunk or 0) == number
            for layer in (group + group[-1:] * layers)[:count]
        ]
        chosen.sort(key=lambda layer: layer.number)
        chunks.append(chunk._replace(layers=(*chosen, *(layer for layer in chunk.layers if layer.mtp))))
    return stage._replace(chunks=tuple(chunks))


def share_out(counts: Sequence[int], total: int) -> list[int]:
    """Return how many of each group are kept.

    Every group gets one, the largest first; then the group furthest below its share gets one more, the first of equals.
    So one more in total adds one to one group and takes none from another.
    """
    kept = [0] * len(counts)
    largest = sorted(range(len(counts)), key=lambda index: -counts[index])
    for index in largest[:total]:
        kept[index] = 1
    while sum(kept) < min(total, sum(counts)):
        unfilled = [index for index, count in enumerate(counts) if kept[index] < count]
        kept[min(unfilled, key=lambda index: kept[index] / counts[index])] += 1
    if counts:
        kept[largest[0]] += total - sum(kept)
    return kept
