"""What the dynamic graph of MindFormers 2.0 and 2.1 refuses of recompute and swap: in its order and its words, and all at once.

The rules are those of ``_validate_recompute_config`` and ``_validate_swap_config`` in
``mindformers/pynative/distributed/activation_checkpoint.py``. They run inside ``parallelize_model`` only, that is with
more than one device. Stages: ``mindformers/pynative/distributed/pipeline_parallel.py``; data: ``_build_dataset`` in
``mindformers/pynative/trainer/utils.py``; LoRA: ``LoraConfig`` in ``mindformers/pynative/config/config.py`` (2.1).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ms_tune.dialects import check_specs, stop
from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.plan_checks import passes
from ms_tune.facts.keys import registered
from ms_tune.facts.models import LAYERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext
    from ms_tune.dialects.mindformers_pynative.placement import PynativeInputs

_RECOMPUTE = "TrainConfig.recompute"
_COMM = "TrainConfig.recompute_comm"
_SWAP = "TrainConfig.swap_config"
_RANGES = "layer ids or ranges like ['5'], ['0-19']"


def check_recompute(inputs: PynativeInputs, total: int) -> None:
    """Check everything about recompute."""
    if inputs.mode != "None":
        _check_modules(inputs.select_module, f"{_RECOMPUTE}.select_module", "module path")
        if inputs.mode == "full" and not inputs.full_layers:
            stop("ValueError", f"{_RECOMPUTE}: mode is 'full' but full_recompute_layer is missing or empty")
        if inputs.mode == "select" and not inputs.select_module:
            stop("ValueError", f"{_RECOMPUTE}: mode is 'select' but select_module is missing or empty")
        prefix = "TrainConfig.recompute_config.recompute"
        if inputs.full_layers:
            check_specs(inputs.full_layers, f"{prefix}.full_recompute_layer", total)
        elif inputs.mode == "select":
            _check_ranges(inputs.select_module, f"{prefix}.select_module", total)
    if inputs.comm:
        _check_modules(inputs.comm_module, f"{_COMM}.select_module", "comm op path")
        if not inputs.comm_module:
            stop("ValueError", f"{_COMM}: enable is True but select_module is missing or empty")
        _check_ranges(inputs.comm_module, "TrainConfig.recompute_config.recompute_comm.select_module", total)
    if inputs.version == "2.0":
        _check_excluded_names(inputs.exclude_op)
    else:
        _check_modules(inputs.exclude_op, f"{_RECOMPUTE}.exclude_op", "module path", total)


def _check_modules(value: object, label: str, what: str, total: int | None = None) -> None:
    """Modules with their layers; of so many layers in total these are checked at once."""
    if value is None:
        return
    if not isinstance(value, dict):
        stop("TypeError", f"{label} must be a dict ({what} -> list of layer ranges), got {type(value).__name__}")
    for key, ranges in value.items():
        if not isinstance(key, str) or not key.strip():
            stop("ValueError", f"{label}: invalid {what} key {key!r}")
        if not isinstance(ranges, (list, tuple)):
            kind = type(ranges).__name__
            stop("TypeError", f"{label}[{key!r}]: value must be a list or tuple of layer ranges, got {kind}")
        if total is not None:
            check_specs(ranges, f"{label}[{key!r}]", total)


def _check_ranges(value: Any, label: str, total: int) -> None:  # noqa: ANN401 - as the config has it
    for key, ranges in value.items():
        check_specs(ranges, f"{label}[{key!r}]", total)


def _check_excluded_names(value: object) -> None:
    """2.0: names of operators, for the whole model."""
    label = f"{_RECOMPUTE}.exclude_op"
    if value is None:
        return
    if not isinstance(value, (list, tuple)):
        stop("TypeError", f"{label} must be a list/tuple of op-name strings, got {type(value).__name__}")
    for index, name in enumerate(value):
        if not isinstance(name, str) or not name.strip():
            stop("ValueError", f"{label}[{index}]: must be a non-empty string, got {name!r}")


def check_swap(inputs: PynativeInputs, total: int) -> None:
    """Check everything about swap."""
    prefetch = inputs.prefetch
    if not 1 <= prefetch < total:
        stop("ValueError", f"{_SWAP}.default_prefetch: value {prefetch} out of range [1, {total - 1}]")
    for key in ("layer_swap", "op_swap"):
        _check_swap_entries(getattr(inputs, key), f"{_SWAP}.{key}", named=key == "op_swap")
    for key in ("layer_swap", "op_swap"):
        for index, entry in enumerate(getattr(inputs, key) or ()):
            check_specs(entry["layers"], f"{_SWAP}.{key}[{index}].layers", total, prefetch)


def _check_swap_entries(value: object, label: str, *, named: bool) -> None:
    if value is None:
        return
    if not isinstance(value, list):
        stop("TypeError", f"{label} must be a list, got {type(value).__name__}")
    for index, entry in enumerate(value):
        here = f"{label}[{index}]"
        if not isinstance(entry, dict):
            stop("TypeError", f"{here} must be a dict, got {type(entry).__name__}")
        wanted = ("op_name", "layers") if named else ("layers",)
        if not all(key in entry for key in wanted):
            keys = " and ".join(f"'{key}'" for key in wanted)
            stop("ValueError", f"{here}: each entry must include {keys}, got {entry!r}")
        if named and (not isinstance(entry["op_name"], str) or not entry["op_name"].strip()):
            stop("ValueError", f"{here}.op_name must be a non-empty str, got {entry['op_name']!r}")
        layers = entry["layers"]
        if not isinstance(layers, (list, tuple)):
            kind = type(layers).__name__
            stop("TypeError", f"{here}.layers: expected list/tuple of {_RANGES}, got {kind}: {layers!r}")


def check_schedule(schedule: str, chunks: int) -> None:
    """Check the schedule (``_create_schedule`` in ``mindformers/pynative/distributed/pipeline_parallel.py``)."""
    name = schedule.lower() or "1f1b"
    if name == "1f1b" and chunks > 1:
        name = "interleaved_1f1b"
    if name == "interleaved_1f1b" and chunks <= 1:
        stop(
            "ValueError",
            "pipeline_parallel_schedule='interleaved_1f1b' requires pipeline_parallel_interleave_num > 1, but got "
            f"{chunks}. Use '1f1b' schedule instead, or set interleave_num > 1.",
        )
    if name not in {"1f1b", "interleaved_1f1b", "gpipe"}:
        stop(
            "ValueError",
            f"Unsupported pipeline_parallel_schedule '{name}'. Supported values: 1f1b, gpipe, interleaved_1f1b",
        )


_LAYER = re.compile(r"(\d{1,4000})(?:-(\d{1,4000}))?")  # Python takes no number of more than 4,300 digits


def find_bad_structure(context: CheckContext) -> Iterator[Violation]:
    """A mode without what it needs, or layers and modules of another form than it takes."""
    mode, comm = context.get("recompute.mode", "None"), context.get("recompute_comm.enable") is True
    excluded, modules = context.get("recompute.exclude_op"), context.get("recompute_comm.select_module")
    needed = {"full": "full_recompute_layer", "select": "select_module"}.get(str(mode))
    if needed:
        if not context.get(f"recompute.{needed}"):
            yield Violation(("recompute", "mode"), "missing", {"missing": needed})
        yield from _check_mapping(("recompute", "select_module"), context.get("recompute.select_module"))
    if comm and not modules:
        yield Violation(("recompute_comm", "enable"), "missing", {"missing": "select_module"})
    elif comm:
        yield from _check_mapping(("recompute_comm", "select_module"), modules)
    if (needed or comm) and isinstance(excluded, dict):
        yield from _check_mapping(("recompute", "exclude_op"), excluded)


def _check_mapping(path: KeyPath, value: object) -> Iterator[Violation]:
    if value is None:
        return
    if not isinstance(value, dict):
        yield Violation(path, "not-mapping")
        return
    for pattern, layers in value.items():
        here = (*path, pattern if isinstance(pattern, int) else str(pattern))
        if not isinstance(pattern, str) or not pattern.strip():
            yield Violation(here, "pattern", at_key=True)
        elif not isinstance(layers, list):
            yield Violation(here, "not-list")


def find_bad_layers(context: CheckContext) -> Iterator[Violation]:
    """Layers that are no layer ids or ranges, too large, or not in ascending order."""
    count = _count_layers(context)
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


def find_swap_beyond(context: CheckContext) -> Iterator[Violation]:
    """The last swapped layer plus the prefetch has to stay below the number of layers."""
    count = _count_layers(context)
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


def find_bad_swap_entries(context: CheckContext) -> Iterator[Violation]:
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


def _count_layers(context: CheckContext) -> int | None:
    count = context.model.layers
    same = all(one.value == count for one in context.model.written(LAYERS))
    return count + context.model.mtp_layers if count is not None and same else None


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
        return
    dense, layers = model.number("first_k_dense_replace") or 0, model.layers
    has_experts = bool(model.number("num_moe_experts")) and layers is not None and dense < layers
    if has_experts and model.value("shared_expert_num") in (None, 0):
        yield Violation(("parallelism", "tensor_parallel"), "shared", params)


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
