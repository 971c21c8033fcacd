"""Measure ``ms-tune memory --json`` on large traces, compared with pandas and polars that only read the file.

``python benchmarks/memory.py TRACE [ROWS]``: TRACE is a ``memory_block.csv``; with ROWS, a file with this many rows is
made from it first, by repeating it with later ticks and other addresses. Every run is a separate process, start-up
included; the programs run alternately, so that a disturbance affects all of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 5
_NEVER = "9223372036854775807"
_FRAMES = """
const done = arguments[0], frames = [];
const paint = performance.getEntriesByType("paint").map((entry) => entry.startTime).sort((a, b) => a - b)[0];
function begin() {
  if (document.body.dataset.ready !== "1") { setTimeout(begin, 20); return; }
  const ready = performance.now(), ticks = rank().bands.tick, first = ticks[0], all = ticks[ticks.length - 1] - first;
  let last = ready;
  function frame(now) {
    frames.push(now - last);
    last = now;
    if (frames.length > 60) { done([paint, ready, frames.slice(1)]); return; }
    const width = all / (1 + frames.length / 3), middle = first + all * (0.3 + frames.length / 200);
    look(middle - width / 2, middle + width / 2);
    requestAnimationFrame(frame);
  }
  requestAnimationFrame(frame);
}
begin();
"""
_READ = {
    "pandas.read_csv": "import sys, pandas; pandas.read_csv(sys.argv[1], low_memory=False)",
    "polars.read_csv": "import sys, polars; polars.read_csv(sys.argv[1], infer_schema_length=10000)",
}


def main() -> None:
    """Run the measurements and print them."""
    trace = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        if len(sys.argv) > 2:  # noqa: PLR2004 - ROWS is given
            trace = repeated(trace, int(sys.argv[2]), Path(scratch))
        page = Path(scratch) / "report.html"
        commands = {
            "ms-tune memory --json": ["-m", "ms_tune", "memory", str(trace), "--json"],
            "ms-tune memory --html": ["-m", "ms_tune", "memory", str(trace), "--json", "--force", "--html", str(page)],
            **{name: ["-c", code, str(trace)] for name, code in _READ.items()},
        }
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
        for _ in range(RUNS):
            for name, command in commands.items():
                found[name].append(measured([sys.executable, *command]))
        print(
            f"{trace.stat().st_size / 1e6:.0f} MB; the page has {page.stat().st_size / 1e6:.2f} MB; load {os.getloadavg()[0]:.1f}"
        )
        polars = statistics.median(seconds for seconds, _, _ in found["polars.read_csv"])
        for name, runs in found.items():
            median, least = statistics.median(run[0] for run in runs), min(run[0] for run in runs)
            processor, memory = statistics.median(run[1] for run in runs), max(run[2] for run in runs)
            figures = f"{median:7.2f} s (least {least:.2f})  {median / polars:5.2f} x polars"
            print(f"{name:<24}{figures}  {processor:7.2f} s of processor time {memory:7.0f} MiB")
        look_at(page)


def look_at(page: Path) -> None:
    """Open the page in headless Chromium: first paint, all blocks unpacked, and 60 frames of zooming and moving."""
    chromium, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver_path is None or importlib.util.find_spec("selenium") is None:
        print("the page was not opened: Chromium, its driver or Selenium is missing")
        return
    webdriver = importlib.import_module("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for switch in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,900"):
        options.add_argument(switch)
    service = importlib.import_module("selenium.webdriver.chrome.service").Service(driver_path)
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.set_script_timeout(300)
        driver.get(page.as_uri())
        paint, ready, frames = driver.execute_async_script(_FRAMES)
    finally:
        driver.quit()
    frames.sort()
    print(
        f"in Chromium: first paint after {paint:.0f} ms, blocks unpacked after {ready:.0f} ms; zooming and moving, "
        f"{len(frames)} frames: median {statistics.median(frames):.0f} ms, longest {frames[-1]:.0f} ms"
    )


def measured(command: list[str]) -> tuple[float, float, float]:
    """Return wall-clock seconds, processor seconds and peak MiB of a process."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # 1: findings
        raise subprocess.CalledProcessError(process.returncode, command)
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def repeated(trace: Path, rows: int, folder: Path) -> Path:
    """Write a trace of this many rows: the same steps repeated; blocks that were never freed are freed before each repetition."""
    header, *lines = trace.read_text(encoding="utf-8").splitlines()
    ticks = 0
    for line in lines:
        start, end, _ = line.split(",", 2)
        ticks = max(ticks, int(start), 0 if end == _NEVER else int(end))
    ticks += 2
    target = folder / "memory_block.csv"
    with target.open("w", encoding="utf-8") as file:
        file.write(header + "\n")
        for number in range(rows):
            turn, place = divmod(number, len(lines))
            start, end, rest = lines[place].split(",", 2)
            later = turn * ticks
            until = later + ticks - 1 if end == _NEVER else int(end) + later
            file.write(f"{int(start) + later},{until},{rest}\n")
    return target


if __name__ == "__main__":
    main()
