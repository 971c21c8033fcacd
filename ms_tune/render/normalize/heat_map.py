"""Stages across, chunks down: how much of each cell is recomputed, as shades and as numbers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ms_tune.layers import Effect
from ms_tune.render.columns import pad, text_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ms_tune.layers import LayerPlan
    from ms_tune.render.console import Console

_SHADES = "·░▒▓█"  # none, then up to a third, up to two thirds, below all, all
_THIRDS = 3


def heat_map(layers: Sequence[LayerPlan], console: Console, width: int) -> Iterator[str]:
    """The lines of the map: a block of stages as wide as the terminal, then the next block.

    Layers recomputed in full are counted; if there are none, those with selected operators or communication are.
    """
    if not layers:
        return
    effects = {layer.recompute for layer in layers}
    counted = {Effect.FULL} if Effect.FULL in effects else {Effect.SELECT, Effect.COMM}
    yield console.text("normalize.title.map.full" if Effect.FULL in counted else "normalize.title.map.select")
    total = Counter((layer.chunk, layer.stage) for layer in layers)
    hits = Counter((layer.chunk, layer.stage) for layer in layers if layer.recompute in counted)
    stages = range(min(stage for _, stage in total), max(stage for _, stage in total) + 1)
    chunks = range(max(chunk for chunk, _ in total) + 1)
    words = {cell: f"{hits[cell]}/{total[cell]}" for cell in total}
    size = max(*map(len, words.values()), len(str(stages[-1])))
    heads = (console.text("normalize.column.stage"), console.text("normalize.map.chunk", number=chunks[-1]))
    label = max(map(text_width, heads))
    block = max(1, (width - 2 - label) // (size + 1))
    for first in range(stages[0], stages[-1] + 1, block):
        shown = [stage for stage in stages if first <= stage < first + block]
        yield _line(console.text("normalize.column.stage"), [str(stage).rjust(size) for stage in shown], label)
        for chunk in chunks:
            name = console.text("normalize.map.chunk", number=chunk)
            cells = [(chunk, stage) for stage in shown]
            yield _line(name, [_shade(hits[cell], total[cell]) * size for cell in cells], label)
            yield _line("", [words.get(cell, "-").rjust(size) for cell in cells], label)


def _line(head: str, words: Sequence[str], label: int) -> str:
    return "  " + " ".join([pad(head, label), *words]).rstrip()


def _shade(hits: int, total: int) -> str:
    if not hits:
        return _SHADES[0] if total else " "
    if hits == total:
        return _SHADES[-1]
    return _SHADES[1 + min(hits * _THIRDS // total, _THIRDS - 1)]
