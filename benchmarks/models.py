"""Simulate training configs of MindFormers one after another and print a table: ``python benchmarks/models.py``.

Without arguments it runs every training config of the installed MindFormers; arguments name configs, and a
``key=value`` among them is set in each (``pretrained_model_dir=FOLDER`` for those whose model sizes are in a
``config.json``). Two layers of the first pipeline stage run. docs/dryrun-models.md is made with this script.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import yaml

LAYERS = 2
MIB = 2**20
LOGGED = re.compile(r"Used peak memory usage \(without fragments\): (\d+)M")
PROGRESS = re.compile(r"(?m)^(simulating|warning|  hint): .*\n?")


@dataclass(frozen=True)
class Outcome:
    """The result of one config.

    Attributes:
        peak: Peak bytes; None if there is no figure.
        weights: Bytes of weights at the peak.
        optimizer: Bytes of optimizer state at the peak.
        agrees: Whether MindSpore's log reports the same peak.
        reason: Why there is no figure.
        seconds: Run time.
    """

    peak: int | None
    weights: int
    optimizer: int
    agrees: bool
    reason: str
    seconds: float


def training_configs() -> Iterator[Path]:
    """Return the training configs of the installed MindFormers."""
    for file in metadata.files("mindformers") or ():
        path = Path(str(file.locate()))
        if path.suffix != ".yaml" or "configs" not in path.parts:
            continue
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(data, dict) and data.get("run_mode") in ("train", "finetune"):
            yield path


def simulated(config: Path, settings: Sequence[str]) -> Outcome:
    """Return the outcome of one dryrun."""
    edits = [part for setting in settings for part in ("--set", setting)]
    shape = ["--layers", str(LAYERS), "--stage", "0", "--no-extrapolate"]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        command = [sys.executable, "-m", "ms_tune", "dryrun", "--json", "--run-dir", str(folder), *shape, *edits]
        done = subprocess.run([*command, str(config)], capture_output=True, text=True, check=False)
        seconds = time.monotonic() - begin
        if done.returncode not in (0, 1):  # 1: a figure, of a stage that does not fit
            said = PROGRESS.sub("", done.stderr).partition("error: ")[2].strip()
            return Outcome(None, 0, 0, agrees=False, reason=said, seconds=seconds)
        stage = json.loads(done.stdout)["stages"][0]
        logs = "".join(path.read_text(encoding="utf-8", errors="replace") for path in folder.glob("rank_*/log.txt"))
    logged = [int(size) for size in LOGGED.findall(logs)]
    kept = stage["categories_at_peak"]
    agrees = logged == [stage["peak_bytes"] // MIB]
    return Outcome(stage["peak_bytes"], kept["weights"], kept["optimizer_state"], agrees, "", seconds)


def row(config: Path, outcome: Outcome) -> str:
    """Return one table line."""
    name = "/".join(config.parts[-2:])
    if outcome.peak is None:
        return f"| `{name}` | {outcome.reason.splitlines()[0]} | | | | {outcome.seconds:.0f} |"
    log = "equal" if outcome.agrees else "**differs**"
    sizes = f"{outcome.peak:,} | {outcome.weights:,} | {outcome.optimizer:,}"
    return f"| `{name}` | {sizes} | {log} | {outcome.seconds:.0f} |"


def main() -> None:
    """Run the configs and print the table."""
    settings = [argument for argument in sys.argv[1:] if "=" in argument]
    configs = [Path(argument) for argument in sys.argv[1:] if "=" not in argument]
    print("| config | peak, bytes | weights | optimizer state | MindSpore's log | seconds |")
    print("| --- | ---: | ---: | ---: | --- | ---: |")
    for config in configs or sorted(training_configs()):
        print(row(config, simulated(config, settings)), flush=True)


if __name__ == "__main__":
    main()
