"""The reference transformer beside MindFormers' own dynamic-graph trainer on one device: the same memory, tensor by tensor.

The trainer runs with a stand-in for HyperParallel (tests/oracle/stand_in), which is on no package index. On one device the
trainer asks next to nothing of it, so that everything that takes memory is MindFormers' own. ``MS_TUNE_TEST_PYNATIVE``
names a Python that has MindFormers 2.0 or 2.1, the MindSpore of its time and what ms-tune depends on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ms_tune.facts.training import Framework, pynative_framework
from ms_tune.footprint.category import match_listed_tensors
from ms_tune.footprint.curve import compute_curve
from ms_tune.readers.folder import find_trace
from ms_tune.readers.tensors import read_tensor_list
from ms_tune.readers.tracker_tables import read_block_table
from tests.dryrun.test_dynamic_oracle import MODELS, REST

CHECKOUT = Path(__file__).resolve().parents[2]
STAND_IN = CHECKOUT / "tests" / "oracle" / "stand_in"
HERE = sys.executable if isinstance(pynative_framework(), Framework) else ""
PYTHON = os.environ.get("MS_TUNE_TEST_PYNATIVE", HERE)
ARCHITECTURES = {"qwen3": "Qwen3ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM"}
CLOSE = 0.003
SCALARS = 64 * 1024  # step counts and the like, each of them a block

pytestmark = [
    pytest.mark.mindspore,
    pytest.mark.skipif(not PYTHON, reason="MS_TUNE_TEST_PYNATIVE names no Python with MindFormers 2.0 or later"),
]


@dataclass(frozen=True)
class Peak:
    """A run at its peak.

    Attributes:
        bytes: All that lives.
        listed: Of the tensors that the child listed, by what they are.
        known: Of what MindFormers 2.0 keeps and the reference transformer does not.
    """

    bytes: int
    listed: dict[str, int]
    known: int

    @property
    def rest(self) -> int:
        return self.bytes - sum(self.listed.values()) - self.known


def write(folder: Path, name: str, layers: int) -> None:
    model = {**MODELS[name], "num_hidden_layers": layers, "architectures": ARCHITECTURES[name]}
    text = yaml.safe_dump({**REST, "lr_scheduler": {"type": "ConstantWarmUpLR", "warmup_ratio": 0}, "model": model})
    (folder / "case.yaml").write_text(text, encoding="utf-8")


def ms_tune(folder: Path, *arguments: str) -> dict[str, Any]:
    places = (os.environ.get("PYTHONPATH"), str(STAND_IN), str(CHECKOUT))
    done = subprocess.run(
        [PYTHON, "-m", "ms_tune", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def peak_of(folder: Path) -> Peak:
    (files,) = find_trace(folder).ranks
    assert files.tensors is not None
    tensors, table = read_tensor_list(files.tensors), read_block_table(files.blocks)
    assert tensors is not None
    table = table.select_rows(table.on_device())
    curve = compute_curve(table)
    rows, missing = match_listed_tensors(table, tensors)
    assert not missing
    listed: dict[str, int] = {}
    known = 0
    for row in np.flatnonzero(table.live_at(curve.peak_tick)).tolist():
        size = int(table.size[row])
        if row in rows:
            content = rows[row][0].value
            listed[content] = listed.get(content, 0) + size
        elif kept_by_mindformers(table.kind.value_at(row), {frame.file for frame in table.stack.value_at(row)}):
            known += size
    return Peak(curve.peak_bytes, listed, known)


def kept_by_mindformers(kind: str, files: set[str]) -> bool:
    """What MindFormers 2.0 keeps and the reference transformer, like 2.1, does not.

    ``param.clone().float()`` in ``AdamW._init_main_params`` leaves a clone of every narrow weight behind (MindSpore's
    ``Parameter.clone`` puts it into the parameter's ``param_info.cloned_obj``), the embedding its float32 output, and every
    layer has cosines and sines of its own.
    """
    places = ("embeddings/vocab_embedding.py", "embeddings/rope_utils.py")
    return kind == "Weight" or any(file.endswith(places) for file in files)


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_needs_the_memory_that_the_trainer_needs(name: str, tmp_path: Path) -> None:
    write(tmp_path, name, layers=2)
    common = ("dryrun", "case.yaml", "--devices", "1", "--json", "--run-dir")
    real, reference = ms_tune(tmp_path, *common, "real"), ms_tune(tmp_path, *common, "reference", "--reference")
    assert "MindFormers 2." in real["model"], "the framework's own trainer was not used"
    assert real["model"] != reference["model"]
    one, other = peak_of(tmp_path / "real"), peak_of(tmp_path / "reference")
    assert one.bytes == real["stages"][0]["peak_bytes"]
    assert one.listed["weights"] == pytest.approx(other.listed["weights"], abs=SCALARS)
    assert one.listed["optimizer_state"] == pytest.approx(other.listed["optimizer_state"], abs=SCALARS)
    assert other.rest == pytest.approx(one.rest, rel=CLOSE), (one, other)


def test_fewer_layers_grow_back_to_all_of_them(tmp_path: Path) -> None:
    write(tmp_path, "qwen3", layers=5)
    common = ("dryrun", "case.yaml", "--devices", "1", "--json", "--run-dir")
    full, part = (
        ms_tune(tmp_path, *common, "full", "--layers", "all"),
        ms_tune(tmp_path, *common, "part", "--layers", "2"),
    )
    assert part["stages"][0]["extrapolated_peak_bytes"] == pytest.approx(full["stages"][0]["peak_bytes"], rel=CLOSE)
