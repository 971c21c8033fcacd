"""Provide small configs of the dialects that dryrun supports, and functions that prepare them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from ms_tune.dialects.job_parts import (
    DType,
    MicroBatches,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    Sharding,
    TrainingConfig,
)
from ms_tune.dryrun.request import DryrunRequest, PreparedRun
from ms_tune.dryrun.shrink import mindformers
from ms_tune.enums import Dialect
from ms_tune.job import Job
from ms_tune.source.yaml import SourceFile, parse_source
from tests import dynamic_jobs

MINDSPEED: dict[str, Any] = {
    "training_config": {"bf16": True, "wrap_with_ddp": True, "use_distributed_optimizer": True},
    "parallel_config": {
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "recompute_config": {"recompute": [8]},
    },
    "dataset_config": {"batch_size": 1, "micro_batch_num": 2},
    "model_config": {
        "vocab_size": 1000,
        "num_layers": 8,
        "hidden_size": 64,
        "ffn_hidden_size": 128,
        "num_attention_heads": 4,
        "seq_length": 32,
        "hidden_act": "swiglu",
        "normalization": "RMSNorm",
        "position_embedding_type": "rope",
        "use_flash_attention": True,
    },
    "optimizer_config": {"optimizer_type": "mint.AdamW"},
}
MINDFORMERS: dict[str, Any] = {
    "run_mode": "train",
    "use_parallel": True,
    "output_dir": "/data/output",
    "load_checkpoint": "/data/checkpoint",
    "auto_trans_ckpt": True,
    "trainer": {"type": "CausalLanguageModelingTrainer"},
    "runner_config": {"epochs": 3, "batch_size": 2},
    "train_dataset": {"input_columns": ["input_ids", "labels", "loss_mask", "position_ids"]},
    "train_dataset_task": {"type": "CausalLanguageModelDataset"},
    "context": {"max_device_memory": "58GB", "mode": 0},
    "parallel_config": {"data_parallel": 2, "model_parallel": 4, "pipeline_stage": 4, "micro_batch_num": 8},
    "parallel": {"full_batch": False, "dataset_strategy": [[2, 1], [2, 1], [2, 1], [2, 1]]},
    "model": {
        "model_config": {"model_type": "qwen3", "num_hidden_layers": 64, "seq_length": 4096, "offset": [1, 0, 0, -1]}
    },
    "recompute_config": {"recompute": True, "select_recompute": False},
    "swap_config": {"swap": False},
    "callbacks": [{"type": "CheckpointMonitor"}],
}


SHAPE = ModelShape(
    vocab_size=1024,
    hidden_size=64,
    ffn_hidden_size=128,
    layers=2,
    num_attention_heads=8,
    num_query_groups=8,
    head_size=8,
    seq_length=64,
    activation="swiglu",
    normalization="RMSNorm",
    rotary=True,
    tied_embeddings=True,
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    flash_attention=True,
)
TRAINING = TrainingConfig(
    SHAPE,
    Parallelism(1, 1, 1, 1, None, sequence=False),
    MicroBatches(1, 2),
    Precision(DType.BFLOAT16, mixed=True, gradients=DType.FLOAT32),
    Optimizer("AdamW", gradient_buffers=True, sharding=Sharding.OPTIMIZER),
)


def edited(config: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """Return a copy with one value set; missing parents are created."""
    made = copy.deepcopy(config)
    *parents, last = path.split(".")
    node = made
    for part in parents:
        node = node.setdefault(part, {})
    node[last] = value
    return made


def without(config: dict[str, Any], path: str) -> dict[str, Any]:
    """Return a copy without one key."""
    made = copy.deepcopy(config)
    *parents, last = path.split(".")
    node = made
    for part in parents:
        node = node[part]
    del node[last]
    return made


def source_of(config: dict[str, Any], path: Path = Path("config.yaml")) -> SourceFile:
    """Return the config as if it had been read from a file."""
    return parse_source(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), path)


def prepare_mindspeed(
    config: dict[str, Any], request: DryrunRequest | None = None, devices: int | None = None
) -> PreparedRun:
    """Prepare a run of the reference transformer."""
    return dynamic_jobs.prepare(
        source_of(config), "config.yaml", request or DryrunRequest(), devices, Dialect.MINDSPEED_MS
    )


def prepare_mindformers(
    config: dict[str, Any], request: DryrunRequest | None = None, devices: int | None = None
) -> PreparedRun:
    """Prepare a run of MindFormers."""
    return mindformers.prepare_mindformers(
        mindformers.prepare_config(Job(source_of(config), dialect=Dialect.MINDFORMERS), devices),
        "config.yaml",
        request or DryrunRequest(),
    )
