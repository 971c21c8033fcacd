"""Measure reading, replaying and drawing of a generated snapshot of PyTorch's allocator, compared with ``pickle.load``.

``python benchmarks/snapshot.py MEGABYTES [FOLDER] [--unlike]``: one training step of 600 blocks is repeated until the
file is this large; with ``--unlike`` each step is drawn separately, so that all differ. Each figure comes from a
separate process.
"""

from __future__ import annotations

import argparse
import json
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from ms_tune.pools.torch_pool import TorchPool
from ms_tune.pools.torch_space import NPU_PADDING, TorchSettings
from ms_tune.pools.workload import Request

_BLOCKS, _STACKS, _STREAM = 600, 120, 1276474240
_BYTES_PER_EVENT, _EARLY = 47, 0.5


def main() -> None:
    """Write the file, measure, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", type=int)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(tempfile.gettempdir()))
    parser.add_argument("--unlike", action="store_true")
    arguments = parser.parse_args()
    path = arguments.folder / f"snapshot-{arguments.megabytes}{'-unlike' * arguments.unlike}.pickle"
    if not path.exists():
        write(path, arguments.megabytes * 2**20, unlike=arguments.unlike)
    commands = {
        "pickle.load": ["-c", f"import pickle; pickle.load(open({str(path)!r}, 'rb'))"],
        "ms-tune memory --json": ["-m", "ms_tune", "memory", str(path), "--json"],
        "ms-tune memory --html": ["-m", "ms_tune", "memory", str(path), "--html", f"{path}.html", "--force"],
    }
    print(json.dumps({"bytes": path.stat().st_size} | {name: cost(command) for name, command in commands.items()}))


def cost(command: list[str]) -> dict[str, float]:
    """Return wall-clock seconds, processor seconds and peak resident MiB."""
    begin = time.monotonic()
    child = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = 0
    while child.poll() is None:
        status = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii")
        peak = max([peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))])
        time.sleep(0.05)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "seconds": round(time.monotonic() - begin, 2),
        "processor_seconds": round(processor, 2),
        "mebibytes": peak // 1024,
        "code": child.returncode,
    }


def write(path: Path, size: int, *, unlike: bool) -> None:
    """Write a snapshot of about this many bytes."""
    pool = TorchPool(TorchSettings(padding=NPU_PADDING))
    first = step(pool, 5)
    again = step(pool, 5)  # from the second step on no memory is requested from the device, and all steps are equal
    count = max(1, size // (len(again) * _BYTES_PER_EVENT))
    others = [event for seed in range(count) for event in step(pool, seed)] if unlike else []
    segments = [
        {
            "device": 0, "address": unit.base, "total_size": unit.size, "stream": _STREAM,
            "segment_type": unit.part, "is_expandable": False,
            "blocks": [{"address": unit.base, "size": unit.size, "requested_size": 0, "state": "inactive", "frames": []}],
        }
        for unit in pool.state.units
    ]  # fmt: skip
    events = first + again + (others or [dict(event) for _ in range(1, count) for event in again])
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [events]}, protocol=4))


def step(pool: TorchPool, seed: int) -> list[dict[str, object]]:
    """Return the events of a step that allocates blocks and frees them in another order."""
    random, events, live = Random(seed), [], []  # noqa: S311 - sizes of a benchmark
    stacks = [
        [
            {"name": f"f{depth}", "filename": f"/workspace/model/part{depth}.py", "line": 10 * number + depth}
            for depth in range(12)
        ]
        for number in range(_STACKS)
    ]

    def event(action: str, address: int, size: int, frames: list[dict[str, object]]) -> None:
        events.append({"action": action, "addr": address, "size": size, "stream": _STREAM, "frames": frames})

    for number in range(_BLOCKS):
        size, units = random.randint(512, 9 << 20), len(pool.state.units)
        address = pool.allocate(Request(size, number, None, _STREAM))
        for unit in pool.state.units[units:]:
            event("segment_alloc", unit.base, unit.size, [])
        event("alloc", address, size, stacks[number % _STACKS])
        live.append((address, size))
        if random.random() < _EARLY:
            free(pool, event, live.pop(random.randrange(len(live))))
    while live:
        free(pool, event, live.pop())
    return events


def free(pool: TorchPool, event: object, block: tuple[int, int]) -> None:
    """Release a block."""
    for action in ("free_requested", "free_completed"):
        event(action, *block, [])  # type: ignore[operator]
    pool.free(block[0])


if __name__ == "__main__":
    main()
