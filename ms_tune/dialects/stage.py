"""The layers of one pipeline stage, and fewer of them that still show what the stage is made of.

Memory at the peak is a sum over layers: what a layer keeps depends on its kind (dense or with experts, what it
recomputes) and on its chunk, for the chunks of an interleaved pipeline do not hold the same number of micro-batches.
"""

from __future__ import annotations

from ms_tune.enums import LayerKind, RecomputeMode
from ms_tune.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any


class StageLayerKind(Record):
    """What decides about the memory of a layer; layers of one kind need the same."""

    make: LayerKind
    recompute: RecomputeMode = RecomputeMode.NONE
    select: tuple[str, ...] = ()  # patterns of the modules in it that are recomputed
    remark: str = ""  # whatever else decides, in words: what it swaps, for example
    # Its chunk, where the stage has several: they do not hold the same number of micro-batches.
    chunk: int | None = None
    together: tuple[LayerKind, ...] = ()  # further layers that are recomputed with it as one

    @property
    def cell(self) -> tuple[int, LayerKind]:
        """Chunk and make, whatever it recomputes."""
        return self.chunk or 0, self.make

    @property
    def label(self) -> str:
        """The kind in words, for people and for JSON; nothing reads them back."""
        parts = [f"chunk {self.chunk}"] if self.chunk is not None else []
        parts.append(" + ".join(map(make_name, (self.make, *self.together))))
        parts += ["full recompute"] if self.recompute is RecomputeMode.FULL else []
        parts += ["select recompute " + " ".join(self.select)] if self.select else []
        parts += ["communication recompute"] if self.recompute in (RecomputeMode.COMM, RecomputeMode.BOTH) else []
        parts += [self.remark] if self.remark else []
        return ", ".join(parts)


def make_name(make: LayerKind) -> str:
    """What layers are made of, as tables and texts name it."""
    return "moe" if make is LayerKind.EXPERTS else make.value


def kinds_to_json(kinds: Mapping[StageLayerKind, int]) -> list[dict[str, object]]:
    """Layers by kind, as plain data for :func:`kinds_from_json`."""
    return [{**kind._asdict(), "count": count} for kind, count in kinds.items()]


def kinds_from_json(rows: Iterable[Mapping[str, Any]]) -> dict[StageLayerKind, int]:
    """Layers by kind."""
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
    # It predicts further tokens (multi-token prediction); such layers stand behind the last ordinary one.
    mtp: bool = False
    full: bool = False  # all of it is recomputed
    select: tuple[str, ...] = ()  # patterns of the modules in it that are recomputed
    communication: bool = False  # gathered inputs of its projections are gathered again instead of kept
    remark: str = ""  # whatever else decides about its memory, in words: what it swaps, for example

    @property
    def recompute(self) -> RecomputeMode:
        """How much of it is recomputed."""
        if self.full:
            return RecomputeMode.FULL
        if self.select:
            return RecomputeMode.BOTH if self.communication else RecomputeMode.SELECT
        return RecomputeMode.COMM if self.communication else RecomputeMode.NONE

    def kind_in(self, chunk: int | None) -> StageLayerKind:
        """What decides about its memory, in that chunk of a stage; None in a stage of one."""
        make = LayerKind.EXPERTS if self.experts else LayerKind.DENSE
        return StageLayerKind(make, self.recompute, () if self.full else self.select, self.remark, chunk)


class Chunk(Record):
    """One virtual-pipeline part of a stage."""

    layers: tuple[StageLayer, ...]  # its layers in order, those of multi-token prediction last
    embedding: bool = False  # it starts with the word embedding
    head: bool = False  # it ends with the output projection and the loss


class Stage(Record):
    """One pipeline stage."""

    number: int  # its number, from 0
    stages: int  # how many there are
    chunks: tuple[Chunk, ...]  # its chunks, in the order in which a micro-batch meets them

    @property
    def layers(self) -> int:
        """Ordinary layers, without those of multi-token prediction."""
        return sum(not layer.mtp for chunk in self.chunks for layer in chunk.layers)

    @property
    def kinds(self) -> dict[StageLayerKind, int]:
        """Ordinary layers by kind."""
        return {kind: len(layers) for kind, layers in self.layers_by_kind().items()}

    def layers_by_kind(self) -> dict[StageLayerKind, list[StageLayer]]:
        """Ordinary layers, those of one kind together."""
        found: dict[StageLayerKind, list[StageLayer]] = {}
        for number, chunk in enumerate(self.chunks):
            for layer in chunk.layers:
                if not layer.mtp:
                    found.setdefault(layer.kind_in(number if len(self.chunks) > 1 else None), []).append(layer)
        return found


def stage_of(layers: Sequence[tuple[int, int, StageLayer]], index: int, stages: int, chunks: int) -> Stage:
    """One stage of a model."""
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


def resize_stage(stage: Stage, layers: int) -> Stage:
    """The stage with so many ordinary layers: at least one of each kind while that is possible, then by share.

    Layers of multi-token prediction are all kept; they are no part of the count. Within a kind the first layers stay.
    More layers than there are come as copies of the last layer of the most numerous kind.
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
    """How many of each group are kept.

    Every group gets one, the largest first; then, one by one, the group that is furthest below its share, the first
    of equals. One more in total is therefore one more in one group, and none less in another.
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
