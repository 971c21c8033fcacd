"""Measure how far plans of ``ms-tune fit`` are from the best known ones of thirteen tables.

``PYTHONPATH=. python benchmarks/plans.py [--search SECONDS] [--seed N] [NUMBER...]``: plans each table with normal effort, checks time
and peak with the pipeline that the tests simulate pass by pass, and prints the excess over the best known time, the gap to the
lower bound that ``fit`` prints, and processor seconds. ``--search`` looks for a better plan first, with ``plans.c`` (needs a C
compiler): another simulator and another annealing.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

from ms_tune.enums import RecomputeMode
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.search import Effort, search_plans
from ms_tune.planning.table import CostTable, LayerCost, LayerGroup, StageEnd
from tests.planning import naive
from tests.planning.tables import CASE_A, CASE_E, mb

_EXTRA = {"none": 0.0, "select": 0.04, "comm": 0.125, "both": 0.165, "full": 0.5}
_FIVE = {"none": 826.0, "select": 560.0, "comm": 620.0, "both": 354.0, "full": 32.0}
_DENSE = {"none": 610.0, "comm": 500.0, "full": 28.0}
_EXPERTS = {"none": 980.0, "comm": 700.0, "full": 28.0}
_LESS, _EACH, _ONE = Schedule.INTERLEAVED_LESS_MEMORY, Schedule.INTERLEAVED, Schedule.ONE_FORWARD_ONE_BACKWARD
_SPREAD, _FULL = Schedule.INTERLEAVED_SPREAD, Schedule.INTERLEAVED_FULL_WARM_UP


def group(name: str, count: int, time: float, size: float, kept: dict[str, float]) -> LayerGroup:
    """Return equal layers; sizes are in MiB."""
    costs = {RecomputeMode(kind): LayerCost(mb(more), _EXTRA[kind]) for kind, more in kept.items()}
    return LayerGroup(name, count, time, mb(size), costs)


def table(  # noqa: PLR0913, PLR0917 - one line a table
    pipeline: tuple[int, int, int, Schedule],
    limit: float,
    layers: tuple[LayerGroup, ...],
    head: tuple[float, float],
    tail: tuple[float, float, float],
    constant: float = 0,
) -> CostTable:
    """Return a table of stages, chunks, micro-batches and order; sizes are in MiB, times of head and tail come first."""
    stages, chunks, micro_batches, order = pipeline
    ends = StageEnd(head[0], mb(head[1])), StageEnd(tail[0], mb(tail[1]), mb(tail[2]))
    return CostTable(stages, chunks, micro_batches, mb(limit), order, layers, *ends, constant_bytes=mb(constant))


_BODY = (group("body", 192, 90.25, 790, _FIVE),)
_MIXED = (group("dense", 3, 41.5, 520, _DENSE), group("experts", 58, 63.25, 2900, _EXPERTS))
_PART = {kind: size * 0.4 for kind, size in _FIVE.items()}
# Tables, with the shortest time that any search has found.
CASES = {
    "96 layers, 16 x 3, less memory": (CASE_A._replace(chunks=3), 80370.0),
    "96 layers, 16 x 3, 70,000 MB": (CASE_A._replace(chunks=3, order=_EACH, limit_bytes=mb(70_000)), 75060.0),
    "192 layers, 16 x 3, five kinds": (
        table((16, 3, 32, _LESS), 52_000, _BODY, (30, 11_000), (175.5, 2_473, 0)),
        146043.3275,
    ),
    "192 layers, 16 x 1, five kinds, tight": (
        table((16, 1, 32, _ONE), 40_000, _BODY, (30, 9_000), (175.5, 2_473, 0)),
        178268.5525,
    ),
    "192 layers, 21 x 3": (table((21, 3, 42, _LESS), 52_000, _BODY, (30, 11_000), (175.5, 2_473, 0)), 148766.73),
    "80 layers, 4 x 2, large vocabulary": (
        CASE_E._replace(chunks=2, order=_EACH, tail=StageEnd(3.7, mb(3329.3), mb(2500))),
        628.1,
    ),
    "61 layers, 3 dense, 8 x 2": (
        table((8, 2, 32, _EACH), 53_000, _MIXED, (3, 1800), (61, 2600, 1900), 1500),
        60492.875,
    ),
    "61 layers, 3 dense, 16 x 1": (
        table((16, 1, 64, _ONE), 33_000, _MIXED, (3, 1800), (61, 2600, 1900), 1500),
        69404.875,
    ),
    "64 layers, 8 x 4, loose": (
        table(
            (8, 4, 16, _EACH),
            60_000,
            (group("body", 64, 100, 700, {"none": 400, "both": 250, "full": 40}),),
            (10, 2500),
            (140, 2500, 3000),
        ),
        44840.0,
    ),
    "126 layers, 16 x 2, tight": (
        table((16, 2, 32, _EACH), 36_500, (group("body", 126, 212.5, 1450, _PART),), (20, 4200), (300, 4200, 2100)),
        211688.5,
    ),
    "94 layers, 8 x 3, tight": (
        table(
            (8, 3, 24, _FULL),
            56_500,
            (group("body", 94, 77, 2600, {"none": 540, "select": 400, "full": 24}),),
            (8, 1500),
            (95, 1500, 1200),
        ),
        81319.16,
    ),
    "48 layers, 12 x 2, spread": (
        table(
            (12, 2, 30, _SPREAD),
            30_000,
            (group("body", 48, 55, 900, {"none": 420, "comm": 330, "full": 20}),),
            (4, 1400),
            (88, 1400, 900),
        ),
        26332.25,
    ),
    "62 layers, 10 x 3, few a cell": (
        table(
            (10, 3, 20, _EACH),
            46_000,
            (group("body", 62, 130, 1700, {"none": 600, "comm": 480, "full": 32}),),
            (16, 3100),
            (210, 3100, 2600),
        ),
        62168.0,
    ),
}


def main() -> None:
    """Print a line for each table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--search", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("numbers", nargs="*", type=int)
    arguments = parser.parse_args()
    for number, (name, (one, best)) in enumerate(CASES.items()):
        if arguments.numbers and number not in arguments.numbers:
            continue
        longer = search_longer(one, arguments.search, arguments.seed) if arguments.search else best
        begin = time.process_time()
        found = search_plans(one, Effort.NORMAL, arguments.seed, lambda _progress: None)
        seconds = time.process_time() - begin
        cells = found.costs.cells_of(found.best.state)
        step = float(naive.time_of(one, cells))
        fits = max(naive.peaks_of(one, cells)) <= one.limit_bytes
        gap = found.best.score / found.bound - 1
        state = "" if fits else " OVER THE LIMIT"
        print(
            f"{number:2} {name:40} {step:12.2f} {step / min(best, longer) - 1:8.2%} gap {gap:7.2%} {seconds:6.1f} s{state}",
            flush=True,
        )


def search_longer(one: CostTable, seconds: float, seed: int) -> float:
    """Return the shortest time that the other search finds, checked with the tests' pipeline."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "plans"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-O3", "-o", str(program), str(source), "-lm"], check=True)  # noqa: S607 - any compiler
        command = [str(program), str(seconds), str(seed)]
        words = subprocess.run(command, input=text_of(one), capture_output=True, text=True, check=True).stdout.split()
    counts, kinds = list(map(int, words[1:])), one.kinds
    cells = [dict(zip(kinds, counts[at : at + len(kinds)], strict=True)) for at in range(0, len(counts), len(kinds))]
    assert max(naive.peaks_of(one, cells)) <= one.limit_bytes  # noqa: S101 - the two simulators agree
    return float(naive.time_of(one, cells))


def text_of(one: CostTable) -> str:
    """Return a table as numbers: sizes, layers, ends, passes with those they wait for, moments of each stage, an even plan."""
    kinds, cells, stages = one.kinds, one.cells, one.stages
    orders = [naive.order_of(one, stage) for stage in range(stages)]
    passes = _sorted_passes(one, [list(order) for order in orders])
    places = [kinds.index(kind) if kind in kinds else -1 for kind in (RecomputeMode.SELECT, RecomputeMode.COMM)]
    lines: list[list[float]] = [[cells, len(kinds), len(one.layers), stages, one.chunks, len(passes), *places]]
    for layer in one.layers:
        rows = [(layer.recompute[kind], layer.forward) for kind in kinds]
        costs = [
            (time * (1 + cost.forward_extra), 2 * time * (1 + cost.backward_extra), cost.activation_bytes)
            for cost, time in rows
        ]
        lines.append([layer.layer_count, layer.bytes, *(figure for row in costs for figure in row)])
    lines += [[one.head.forward, one.tail.forward], *passes]
    for stage, order in enumerate(orders):
        held, moments = [0] * one.chunks, dict[tuple[int, ...], int]()
        for is_forward, chunk, _ in order:
            if not is_forward:
                late = one.tail.transient_bytes if (stage, chunk) == (stages - 1, one.chunks - 1) else 0
                moments[tuple(held)] = max(moments.get(tuple(held), 0), late)
            held[chunk] += 1 if is_forward else -1
        rest = [figure for vector, late in moments.items() for figure in (late, *vector)]
        lines.append([len(moments), one.limit_bytes - one.fixed_bytes(stage), *rest])
    base, more = divmod(one.layer_count, cells)
    lines += [[base + (cell >= cells - more), *[0] * (len(kinds) - 1)] for cell in range(cells)]
    return "\n".join(" ".join(map(repr, line)) for line in lines)


def _sorted_passes(one: CostTable, todo: list[list[tuple[bool, int, int]]]) -> list[list[float]]:
    place: dict[tuple[bool, int, int], int] = {}
    found, last = [], [-1] * one.stages
    while any(todo):
        for stage, steps in enumerate(todo):
            while steps:
                forward, chunk, micro = steps[0]
                cell = chunk * one.stages + stage
                needed: tuple[bool, int, int] | None = (True, cell - 1, micro) if cell else None
                if not forward:
                    needed = (False, cell + 1, micro) if cell < one.cells - 1 else (True, cell, micro)
                if needed is not None and needed not in place:
                    break
                source = -1 if needed is None else place[needed]
                found.append([cell + (0 if forward else one.cells), last[stage], source])
                place[forward, cell, micro] = last[stage] = len(found) - 1
                steps.pop(0)
    return [[kind, *(one if one >= 0 else len(found) for one in waits)] for kind, *waits in found]


if __name__ == "__main__":
    main()
