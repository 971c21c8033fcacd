"""Simulate configs of the static graph and their results of ``ms-tune migrate``, and compare both sides.

Run it where the dryrun extra is installed: ``python benchmarks/migration.py [NAME ...]``, with names or parts of names
of the jobs to run; without names it runs all, in six minutes on two cores. It prints the table of benchmarks/README.md,
each job's rows as soon as they are known. Weights and optimizer state of a stage are shown with the theory of both
sides; on the dynamic side the excess over theory is the copy of the weights for computation.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

MIB = 1 << 20
MODEL, PARALLEL = "model.model_config.", "parallel_config."
BASE: dict[str, Any] = {
    "seed": 7,
    "use_legacy": False,
    "use_parallel": True,
    "run_mode": "train",
    "trainer": {"type": "CausalLanguageModelingTrainer", "model_name": "benchmark"},
    "runner_config": {"epochs": 1, "batch_size": 1},
    "optimizer": {"type": "AdamW", "eps": 1.0e-8},
    "lr_schedule": {"type": "ConstantWarmUpLR", "learning_rate": 2.0e-6, "warmup_steps": 0, "total_steps": -1},
    "train_dataset": {
        "data_loader": {
            "type": "BlendedMegatronDatasetDataLoader",
            "datasets_type": "GPTDataset",
            "sizes": [6400, 0, 0],
            "config": {"create_compressed_eod_mask": False},
        }
    },
    "train_dataset_task": {"type": "CausalLanguageModelDataset"},
    "context": {"mode": 0, "max_device_memory": "58GB"},
    "parallel_config": {
        "data_parallel": 1,
        "model_parallel": 1,
        "pipeline_stage": 1,
        "micro_batch_num": 1,
        "use_seq_parallel": False,
    },
    "parallel": {"enable_parallel_optimizer": False, "parallel_mode": 1, "full_batch": False},
    "recompute_config": {"recompute": False},
    "runner_wrapper": {"type": "MFTrainOneStepCell"},
    "model": {
        "model_config": {
            "hidden_size": 1024,
            "num_hidden_layers": 4,
            "num_attention_heads": 16,
            "vocab_size": 16000,
            "qk_layernorm": True,
            "params_dtype": "float32",
            "compute_dtype": "bfloat16",
        }
    },
}
QWEN = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "seq_length": 8192,
    "intermediate_size": 3072,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "position_embedding_type": "rope",
    "normalization": "RMSNorm",
    "add_bias_linear": False,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "seq_length": 4096,
    "intermediate_size": 2048,
    "num_nextn_predict_layers": 0,
    "multi_latent_attention": True,
    "q_lora_rank": 256,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "moe_intermediate_size": 256,
    "n_routed_experts": 8,
    "num_experts_per_tok": 4,
    "first_k_dense_replace": 1,
    "moe_grouped_gemm": True,
    "offset": 0,
}
TWO_STAGES = {PARALLEL + "pipeline_stage": 2, PARALLEL + "micro_batch_num": 4}
TENSOR = {PARALLEL + "model_parallel": 2, PARALLEL + "use_seq_parallel": True}
INTERLEAVED = {
    MODEL + "pp_interleave_num": 2,
    "parallel.pipeline_config": {"pipeline_interleave": True, "pipeline_scheduler": "1f1b"},
}
JOBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Qwen3": (QWEN, {}),
    "Qwen3, all recomputed": (QWEN, {"recompute_config.recompute": True}),
    "Qwen3, TP 2": (QWEN, TENSOR),
    "Qwen3, DP 2, optimizer shared": (
        QWEN,
        {PARALLEL + "data_parallel": 2, "parallel.enable_parallel_optimizer": True},
    ),
    "Qwen3, DP 2": (QWEN, {PARALLEL + "data_parallel": 2}),
    "DeepSeek-V3": (DEEPSEEK, {}),
    "DeepSeek-V3, PP 2, all recomputed": (DEEPSEEK, {**TWO_STAGES, "recompute_config.recompute": True}),
    "DeepSeek-V3, PP 2, offset, lists": (
        DEEPSEEK,
        {**TWO_STAGES, MODEL + "offset": [1, -1], "recompute_config.recompute": [2, 1]},
    ),
    "DeepSeek-V3, DP 2, EP 2": (DEEPSEEK, {PARALLEL + "data_parallel": 2, PARALLEL + "expert_parallel": 2}),
    "DeepSeek-V3, TP 2, PP 2": (DEEPSEEK, {**TWO_STAGES, **TENSOR}),
    "DeepSeek-V3, PP 2, two chunks": (DEEPSEEK, {**TWO_STAGES, **INTERLEAVED}),
    "DeepSeek-V3, a layer that predicts further": (
        DEEPSEEK,
        {MODEL + "num_nextn_predict_layers": 1, MODEL + "mtp_loss_factor": 0.3},
    ),
}


def config(model: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the base config with a model and settings at dotted keys."""
    made = copy.deepcopy(BASE)
    made["model"]["model_config"] |= model
    for dotted, value in settings.items():
        *outer, last = dotted.split(".")
        section = made
        for name in outer:
            section = section.setdefault(name, {})
        section[last] = value
    data = made["train_dataset"]["data_loader"]["config"]
    data["seq_length"] = model["seq_length"]
    made["train_dataset_task"]["dataset_config"] = copy.deepcopy(made["train_dataset"])
    made["parallel"]["dataset_strategy"] = [[made["parallel_config"]["data_parallel"], 1]] * 4
    return made


def rows(name: str, memory: dict[str, Any]) -> list[str]:
    """Yield a row per stage: the memory of both sides, their distance from theory, and whether the difference is explained."""
    made = []
    for stage in memory["stages"]:
        kept = [
            sum(stage[f"{side}_categories_at_peak"][kind] for kind in ("weights", "optimizer_state"))
            for side in ("old", "new")
        ]
        theory = stage["weights_and_optimizer_by_theory"]
        peaks = (stage["old_peak_bytes"], stage["new_peak_bytes"])
        reported = stage["explained"]["differences"]
        explained = sum(one["bytes"] if one["side"] == "new" else -one["bytes"] for one in reported)
        made.append(
            f"| {name} | {stage['stage']} | {theory[0] / MIB:,.1f} | {theory[1] / MIB:,.1f} | {kept[0] / theory[0] - 1:+.3%} "
            f"| {(kept[1] - theory[1]) / MIB:,.1f} | {peaks[0] / MIB:,.1f} | {peaks[1] / MIB:,.1f} "
            f"| {'yes' if explained == peaks[1] - peaks[0] else 'no'} |"
        )
    return made


def main() -> None:
    """Print the table."""
    print(
        "| job | stage | theory, static | theory, dynamic | static kept | dynamic's copy | static peak | dynamic peak | adds up |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for name, (model, settings) in JOBS.items():
        if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "static.yaml"
            file.write_text(yaml.safe_dump(config(model, settings), sort_keys=False), encoding="utf-8")
            command = [sys.executable, "-m", "ms_tune", "migrate", str(file), "--framework-version", "1.9", "--dryrun"]
            done = subprocess.run([*command, "--json"], cwd=folder, capture_output=True, text=True, check=False)
        found = json.loads(done.stdout) if done.stdout else {}
        if found.get("memory"):
            print("\n".join(rows(name, found["memory"])), flush=True)
        else:
            last = [line for line in done.stderr.splitlines() if line.startswith("error")]
            print(f"| {name} | failed: {last[-1] if last else done.returncode} |", flush=True)


if __name__ == "__main__":
    main()
