"""Run MSAdapter's own code in simulation, from a typical script; its wheel is read, and never installed.

The wheel also contains top-level folders ``torch`` and ``torch_npu``, which would hide others; the two folders for
PYTHONPATH are extracted from it.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.dryrun.conftest import RealRun, run_dryrun
from tests.oracle import wheels

pytestmark = [pytest.mark.mindspore, pytest.mark.slow]

_WHEELS = {"msadapter": "0.5.0b1", "ml_dtypes": "0.5.4"}  # and the packages that MSAdapter imports
_FOLDERS = ("msadapter/", "msa_thirdparty/", "ml_dtypes/")
_SECONDS = 60
_PROGRAM = """
import sys
import msadapter as torch
from msadapter import distributed, nn
assert torch.cuda.device_count() == 4, torch.cuda.device_count()
distributed.init_process_group(backend="nccl", world_size=8, rank=int(sys.argv[-1] == "--second") * 4)
assert distributed.get_world_size() == 8
print("rank", distributed.get_rank())
generator = torch.Generator()
generator.manual_seed(7)
torch.manual_seed(7)
layer = nn.Linear(1024, 1024, bias=False).to("npu")
if distributed.get_rank() == 4:
    raise RuntimeError("the second stage cannot")
x = torch.ones(64, 1024).to("npu")
layer(x).sum().backward()
"""
_SCRIPT = """#!/bin/bash
set -e
export PYTHONPATH={folders}
msrun --worker_num 8 --local_worker_num 4 --node_rank 0 --join=False train.py \\
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 | tee logs/train.log
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folders of ``msadapter`` and ``msa_thirdparty``."""
    kept = wheels.folder()
    kept.mkdir(parents=True, exist_ok=True)
    aim = tmp_path_factory.mktemp("msadapter")
    for name, version in _WHEELS.items():
        if not list(kept.glob(f"{name}-{version}-*.whl")):
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
            try:
                subprocess.run(
                    [*command, "--timeout", "10", "--retries", "0", "--dest", str(kept), f"{name}=={version}"],
                    check=True,
                    capture_output=True,
                    timeout=_SECONDS,
                )
            except (subprocess.SubprocessError, OSError) as error:
                pytest.skip(f"{name} {version} cannot be downloaded: {type(error).__name__}")
        (wheel,) = kept.glob(f"{name}-{version}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(aim, [one for one in archive.namelist() if one.startswith(_FOLDERS)])
    return aim


@pytest.fixture(scope="module")
def run(folders: Path, tmp_path_factory: pytest.TempPathFactory, stray_cache: Path) -> RealRun:
    work = tmp_path_factory.mktemp("script")
    (work / "train.py").write_text(_PROGRAM, encoding="utf-8")
    path = f"{folders}:{folders / 'msa_thirdparty'}"  # and nothing of the previous path
    (work / "pretrain.sh").write_text(_SCRIPT.format(folders=path), encoding="utf-8")
    return run_dryrun(work, stray_cache, "--json", "pretrain.sh")


def test_the_first_stage_runs_and_the_second_is_reported(run: RealRun) -> None:
    assert [(one["rank"], one["stage"], one["exit_code"]) for one in run.json["jobs"][0]["ranks"]] == [
        (0, 0, 0),
        (4, 1, 1),
    ], run.err
    (first,) = (one for one in run.json["ranks"] if one["stage"] == 0)
    assert first["peak_bytes"] >= 4 * 1024 * 1024 * 2  # a weight and its gradient


def test_what_went_wrong_is_found_after_the_ranks_name(run: RealRun) -> None:
    assert run.code == 1
    assert run.json["verdict"] is None
    assert "rank 4 (stage 1)" in run.json["no_verdict_because"]
    assert "RuntimeError: the second stage cannot" in run.json["no_verdict_because"]


def test_what_is_run_otherwise_is_reported(run: RealRun) -> None:
    result = "\n".join(run.json["support"])
    assert "device count" in result
    assert "init_process_group" in result


def test_no_scheduler_is_started_and_nothing_is_left(run: RealRun) -> None:
    left = sorted(path.name for path in run.folder.parent.iterdir())
    assert left == ["kept", "pretrain.sh", "train.py"]
