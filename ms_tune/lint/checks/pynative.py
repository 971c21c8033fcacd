"""Checks of MindFormers 2.x dynamic-graph configs that look at several values together.

Layers and modules of recompute and swap: ``mindformers/pynative/distributed/activation_checkpoint.py``; stages:
``mindformers/pynative/distributed/pipeline_parallel.py``; batches: ``mindformers/pynative/trainer/trainer.py`` (2.1).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.lint.checks import plan
from ms_tune.lint.checks.pynative_layers import modules_behind_full

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.facts.models import ModelConfig

_LAYER = re.compile(r"(\d{1,4000})(?:-(\d{1,4000}))?")  # Python takes no number of more than 4,300 digits
_SIZES = ("tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel")
_ROUNDS = 3  # elements of rampup_batch_size


def structure(context: CheckContext) -> Iterator[Violation]:
    """A mode without what it needs, or layers and modules of another form than it takes."""
    mode = context.get("recompute.mode", "None")
    if mode == "full" and not context.get("recompute.full_recompute_layer"):
        yield Violation(("recompute", "mode"), "missing", {"missing": "full_recompute_layer"})
    if mode == "select" and not context.get("recompute.select_module"):
        yield Violation(("recompute", "mode"), "missing", {"missing": "select_module"})
    sections = [("recompute",)] * (mode in ("full", "select")) + [("recompute_comm",)] * bool(
        context.get("recompute_comm.enable") is True
    )
    for (section,) in sections:
        value = context.get(f"{section}.select_module")
        if section == "recompute_comm" and not value:
            yield Violation((section, "enable"), "missing", {"missing": "select_module"})
        elif value is not None:
            yield from _mapping((section, "select_module"), value)
    if (
        sections
        and context.get("recompute.exclude_op") is not None
        and isinstance(context.get("recompute.exclude_op"), dict)
    ):
        yield from _mapping(("recompute", "exclude_op"), context.get("recompute.exclude_op"))


def _mapping(path: KeyPath, value: object) -> Iterator[Violation]:
    """What is wrong with a mapping of patterns to lists of layers."""
    if not isinstance(value, dict):
        yield Violation(path, "not-mapping")
        return
    for pattern, layers in value.items():
        here = (*path, pattern if isinstance(pattern, int) else str(pattern))
        if not isinstance(pattern, str) or not pattern.strip():
            yield Violation(here, "pattern", at_key=True)
        elif not isinstance(layers, list):
            yield Violation(here, "not-list")


def excludes(context: CheckContext) -> Iterator[Violation]:
    """``exclude_op`` of another form than the version takes (option ``type``); only looked at if recompute is on."""
    value = context.get("recompute.exclude_op")
    on = context.get("recompute.mode") in ("full", "select") or context.get("recompute_comm.enable") is True
    if on and value is not None and not isinstance(value, dict if context.options["type"] == "dict" else list):
        yield Violation(("recompute", "exclude_op"))


def layer_specs(context: CheckContext) -> Iterator[Violation]:
    """Layers that are no layer ids or ranges, too large, or not in ascending order."""
    count = _layers(context)
    full = context.get("recompute.full_recompute_layer")
    if context.get("recompute.mode") in ("full", "select") and full and not isinstance(full, list):
        yield Violation(("recompute", "full_recompute_layer"), "list")
    for path, specs in _spec_lists(context):
        last = -1
        for index, spec in enumerate(specs):
            match = _LAYER.fullmatch(str(spec).strip())
            if match is None:
                yield Violation((*path, index), "form")
                break
            low, high = int(match[1]), int(match[2] or match[1])
            if low > high:
                yield Violation((*path, index), "backwards")
                break
            if count is not None and high >= count:
                yield Violation((*path, index), "range", {"most": count - 1})
                break
            if low <= last:
                yield Violation((*path, index), "order", {"last": last})
                break
            last = high


def swap_reach(context: CheckContext) -> Iterator[Violation]:
    """The last swapped layer plus the prefetch has to stay below the number of layers."""
    count = _layers(context)
    ahead = context.integer("swap.default_prefetch", 1)
    if context.get("swap.enable") is not True or count is None or ahead is None:
        return
    if not 1 <= ahead < count:
        yield Violation(("swap", "default_prefetch"), "prefetch", {"most": count - 1})
        return
    for path, specs in _swap_lists(context):
        matches = [_LAYER.fullmatch(str(spec).strip()) for spec in specs]
        highs = [int(match[2] or match[1]) for match in matches if match]
        if highs and len(highs) == len(specs) and max(highs) < count <= max(highs) + ahead:
            yield Violation(path, params={"most": count - ahead - 1, "ahead": ahead})


def swap_entries(context: CheckContext) -> Iterator[Violation]:
    """Entries of another form than swap takes."""
    for key in ("layer_swap", "op_swap"):
        value = context.get(f"swap.{key}")
        if value is None:
            continue
        if not isinstance(value, list):
            yield Violation(("swap", key), "not-list")
            continue
        for index, item in enumerate(value):
            path = ("swap", key, index)
            if not isinstance(item, dict):
                yield Violation(path, "not-entry")
            elif "layers" not in item or (key == "op_swap" and "op_name" not in item):
                yield Violation(path, "missing", {"missing": "layers" if "layers" not in item else "op_name"})
            elif not isinstance(item["layers"], list):
                yield Violation((*path, "layers"), "layers")
            elif key == "op_swap" and not (isinstance(item["op_name"], str) and item["op_name"].strip()):
                yield Violation((*path, "op_name"), "op-name")


def unused_swap(context: CheckContext) -> Iterator[Violation]:
    """What swap does not look at: entries behind the first of ``layer_swap``, and ``backward_prefetch``."""
    if context.get("swap.enable") is not True:
        return
    layers = context.get("swap.layer_swap")
    for index in range(1, len(layers) if isinstance(layers, list) else 0):
        yield Violation(("swap", "layer_swap", index), "entry")
    for key in ("layer_swap", "op_swap"):
        value = context.get(f"swap.{key}")
        for index, item in enumerate(value if isinstance(value, list) else ()):
            if isinstance(item, dict) and "backward_prefetch" in item:
                yield Violation(("swap", key, index, "backward_prefetch"), "prefetch", at_key=True)


def unmatched_module(context: CheckContext) -> Iterator[Violation]:
    """A pattern that starts above the layer: paths are those inside one layer, so it never matches."""
    for section in ("recompute", "recompute_comm"):
        value = context.get(f"{section}.select_module")
        for pattern in value if isinstance(value, dict) else ():
            match = re.match(
                r"(?:(?:model|decoder|transformer|backbone)\\?\.)*layers(?:\\?\.(?:\*|\\d\+|\d+|\.\*))?\\?\.",
                str(pattern),
            )
            if match:
                rest = str(pattern)[match.end() :] or ".*"
                yield Violation((section, "select_module", str(pattern)), params={"rest": rest}, at_key=True)


def layers_per_stage(context: CheckContext) -> Iterator[Violation]:
    """Stages that the layers cannot be given to."""
    stages = context.integer("parallelism.pipeline_parallel", 1) or 1
    chunks = context.integer("parallelism.pipeline_parallel_interleave_num", 1) or 1
    path: KeyPath = ("parallelism", "pipeline_parallel_layers_per_stage")
    value = context.source.get(path, "auto")
    layers = context.model.number("num_layers")
    if stages <= 1 or plan.passes(context):
        return
    if value == "auto":
        if layers is not None and layers % (stages * chunks) and not _extra(context):
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


def for_one_stage(context: CheckContext) -> Iterator[Violation]:
    """Chunks and ranges that nobody looks at, because there is one stage."""
    if context.integer("parallelism.pipeline_parallel_interleave_num", 1) != 1:
        yield Violation(("parallelism", "pipeline_parallel_interleave_num"))
    ranges = context.get("parallelism.pipeline_parallel_layers_per_stage")
    if isinstance(ranges, list) and all(isinstance(item, str) for item in ranges):
        yield Violation(("parallelism", "pipeline_parallel_layers_per_stage"))


def switched_off(context: CheckContext) -> Iterator[Violation]:
    """Layers beside a switch that is off; those beside ``recompute.mode`` have a check of their own."""
    comm, swap = context.get("recompute_comm.enable") is True, context.get("swap.enable") is True
    off = [("recompute_comm", "select_module", "recompute_comm.enable")] * (not comm)
    off += [("swap", key, "swap.enable") for key in ("layer_swap", "op_swap") if not swap]
    if context.get("recompute.mode", "None") == "None":
        off.append(("recompute", "exclude_op", "recompute.mode"))
    for section, key, switch in off:
        value = context.get(f"{section}.{key}")
        if value and isinstance(value, (list, dict)):
            yield Violation((section, key), "switched-off", {"switch": switch})


def without_match(context: CheckContext) -> Iterator[Violation]:
    """A pattern that matches no module of the model, if its modules are known, and that does not start above the layer."""
    told = {told.path for check in (unmatched_module, modules_behind_full) for told in check(context)}
    traps = dict.fromkeys(("no-match", "cell-unmatched"), "recompute.select_module")
    asked = context._replace(options={"traps": traps})
    yield from (violation for violation in plan.accepted(asked) if violation.path not in told)


def context_without_mask(context: CheckContext) -> Iterator[Violation]:
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


def model_without_stages(context: CheckContext) -> Iterator[Violation]:
    """A pipeline of a model whose dynamic-graph network is always made whole (2.0 and 2.1)."""
    stages, model = context.integer("parallelism.pipeline_parallel", 1) or 1, context.model
    if stages > 1 and "dynamic" in model.facts.modes and not model.facts.stages:
        params = {"model": model.kind or model.architecture, "stages": stages, "release": model.release}
        yield Violation(("parallelism", "pipeline_parallel"), params=params)


def tensor_without_latent(context: CheckContext) -> Iterator[Violation]:
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
    dense, layers = model.number("first_k_dense_replace") or 0, model.number("num_layers")
    return bool(model.number("num_moe_experts")) and layers is not None and dense < layers


def prediction(context: CheckContext) -> Iterator[Violation]:
    """What the pipeline does not take where there is no backward (``_validate_pp_inference``, 2.1)."""
    if (context.integer("parallelism.pipeline_parallel_interleave_num", 1) or 1) > 1:
        yield Violation(("parallelism", "pipeline_parallel_interleave_num"))
    for section, key in (("parallelism", "pipeline_parallel_overlap_b_f"), ("swap", "enable")):
        if context.get(f"{section}.{key}") is True:
            yield Violation((section, key))


def rampup(context: CheckContext) -> Iterator[Violation]:
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


def one_card(context: CheckContext) -> Iterator[Violation]:
    """Recompute and swap are set up together with parallelism, and never on one card."""
    if is_distributed(context):
        return
    if context.get("recompute.mode") in ("full", "select"):
        yield Violation(("recompute", "mode"))
    if context.get("swap.enable") is True:
        yield Violation(("swap", "enable"))


def is_distributed(context: CheckContext) -> bool:
    """Whether the job surely runs on more than one card; what remains for data parallelism a config does not tell."""
    ways = [context.integer(f"parallelism.{name}", 1) for name in (*_SIZES, "data_parallel_shard")]
    return any(one is not None and one > 1 for one in ways)


def _spec_lists(context: CheckContext) -> Iterator[tuple[KeyPath, list[object]]]:
    """Every list of layers that is checked: full recompute hides the modules of ``recompute`` from the check."""
    mode = context.get("recompute.mode", "None")
    full = context.get("recompute.full_recompute_layer")
    if mode in ("full", "select") and isinstance(full, list) and full:
        yield ("recompute", "full_recompute_layer"), full
    elif mode == "select":
        yield from _modules(context, "recompute", "select_module")
    if context.get("recompute_comm.enable") is True:
        yield from _modules(context, "recompute_comm", "select_module")
    if mode in ("full", "select") or context.get("recompute_comm.enable") is True:
        yield from _modules(context, "recompute", "exclude_op")
    if context.get("swap.enable") is True:
        yield from _swap_lists(context)


def _modules(context: CheckContext, section: str, key: str) -> Iterator[tuple[KeyPath, list[object]]]:
    value = context.get(f"{section}.{key}")
    for pattern, layers in value.items() if isinstance(value, dict) else ():
        if isinstance(layers, list):
            yield (section, key, str(pattern)), layers


def _swap_lists(context: CheckContext) -> Iterator[tuple[KeyPath, list[object]]]:
    for key in ("layer_swap", "op_swap"):
        value = context.get(f"swap.{key}")
        for index, item in enumerate(value if isinstance(value, list) else ()):
            layers = item.get("layers") if isinstance(item, dict) else None
            if isinstance(layers, list):
                yield ("swap", key, index, "layers"), layers


def _layers(context: CheckContext) -> int | None:
    """Layers with those of multi-token prediction, which are the last ids."""
    count = context.model.number("num_layers")
    same = all(one.value == count for one in context.model.written("num_layers"))
    return count + _extra(context) if count is not None and same else None


def _extra(context: CheckContext) -> int:
    return context.model.number("mtp_num_layers") or 0


def _is_range(text: str) -> bool:
    match = re.fullmatch(r"\s*(\d{1,4000})\s*(?:-\s*(\d{1,4000})\s*)?", text)
    return bool(match) and int(match[1]) <= int(match[2] or match[1]) if match else False


def lora(context: CheckContext) -> Iterator[Violation]:
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
