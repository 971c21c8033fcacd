"""Check that a new model class in the data is known everywhere, without any change of code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from ms_tune import lint_files
from ms_tune.dialects import operators
from ms_tune.dryrun.shrink import mindformers_layers
from ms_tune.dryrun.shrink.config_copy import ConfigCopy
from ms_tune.facts import keys, models, query
from ms_tune.facts.query import Release
from ms_tune.lint.result import LintRequest
from ms_tune.source.yaml import parse_source
from tests.jobs import normalize_source

DYNAMIC = """\
parallelism: {data_parallel_shard: 1}
training: {steps: 10}
lr_scheduler: {type: ConstantWarmUpLR}
train_dataset: {dataloader: {type: HFDataLoader, create_compressed_eod_mask: False}}
model: {model_type: orca_moe, architectures: OrcaMoeForCausalLM, num_hidden_layers: 5}
recompute: {mode: select, select_module: {mlp.linear_fc1: ['0-4']}}
"""
STATIC = """\
use_legacy: False
run_mode: train
model: {model_config: {model_type: orca_moe, architectures: [OrcaMoeForCausalLM], num_layers: 5}}
"""


def edit(folder: Path, name: str) -> Any:  # noqa: ANN401 - as JSON has it
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def forget() -> None:
    """Clear all caches of the data."""
    for function in (query.load, models.facts_of, models._legacy_facts, keys.registered, operators.read_tree):
        function.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a copy of the data with an additional class in 2.1: DeepSeek-V3 with two dense layers and other names."""
    copy = tmp_path / "data"
    shutil.copytree(query._FOLDER, copy)
    known = edit(copy, "models")
    one = deepcopy(known["classes"]["deepseek_v3"])
    one["class"], one["names"] = "OrcaMoeConfig", {"2.1": ["orca_moe", "OrcaMoeConfig"]}
    one["architectures"] = {"2.1": ["OrcaMoeForCausalLM"]}
    one["defaults"]["first_k_dense_replace"] = {"2.1": 2}
    known["classes"]["orca_moe"] = one
    (copy / "models.json").write_text(json.dumps(known), encoding="utf-8")
    names = edit(copy, "registries")
    names["static"]["core_config"]["orca_moe"] = {"2.1": True}
    names["static"]["core_model"]["OrcaMoeForCausalLM"] = {"2.1": True}
    (copy / "registries.json").write_text(json.dumps(names), encoding="utf-8")
    trees = edit(copy, "trees")
    for mode in ("static", "dynamic"):
        trees[mode]["orca_moe"] = trees[mode]["deepseek_v3"]
    (copy / "trees.json").write_text(json.dumps(trees), encoding="utf-8")
    forget()
    yield copy
    monkeypatch.undo()
    forget()


def ids(text: str, folder: Path) -> list[str]:
    path = folder / "a.yaml"
    path.write_text(text, encoding="utf-8")
    report = lint_files(path, request=LintRequest(framework_version="2.1", settings=False))
    return [finding.id for file in report.files for finding in file.findings]


def test_nobody_knows_it_before(tmp_path: Path) -> None:
    assert {"MST776"} <= set(ids(DYNAMIC, tmp_path))
    assert {"MST531"} <= set(ids(STATIC, tmp_path))


def test_everybody_knows_it_after(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "_FOLDER", folder)
    forget()
    assert "MST776" not in ids(DYNAMIC, tmp_path)
    found = ids(STATIC, tmp_path)
    assert "MST531" not in found
    assert "MST338" in found  # its class calls the layers num_hidden_layers
    plan = normalize_source(parse_source(DYNAMIC, Path("a.yaml")), "2.1")
    assert [layer.layer for layer in plan.layers if layer.select_patterns] == [0, 1]
    monkeypatch.setattr("ms_tune.job.release_for", lambda *_: Release("MindFormers", "2.1"))
    config = ConfigCopy(parse_source(STATIC, Path("a.yaml")).data, Path("a.yaml"))
    assert mindformers_layers._expert_layers(config, 5) == [False, False, True, True, True]


@pytest.mark.slow
def test_a_release_is_data(tmp_path: Path) -> None:
    """A release without changes, named in two files, has the same answers as the previous one."""
    root = Path(query.__file__).parents[2]
    for folder in ("ms_tune", "checklists"):
        shutil.copytree(root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    copy = tmp_path / "ms_tune" / "facts" / "data"
    known, lists = edit(copy, "models"), edit(copy, "releases")
    for releases in (known["releases"], lists["mindformers"]["served"], lists["mindformers-pynative"]["served"]):
        releases.append("9.0")
    (copy / "models.json").write_text(json.dumps(known), encoding="utf-8")
    (copy / "releases.json").write_text(json.dumps(lists), encoding="utf-8")
    (tmp_path / "a.yaml").write_text(STATIC.replace("orca_moe", "qwen3").replace("OrcaMoe", "Qwen3"), encoding="utf-8")
    (tmp_path / "b.yaml").write_text(DYNAMIC.replace("orca_moe", "qwen3").replace("OrcaMoe", "Qwen3"), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    for command in (["lint", "a.yaml", "b.yaml"], ["normalize-recompute", "a.yaml"], ["normalize-recompute", "b.yaml"]):
        said = []
        for release in ("2.1", "9.0"):
            line = [sys.executable, "-m", "ms_tune", *command, "--framework-version", release]
            done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode in (0, 1), done.stderr
            said.append((done.returncode, done.stdout.replace(release, "")))
        assert said[0] == said[1]
