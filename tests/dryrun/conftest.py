"""Provide fixtures for tests of dryrun: the installed MindSpore's inventory and a few real runs.

A real run takes seconds to minutes, so each runs once for all tests that use it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ms_tune.dryrun.cann_sim.environment import Backend, find_mindspore, prepare_cann
from ms_tune.dryrun.cann_sim.inventory import Inventory, take_inventory
from ms_tune.facts.query import data_folder

_QWEN3 = "configs/qwen3/pretrain_qwen3_32b_4k.yaml"
_SCRIPT = """
import sys
import mindspore
import numpy as np
from mindspore import Tensor, mint, nn
mindspore.set_device("Ascend", 0)
net = nn.Dense(1024, 512, has_bias=False)
optimizer = mint.optim.AdamW(net.trainable_params(), lr=1e-3)
step = mindspore.value_and_grad(lambda x: net(x).sum(), None, optimizer.parameters)
for _ in range(2):
    _, gradients = step(Tensor(np.zeros((64, 1024), np.float32)))
    optimizer(gradients)
sys.exit(int(sys.argv[1]))
"""
_ONE = ("--stage", "0", "--no-extrapolate")
# Of the machine that the tests run on; a run must not depend on them.
_UNSET = (
    "LC_ALL",
    "LC_MESSAGES",
    "LANG",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "RANK_ID",
    "RANK_SIZE",
    "MS_ALLOC_CONF",
)


@dataclass(frozen=True)
class RealRun:
    """A finished ``ms-tune dryrun``: its exit code, both output streams, and its run folder."""

    code: int
    out: str
    err: str
    folder: Path

    @cached_property
    def json(self) -> dict[str, Any]:
        """Return the parsed output of a run with ``--json``."""
        read = json.loads(self.out)
        assert isinstance(read, dict)
        return read

    @property
    def log(self) -> str:
        """Return the output of the simulated process."""
        (path,) = (*self.folder.glob("rank_*/log.txt"), *self.folder.glob("script/log.txt"))
        return path.read_text("utf-8", errors="replace")


@pytest.fixture(scope="session")
def installed_inventory() -> Inventory:
    """Return the symbols that the installed MindSpore lacks; this takes a second or two."""
    return take_inventory(find_mindspore().folder)


@pytest.fixture(scope="session")
def stray_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache folder whose path contains several times the words at which MindSpore cuts paths.

    The stand-ins in it are a copy of those that all other tests use: building them takes eight seconds.
    """
    folder = tmp_path_factory.mktemp("cannery") / "latest" / "scann" / "latest-cann-cache"
    if find_spec("mindspore") is not None and find_spec("elftools") is not None:
        cann = prepare_cann(find_mindspore(), lambda _: None)
        if cann.backend is Backend.STAND_IN:
            built = cann.home.parent
            shutil.copytree(built, folder / "stand-in" / built.name, symlinks=True)
    return folder


def run_dryrun(folder: Path, cache: Path, *arguments: str) -> RealRun:
    """Run ``ms-tune dryrun`` in a separate process.

    Args:
        folder: Its working folder; the run folder is ``kept`` below it.
        cache: The folder of the stand-ins.
        arguments: The arguments after the command's name.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _UNSET}
    environment |= {"MS_TUNE_CACHE": str(cache), "PYTHONPATH": str(Path(__file__).parents[2])}
    kept = folder / "kept"
    done = subprocess.run(
        [sys.executable, "-m", "ms_tune", "dryrun", "--run-dir", str(kept), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=900,  # one that hangs fails by itself, and does not use up the time of all
    )
    return RealRun(done.returncode, done.stdout, done.stderr, kept)


@pytest.fixture(scope="session")
def packaged_run(tmp_path_factory: pytest.TempPathFactory, stray_cache: Path) -> RealRun:
    """Run four layers of the packaged Llama-2-7B with JSON output."""
    return run_dryrun(tmp_path_factory.mktemp("packaged"), stray_cache, "--layers", "4", "--json")


@pytest.fixture(scope="session")
def small_device_run(
    tmp_path_factory: pytest.TempPathFactory,
    stray_cache: Path,
) -> RealRun:
    """Run the same on a device of 8 GB with Chinese text output."""
    arguments = ("--layers", "4", "--no-extrapolate", "--device-memory", "8GB", "--verbose", "--lang", "zh")
    return run_dryrun(tmp_path_factory.mktemp("small"), stray_cache, *arguments)


@pytest.fixture(scope="session")
def derived_runs(
    tmp_path_factory: pytest.TempPathFactory,
    stray_cache: Path,
) -> tuple[RealRun, RealRun]:
    """Run six layers, three of them recomputed: extrapolated from two layers, and in full."""
    template = str(data_folder("yaml_templates") / "mindspeed_ms" / "llama2_7b.yaml")
    settings = ["--set", "model_config.num_layers=6", "--set", "parallel_config.recompute_config.recompute=[3]"]
    arguments = ("--json", *settings, template)
    derived = run_dryrun(tmp_path_factory.mktemp("derived"), stray_cache, "--layers", "2", *arguments)
    return derived, run_dryrun(tmp_path_factory.mktemp("whole"), stray_cache, "--layers", "all", *arguments)


@pytest.fixture(scope="session")
def command_run(
    tmp_path_factory: pytest.TempPathFactory,
    stray_cache: Path,
) -> RealRun:
    """Run a user's script that trains briefly and ends with exit code 7."""
    folder = tmp_path_factory.mktemp("command")
    (folder / "train.py").write_text(_SCRIPT, encoding="utf-8")
    return run_dryrun(folder, stray_cache, "--json", "--", sys.executable, "train.py", "7")


@pytest.fixture(scope="session")
def qwen3_config() -> Path:
    """Return MindFormers' own config of Qwen3-32B, from its wheel."""
    files = metadata.files("mindformers") or []
    found = next((file for file in files if file.as_posix().endswith(_QWEN3)), None)
    if found is None or not Path(str(found.locate())).is_file():
        pytest.skip(f"the installed MindFormers does not bring {_QWEN3}")
    return Path(str(found.locate()))


@pytest.fixture(scope="session")
def qwen3_run(tmp_path_factory: pytest.TempPathFactory, stray_cache: Path, qwen3_config: Path) -> RealRun:
    """Run stage 0 of Qwen3-32B with one layer in every pipeline stage, with JSON output."""
    return run_dryrun(
        tmp_path_factory.mktemp("qwen3"), stray_cache, "--layers", "1", *_ONE, "--json", str(qwen3_config)
    )
