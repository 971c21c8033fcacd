"""Run the reference transformer in the real MindSpore: small jobs of every kind."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from ms_tune.dryrun.cann_sim.environment import find_mindspore, prepare_cann
from ms_tune.dryrun.environment import simulation_environment
from ms_tune.dryrun.launcher import LOG
from ms_tune.dryrun.local_engine import LocalEngine
from ms_tune.dryrun.request import DryrunRequest, PreparedRun
from ms_tune.dryrun.run import _make_task
from ms_tune.enums import Dialect
from ms_tune.job.detect import recognise
from ms_tune.records import plain_data
from ms_tune.reference.job import ReferenceJob
from ms_tune.reference.pynative import module_paths
from tests import dynamic_jobs
from tests.dryrun.configs import source_of
from tests.dryrun.machine import needs_mindspore
from tests.reference.configs import CASES

pytestmark = [pytest.mark.mindspore, needs_mindspore]

Job = tuple[str, int, int | None]  # a case, a stage of it, and how many layers; None for all
MIB = 1024**2
CHECKOUT = Path(__file__).parents[2]
_FURTHER = (  # the others contain every part of these
    *("Ulysses in a ring", "Qwen3 on one device", "DeepSeek-V3, without pipeline", "Qwen3"),
)
STAGES = [
    pytest.param(name, stage, id=f"{name}, stage {stage}", marks=[pytest.mark.more] if name in _FURTHER else [])
    for name, stages in (
        ("tensor, sequence, pipeline", (0, 1)),
        ("tensor without sequence, grouped heads, biases", (0,)),
        ("Ulysses", (0,)),
        ("Ulysses in a ring", (0,)),
        ("experts over tensor-parallel ranks", (0,)),
        ("old ways: no FlashAttention, gelu, LayerNorm, learned positions", (0,)),
        ("float32 without buffers", (0,)),
        ("Qwen3", (0,)),
        ("Qwen3 on one device", (0,)),
        ("Qwen3, Ulysses and gathered keys", (0,)),
        ("own model, four chunks", (1,)),
        ("DeepSeek-V3, without pipeline", (0,)),
        ("DeepSeek-V3, whole shared expert", (0,)),
        ("Qwen3-MoE", (0,)),
        ("DeepSeek-V3", (0, 1)),
        ("GLM-4, interleaved", (1,)),
    )
    for stage in stages
]

_GROWING: list[Job] = [("Qwen3", 0, layers) for layers in (3, 4, 8)]
_OVERLAPPED: Job = ("overlapped", 0, None)


@dataclass(frozen=True)
class Simulated:
    """A simulated stage."""

    run: PreparedRun
    folder: Path
    log: str

    @cached_property
    def peak(self) -> int:
        """Return the peak in bytes, from the trace."""
        (path,) = self.folder.rglob("memory_block.csv")
        with path.open(encoding="utf-8", newline="") as file:
            return max(int(row["actual_used_memory"]) for row in csv.DictReader(file))

    @cached_property
    def tensors(self) -> dict[str, int]:
        """Return the persistent bytes by category."""
        read = json.loads((self.folder / "tensors.json").read_text("utf-8"))
        return {
            name: sum(tensor["bytes"] for tensor in tensors)
            for name, tensors in read.items()
            if name != "schema_version"
        }


def environment_of(rank: int, world_size: int) -> dict[str, str]:
    cann = prepare_cann(find_mindspore(), lambda _: None)
    made = simulation_environment(os.environ, cann, rank, world_size)
    made["PYTHONPATH"] = os.pathsep.join(filter(None, [made.get("PYTHONPATH"), str(CHECKOUT)]))
    return made


def prepared(name: str, stage: int = 0, layers: int | None = None) -> PreparedRun:
    case = CASES[name]
    source = source_of(case.config)
    dialect = recognise(source.data).dialect
    assert dialect in (Dialect.MINDSPEED_MS, Dialect.MINDFORMERS_PYNATIVE)
    request = DryrunRequest(config=Path("config.yaml"), stage=stage, layers=layers)
    return dynamic_jobs.prepare(source, "config.yaml", request, case.devices, dialect)


def simulate(folder: Path, jobs: Collection[Job]) -> dict[Job, Simulated]:
    """Run stages as `dryrun` does, two at a time, forked from one process that has imported MindSpore."""
    runs = {str(number): prepared(*job) for number, job in enumerate(jobs)}
    tasks = [_make_task(run, number, DryrunRequest(timeout=600)) for number, run in runs.items()]
    codes = {}
    cann = prepare_cann(find_mindspore(), lambda _: None)
    LocalEngine(cann, 2).run(
        tasks, folder, lambda *_: None, lambda task, ended: codes.update({task.folder: ended.code})
    )
    logs = {number: (folder / number / LOG).read_text("utf-8", errors="replace") for number in runs}
    assert codes == dict.fromkeys(runs, 0), [logs[number][-4000:] for number, code in codes.items() if code]
    found = (Simulated(run, folder / number, logs[number]) for number, run in runs.items())
    return dict(zip(jobs, found, strict=True))


@pytest.fixture(scope="module")
def simulated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[Job, Simulated]:
    """Run all stages that the chosen tests of this module are about."""
    chosen: list[Any] = [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.function is test_a_stage_holds_what_theory_says
        and not item.get_closest_marker("skip")
    ]
    stages = [(one["name"], one["stage"], None) for one in chosen]
    return simulate(tmp_path_factory.mktemp("stages"), dict.fromkeys([*stages, *_GROWING, _OVERLAPPED]))


@pytest.mark.drawn(8)
@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_a_stage_holds_what_theory_says(name: str, stage: int, simulated: dict[Job, Simulated]) -> None:
    made = simulated[name, stage, None]
    theory = made.run.theory
    assert {name: made.tensors[name] for name in theory} == pytest.approx(theory, rel=0.001)
    logged = re.findall(r"Used peak memory usage \(without fragments\): (\d+)M", made.log)
    assert made.peak // MIB == int(logged[-1])
    assert made.peak > sum(made.tensors.values())


def test_the_peak_grows_by_the_same_with_every_layer(simulated: dict[Job, Simulated]) -> None:
    """With sharded weights; TestDerivedModel of ``tests/dryrun/test_end_to_end.py`` shows it for unsharded ones."""
    peaks = {job[2]: simulated[job].peak for job in _GROWING}
    assert peaks[4] + 4 * (peaks[4] - peaks[3]) == pytest.approx(peaks[8], rel=0.01)


def test_overlapped_reduction_keeps_a_copy_of_every_bucket_but_the_first(simulated: dict[Job, Simulated]) -> None:
    made = simulated[_OVERLAPPED]
    gradients = made.tensors["gradients"]
    (path,) = made.folder.rglob("memory_block.csv")
    with path.open(encoding="utf-8", newline="") as file:
        copies = sum(int(row["size"]) for row in csv.DictReader(file) if "Function:send" in row["python_stack"])
    # The buffer begins with the last weights, float32: the last norm, and the two projections of the last feed-forward.
    first = 4 * (256 + 256 * 512 + 1024 * 256)
    # Of two steps: the copies that are sent, and this rank's half of the results.
    assert copies / 2 == pytest.approx(gradients - first + gradients / 2, rel=0.001)


_NAMES = """
import json, os, sys
import mindspore
from mindspore.communication import init
from ms_tune.training_process import make_initialisation_cheap
from ms_tune.reference.job import ReferenceJob, rank_groups
from ms_tune.records import from_plain
from ms_tune.reference.transformer.network import TransformerLayer
from ms_tune.reference.transformer.parallel import make_groups
from ms_tune.reference.transformer.settings import NetworkSettings
mindspore.set_device("Ascend", 0)
make_initialisation_cheap()
init()
found = []
for text in json.load(open("jobs.json")):
    job = from_plain(ReferenceJob, text)
    settings = NetworkSettings(job.config, make_groups(rank_groups(job.config, job.data_parallel, 0)))
    layer = TransformerLayer(job.stage.chunks[-1].layers[-1], settings)
    found.append([name for name, _ in layer.cells_and_names() if name])
json.dump(found, open("names.json", "w"))
"""


def test_patterns_are_matched_against_the_modules_that_there_are(tmp_path: Path) -> None:
    runs = [prepared(name) for name in ("Qwen3", "Qwen3-MoE", "DeepSeek-V3", "GLM-4, interleaved")]
    jobs = [run.job for run in runs]
    (tmp_path / "jobs.json").write_text(json.dumps([plain_data(job) for job in jobs]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", _NAMES],
        cwd=tmp_path,
        env=environment_of(0, 8),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for job, names in zip(jobs, json.loads((tmp_path / "names.json").read_text("utf-8")), strict=True):
        assert isinstance(job, ReferenceJob)
        last = job.stage.chunks[-1].layers[-1]
        # Parts wrapped by Ulysses have no name in the frameworks.
        named = {name for name in names if not name.endswith(".inner")}
        assert named == set(module_paths(job.config.shape, experts=last.experts))


_EARLY = """
import json
from inspect import signature
from unittest.mock import Mock
from mindspore import nn
from ms_tune.reference.transformer.network import _recompute_cell
found = [list(signature(nn.Cell.recompute).parameters)]
for legacy in (False, True):
    cell = Mock()
    for stops in (False, True):
        _recompute_cell(cell, Mock(shape=Mock(legacy=legacy)), stops=stops)
        found.append(cell.recompute.call_args.kwargs)
json.dump(found, open("found.json", "w"))
"""


def test_recompute_stops_early_in_mindformers_dynamic_graph(tmp_path: Path) -> None:
    program = [sys.executable, "-c", _EARLY]
    subprocess.run(program, cwd=tmp_path, env=environment_of(0, 1), capture_output=True, timeout=120, check=True)
    known, whole, selected, *legacy = json.loads((tmp_path / "found.json").read_text("utf-8"))
    for given, stops in ((whole, False), (selected, True)):
        wanted = {"use_reentrant": False, "early_stop": stops}
        assert given == {name: value for name, value in wanted.items() if name in known}
    assert legacy == [{}, {}]
