"""Measure ``ms-tune fit``: the two public cases, an interleaved one, plans simulated per second, random tables.

``python benchmarks/fit.py [--random N] [--only-random]``: processor seconds of one process; N random tables are planned
with low effort, and every plan is checked with the pipeline that the tests simulate pass by pass.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from ms_tune.enums import RecomputeMode
from ms_tune.planning.costs import costs_of
from ms_tune.planning.fit import fit_table
from ms_tune.planning.schedule import Schedule
from ms_tune.planning.search import Effort, even_state, search_plans
from ms_tune.units import MIB
from tests.planning import naive
from tests.planning.tables import CASE_A, CASE_E, random_table

CASES = {
    "A: pp16, 96 layers": CASE_A,
    "E: pp4, 80 layers": CASE_E,
    "A with 3 chunks, interleaved, 70,000 MB": CASE_A._replace(
        chunks=3, order=Schedule.INTERLEAVED, limit_bytes=70_000 * MIB
    ),
}
PLANS = 256  # simulated at once


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, default=100, metavar="N")
    parser.add_argument("--only-random", action="store_true")
    arguments = parser.parse_args()
    for name, table in () if arguments.only_random else CASES.items():
        costs = costs_of(table)
        states = np.repeat(even_state(costs)[None], PLANS, axis=0)
        begin = time.process_time()
        for _ in range(20):
            costs.step_ticks(states)
        rate = 20 * PLANS / (time.process_time() - begin)
        begin = time.process_time()
        report = fit_table(table)
        seconds = time.process_time() - begin
        found = report.planned.time if report.planned else None
        state = "optimal" if report.optimal else f"gap {report.gap:.2%}"
        print(f"{name}: {found} (bound {report.lower_bound}, {state}), {seconds:.1f} s, {rate:,.0f} plans/s")
    _random(arguments.random)


def _random(count: int) -> None:
    proved = planned = wrong = swaps = 0
    begin = time.process_time()
    for seed in range(count):
        if seed and seed % 100 == 0:
            print(f"{seed}: wrong {wrong}", flush=True)
        table = random_table(10_000 + seed)
        found = search_plans(table, Effort.QUICK, 1, lambda _progress: None)
        if not found.found:
            wrong += found.least_bytes > table.limit_bytes >= max(found.costs.peak_bytes(found.best.state[None])[0])
            continue
        cells = found.costs.cells_of(found.best.state)
        planned, proved = planned + 1, proved + found.is_optimal()
        swaps += any(cell.get(RecomputeMode.SWAP) for cell in cells)
        keeps = max(naive.peaks_of(table, cells)) <= table.limit_bytes
        step = naive.time_of(table, cells)
        wrong += not (keeps and found.bound * found.costs.unit <= step == found.best.score * found.costs.unit)
    seconds = time.process_time() - begin
    print(
        f"random tables: {count}, a plan for {planned}, of these {swaps} swap, optimal {proved}, wrong {wrong}, {seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
