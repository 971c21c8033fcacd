"""Compare estimates of ``ms-tune check`` with the memory that MindSpeed-LLM publishes with its tests, of runs on NPUs.

``python benchmarks/published.py REPOSITORY`` reads scripts and figures of every release from a clone (it may be bare): one row per
stage, each figure once. "Allocated" is left after the first step, "highest" the peak of that step. Adam has no moments
before it ends, so the peak of later steps is at least as high: the highest figure must not exceed the range of the estimate.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from ms_tune import check_job
from ms_tune.errors import MsTuneError
from ms_tune.units import MIB
from ms_tune.workflows.check.config import OverviewRequest

# Releases without rules of their own are estimated by those of 2.2.
_BRANCHES = {f"{name}.0": name if name > "2.1" else "2.2" for name in ("2.0", "2.1", "2.2", "2.3", "26.0", "26.1")}


def main(repository: str) -> None:
    """Print a row for each stage, then the shares that agree and the widths of the ranges."""
    lasting, inside, seen = [], [], set()
    widths: dict[tuple[str, bool], dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for branch, script, memory in _published(repository):
            path = Path(folder) / script.name
            path.write_text(_git(repository, "show", f"{branch}:{script}"), encoding="utf-8")
            try:
                found = check_job(path, request=OverviewRequest(framework_version=_BRANCHES[branch]))
            except MsTuneError:
                continue
            if found.estimate is None or found.assumptions is None:
                continue
            estimate, ranks = found.estimate, found.assumptions.devices // found.assumptions.split.pipeline
            own = dict.fromkeys(row["rank"] // ranks if len(memory) > 1 else 0 for row in memory)
            for stage in (one for one in estimate.stages if one.stage in own):
                rows = [row for row in memory if len(memory) == 1 or row["rank"] // ranks == stage.stage]
                allocated, highest = (max(row[f"{name}allocated memory"] for row in rows) for name in ("", "max "))
                key = (script.stem, stage.stage, round(allocated), round(highest))
                if key in seen:
                    continue
                seen.add(key)
                lasting.append(allocated * MIB / stage.lasting_bytes)
                inside.append(highest * MIB <= estimate.range_bytes[1])
                print(
                    f"| {branch} {script.stem}, stage {stage.stage} | {lasting[-1]:.2f} | {highest * MIB / stage.peak_bytes:.2f} |"
                )
            low, high = estimate.ratio_range
            kind = ("samples of any length" if estimate.less else "full samples", _has_experts(path))
            widths.setdefault(kind, {})[script.stem] = high - low
    print(f"allocated / estimated: median {statistics.median(lasting):.2f}, {len(lasting)} stages")
    print(f"highest figure not above the range: {sum(inside)} of {len(inside)}")
    for (samples, experts), each in sorted(widths.items()):
        print(
            f"{samples}, {'with' if experts else 'no'} experts: {len(each)} jobs, median width {statistics.median(each.values()):.0%}"
        )


def _published(repository: str) -> Iterator[tuple[str, PurePath, list[dict[str, Any]]]]:
    # Yield each script that has published figures, with them and its branch.
    for branch in _BRANCHES:
        files = [
            PurePath(line) for line in _git(repository, "ls-tree", "-r", "--name-only", branch, "tests/").splitlines()
        ]
        scripts: dict[tuple[str, str], PurePath] = {
            (one.parts[1], one.stem): one for one in files if one.suffix == ".sh"
        }
        for one in files:
            script = scripts.get((one.parts[1], one.stem))
            if one.suffix != ".json" or "baseline" not in str(one.parent) or script is None:
                continue
            try:
                memory = json.loads(_git(repository, "show", f"{branch}:{one}")).get("memo info")
            except ValueError:
                continue
            if isinstance(memory, list) and memory:
                yield branch, script, memory


def _has_experts(script: Path) -> bool:
    return "--num-experts" in script.read_text("utf-8")


def _git(repository: str, *words: str) -> str:
    command = ["git", "-C", repository, *words]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


if __name__ == "__main__":
    main(sys.argv[1])
