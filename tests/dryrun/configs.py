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
from tests.files import read_data

_CONFIGS: dict[str, dict[str, Any]] = read_data("dryrun_configs.yaml")
MINDSPEED, MINDFORMERS = _CONFIGS["mindspeed"], _CONFIGS["mindformers"]


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
