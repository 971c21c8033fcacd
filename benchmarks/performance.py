"""Measure ``ms-tune metrics``, ``ms-tune memory LOG`` and ``ms-tune profile`` on large generated files, compared with a program that only reads them.

``python benchmarks/performance.py [LOG_MB] [TRACE_MB]`` (by default 1000 and 500). There are two logs of Megatron: one of steps
only, which is the worst case, and one with one step in a hundred lines, as in debugging; and one of steps only of each trainer. The output has processor
seconds, start-up included, of the command and of a program that reads the file; the peak resident memory; and
wall-clock seconds of both with the file on disk and not in memory.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path

from tests.metrics.profiles import host_bound
from tests.readers.test_trainers import TRAINERS
from tests.readers.training_logs import megatron_line

_NOISE = "[WARNING] DEVICE(4711,ffff9,python):2026-01-01-10:00:00.000.000 [mindspore/ccsrc/runtime.cc:99] Launch] nothing of interest %d\n"
_FAILURE = "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 60.97 GiB total capacity; 59.00 GiB already allocated\n"
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
            with log.open("a", encoding="utf-8") as file:
                file.write(_FAILURE)
            _show(f"memory, {name}, the failure at its end", log, ["memory", str(log), "--json"])
        for trainer, facts in TRAINERS.items():
            _write_trainer(log, sizes[0], facts["line"])
            _show(f"metrics, lines of {trainer}", log, ["metrics", str(log), "--json"])
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


def _write_trainer(log: Path, size: int, line: str) -> None:
    """Write steps of 2.5 s, each with another loss, as a trainer of the tests prints them."""
    line = re.sub(r"/( *)(?:100|900|3912|4468)\b", "/90000000", line)
    written = step = 0
    with log.open("w", encoding="utf-8", newline="") as file:
        while written < size:
            step += 1
            whole, seconds = step * 5 // 2, 2 + step * 7 % 11 / 10
            counts = dict.fromkeys(("number", "before", "samples", "tokens"), step)
            rates = {
                "speed": 0.4,
                "mean": 2.5,
                "mean_speed": 0.4,
                "rate": 0.4,
                "pace": 2.5,
                "skipped": 3,
                "mfu": 35 + step % 7,
            }
            times = {"seconds": seconds, "ms": seconds * 1000, "whole_ms": int(seconds * 1000), "whole": whole}
            clock = {"elapsed": timedelta(seconds=whole), "minutes": whole // 60, "rest": whole % 60}
            stamp = f"{datetime(2026, 1, 1) + timedelta(seconds=whole)},{step % 2 * 500:03d}"  # noqa: DTZ001 - as printed
            loss = round(2 + step * 31 % 100 / 1000, 4)
            written += file.write(line.format_map({**counts, **rates, **times, **clock, "stamp": stamp, "loss": loss}))


def _repeat_trace(trace: Path, size: int) -> None:
    """Repeat the same step with increasing times."""
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
    reading, _, _ = _run(["-c", _READ, str(file)])
    seconds, memory, _ = _run(["-m", "ms_tune", *arguments])
    _forget(file)
    disk = _run(["-c", _READ, str(file)])[2]
    _forget(file)
    clock = _run(["-m", "ms_tune", *arguments])[2]
    size = file.stat().st_size / 1024**2
    print(
        f"{name}, {size:,.0f} MiB: {seconds:.1f} s of processor, {size / seconds:,.0f} MiB/s, "
        f"reading alone {reading:.2f} s ({seconds / reading:.1f} x), {memory / 1024:,.0f} MiB resident; "
        f"from the disk {clock:.1f} s by the clock, reading alone {disk:.1f} s ({clock / disk:.1f} x)",
        flush=True,
    )


def _forget(file: Path) -> None:
    """Remove a file from the page cache."""
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def _run(arguments: list[str]) -> tuple[float, int, float]:
    """Return processor seconds, peak resident KiB and wall-clock seconds."""
    begin = time.monotonic()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        sys.exit(process.returncode)
    return used.ru_utime + used.ru_stime, used.ru_maxrss, time.monotonic() - begin


if __name__ == "__main__":
    main()
