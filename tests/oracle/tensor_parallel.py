"""The reference transformer beside MindFormers 2.1's own trainer on several ranks: ``-m tests.oracle.tensor_parallel PYTHON``.

PYTHON is that of an environment with MindSpore 2.10 or later, MindFormers 2.1 and what ms-tune depends on; the trainer runs
over the stand-in for HyperParallel in tests/oracle/stand_in. Further arguments name cases of
``tests/data/tensor_parallel_cases.yaml`` (all of them otherwise). Their figures go to tests/data/tensor_parallel_figures.json,
from which the table in docs/reference-model.md is written.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
CASES = yaml.safe_load((DATA / "tensor_parallel_cases.yaml").read_text(encoding="utf-8"))
FIGURES = DATA / "tensor_parallel_figures.json"
PAGE = ROOT / "docs" / "reference-model.md"
STAND_IN = ROOT / "tests" / "oracle" / "stand_in"
HEAD = """| case | weights | optimizer state | real peak, MiB | reference, MiB | difference |
| --- | --- | --- | ---: | ---: | ---: |
"""
MIB = 2**20
SCALARS = 64 * 1024  # counters of the router and of steps, each of them a block of 512 bytes
_REST: dict[str, Any] = {
    "training": {"local_batch_size": 1, "global_batch_size": 1},
    "optimizer": {"type": "AdamW"},
    "lr_scheduler": {"type": "ConstantWarmUpLR", "warmup_ratio": 0},
    "parallelism": {"data_parallel_shard": 1, "pipeline_parallel": 1},
}


def config_of(name: str) -> tuple[dict[str, Any], int]:
    """A case's config and its devices."""
    case = dict(CASES["cases"][name])
    base, tensor = case.pop("base"), case.pop("tensor")
    config = {**copy.deepcopy(_REST), "model": dict(CASES["bases"][base])}
    config["parallelism"] |= {"tensor_parallel": tensor, "sequence_parallel": tensor > 1}
    for path, value in case.items():
        section, _, key = path.partition(".")
        if key:
            config[section][key] = value
        else:
            config[section] = value
    return config, tensor


def figures(python: str, folder: Path, devices: int, run: str, *options: str) -> dict[str, int]:
    """Bytes at the peak of one dryrun of ``case.yaml``: all, weights, optimizer state."""
    places = os.pathsep.join((str(STAND_IN), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": places}

    command = [python, "-m", "ms_tune", "dryrun", "case.yaml", "--devices", str(devices), "--run-dir", run, "--json"]
    done = subprocess.run(
        [*command, *options], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if not done.stdout.startswith("{"):
        raise RuntimeError(done.stderr[-2000:])
    stage = json.loads(done.stdout)["stages"][0]
    kept = stage["categories_at_peak"]
    return {"peak": stage["peak_bytes"], **{name: kept[name] for name in ("weights", "optimizer_state")}}


def compared(python: str, name: str) -> tuple[dict[str, int], dict[str, int]]:
    """A case's figures with MindFormers' own code, and with the reference transformer."""
    config, devices = config_of(name)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "case.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        return figures(python, folder, devices, "real"), figures(python, folder, devices, "own", "--reference")


def row(name: str, real: dict[str, int], own: dict[str, int]) -> str:
    """A line of the table."""
    same = [
        "equal" if abs(real[key] - own[key]) <= SCALARS else f"{own[key] - real[key]:+,}"
        for key in ("weights", "optimizer_state")
    ]
    peaks = f"{real['peak'] / MIB:,.1f} | {own['peak'] / MIB:,.1f} | {own['peak'] / real['peak'] - 1:+.2%}"
    return f"| {name} | {' | '.join(same)} | {peaks} |"


def write(found: dict[str, Any]) -> None:
    """Write the figures, and the table of all cases that have some."""
    FIGURES.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    rows = [row(name, found[name]["real"], found[name]["reference"]) for name in CASES["cases"] if name in found]
    text = PAGE.read_text(encoding="utf-8")
    made = re.sub(re.escape(HEAD) + r"(\|.*\n)*", lambda _: HEAD + "\n".join(rows) + "\n", text)
    PAGE.write_text(made, encoding="utf-8")


def main() -> None:
    """Run the cases; print their lines, and write them when each one is done."""
    python, *names = sys.argv[1:]
    for name in names or CASES["cases"]:
        try:
            real, own = compared(python, name)
        except RuntimeError as error:
            sys.stderr.write(f"{name}: {error}\n")
            continue
        sys.stdout.write(row(name, real, own) + "\n")
        sys.stdout.flush()
        found = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
        write({**found, name: {"real": real, "reference": own}})


if __name__ == "__main__":
    main()
