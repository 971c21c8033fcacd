"""Compare highest peaks of dryruns with the closed-form estimates of ``ms-tune check`` for the same jobs.

``python benchmarks/estimates.py [CONFIG ...]`` (some minutes a config; the packaged templates by default).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from ms_tune import check_job
from ms_tune.dryrun.request import DryrunRequest
from ms_tune.dryrun.run import dryrun_job
from ms_tune.units import gib


def main() -> None:
    """Print one table row per config."""
    packaged = Path(__file__).parents[1] / "yaml_templates"
    for path in map(Path, sys.argv[1:] or sorted(map(str, packaged.glob("*/*.yaml")))):
        estimate = check_job(path).estimate
        with tempfile.TemporaryDirectory() as folder:
            request = DryrunRequest(path, fewest_layers=True, run_folder=Path(folder) / "run")
            needs = [stage.verdict.need for stage in dryrun_job(request).stages]
        peak = max(need.peak_bytes for need in needs if need is not None)
        if estimate is None:
            print(f"| {path.stem} | - | {gib(peak)} | - |")
            continue
        own = estimate.fullest.peak_bytes
        print(f"| {path.stem} | {gib(own)} | {gib(peak)} | {peak / own:.2f} |", flush=True)


if __name__ == "__main__":
    main()
