"""Measure how much of each folder its own tests run: lines and branches, folder by folder.

    python benchmarks/coverage_by_room.py [FOLDER ...] [--missing]

Code that only child processes run (dryrun/child, the supervisor of a command and the stand-in of its launchers, the
network of reference) is not traced and left out; the tests marked `mindspore` run it. Needs the package `coverage`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[1]
ROOMS = (
    *("source", "facts", "dialects", "readers", "pools", "memory", "packing", "estimate", "verdict", "planning"),
    *("reference", "lint", "normalize", "dryrun", "fit", "metrics", "workflows", "report", "cli", "native"),
)
# Tests of commands also test reports, and the part of memory that a command calls.
FURTHER = {
    "report": (
        "cli",
        "dryrun/test_command.py",
        "dryrun/test_compare.py",
        "dryrun/launchers",
        "normalize/test_against.py",
    ),
    "memory": ("cli/test_memory_plan.py", "cli/test_what_if.py"),
}
IN_CHILDREN = (
    *(
        "ms_tune/dryrun/child/*",
        "ms_tune/dryrun/supervisor.py",
        "ms_tune/dryrun/parent.py",
        "ms_tune/dryrun/launchers/stand_in.py",
    ),
    *("ms_tune/reference/transformer/*", "ms_tune/reference/transformer/training.py"),
)


def measured(room: str, folder: Path) -> dict[str, Any]:
    """Return the report of ``coverage json`` about a folder after its own tests have run."""
    tests = [str(CHECKOUT / "tests" / folder) for folder in (room, *FURTHER.get(room, ()))]
    environment = {
        **os.environ,
        "COVERAGE_FILE": str(folder / room),
        "PYTHONPATH": os.environ.get("PYTHONPATH", str(CHECKOUT)),
    }
    run = [
        sys.executable,
        "-m",
        "coverage",
        "run",
        "--branch",
        f"--source=ms_tune/{room}",
        f"--omit={','.join(IN_CHILDREN)}",
    ]
    run += ["-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-m", "not mindspore", *tests]
    done = subprocess.run(run, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the tests of {room} fail:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    report = folder / f"{room}.json"
    run = [sys.executable, "-m", "coverage", "json", "-q", "-o", str(report)]
    subprocess.run(run, cwd=CHECKOUT, env=environment, check=True)
    found: dict[str, Any] = json.loads(report.read_text("utf-8"))
    return found


def main() -> None:
    """Print a table, and with ``--missing`` the lines of each module that nothing runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="default: all")
    parser.add_argument("--missing", action="store_true")
    chosen = parser.parse_args()
    if importlib.util.find_spec("coverage") is None:
        sys.exit("the package coverage is not installed: pip install coverage")
    print("| room | statements | branches | run by its own tests |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for room in chosen.rooms or ROOMS:
            found = measured(room, Path(folder))
            sums = found["totals"]
            reported = (room, sums["num_statements"], sums["num_branches"], f"{sums['percent_covered']:.1f} %")
            print("| " + " | ".join(map(str, reported)) + " |", flush=True)
            for path, each in found["files"].items() if chosen.missing else ():
                gaps = [*each["missing_lines"], *(f"{start}->{end}" for start, end in each["missing_branches"])]
                if gaps:
                    print(f"    {path} {each['summary']['percent_covered']:.0f} %: {', '.join(map(str, gaps))}")


if __name__ == "__main__":
    main()
