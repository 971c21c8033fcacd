"""Drive the allocator of ``memory run --plan`` with recorded programs: ``python benchmarks/follow_plan.py SNAPSHOT...``.

The device is a stand-in that only reserves address space. Each program is planned, and driven with its plan and without one; then
the same with other sizes: 1 % of the requests, 30 % of them, and all blocks above 100 kB 1.37 times as large (another shape).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from ms_tune.memory.plan import PlanRequest, plan_blocks
from tests.memory.test_allocator import Allocator, drive

_LARGE = 100_000


def changed(share: float) -> Callable[[int, int], int]:
    """Return a function that gives this share of the requests another size."""

    def change(number: int, size: int) -> int:
        random = Random(number)  # noqa: S311 - a program of a benchmark
        return max(1, int(size * random.uniform(0.5, 1.5))) if random.random() < share else size

    return change


PROGRAMS: dict[str, Callable[[int, int], int]] = {
    "as planned": lambda _, size: size,
    "1 % of sizes": changed(0.01),
    "30 % of sizes": changed(0.3),
    "another shape": lambda _, size: size if size < _LARGE else int(size * 1.37),
}


def main() -> None:
    """Print a line for each program of each snapshot."""
    print(
        f"{'snapshot':40} {'program':14} {'planned':>16} {'utilisation':>12} {'without plan':>13} {'reserved with / without':>24}"
    )
    for path in map(Path, sys.argv[1:]):
        report = plan_blocks(path, PlanRequest(), lambda _progress: None)
        for name, change in PROGRAMS.items():
            with tempfile.TemporaryDirectory() as folder:
                with_plan, without = (
                    drive(Allocator(Path(folder), report, planned=planned), report, change) for planned in (True, False)
                )
            shares = [one["live_peak"] / one["reserved_peak"] for one in (with_plan, without)]
            counts = f"{with_plan['planned']:,} of {with_plan['requests']:,}"
            ratio = with_plan["reserved_peak"] / without["reserved_peak"]
            print(f"{path.name[:40]:40} {name:14} {counts:>16} {shares[0]:12.2%} {shares[1]:13.2%} {ratio:24.3f}")


if __name__ == "__main__":
    main()
