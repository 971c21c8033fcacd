"""Compare the reference transformer's peaks with those of the real framework: ``python benchmarks/framework.py PYTHON``.

PYTHON is that of an environment with MindSpore 2.7, MindFormers 1.6 and ms-tune; further arguments name cases of
``tests/data/framework_cases.yaml`` (all of them otherwise). Each case is simulated twice, once with the framework's own
code.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CASES = Path(__file__).parents[1] / "tests" / "data" / "framework_cases.yaml"
MIB = 2**20


@dataclass(frozen=True)
class Peaks:
    """Bytes at the peak of one pipeline stage.

    Attributes:
        mask: Bytes of the attention mask, which is input data in the real run and missing in the reference run.
    """

    stage: int
    real: int
    mask: int
    reference: int

    @property
    def difference(self) -> float:
        """Return how much more the reference needs, relative to the real run without the mask."""
        return self.reference / (self.real - self.mask) - 1


def configured(base: Mapping[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base config with changed values at ``section.key``."""
    config = copy.deepcopy(dict(base))
    for path, value in edits.items():
        section, key = path.split(".", 1)
        config[section][key] = value
    return config


def simulated(python: str, folder: Path, devices: int, *options: str) -> dict[str, Any]:
    """Return the result of one dryrun."""
    command = [
        python,
        "-m",
        "ms_tune",
        "dryrun",
        "case.yaml",
        "--devices",
        str(devices),
        "--json",
        "--layers",
        "all",
        *options,
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def compared(python: str, config: Mapping[str, Any], devices: int) -> Iterator[Peaks]:
    """Return the peaks of every stage of a case, from both sides."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "case.yaml").write_text(yaml.safe_dump(dict(config)), encoding="utf-8")
        real = simulated(python, folder, devices)
        reference = simulated(python, folder, devices, "--reference")
    batch, length = config["dataset_config"], config["model_config"]["seq_length"]
    changed = {change["key"]: change["after"] for change in real["changes"]}
    micro_batches = changed.get("dataset_config.micro_batch_num", batch["micro_batch_num"])
    mask = micro_batches * batch["batch_size"] * length * length
    for one, other in zip(real["stages"], reference["stages"], strict=True):
        yield Peaks(one["stage"], one["peak_bytes"], mask, other["peak_bytes"])


def main() -> None:
    """Run the cases and print a table."""
    python, *names = sys.argv[1:]
    data = yaml.safe_load(CASES.read_text(encoding="utf-8"))
    print("| case | stage | real, MiB | of it mask | reference, MiB | difference |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in names or data["cases"]:
        config = configured(data["base"], data["cases"][name])
        for peaks in compared(python, config, data["devices"]):
            sizes = f"{peaks.real / MIB:,.1f} | {peaks.mask / MIB:.0f} | {peaks.reference / MIB:,.1f}"
            print(f"| {name} | {peaks.stage} | {sizes} | {peaks.difference:+.2%} |", flush=True)


if __name__ == "__main__":
    main()
