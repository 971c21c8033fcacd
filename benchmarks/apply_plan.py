"""Train a transformer under PyTorch's classic and expandable segments and under a plan: reserved memory, step time, loss.

``python benchmarks/apply_plan.py [--shape varying] [--steps 12] [--layers 20] [--width 2048]``: needs a CUDA GPU with PyTorch
2.1 or later, and a C++ compiler. NOT YET RUN: no GPU was at hand when it was written. The three settings take turns, three
times each, in processes of their own; losses must be equal bit by bit, which deterministic algorithms make possible.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_TRAINING = """
import json, os, sys, time, torch
layers, width, steps, varying = (int(word) for word in sys.argv[1:5])
torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
torch.backends.cuda.enable_flash_sdp(False)
torch.backends.cuda.enable_mem_efficient_sdp(False)
layer = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True)
model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
losses, times = [], []
for step in range(steps):
    length = 512 + 64 * (step * 7 % 9) * varying
    generator = torch.Generator().manual_seed(step)
    batch = torch.randn(4, length, width, generator=generator).cuda()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(batch).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    losses.append(loss.item().hex())
    times.append(time.perf_counter() - begin)
print(json.dumps({"losses": losses, "seconds": sorted(times[2:])[len(times[2:]) // 2],
                  "reserved": torch.cuda.max_memory_reserved(), "allocated": torch.cuda.max_memory_allocated()}))
"""
_TURNS = 3
_GIB = 1 << 30


def main() -> None:
    """Record one run, plan it, and compare the three settings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=["equal", "varying"], default="equal")
    for name, default in (("--steps", 12), ("--layers", 20), ("--width", 2048)):  # 1.0 billion parameters
        parser.add_argument(name, type=int, default=default)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(_TRAINING, encoding="utf-8")
        sizes = [str(each) for each in (words.layers, words.width, words.steps, int(words.shape == "varying"))]
        training = [sys.executable, str(folder / "train.py"), *sizes]
        tool = [sys.executable, "-m", "ms_tune", "memory"]
        record = [*tool, "run", "--record", str(folder), "--steps", str(words.steps), "--", *training]
        subprocess.run(record, check=True, env=environment(), stdout=subprocess.DEVNULL)
        plan = [*tool, "plan", str(folder / "rank_0.pickle"), "--plan", str(folder / "plan.json")]
        subprocess.run(plan, check=True)
        ways = {
            "classic": (training, environment()),
            "expandable": (training, environment(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")),
            "plan": ([*tool, "run", "--plan", str(folder / "plan.json"), "--", *training], environment()),
        }
        found: dict[str, list[dict[str, object]]] = {way: [] for way in ways}
        for _ in range(_TURNS):
            for way, (command, variables) in ways.items():
                done = subprocess.run(command, check=True, env=variables, stdout=subprocess.PIPE, text=True)
                found[way].append(json.loads(done.stdout.splitlines()[-1]))
    show(found)


def environment(**more: str) -> dict[str, str]:
    """Return the environment with the settings that deterministic algorithms need."""
    return {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8", **more}


def show(found: dict[str, list[dict[str, object]]]) -> None:
    """Print a line for each setting."""
    first = found["classic"][0]["losses"]
    for way, runs in found.items():
        seconds = statistics.median(float(str(run["seconds"])) for run in runs)
        reserved, allocated = (max(int(str(run[key])) for run in runs) / _GIB for key in ("reserved", "allocated"))
        equal = all(run["losses"] == first for run in runs)
        print(
            f"{way:12} reserved {reserved:7.3f} GiB, allocated {allocated:7.3f} GiB, step {seconds:.4f} s, loss bit-equal: {equal}"
        )


if __name__ == "__main__":
    main()
