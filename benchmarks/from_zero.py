"""Write ten jobs from nothing with ``ms-tune init --model``, lint each, dry-run those of MindFormers, and compare with the estimate.

Usage: python benchmarks/from_zero.py [NUMBER ...]     (ten minutes on two cores; needs MindSpore for the dryruns)
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

JOBS = (
    "--model qwen3-32b --devices 64 --chip 910B4 --seq 8192 --global-batch 512",
    "--model qwen3-32b --devices 64 --chip 910B4 --seq 8192 --global-batch 512 --dialect mindformers",
    "--model telechat3-36b --devices 32 --seq 8192 --global-batch 256",
    "--model qwen3-30b-a3b --devices 32",
    "--model deepseek-v3 --devices 1024 --global-batch 4096",
    "--model qwen3-8b --devices 16 --seq 131072 --global-batch 32",
    "--model qwen3-14b --devices 24 --seq 32768 --global-batch 96 --dialect mindformers",
    "--model llama-3.1-70b --devices 64 --seq 8192",
    "--model qwen3-14b --devices 16 --dialect hyper-parallel",
    "--model qwen3-32b --devices 8 --chip 910B4 --seq 8192",
)
GIB = 1 << 30


def run_job(number: int) -> str:
    """Return a row about one job: its layout, findings, estimate, and the dryrun's peak."""
    words = JOBS[number - 1].split()
    suffix = ".sh" if "llama" in words[1] else ".yaml"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ms_tune", "init", *words, "--json", "-o", f"{folder}/train{suffix}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if not done.stdout:
            return f"| {number} | failed: {done.stderr[-300:]} |"
        found = json.loads(done.stdout)
        layout = " ".join(f"{name}{size}" for name, size in found["layout"].items() if size > 1)
        peak, limit = found["peak_bytes"] / GIB, found["limit_bytes"] / GIB
        if not found["fits"]:
            enough = found["enough"] and found["enough"]["devices"]
            return f"| {number} | {layout} | nothing written; fits on {enough} | {peak:.1f} | | {limit:.1f} | {done.returncode} |"
        lint = subprocess.run(
            [sys.executable, "-m", "ms_tune", "lint", "--json", *map(str, Path(folder).glob("train.*"))],
            capture_output=True,
            text=True,
            check=False,
        )
        issues = sum(json.loads(lint.stdout)["summary"][name] for name in ("errors", "warnings"))
        stages = found["check"]["files"][0]["stages"]
        peaks = [f"{one['peak_bytes'] / GIB:.1f} {one['verdict']}" for one in stages if "peak_bytes" in one]
        again = "/".join(map(str, found["recomputed"]))
        return f"| {number} | {layout} | {issues} issues; recomputed {again} | {peak:.1f} | {'; '.join(peaks)} | {limit:.1f} | {done.returncode} |"


if __name__ == "__main__":
    for one in map(int, sys.argv[1:] or range(1, len(JOBS) + 1)):
        print(run_job(one), flush=True)
