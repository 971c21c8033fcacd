"""Measure ``ms-tune memory plan`` compared with a simple greedy algorithm, omnimalloc, and published results.

``python benchmarks/planning.py [--peer PYTHON] FILE...``: FILE is a placement problem (CSV) or a ``memory_block.csv``;
without any, problems are generated. PYTHON is an interpreter with omnimalloc 1.0.0, in a separate environment because
it needs a newer NumPy than MindFormers allows. The greedy algorithm places blocks by size, each at the lowest possible
address, in NumPy. Seconds are wall-clock; processor seconds are more meaningful on a busy machine.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ms_tune.memory.plan import is_placement_csv, problem_of_csv, problem_of_trace
from ms_tune.memory.what_if import read_rank
from ms_tune.packing.engine import Items, NumpyEngine
from ms_tune.packing.placement import PackingProblem, compress_lives
from ms_tune.packing.plan import sort_blocks

TIME_LIMIT = 20  # seconds, of each solver of omnimalloc
# Gap above the lower bound in percent, and seconds, as published or measured by others on their machines: MiniMalloc:
# its talk at ASPLOS 2024 (within the capacity); STAlloc: its Synthesizer, run on the same blocks.
PUBLISHED = {
    "A": "MiniMalloc solves it in 4.9 s",
    "B": "MiniMalloc solves it in 3.7 s",
    "C": "MiniMalloc solves it in 0.6 s",
    "D": "MiniMalloc solves it in 2.7 s",
    "E": "MiniMalloc solves it in 3.7 s",
    "F": "MiniMalloc solves it in 5.4 s",
    "resnet50": "STAlloc 0.657 % in 12.5 s; MiniMalloc 0 % in 0.27 s",
    "pangu_2.6B": "STAlloc 13.33 % in 514 s; greedy by size 0.758 % in 0.8 s",
    "npu1": "MiniMalloc 0 % in 14 s; torch_npu itself 16.9 %",
}
_PEER = """
import csv, json, sys, time
from omnimalloc import Allocation, Pool
from omnimalloc import allocators
path, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
rows = [tuple(int(row[key]) for key in ("lower", "upper", "size")) for row in csv.DictReader(open(path))]
blocks = [Allocation(id=i, start=low, end=high, size=size) for i, (low, high, size) in enumerate(rows)]
kind = getattr(allocators, name)
try:
    allocator = kind(timeout=seconds)
except TypeError:
    allocator = kind()
begin = time.perf_counter()
placed = allocator.allocate(tuple(blocks))
print(json.dumps([max(block.offset + block.size for block in placed), time.perf_counter() - begin]))
"""
_PEERS = ("GreedyByAllAllocator", "SupermallocAllocator")


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="an interpreter that has omnimalloc")
    parser.add_argument("--time-limit", type=float)
    parser.add_argument("files", nargs="*", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'problem':24} {'blocks':>7} {'what':28} {'gap':>10} {'seconds':>8} {'processor':>9}")
        for path in arguments.files or generated(Path(folder)):
            measure(path, arguments, Path(folder))


def measure(path: Path, arguments: argparse.Namespace, folder: Path) -> None:
    """Measure one problem with every allocator in turn."""
    problem = problem_of_csv(path, None) if is_placement_csv(path) else problem_of_trace(read_rank(path, None), None)[0]
    name = path.name.split(".")[0] if is_placement_csv(path) else path.parent.name
    bound = int(compress_lives(problem).live.max())

    def line(what: str, height: int | None, seconds: float, processor: float | None = None) -> None:
        gap = "none" if height is None else f"{height / bound - 1:.4%}"
        shown = "" if processor is None else f"{processor:9.2f}"
        print(f"{name[:24]:24} {len(problem):7,} {what:28} {gap:>10} {seconds:8.2f} {shown}", flush=True)

    limit = ["--time-limit", str(arguments.time_limit)] if arguments.time_limit else []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "ms_tune", "memory", "plan", "--json", *limit, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.loads(done.stdout)
    line("ms-tune" + ("" if result["valid"] else " NOT VALID"), result["height_bytes"], result["seconds"])
    line(
        "  whole process",
        result["height_bytes"],
        0,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    )
    begin, processor = time.perf_counter(), time.process_time()
    items = Items(compress_lives(problem), problem.size, problem.alignment)
    fit = NumpyEngine().first_fit(items, sort_blocks(problem.size), 2**62, 2**62)
    line("greedy by size, numpy", fit.height, time.perf_counter() - begin, time.process_time() - processor)
    for peer in _PEERS if arguments.peer else ():
        line(
            f"omnimalloc {peer.removesuffix('Allocator')}",
            *ask(arguments.peer, peer, write(problem, folder / "peer.csv")),
        )
    if name in PUBLISHED:
        print(f"{name:24} published: {PUBLISHED[name]}")


def ask(python: str, peer: str, path: Path) -> tuple[int | None, float]:
    """Return height and seconds of one allocator of omnimalloc; no height if it failed or timed out."""
    begin = time.perf_counter()
    command = [python, "-c", _PEER, str(path), peer, str(TIME_LIMIT)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=6 * TIME_LIMIT)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None, time.perf_counter() - begin
    height, seconds = json.loads(done.stdout)
    return int(height), float(seconds)


def write(problem: PackingProblem, path: Path) -> Path:
    """Write the problem as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "lower", "upper", "size"))
        columns = (problem.lower, problem.upper, problem.size)
        writer.writerows(enumerate_rows(zip(*(column.tolist() for column in columns), strict=True)))
    return path


def enumerate_rows(rows: zip[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the rows with their numbers."""
    return [(number, *row) for number, row in enumerate(rows)]


def generated(folder: Path) -> list[Path]:
    """Generate problems whose optimum is known, and one as large as that of SOMAS for a network of 2.6 billion parameters."""
    files = []
    for count, ticks, seed in ((150, 70, 1), (200, 100, 2), (300, 150, 3)):
        files.append(write(cut(count, ticks, 1 << 20, seed), folder / f"cut{count}.{1 << 20}.csv"))
    files.append(write(network(18_692), folder / "network.csv"))
    return files


def cut(count: int, ticks: int, height: int, seed: int) -> PackingProblem:
    """Cut a rectangle into pieces: its height is the lower bound, and a plan without holes reaches it."""
    random = np.random.default_rng(seed)
    pieces = [(0, ticks, 0, 1024)]
    while len(pieces) < count:
        left, right, low, high = pieces.pop(int(random.integers(len(pieces))))
        across = random.random() < 0.5  # noqa: PLR2004 - a coin
        if across and right - left > 1:
            at = int(random.integers(left + 1, right))
            pieces += [(left, at, low, high), (at, right, low, high)]
        elif high - low > 1:
            at = int(random.integers(low + 1, high))
            pieces += [(left, right, low, at), (left, right, at, high)]
        else:
            pieces.append((left, right, low, high))
    lower, upper, low_end, high_end = np.array(pieces, np.int64).T
    size = (high_end - low_end) * (height // 1024)
    return PackingProblem(lower, upper, size, np.ones(count, np.int64))


def network(count: int) -> PackingProblem:
    """Generate forward and backward pass of a deep network: saved activations, temporaries, gradients."""
    random = np.random.default_rng(0)
    at = np.sort(random.integers(0, count, count))
    saved = random.random(count) < 0.3  # noqa: PLR2004 - share of saved activations
    forward = at < count // 2
    upper = np.where(
        saved & forward, 2 * (count // 2) - at + random.integers(1, 40, count), at + random.geometric(0.1, count)
    )
    size = 512 * np.maximum(1, random.choice([1, 8, 64, 512, 4096, 20_000], count) * random.integers(1, 4, count))
    return PackingProblem(at, np.maximum(upper, at + 1), size, np.full(count, 512))


if __name__ == "__main__":
    main()
