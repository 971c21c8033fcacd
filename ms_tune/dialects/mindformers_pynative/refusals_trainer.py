"""What the dynamic-graph trainer refuses of stages, parallel sizes, batches, data and what it is to write (MindFormers 2.0 and 2.1).

Stages: ``mindformers/pynative/distributed/pipeline_parallel.py``; batches: ``mindformers/pynative/trainer/trainer.py`` (2.1). Data:
``_build_dataset`` and ``validate_balance_config`` in ``mindformers/pynative/trainer/utils.py``; what may be balanced:
``mindformers/dataset/dataloader/balance_scheduler.py``; shards: ``mindformers/pynative/trainer/trainer.py`` and
``mindformers/pynative/distributed/parallel_dims.py``; results: ``InferenceConfig`` in ``mindformers/pynative/config/config.py``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.plan_checks import passes
from ms_tune.facts.keys import registered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.facts.models import ModelConfig

_LOADER = ("train_dataset", "dataloader")


def find_uneven_stages(context: CheckContext) -> Iterator[Violation]:
    """Stages that the layers cannot be given to."""
    stages = context.integer("parallelism.pipeline_parallel", 1) or 1
    chunks = context.integer("parallelism.pipeline_parallel_interleave_num", 1) or 1
    path: KeyPath = ("parallelism", "pipeline_parallel_layers_per_stage")
    value = context.source.get(path, "auto")
    layers = context.model.layers
    if stages <= 1 or passes(context):
        return
    if value == "auto":
        if layers is not None and layers % (stages * chunks) and not context.model.mtp_layers:
            params = {"layers": layers, "cells": stages * chunks}
            yield Violation(("parallelism", "pipeline_parallel"), "auto", params)
    elif value is None:
        yield Violation(path, "nothing")
    elif isinstance(value, list):
        yield from _stage_texts(path, value, stages, chunks)


def _stage_texts(path: KeyPath, texts: list[object], stages: int, chunks: int) -> Iterator[Violation]:
    if len(texts) != stages:
        yield Violation(path, "stages", {"given": len(texts), "stages": stages})
        return
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            yield Violation((*path, index), "text")
        elif len(text.split(",")) != chunks:
            yield Violation((*path, index), "chunks", {"given": len(text.split(",")), "chunks": chunks})
        elif not all(_is_range(part) for part in text.split(",")):
            yield Violation((*path, index), "form")


def _is_range(text: str) -> bool:
    match = re.fullmatch(r"\s*(\d{1,4000})\s*(?:-\s*(\d{1,4000})\s*)?", text)
    return bool(match) and int(match[1]) <= int(match[2] or match[1]) if match else False


def find_model_without_stages(context: CheckContext) -> Iterator[Violation]:
    """A pipeline of a model whose dynamic-graph network is always made whole (2.0 and 2.1)."""
    stages, model = context.integer("parallelism.pipeline_parallel", 1) or 1, context.model
    if stages > 1 and "dynamic" in model.facts.modes and not model.facts.stages:
        params = {"model": model.kind or model.architecture, "stages": stages, "release": model.release}
        yield Violation(("parallelism", "pipeline_parallel"), params=params)


def find_unsplit_model(context: CheckContext) -> Iterator[Violation]:
    """Tensor parallelism of a model without latent attention, or with experts and none of them shared (``_apply_layers_tp``, 2.0)."""
    ranks, model = context.integer("parallelism.tensor_parallel", 1) or 1, context.model
    if ranks <= 1 or "dynamic" not in model.facts.modes:
        return
    params = {"model": model.kind or model.architecture, "tensor": ranks, "release": model.release}
    if model.value("multi_latent_attention") is False:
        yield Violation(("parallelism", "tensor_parallel"), params=params)
    elif _has_experts(model) and model.value("shared_expert_num") in (None, 0):
        yield Violation(("parallelism", "tensor_parallel"), "shared", params)


def _has_experts(model: ModelConfig) -> bool:
    dense, layers = model.number("first_k_dense_replace") or 0, model.layers
    return bool(model.number("num_moe_experts")) and layers is not None and dense < layers


def find_context_without_mask(context: CheckContext) -> Iterator[Violation]:
    """Context parallelism without a mask that is compressed (``apply_context_parallel_model_io``, 2.0 and 2.1).

    The data set turns compression on as well. Models with an attention of their own are left alone.
    """
    ways = context.integer("parallelism.context_parallel", 1) or 1
    masks = ("model.use_attn_mask_compression", "model.use_eod_attn_mask_compression")
    compressed = any(context.get(name) for name in masks)
    compressed |= bool(context.get("train_dataset.dataloader.config.create_compressed_eod_mask"))
    model = context.model
    plain = "dynamic" in model.facts.modes and not model.value("experimental_attention_variant")
    if ways > 1 and plain and not compressed:
        yield Violation(("parallelism", "context_parallel"), params={"context_parallel": ways})


def find_unknown_loader(context: CheckContext) -> Iterator[Violation]:
    """A kind of data that the trainer does not build; its list is one of names in the code, and not a register."""
    release = context.version
    known = sorted(registered("dataset_loader", release, context.dialect))
    kind = context.get("train_dataset.dataloader.type")
    if isinstance(kind, str) and kind not in known:
        yield Violation((*_LOADER, "type"), params={"known": ", ".join(known)})


def find_bad_lora(context: CheckContext) -> Iterator[Violation]:
    """What ``LoraConfig.__post_init__`` refuses (2.1)."""
    if not isinstance(context.get("lora_config"), dict):
        return
    target = context.get("lora_config.target_modules", "")
    if not isinstance(target, str) or not target.strip():
        yield Violation(("lora_config", "target_modules"))
    elif not _is_pattern(target):
        yield Violation(("lora_config", "target_modules"), "pattern")
    for name in ("lora_rank", "lora_alpha"):
        if (context.integer(f"lora_config.{name}", 1) or 0) <= 0:
            yield Violation(("lora_config", name))
    dropout = context.get("lora_config.lora_dropout", 0.0)
    if isinstance(dropout, (int, float)) and not 0 <= dropout < 1:
        yield Violation(("lora_config", "lora_dropout"))


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
