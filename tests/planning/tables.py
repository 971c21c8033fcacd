"""Provide tables: the two public cases, and random ones."""

from __future__ import annotations

import random

from ms_tune.enums import RecomputeMode
from ms_tune.planning.schedule import Schedule, why_refused
from ms_tune.planning.table import IN_CELL, CostTable, LayerCost, LayerGroup, RecomputeOverhead, StageEnd, UpdateCost
from ms_tune.units import MIB

_SMALL = ((1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (2, 3))


def mb(size: float) -> int:
    return int(size * MIB)


# SAPP's example of 175 billion parameters, and its demonstration of four stages.
CASE_A = CostTable(
    stages=16,
    chunks=1,
    micro_batches=16,
    limit_bytes=mb(53_000),
    order=Schedule.INTERLEAVED_LESS_MEMORY,
    layers=(
        LayerGroup(
            "body",
            96,
            180.0,
            mb(1583),
            {RecomputeMode.NONE: LayerCost(mb(826)), RecomputeMode.FULL: LayerCost(mb(32), backward_extra=0.5)},
        ),
    ),
    head=StageEnd(30.0, mb(11_000)),
    tail=StageEnd(90.0, mb(2_473)),
)
CASE_E = CostTable(
    stages=4,
    chunks=1,
    micro_batches=8,
    limit_bytes=mb(56_000),
    order=Schedule.ONE_FORWARD_ONE_BACKWARD,
    layers=(
        LayerGroup(
            "body",
            80,
            1.0,
            mb(400.6),
            {RecomputeMode.NONE: LayerCost(mb(743.5)), RecomputeMode.FULL: LayerCost(mb(131.8), backward_extra=0.5)},
        ),
    ),
    head=StageEnd(1.0, mb(1459.8)),
    tail=StageEnd(2.0, mb(3329.3)),
    constant_bytes=mb(955.3),
)


def random_table(seed: int, *, most_layers: int = 24, tiny: bool = False) -> CostTable:
    """Return a plausible table; its limit may be too low."""
    draw = random.Random(seed)  # noqa: S311 - test data
    while True:
        stages, chunks = draw.choice(_SMALL[:5] if tiny else _SMALL)
        order = draw.choice(list(Schedule))
        micro = draw.randint(1, 4 if tiny else 12)
        if why_refused(order, stages, chunks, micro) is None:
            break
    cells = stages * chunks
    low = max(cells - 2, 1)
    count = draw.randint(low, max(low, (5 if cells < 4 else 6) if tiny else most_layers))
    optional = [kind for kind in IN_CELL[:-1] if draw.random() < (0.4 if tiny else 0.5)]
    kinds = [*(optional[:2] if tiny else optional), RecomputeMode.NONE]
    first = draw.randint(1, count - 1) if count > 1 and draw.random() < 0.4 else count
    runs = [first, count - first] if first < count else [count]
    layers = tuple(_layer(draw, f"run{number}", run, kinds) for number, run in enumerate(runs))
    room = sum(
        layer.layer_count * (layer.bytes + layer.recompute[RecomputeMode.NONE].activation_bytes) for layer in layers
    )
    return CostTable(
        stages=stages,
        chunks=chunks,
        micro_batches=micro,
        limit_bytes=int(room / stages * draw.uniform(0.5, 2.5)) + 600,
        order=order,
        layers=layers,
        head=StageEnd(
            draw.choice([0.0, 0.5, 2.0]),
            draw.randint(0, 200),
            filled=count >= cells and draw.random() < 0.2,
        ),
        tail=StageEnd(
            draw.choice([0.0, 1.25, 3.0]),
            draw.randint(0, 200),
            draw.choice([0, 0, 90, 400]),
            filled=count >= cells and draw.random() < 0.2,
        ),
        constant_bytes=draw.randint(0, 50),
        stage_bytes=tuple(draw.randint(0, 60) for _ in range(stages)) if draw.random() < 0.3 else (),
        update=_update(draw, stages) if draw.random() < 0.3 else None,
        again=_again(draw, stages, chunks) if draw.random() < 0.3 else None,
    )


def _again(draw: random.Random, stages: int, chunks: int) -> RecomputeOverhead:
    spans = ((0, 40, stages), (-15, 30, stages * chunks), (0, 200, stages * chunks))
    first, layers, transients = (tuple(draw.randint(low, high) for _ in range(count)) for low, high, count in spans)
    return RecomputeOverhead(first, layers, transients, lingers=draw.random() < 0.5)


def _update(draw: random.Random, stages: int) -> UpdateCost:
    sizes = tuple(draw.randint(20, 400) for _ in range(stages))
    return UpdateCost(sizes, tuple(draw.randint(-50, 300) for _ in range(stages)))


def _layer(draw: random.Random, name: str, count: int, kinds: list[RecomputeMode]) -> LayerGroup:
    none = draw.randint(60, 300)
    single = (
        {RecomputeMode.SELECT: draw.randint(40, none), RecomputeMode.COMM: draw.randint(40, none)} if none >= 40 else {}
    )
    sizes = {
        RecomputeMode.NONE: none,
        **single,
        RecomputeMode.BOTH: draw.randint(20, 40),
        RecomputeMode.FULL: draw.randint(0, 20),
    }
    sizes[RecomputeMode.SWAP] = draw.randint(0, 50)
    extras = {
        RecomputeMode.NONE: 0.0,
        RecomputeMode.SELECT: 0.04,
        RecomputeMode.COMM: 0.125,
        RecomputeMode.BOTH: 0.165,
        RecomputeMode.FULL: 0.5,
        RecomputeMode.SWAP: draw.choice([0.0, 0.0, 0.2]),
    }
    transients, once, piled = draw.random() < 0.5, draw.random() < 0.4, draw.random() < 0.3
    recompute = {
        kind: LayerCost(
            sizes[kind],
            extras[kind],
            draw.randint(0, 200) if transients and kind is not RecomputeMode.NONE else 0,
            draw.randint(-20, 60) if once else 0,
            draw.randint(0, 60) if piled and kind is RecomputeMode.FULL else 0,
            *((none - sizes[kind], draw.choice([0.0, 0.25, 1.5])) if kind is RecomputeMode.SWAP else ()),
        )
        for kind in kinds
    }
    return LayerGroup(name, count, draw.choice([1.0, 1.5, 2.75, 10.0]), draw.randint(20, 100), recompute)
