"""Compare the recomputation in the log of a simulated job of the real MindFormers with its config: ``normalize-recompute --against``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ms_tune.cli.main import main
from tests.dryrun.conftest import run_dryrun
from tests.dryrun.machine import needs_mindformers

pytestmark = [pytest.mark.mindspore, needs_mindformers]

CONFIG = r"""
run_mode: train
use_parallel: True
use_legacy: False
trainer: {type: CausalLanguageModelingTrainer}
runner_config: {epochs: 1, batch_size: 1}
train_dataset: {input_columns: [input_ids, labels, loss_mask, position_ids]}
context: {mode: 0, max_device_memory: 8GB}
parallel_config: {data_parallel: 1, model_parallel: 1, pipeline_stage: 2, micro_batch_num: 2}
model:
  model_config:
    {model_type: qwen3, architectures: [Qwen3ForCausalLM], num_hidden_layers: 5, offset: [0, 1], hidden_size: 64,
     num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16, intermediate_size: 128, vocab_size: 1000, seq_length: 64}
"""
LISTS = r"recompute_config: {recompute: [1, 2], select_recompute: {'mlp\.linear_fc1': [2, 3]}}"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, stray_cache: Path) -> Path:
    """Run a job once and return its folder; all settings except the lists are in the file that the config is based on."""
    folder = tmp_path_factory.mktemp("against")
    (folder / "base.yaml").write_text(CONFIG)
    (folder / "config.yaml").write_text(f"base_config: base.yaml\n{LISTS}")
    run = run_dryrun(folder, stray_cache, "--stage", "0", "--no-extrapolate", str(folder / "config.yaml"))
    assert run.code in (0, 1), run.err
    return folder


def compared(job: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main(["normalize-recompute", "--json", "--against", str(job / "kept"), str(config)])
    return code, json.loads(capsys.readouterr().out)


def test_the_job_did_what_its_config_says(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = compared(job, job / "config.yaml", capsys)
    assert (code, result["verdict"], result["differences"]) == (0, "same", [])
    assert [bool(one["logged"]) for one in result["layers"]] == [True, True, True, True, True]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [("[1, 2]", "[1, 1]", "Formative layer_recompute"), ("[2, 3]", "[1, 3]", "Formative select_recompute")],
)
def test_one_list_is_another(  # noqa: PLR0913, PLR0917 - a case
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, what: str
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text((CONFIG + LISTS).replace(old, new))
    code, result = compared(job, config, capsys)
    assert (code, result["verdict"], result["differences"][0]["what"]) == (1, "differs", what)
