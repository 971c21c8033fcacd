"""Compare the predicted effects of recomputation and swap of static graphs in `memory` with a second simulated run with the setting."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dryrun.commands import ms_tune
from tests.dryrun.machine import needs_mindformers, needs_mindspore

pytestmark = [pytest.mark.mindspore, needs_mindspore]
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("layers_program.py")  # imports MindSpore
more = pytest.mark.more

NETS = [
    {"kind": "attention"},
    pytest.param({"kind": "gelu", "lazy": True}, marks=more),
    pytest.param({"kind": "gelu"}, marks=more),
    pytest.param({"kind": "relu", "residual": False, "lazy": True}, marks=more),
    pytest.param({"kind": "attention", "lazy": True}, marks=more),
    pytest.param({"kind": "relu"}, marks=more),
    pytest.param({"kind": "relu", "residual": False}, marks=more),
    pytest.param({"kind": "gelu", "residual": False, "lazy": True}, marks=more),
    pytest.param({"kind": "relu", "lazy": True}, marks=more),
]


def memory(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the memory report of a run of the small network with these settings."""
    program = [sys.executable, str(PROGRAM), json.dumps(settings)]
    run = ["dryrun", "--run-dir", f"run_{settings.get('remedy')}", "--", *program]
    subprocess.run([sys.executable, "-m", "ms_tune", *run], cwd=folder, check=False, capture_output=True)
    return ms_tune(folder, "memory", run[2], "--json")


@pytest.mark.parametrize("settings", NETS)
def test_recompute_of_all_layers_leaves_what_its_remedy_says(settings: dict[str, Any], tmp_path: Path) -> None:
    remedy_peaks = {remedy["name"]: remedy for remedy in memory(tmp_path, settings)["remedies"]}
    peak = memory(tmp_path, {**settings, "remedy": "recompute"})["peak_bytes"]
    assert remedy_peaks["recompute"]["peak_after_bytes"] == pytest.approx(peak, rel=0.02)
    assert "3 %" in remedy_peaks["recompute"]["price"]  # these peaks are in a layer's backward pass
    assert "swap" not in remedy_peaks  # the primitives of a user's own cells are unknown


def own_network(stages: int, micro_batches: int, layers: int, batch: int) -> dict[str, Any]:
    """Return a config of MindFormers' own Qwen3 whose simulated run is short."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "yaml_templates/mindformers/qwen3_0_6b.yaml").read_text("utf-8"))
    config["parallel_config"] |= {"data_parallel": 1, "pipeline_stage": stages, "micro_batch_num": micro_batches}
    config["parallel"] |= {"dataset_strategy": [[1, 1]] * 4, "enable_parallel_optimizer": False}
    config["runner_config"]["batch_size"] = batch
    config["model"]["model_config"] |= {"num_hidden_layers": layers, "vocab_size": 16000, "seq_length": 2048}
    config["train_dataset"]["data_loader"]["config"]["seq_length"] = 2048
    config["recompute_config"] = {"recompute": False, "select_recompute": False}
    return config


def run_whole(folder: Path, name: str, config: dict[str, Any]) -> None:
    """Simulate all layers and stages."""
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    ms_tune(folder, "dryrun", str(file), "--layers", "all", "--stages", "all", "--run-dir", f"run_{name}", "--json")


@needs_mindformers
@more
def test_one_micro_batch_less_in_flight(tmp_path: Path) -> None:
    for micro_batches in (8, 3, 2):
        run_whole(tmp_path, str(micro_batches), own_network(4, micro_batches, 8, 1))
    for rank, fewer in ((0, 3), (1, 2), (2, None), (3, None)):  # a pipeline has two micro-batches at least
        remedies = ms_tune(tmp_path, "memory", f"run_8/rank_{rank}", "--json")["remedies"]
        remedy_peaks = {remedy["name"]: remedy["peak_after_bytes"] for remedy in remedies}
        assert ("fewer-in-flight" in remedy_peaks) == (fewer is not None)
        if fewer is not None:
            second = ms_tune(tmp_path, "memory", f"run_{fewer}/rank_{rank}", "--json")
            assert remedy_peaks["fewer-in-flight"] == pytest.approx(second["peak_bytes"], rel=0.02)


@needs_mindformers
@more
@pytest.mark.parametrize("stages", [1, 2])
def test_remedies_of_mindformers_own_network(stages: int, tmp_path: Path) -> None:
    config = own_network(stages, 4 if stages > 1 else 1, 12, 2)
    swap = {"swap": True, "layer_swap": [{"backward_prefetch": 1, "layers": True}]}
    for name in ("none", "recompute", "selective-recompute", *(["swap"] if stages > 1 else [])):
        selected = ["mlp\\.activation_func"] if name == "selective-recompute" else False
        config["recompute_config"] = {"recompute": name == "recompute", "select_recompute": selected}
        config["model"]["model_config"] |= swap if name == "swap" else {}
        run_whole(tmp_path, name, config)
    for rank in range(stages):
        remedies = ms_tune(tmp_path, "memory", f"run_none/rank_{rank}", "--json")["remedies"]
        remedy_peaks = {remedy["name"]: remedy["peak_after_bytes"] for remedy in remedies}
        assert ("swap" in remedy_peaks) == (stages > 1)  # without lazy_inline, as on one stage, MindSpore moves nothing
        peaks = {}
        for name in remedy_peaks.keys() & {"recompute", "selective-recompute", "swap"}:
            second = ms_tune(tmp_path, "memory", f"run_{name}/rank_{rank}", "--json")
            peaks[name] = second["peak_bytes"]
            assert remedy_peaks[name] == pytest.approx(peaks[name], rel=0.03 if name == "swap" else 0.02)
            if name == "selective-recompute":  # and the part that recomputing whole layers would leave
                further = {remedy["name"]: remedy["peak_after_bytes"] for remedy in second["remedies"]}
                assert further["recompute"] == pytest.approx(remedy_peaks["recompute"], rel=0.04)
