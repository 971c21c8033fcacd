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
from ms_tune.facts.registries import registered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.facts.models import ModelConfig

_SIZES = ("tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel")
_ROUNDS = 3  # elements of rampup_batch_size
_LOADER = ("train_dataset", "dataloader")
_MEGATRON, _HF, _ORDERED = "BlendedMegatronDatasetDataLoader", "HFDataLoader", "OrderedIndexDataLoader"
_EOD = "create_compressed_eod_mask"
_RESULTS = (".jsonl", ".json", ".txt")
_ENDING = re.compile(r"[^/](\.[^./]+)/*$")


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
    """One text for each stage, with one range for each chunk."""
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
    """Whether some layer surely has experts."""
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


def find_prediction_in_pipeline(context: CheckContext) -> Iterator[Violation]:
    """What the pipeline does not take where there is no backward (``_validate_pp_inference``, 2.1)."""
    if (context.integer("parallelism.pipeline_parallel_interleave_num", 1) or 1) > 1:
        yield Violation(("parallelism", "pipeline_parallel_interleave_num"))
    for section, key in (("parallelism", "pipeline_parallel_overlap_b_f"), ("swap", "enable")):
        if context.get(f"{section}.{key}") is True:
            yield Violation((section, key))


def find_no_shards(context: CheckContext) -> Iterator[Violation]:
    """No ranks to shard over: the trainer divides by the one, and refuses the other where there is something to shard."""
    if context.integer("parallelism.data_parallel_shard") == 0:
        yield Violation(("parallelism", "data_parallel_shard"))
    dense = context.integer("parallelism.dense_fsdp_shard_size")
    if dense is not None and dense < 1 and is_distributed(context):
        yield Violation(("parallelism", "dense_fsdp_shard_size"), "dense")


def is_distributed(context: CheckContext) -> bool:
    """Whether the job surely runs on more than one card; what remains for data parallelism a config does not tell."""
    ways = [context.integer(f"parallelism.{name}", 1) for name in (*_SIZES, "data_parallel_shard")]
    return any(one is not None and one > 1 for one in ways)


def find_bad_ramp_up(context: CheckContext) -> Iterator[Violation]:
    """``[start, increment, samples]``: whole numbers, the first two above zero."""
    value = context.get("training.rampup_batch_size")
    path = ("training", "rampup_batch_size")
    if not isinstance(value, list):
        return
    if len(value) != _ROUNDS:
        yield Violation(path, "length")
    elif all(isinstance(item, int) and not isinstance(item, bool) for item in value) and (
        value[0] <= 0 or value[1] <= 0 or value[2] < 0
    ):
        yield Violation(path, "range")


def find_uneven_ramp_up(context: CheckContext) -> Iterator[Violation]:
    """A growing batch (2.1) that does not reach the whole one in equal steps (``BatchSizeScheduler._validate``).

    Each size is divided by data-parallel size times ``local_batch_size``; the former is known on the cluster only.
    """
    value = context.get("training.rampup_batch_size")
    whole = context.integer("training.global_batch_size", 1)
    local = context.integer("training.local_batch_size", 1)
    if not isinstance(value, list) or not whole or not local or not all(_is_whole(item) for item in value):
        return
    path: KeyPath = ("training", "rampup_batch_size")
    match value:
        case [start, step, _] if start > 0 and step > 0:
            params = {"start": start, "step": step, "whole": whole, "local": local}
        case _:
            return  # a check of its own says so
    if whole < start:
        yield Violation(path, "above", params)
    elif (whole - start) % step:
        yield Violation(path, "steps", params)
    elif start % local or (whole > start and step % local):
        yield Violation(path, "local", params)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def find_unknown_loader(context: CheckContext) -> Iterator[Violation]:
    """A kind of data that the trainer does not build; its list is one of names in the code, and not a register."""
    release = context.version
    known = sorted(registered("dataset_loader", release, context.dialect))
    kind = context.get("train_dataset.dataloader.type")
    if isinstance(kind, str) and kind not in known:
        yield Violation((*_LOADER, "type"), params={"known": ", ".join(known)})


def find_missing_mask_setting(context: CheckContext) -> Iterator[Violation]:
    """A loader that is asked for a key which has no default there."""
    values = context.mapping("train_dataset.dataloader")
    kind = values.get("type")
    inner = values.get("config")
    if kind == _HF and _EOD not in values:
        yield Violation((*_LOADER, _EOD), params={"path": f"train_dataset.dataloader.{_EOD}"})
    if kind == _MEGATRON and isinstance(inner, dict) and _EOD not in inner:
        yield Violation((*_LOADER, "config", _EOD), params={"path": f"train_dataset.dataloader.config.{_EOD}"})


def find_unbalanced_data(context: CheckContext) -> Iterator[Violation]:
    """Balanced data that cannot be: another loader, a stream, or attention that does not know where samples end."""
    if context.get("train_dataset.balance_enabled") is not True:
        return
    path = ("train_dataset", "balance_enabled")
    values = context.mapping("train_dataset.dataloader")
    kind = values.get("type")
    inner = values.get("config") if kind == _MEGATRON else values
    if kind not in (_MEGATRON, _HF, _ORDERED):
        if isinstance(kind, str):
            yield Violation(path, "loader", related=(((*_LOADER, "type"), "kind"),))
    elif kind == _HF and values.get("streaming"):
        yield Violation(path, "stream", related=(((*_LOADER, "streaming"), "kind"),))
    elif isinstance(inner, dict) and (not inner.get(_EOD) or inner.get("create_seq_len_vector")):
        yield Violation(path)


def find_negative_layers(context: CheckContext) -> Iterator[Violation]:
    """A negative id among the layers to monitor."""
    layers = context.get("monitor.moe_monitor.target_layers")
    for index, layer in enumerate(layers if isinstance(layers, list) else ()):
        if isinstance(layer, int) and layer < 0:
            yield Violation(("monitor", "moe_monitor", "target_layers", index))


def find_bad_results_file(context: CheckContext) -> Iterator[Violation]:
    """A file of results whose ending says nothing that the trainer could write."""
    output = context.get("inference.output")
    ending = _ENDING.search(output) if isinstance(output, str) else None
    if ending and ending[1].lower() not in _RESULTS:
        yield Violation(("inference", "output"))


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
