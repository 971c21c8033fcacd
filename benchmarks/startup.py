"""Measure the run time of the commands that do not need MindSpore, as a multiple of an empty Python process.

``python benchmarks/startup.py CONFIG`` with any config that ``lint`` and ``normalize-recompute`` read.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 15


def seconds(arguments: list[str]) -> float:
    """Return the wall-clock seconds of one Python process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
    return time.perf_counter() - start


def main() -> None:
    """Run the commands alternately, so that a disturbance affects all of them, and print medians."""
    config = sys.argv[1]
    commands = {
        "python -c pass": ["-c", "pass"],
        "ms-tune --version": ["-m", "ms_tune", "--version"],
        "ms-tune lint": ["-m", "ms_tune", "lint", config],
        "ms-tune normalize-recompute": ["-m", "ms_tune", "normalize-recompute", config],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(RUNS):
        for name, arguments in commands.items():
            times[name].append(seconds(arguments))
    base = statistics.median(times["python -c pass"])
    for name, measured in times.items():
        median = statistics.median(measured)
        print(f"{name:<30}{median * 1000:7.0f} ms {median / base:6.1f} x an empty Python")


if __name__ == "__main__":
    main()
