"""Measure ``normalize-recompute`` on a very large plan, as a multiple of an empty Python process.

1,000 layers on 64 stages of 8 chunks, with full, selective and communication recompute; the goal is 0.3 s, start-up
included. Then 1,000 and 10,000 layers that all swap and recompute, each named in every list: ten times the layers
should take about ten times as long, not a hundred times.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 15
LAYERS, STAGES, CHUNKS = 1000, 64, 8
SWAPPING = (1000, 10_000)


def config() -> str:
    """Return the config."""
    extra, cells = LAYERS % (STAGES * CHUNKS), STAGES * CHUNKS
    flat = [int(cell < extra) for cell in range(cells)]
    offset = [flat[start : start + STAGES] for start in range(0, cells, STAGES)]
    return f"""
parallel:
  pipeline_config: {{pipeline_interleave: True, pipeline_scheduler: 1f1b}}
parallel_config: {{pipeline_stage: {STAGES}}}
model:
  arch: {{type: LlamaForCausalLM}}
  model_config: {{num_layers: {LAYERS}, pp_interleave_num: {CHUNKS}, use_flash_attention: True, offset: {offset}}}
recompute_config:
  recompute: {[[1] * STAGES] * CHUNKS}
  select_recompute: True
  select_comm_recompute: {[CHUNKS] * STAGES}
"""


def swapping(layers: int) -> str:
    """Return a config in which every list names every layer."""
    numbers = list(range(layers))
    return f"""
parallel_config: {{pipeline_stage: 2}}
model: {{model_config: {{num_layers: {layers}}}}}
swap_config: {{swap: True, layer_swap: [{{backward_prefetch: 1, layers: {numbers}}}]}}
recompute_config: {{recompute: {numbers}, select_recompute: {{mul: {numbers}, add: {numbers}}}}}
"""


def seconds(arguments: list[str]) -> float:
    """Return the wall-clock seconds of one Python process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
    return time.perf_counter() - start


def main() -> None:
    """Run the commands alternately, so that a disturbance affects all of them, and print medians."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "big.yaml"
        file.write_text(config())
        command = ["-m", "ms_tune", "normalize-recompute", str(file)]
        commands = {
            "python -c pass": ["-c", "pass"],
            "table": command,
            "--json": [*command, "--json"],
            "--as-log": [*command, "--as-log"],
        }
        for layers in SWAPPING:
            one = Path(folder) / f"swap{layers}.yaml"
            one.write_text(swapping(layers))
            commands[f"{layers} swap"] = ["-m", "ms_tune", "normalize-recompute", "--json", str(one)]
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(RUNS):
            for name, arguments in commands.items():
                times[name].append(seconds(arguments))
    base = statistics.median(times["python -c pass"])
    for name, measured in times.items():
        median = statistics.median(measured)
        print(f"{name:<16}{median * 1000:7.0f} ms {median / base:6.1f} x an empty Python")


if __name__ == "__main__":
    main()
