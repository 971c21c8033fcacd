"""Run random programs on the allocator of ``memory run --plan``, under the sanitizers of g++."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ALLOCATOR = HERE.parents[2] / "ms_tune" / "memory" / "follow"
SANITIZERS = ("address,undefined", "thread")


def compiled(output: Path, source: Path, *flags: str) -> Path:
    """Compile a C++ program or library of the tests; skip the test without a compiler that can."""
    gcc = shutil.which("g++")
    if gcc is None:
        pytest.skip("no g++ here")
    command = [gcc, "-std=c++17", "-O1", f"-I{ALLOCATOR}", "-o", str(output), str(source), *flags, "-ldl", "-pthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "sanitize" in " ".join(flags) and "cannot find -l" in done.stderr:
        pytest.skip("no sanitizers here")
    assert done.returncode == 0, done.stderr
    return output


def run_programs(folder: Path, sanitizer: str, first: int, count: int) -> str:
    """Return what the programs print, their number if none failed, else the first failure and its seed."""
    program = folder / f"fuzz-{sanitizer.partition(',')[0]}"
    if not program.exists():
        compiled(program, HERE / "fuzz.cpp", "-g1", "-rdynamic", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
    # Blocks are kept until the end on purpose: PyTorch releases some when everything else is gone.
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        [str(program), str(first), str(count)], capture_output=True, env=environment, text=True, check=False
    )
    return done.stdout + done.stderr[-4000:]
