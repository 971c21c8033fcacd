"""Check that the wheel is complete: built, installed elsewhere, it runs without the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from ms_tune.source.yaml_nodes import Loader

CHECKOUT = Path(__file__).resolve().parent.parent
CONFIG = """\
runner_config: {epochs: 1, batch_size: 1}
use_legacy: False
parallel_config: {data_parallel: 1, model_parallel: 1, pipeline_stage: 2, micro_batch_num: 2}
recompute_config: {recompute: [1, 2]}
model: {model_config: {num_hidden_layers: 4, offset: 0}}
"""


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def run(installed: Path, folder: Path, *arguments: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed), "LC_ALL": "C.UTF-8"}
    environment |= {"MS_TUNE_CACHE": str(cache)} if cache else {}
    command = [sys.executable, "-m", "ms_tune", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_holds_the_data_files(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    data = [
        f"ms_tune/_data/{path.relative_to(CHECKOUT)}"
        for folder in ("checklists", "yaml_templates")
        for path in (CHECKOUT / folder).rglob("*")
        if path.is_file() and (path.suffix != ".yaml" or not path.with_suffix(".json").exists())  # each checklist once
    ]
    assert len(data) > 1
    headers = {f"ms_tune/dryrun/cann_sim/{name}.h" for name in ("stand_in", "marks", "watching")}
    assert names >= {*data, *headers, "ms_tune/py.typed"}
    assert {name for name in names if "checklists/" in name} <= {*data}
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]
    (metadata,) = [zipfile.ZipFile(wheel).read(name).decode() for name in names if name.endswith("/METADATA")]
    assert "License-Expression: Apache-2.0 AND MIT\n" in metadata
    assert len([name for name in names if ".dist-info/licenses/" in name]) == 2


def test_checklists_are_parsed_when_the_wheel_is_built(installed: Path, tmp_path: Path) -> None:
    folder = installed / "ms_tune" / "_data" / "checklists"
    lists = sorted([*(CHECKOUT / "checklists").glob("*.yaml"), *(CHECKOUT / "checklists").glob("code/*.yaml")])
    assert len(lists) > 5
    for path in lists:
        parsed = folder / path.relative_to(CHECKOUT / "checklists").with_suffix(".json")
        first, *entries = parsed.read_bytes().split(b"\n")
        written = yaml.load(path.read_bytes(), Loader=Loader)["checks"]  # noqa: S506 - it is a safe loader
        names = [one["id"] for entry in written for one in entry.get("members", [entry])]
        assert [json.loads(entry)["id"] for entry in entries] == names, path
        assert [row["id"] for row in json.loads(first)["rows"]] == names, path
    (tmp_path / "train.yaml").write_text(CONFIG, encoding="utf-8")
    done = run(installed, tmp_path, "lint", "train.yaml", cache=tmp_path / "cache")
    assert done.returncode in (0, 1), done.stderr
    assert not (tmp_path / "cache").exists()  # nothing remained to parse


def test_normalize_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text(CONFIG, encoding="utf-8")
    done = run(installed, tmp_path, "normalize-recompute", "--json", "train.yaml")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["formative"]["layer_recompute"] == [[1, 2]]


@pytest.mark.mindspore
def test_dryrun_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    pytest.importorskip("elftools", reason="the dryrun extra is not installed")
    if not any((Path(folder) / "mindspore").is_dir() for folder in sys.path):
        pytest.skip("mindspore is not installed")
    done = run(installed, tmp_path, "dryrun", "--layers", "1", "--no-extrapolate", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] == "fits"
    assert Path(result["trace"]).is_relative_to(tmp_path)
