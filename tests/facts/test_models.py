"""Test what is known of models: fields of their own and of others, and a made-up model that is added by hand."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ms_tune import lint_files
from ms_tune.dialects import operators
from ms_tune.dryrun.shrink import mindformers_layers
from ms_tune.dryrun.shrink.config_copy import ConfigCopy
from ms_tune.enums import Dialect
from ms_tune.facts import keys, models, query
from ms_tune.facts.models import UNKNOWN, Field, ModelConfig, ValueOrigin, model_of
from ms_tune.facts.query import Release
from ms_tune.lint.result import LintRequest
from ms_tune.source.yaml import parse_source
from tests.jobs import normalize_source

STATIC, DYNAMIC = Dialect.MINDFORMERS, Dialect.MINDFORMERS_PYNATIVE


@dataclass(frozen=True)
class Config:
    data: dict[Any, Any]


def core(release: str = "1.9", beside: dict[str, Any] | None = None, /, **values: object) -> ModelConfig:
    config = Config({"use_legacy": False, "model": {"model_config": values}})
    return model_of(config, STATIC, release, beside)


@pytest.mark.parametrize(
    ("kind", "dense"), [("deepseek_v3", 3), ("glm4_moe", 1), ("telechat3_moe", 3), ("qwen3_moe", None)]
)
def test_dense_layers_in_front_are_the_classs_own_matter(kind: str, dense: int | None) -> None:
    origin = ValueOrigin.GENERAL_DEFAULT if dense is None else ValueOrigin.CLASS_DEFAULT
    assert core(model_type=kind).field("first_k_dense_replace") == Field("first_k_dense_replace", dense, origin)
    config = Config({"model": {"model_type": kind}})
    assert model_of(config, DYNAMIC, "2.1").number("first_k_dense_replace") == dense


@pytest.mark.parametrize("key", ["num_layers", "num_hidden_layers"])
def test_a_field_is_written_under_any_of_its_names(key: str) -> None:
    field = core("1.8", **{"model_type": "deepseek_v3", key: 6}).field("num_layers")
    origin = ValueOrigin.WRITTEN if key == "num_layers" else ValueOrigin.ALIAS
    assert field == Field("num_layers", 6, origin, ("model", "model_config", key))


def test_a_name_of_another_class_represents_nothing() -> None:
    model = core("2.1", model_type="deepseek_v3", num_experts=8)
    assert model.value("num_moe_experts") == 256
    assert core("1.8", model_type="deepseek_v3", num_experts=8).value("num_moe_experts") == 8


def test_a_null_is_filled_up_from_another_setting() -> None:
    model = core(model_type="qwen3", num_key_value_heads=None, num_attention_heads=12)
    assert model.value("num_query_groups") == 12


def test_what_follows_from_a_written_setting_is_unknown() -> None:
    model = model_of(Config({"model": {"model_type": "deepseek_v4", "head_dim": 256}}), DYNAMIC, "2.1")
    assert model.field("qk_head_dim").origin is ValueOrigin.UNKNOWN
    assert model_of(Config({"model": {"model_type": "deepseek_v4"}}), DYNAMIC, "2.1").value("qk_head_dim") == 448


def test_the_class_writes_one_key_to_another() -> None:
    assert core(model_type="telechat", num_attention_heads=16).value("n_head") == 16


@pytest.mark.parametrize("named", ["DeepseekV3ForCausalLM", ["DeepseekV3ForCausalLM", "other"]])
def test_a_network_shows_the_class(named: object) -> None:
    model = core(architectures=named)
    assert (model.kind, model.architecture, model.value("num_moe_experts")) == (
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        256,
    )


def test_of_an_unknown_class_only_what_is_written_is_known() -> None:
    model = core(model_type="mine", num_hidden_layers=4)
    assert (model.known, model.kind, model.number("num_layers")) == (False, "mine", 4)
    assert model.value("first_k_dense_replace") is UNKNOWN
    assert model.value("moe_token_dispatcher_type") is UNKNOWN


def test_a_folder_with_weights_that_nobody_opened_hides_what_is_left_out() -> None:
    config = Config(
        {"use_legacy": False, "pretrained_model_dir": "w", "model": {"model_config": {"model_type": "qwen3"}}}
    )
    assert model_of(config, STATIC, "1.9").value("num_layers") is UNKNOWN
    assert model_of(config, STATIC, "1.9", {}).value("num_layers") == 32
    model = model_of(config, STATIC, "1.9", {"num_hidden_layers": 7, "model_type": "llama"})
    assert (model.kind, model.field("num_layers")) == ("qwen3", Field("num_layers", 7, ValueOrigin.ALIAS))


def test_experts_of_a_section_of_their_own_come_first() -> None:
    config = Config(
        {
            "use_legacy": False,
            "moe_config": {"n_routed_experts": 8},
            "model": {"model_config": {"model_type": "deepseek_v3", "n_routed_experts": 16}},
        }
    )
    field = model_of(config, STATIC, "1.9").field("num_moe_experts")
    assert (field.value, field.path) == (8, ("moe_config", "n_routed_experts"))


def test_legacy_models() -> None:
    config = Config({"model": {"arch": {"type": "LlamaForCausalLM"}, "model_config": {"type": "LlamaConfig"}}})
    model = model_of(config, STATIC, "1.6")
    assert (model.kind, model.architecture) == ("LlamaConfig", "LlamaForCausalLM")
    assert model.field("num_layers") == Field("num_layers", 32, ValueOrigin.CLASS_DEFAULT)
    assert model.number("expert_num") == 1
    own = model_of(Config({"model": {"model_config": {"type": "Mine", "num_layers": 3}}}), STATIC, "1.6")
    assert (own.known, own.number("num_layers"), own.value("offset")) == (False, 3, UNKNOWN)


MADE_UP_DYNAMIC = """\
parallelism: {data_parallel_shard: 1}
training: {steps: 10}
lr_scheduler: {type: ConstantWarmUpLR}
train_dataset: {dataloader: {type: HFDataLoader, create_compressed_eod_mask: False}}
model: {model_type: orca_moe, architectures: OrcaMoeForCausalLM, num_hidden_layers: 5}
recompute: {mode: select, select_module: {mlp.linear_fc1: ['0-4']}}
"""
MADE_UP_STATIC = """\
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
    assert {"MST776"} <= set(ids(MADE_UP_DYNAMIC, tmp_path))
    assert {"MST531"} <= set(ids(MADE_UP_STATIC, tmp_path))


def test_everybody_knows_it_after(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "_FOLDER", folder)
    forget()
    assert "MST776" not in ids(MADE_UP_DYNAMIC, tmp_path)
    found = ids(MADE_UP_STATIC, tmp_path)
    assert "MST531" not in found
    assert "MST338" in found  # its class calls the layers num_hidden_layers
    plan = normalize_source(parse_source(MADE_UP_DYNAMIC, Path("a.yaml")), "2.1")
    assert [layer.layer for layer in plan.layers if layer.select_patterns] == [0, 1]
    monkeypatch.setattr("ms_tune.job.release_for", lambda *_: Release("MindFormers", "2.1"))
    config = ConfigCopy(parse_source(MADE_UP_STATIC, Path("a.yaml")).data, Path("a.yaml"))
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
    (tmp_path / "a.yaml").write_text(
        MADE_UP_STATIC.replace("orca_moe", "qwen3").replace("OrcaMoe", "Qwen3"), encoding="utf-8"
    )
    (tmp_path / "b.yaml").write_text(
        MADE_UP_DYNAMIC.replace("orca_moe", "qwen3").replace("OrcaMoe", "Qwen3"), encoding="utf-8"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    for command in (["lint", "a.yaml", "b.yaml"], ["normalize-recompute", "a.yaml"], ["normalize-recompute", "b.yaml"]):
        said = []
        for release in ("2.1", "9.0"):
            line = [sys.executable, "-m", "ms_tune", *command, "--framework-version", release]
            done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode in (0, 1), done.stderr
            said.append((done.returncode, done.stdout.replace(release, "")))
        assert said[0] == said[1]
