"""Compare the predicted effect of a chunked loss in `memory` with a second run of MindFormers 2.1's own network on one device."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dryrun.commands import ms_tune
from tests.dryrun.machine import needs_mindformers
from tests.oracle import dynamic_network, wheels

pytestmark = [pytest.mark.mindspore, needs_mindformers]
more = pytest.mark.more

COMMON: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "seq_length": 2048,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "params_dtype": "bfloat16",
    "compute_dtype": "bfloat16",
    "layernorm_compute_dtype": "float32",
    "softmax_compute_dtype": "float32",
    "rotary_dtype": "float32",
    "use_flash_attention": True,
    "gated_linear_unit": True,
    "add_bias_linear": False,
    "normalization": "RMSNorm",
}
MODELS: dict[str, dict[str, Any]] = {
    "qwen3": {**COMMON, "model_type": "qwen3", "intermediate_size": 3072, "num_key_value_heads": 4, "head_dim": 128},
    "deepseek_v3": {
        **COMMON,
        "model_type": "deepseek_v3",
        "intermediate_size": 2048,
        "multi_latent_attention": True,
        "qk_layernorm": True,
        "q_lora_rank": 768,
        "kv_lora_rank": 256,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 192,
        "position_embedding_type": "rope",
        "num_nextn_predict_layers": 0,
        "first_k_dense_replace": 1,
        "n_routed_experts": 16,
        "num_experts_per_tok": 4,
        "n_shared_experts": 1,
        "moe_intermediate_size": 512,
        "moe_shared_expert_intermediate_size": 512,
        "router_dense_type": "float32",
        "scoring_func": "sigmoid",
        "moe_router_load_balancing_type": "seq_aux_loss",
        "moe_aux_loss_coeff": 0.001,
        "norm_topk_prob": True,
        "moe_grouped_gemm": True,
        "moe_router_enable_expert_bias": True,
        "mla_qkv_concat": True,
    },
}
REST: dict[str, Any] = {
    "training": {"local_batch_size": 1, "global_batch_size": 1},
    "optimizer": {"type": "AdamW"},
    "parallelism": {"data_parallel_shard": 1, "tensor_parallel": 1, "pipeline_parallel": 1},
}


@pytest.fixture(scope="module")
def mindformers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack MindFormers 2.1."""
    found = wheels.wheel("2.1")
    if isinstance(found, str):
        pytest.skip(found)
    folder = tmp_path_factory.mktemp("mindformers")
    with zipfile.ZipFile(found) as archive:
        archive.extractall(folder)
    return folder


def real_run(folder: Path, mindformers: Path, name: str, model: dict[str, Any]) -> None:
    """Run MindFormers' own network in simulation; the run is kept as ``name``."""
    config = folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump({**REST, "model": model}), encoding="utf-8")
    program = [sys.executable, str(Path(dynamic_network.__file__)), str(mindformers), str(config)]
    ms_tune = [sys.executable, "-m", "ms_tune", "dryrun", "--run-dir", name, "--", *program]
    subprocess.run(ms_tune, cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize(
    ("name", "words"),
    [pytest.param("qwen3", 32000, marks=more), ("qwen3", 8000), pytest.param("deepseek_v3", 64000, marks=more)],
)
def test_a_loss_in_four_pieces_leaves_what_its_remedy_says(
    name: str, words: int, mindformers: Path, tmp_path: Path
) -> None:
    model = {**MODELS[name], "num_hidden_layers": 4, "vocab_size": words}
    real_run(tmp_path, mindformers, "whole", model)
    real_run(tmp_path, mindformers, "pieces", {**model, "chunk_loss_num": 4})
    remedies = {remedy["name"]: remedy for remedy in ms_tune(tmp_path, "memory", "whole", "--json")["remedies"]}
    remedy_peaks = remedies["chunked-loss"]["peak_after_bytes"]
    assert remedy_peaks == pytest.approx(ms_tune(tmp_path, "memory", "pieces", "--json")["peak_bytes"], rel=0.002)
