"""Measures ``ms-tune dryrun --layers 4``: the first run, later runs, and the same process without ms-tune around it.

Run it where the dryrun extra is installed: ``python benchmarks/dryrun.py``. It uses a fresh cache in a temporary folder.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 3
COMMAND = [sys.executable, "-m", "ms_tune", "dryrun", "--layers", "4", "--json"]


def timed(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[float, str]:
    """Seconds of one whole process, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, done.stdout


def main() -> None:
    """Run the measurements and print them."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        environment = {**os.environ, "MS_TUNE_CACHE": str(folder / "cache")}
        first, _ = timed(COMMAND, folder, environment)
        later, bare = [], []
        for _ in range(RUNS):
            seconds, printed = timed(COMMAND, folder, environment)
            later.append(seconds)
            bare.append(_bare_run(Path(json.loads(printed)["run"]), environment))
        ratios = [one / other for one, other in zip(later, bare, strict=True)]
        peak_memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"first run, stand-ins built    {first:6.1f} s")
        print(f"later run, median of {RUNS}        {statistics.median(later):6.1f} s")
        print(f"bare process, median of {RUNS}     {statistics.median(bare):6.1f} s")
        print(f"later / bare, median          {statistics.median(ratios):6.2f}")
        print(f"largest process               {peak_memory:6.0f} MiB resident")


def _bare_run(run: Path, environment: dict[str, str]) -> float:
    """The same job in the same environment, started by hand in a new folder."""
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    again = run.parent / f"{run.name}-bare"
    again.mkdir()
    (again / "job.json").write_bytes((run / "rank_0" / "job.json").read_bytes())
    seconds, _ = timed(manifest["command"], again, {**environment, **manifest["environment"]})
    return seconds


if __name__ == "__main__":
    main()
