"""How many layers of a model fit on one device? Simulates the job again and again, halving the range.

::

    python examples/layers_that_fit.py --device-memory 32GB
    python examples/layers_that_fit.py --upto 8 path/to/config.yaml

Shows how a program uses ms-tune's Python API (docs/python-api.md): a frozen request, a result, an error with a hint.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ms_tune import DryrunRequest, MsTuneError, dryrun_job
from ms_tune.units import gib, parse_size


def fits(config: Path | None, device_bytes: int, layers: int) -> bool:
    """Whether so many layers fit."""
    result = dryrun_job(DryrunRequest(config, layers=layers, device_bytes=device_bytes, extrapolate=False))
    print(f"{layers:3} layers: {gib(result.worst.judged_bytes)}, {result.verdict.sentence}")
    return result.verdict.is_good(allow_tight=False)


def main() -> None:
    """Search the largest number of layers that fits."""
    parser = argparse.ArgumentParser(description="How many layers of a model fit on one device?")
    parser.add_argument("config", nargs="?", type=Path)
    parser.add_argument("--device-memory", type=parse_size, default="64GB")
    parser.add_argument("--upto", type=int, default=32)
    options = parser.parse_args()
    low, high = 0, options.upto
    try:
        while low < high:
            middle = (low + high + 1) // 2
            fit = fits(options.config, options.device_memory, middle)
            low, high = (middle, high) if fit else (low, middle - 1)
    except MsTuneError as error:
        sys.exit(f"{error}\n{error.hint or ''}")
    print(f"{low} layers fit" + (f" (more than {options.upto} were not tried)" if low == options.upto else ""))


if __name__ == "__main__":
    main()
