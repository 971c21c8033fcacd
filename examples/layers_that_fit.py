"""How many layers of a model fit on one device? Asks ``ms-tune dryrun --json`` again and again, halving the range.

::

    python examples/layers_that_fit.py --device-memory 32GB
    python examples/layers_that_fit.py --upto 8 path/to/config.yaml

Shows how a script or a CI job uses ms-tune: one JSON object on standard output, exit code 0 for "fits" and 1 for "does
not fit".
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys


def fits(arguments: list[str], layers: int) -> bool:
    """Whether so many layers fit."""
    command = [sys.executable, "-m", "ms_tune", "dryrun", "--json", "--layers", str(layers), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)
    result = json.loads(done.stdout)
    print(f"{layers:3} layers: {result['peak_bytes'] / 2**30:6.2f} GiB, {result['verdict']}")
    return bool(result["verdict"] == "fits")


def main() -> None:
    """Search the largest number of layers that fits."""
    parser = argparse.ArgumentParser(description="How many layers of a model fit on one device?")
    parser.add_argument("config", nargs="?")
    parser.add_argument("--device-memory", default="64GB")
    parser.add_argument("--upto", type=int, default=32)
    options = parser.parse_args()
    arguments = ["--device-memory", options.device_memory, *([options.config] if options.config else [])]
    low, high = 0, options.upto
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(arguments, middle) else (low, middle - 1)
    print(f"{low} layers fit" + (f" (more than {options.upto} were not tried)" if low == options.upto else ""))


if __name__ == "__main__":
    main()
