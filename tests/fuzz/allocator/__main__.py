"""Run many random programs: ``python -m tests.fuzz.allocator [COUNT]`` (10,000 take some minutes of each sanitizer)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.fuzz.allocator import SANITIZERS, run_programs

if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        for sanitizer in SANITIZERS:
            sys.stdout.write(f"{sanitizer}: {run_programs(Path(folder), sanitizer, 0, count)}")
            sys.stdout.flush()
