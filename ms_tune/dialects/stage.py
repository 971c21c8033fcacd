"""The layers of one pipeline stage, and fewer of them that still show what the stage is made of.

Memory at the peak is a sum over layers: what a layer keeps depends on its kind (dense or with experts, what it
recomputes) and on its chunk, for the chunks of an interleaved pipeline do not hold the same number of micro-batches.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DENSE, FULL_RECOMPUTE = "dense", "full recompute"  # in the kind of a layer


@dataclass(frozen=True, slots=True)
class StageLayer:
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
    def kind(self) -> str:
        """What decides about its memory, in words."""
        parts = ["moe" if self.experts else DENSE]
        parts += ["mtp"] if self.mtp else []
        parts += [FULL_RECOMPUTE] if self.full else []
        parts += ["select recompute " + " ".join(self.select)] if self.select and not self.full else []
        parts += ["communication recompute"] if self.communication and not self.full else []
        parts += [self.remark] if self.remark else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One virtual-pipeline part of a stage."""

    layers: tuple[StageLayer, ...]  # its layers in order, those of multi-token prediction last
    embedding: bool = False  # it starts with the word embedding
    head: bool = False  # it ends with the output projection and the loss


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage."""

    index: int  # its number, from 0
    stages: int  # how many there are
    chunks: tuple[Chunk, ...]  # its chunks, in the order in which a micro-batch meets them

    @property
    def layers(self) -> int:
        """Ordinary layers, without those of multi-token prediction."""
        return sum(not layer.mtp for chunk in self.chunks for layer in chunk.layers)

    @property
    def kinds(self) -> dict[str, int]:
        """Ordinary layers by kind."""
        several = len(self.chunks) > 1
        return dict(
            Counter(
                f"chunk {number}, {layer.kind}" if several else layer.kind
                for number, chunk in enumerate(self.chunks)
                for layer in chunk.layers
                if not layer.mtp
            )
        )


def stage_of(layers: Sequence[tuple[int, int, StageLayer]], index: int, stages: int, chunks: int) -> Stage:
    """One stage of a model.

    Args:
        layers: All layers of the model: chunk, stage, layer.
        index: The stage.
        stages: Pipeline stages.
        chunks: Chunks of each stage.
    """
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


def resized(stage: Stage, layers: int) -> Stage:
    """The stage with so many ordinary layers: at least one of each kind while that is possible, then by share.

    Layers of multi-token prediction are all kept; they are no part of the count. Within a kind the first layers stay.
    More layers than there are come as copies of the last layer of the most numerous kind.

    Args:
        stage: The full stage.
        layers: How many it is to have.
    """
    groups: dict[tuple[int, str], list[StageLayer]] = {}
    for number, chunk in enumerate(stage.chunks):
        for layer in chunk.layers:
            if not layer.mtp:
                groups.setdefault((number, layer.kind), []).append(layer)
    kept = dict(zip(groups, shares([len(group) for group in groups.values()], layers), strict=True))
    chunks = []
    for number, chunk in enumerate(stage.chunks):
        chosen = [
            layer
            for (where, _), group in groups.items()
            if where == number
            for layer in (group + group[-1:] * layers)[: kept[where, group[0].kind]]
        ]
        chosen.sort(key=lambda layer: layer.number)
        chunks.append(replace(chunk, layers=(*chosen, *(layer for layer in chunk.layers if layer.mtp))))
    return replace(stage, chunks=tuple(chunks))


def shares(counts: Sequence[int], total: int) -> list[int]:
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


def cell_of(kind: str) -> tuple[int, str]:
    """Chunk and make of a layer, whatever it recomputes, from its kind as a prepared run names it."""
    first, _, rest = kind.partition(", ")
    word, _, number = first.partition(" ")
    return (int(number), rest.partition(", ")[0]) if word == "chunk" else (0, first)
