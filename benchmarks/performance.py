"""Measures ``ms-tune metrics`` and ``ms-tune profile`` on large files made for it, beside a program that only reads them.

``python benchmarks/performance.py [LOG_MB] [TRACE_MB]`` (by default 1000 and 500). Two logs: one of nothing but steps, which is the worst, and
one in which a line of a hundred is a step, as debugging leaves them. Processor seconds, start-up included, and the most memory
that was resident.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.performance.profiles import host_bound
from tests.trace.training_logs import megatron_line

_NOISE = "[WARNING] DEVICE(4711,ffff9,python):2026-01-01-10:00:00.000.000 [mindspore/ccsrc/runtime.cc:99] Launch] nothing of interest %d\n"
_READ = "import sys\nwith open(sys.argv[1], 'rb') as file:\n    while file.read(4194304):\n        pass\n"


def main() -> None:
    """Make the files, run, print."""
    sizes = [int(text) * 1024**2 for text in sys.argv[1:3]] or [1000 * 1024**2, 500 * 1024**2]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, every in (("steps alone", 1), ("a step in 100 lines", 100)):
            log = folder / "train.log"
            steps = _write_log(log, sizes[0], every)
            _show(f"metrics, {name}: {steps:,} steps", log, ["metrics", str(log), "--json"])
        output = host_bound().write(folder)
        _repeat_trace(output / "trace_view.json", sizes[-1])
        _show("profile", output / "trace_view.json", ["profile", str(output), "--json"])


def _write_log(log: Path, size: int, every: int) -> int:
    written, step = 0, 0
    with log.open("w", encoding="utf-8") as file:
        while written < size:
            step += 1
            lines = [megatron_line(step, 1000 + step % 7, total=10**9, norm=1.0)]
            lines += [_NOISE % number for number in range(every - 1)]
            written += sum(map(len, lines))
            file.writelines(lines)
    return step


def _repeat_trace(trace: Path, size: int) -> None:
    """The same step again and again, later each time."""
    events = json.loads(trace.read_text("utf-8"))
    heads = [event for event in events if event["ph"] == "M"]
    others = [event for event in events if event["ph"] != "M"]
    written = number = 0
    with trace.open("w", encoding="utf-8") as file:
        file.write("[" + ", ".join(map(json.dumps, heads)))
        while written < size:
            number += 1
            for event in others:
                whole, _, part = event["ts"].partition(".")
                more = {"id": f"{event['id']}.{number}"} if "id" in event else {}
                text = json.dumps(event | more | {"ts": f"{int(whole) + number * 20_000}.{part}"})
                written += file.write(f", {text}")
        file.write("]")


def _show(name: str, file: Path, arguments: list[str]) -> None:
    reading, _ = _run(["-c", _READ, str(file)])
    seconds, memory = _run(["-m", "ms_tune", *arguments])
    size = file.stat().st_size / 1024**2
    print(
        f"{name}, {size:,.0f} MiB: {seconds:.1f} s of processor, {size / seconds:,.0f} MiB/s, "
        f"reading alone {reading:.2f} s ({seconds / reading:.1f} x), {memory / 1024**2:,.0f} MiB resident"
    )


def _run(arguments: list[str]) -> tuple[float, int]:
    """Processor seconds, and the most bytes resident of any child so far."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, after.ru_maxrss * 1024


if __name__ == "__main__":
    main()
