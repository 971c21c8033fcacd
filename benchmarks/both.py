"""Compare a dynamic-graph config in its own framework and in the reference transformer: MiB of every stage on both sides.

    python benchmarks/both.py CONFIG [OPTION OF dryrun ...]

Run it where the framework is installed (MindFormers 2.x with HyperParallel, or MindSpeed-Core-MS), with that machine's
Python.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def stage_figures(words: list[str]) -> dict[str, dict[str, int]]:
    """Return the bytes of each stage by category and at the peak, from ``dryrun``."""
    command = [sys.executable, "-m", "ms_tune", "dryrun", *words, "--json"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found: dict[str, Any] = json.loads(run.stdout) if run.stdout else sys.exit(run.returncode)
    whole = [(one, "extrapolated_" if one["extrapolated_peak_bytes"] else "") for one in found["stages"]]
    return {
        f"stage {one['stage']}": {"peak": one[f"{kind}peak_bytes"], **(one[f"{kind}categories_at_peak"] or {})}
        for one, kind in whole
    }


def main(words: list[str]) -> None:
    """Print a row for each stage and category: by the framework, by the reference, and the difference."""
    real, reference = stage_figures(words), stage_figures([*words, "--reference"])
    for stage, figures in real.items():
        print(stage)
        for name, size in figures.items():
            other = reference[stage].get(name, 0)
            print(f"  {name:<20}{size / 2**20:>14,.1f}{other / 2**20:>14,.1f}{(other - size) / 2**20:>+14,.1f}")


if __name__ == "__main__":
    main(sys.argv[1:])
