"""Recompute and swap settings that MindFormers' dynamic graph (2.0, 2.1) refuses, in its order and with its messages.

The rules are those of ``_validate_recompute_config`` and ``_validate_swap_config`` in
``mindformers/pynative/distributed/activation_checkpoint.py``. They run only in ``parallelize_model``, so with several
devices. Stages: ``mindformers/pynative/distributed/pipeline_parallel.py``; data: ``_build_dataset`` in
``mindformers/pynative/trainer/utils.py``; LoRA: ``LoraConfig`` in ``mindformers/pynative/config/config.py`` (2.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ms_tune.diagnostics import KeyPath, dotted
from ms_tune.dialects import FrameworkStop, stop
from ms_tune.dialects.check_context import CheckContext, Violation
from ms_tune.dialects.mindformers_pynative.placement import UNEVEN_STAGES, PynativeInputs, check_stages
from ms_tune.dialects.plan_checks import passes, report_refusals
from ms_tune.dialects.values import pattern_fault
from ms_tune.facts.keys import registered
from ms_tune.facts.models import LAYERS
from ms_tune.records import Any

# The checks that report these refusals.
_INCOMPLETE, _BAD_LAYERS, _BAD_SWAP, _SWAP_BEYOND = "MST710", "MST711", "MST717", "MST718"
_RANGES = "layer ids or ranges like ['5'], ['0-19']"
_SPEC = re.compile(r"(\d+)(?:-(\d+))?")


def check_recompute(inputs: PynativeInputs, total: int | None) -> Iterator[FrameworkStop]:
    """Yield refusals of recompute settings, in the framework's order; if ``total`` is None, no layer counts as too large."""
    if inputs.mode != "None":
        path: KeyPath = ("recompute", "select_module")
        yield from _check_modules(path, inputs.select_module, "module path")
        needed = "full_recompute_layer" if inputs.mode == "full" else "select_module"
        if not (inputs.full_layers if inputs.mode == "full" else inputs.select_module):
            text = f"TrainConfig.recompute: mode is '{inputs.mode}' but {needed} is missing or empty"
            yield _refuse(_INCOMPLETE, text, ("recompute", "mode"), "missing", missing=needed)
        if inputs.full_layers:
            full = "TrainConfig.recompute_config.recompute.full_recompute_layer"
            yield from _check_specs(full, ("recompute", "full_recompute_layer"), inputs.full_layers, total)
        elif inputs.mode == "select":
            yield from _check_ranges(path, inputs.select_module, total)
    if inputs.comm:
        path = ("recompute_comm", "select_module")
        yield from _check_modules(path, inputs.comm_module, "comm op path")
        if not inputs.comm_module:
            text = "TrainConfig.recompute_comm: enable is True but select_module is missing or empty"
            yield _refuse(_INCOMPLETE, text, ("recompute_comm", "enable"), "missing", missing="select_module")
        yield from _check_ranges(path, inputs.comm_module, total)
    if inputs.version == "2.0":
        yield from _check_excluded_names(inputs.exclude_op)
    else:
        yield from _check_modules(("recompute", "exclude_op"), inputs.exclude_op, "module path", total, ranges=True)


def _refuse(
    rule: str, text: str, path: KeyPath, message: str, *, exception: str = "ValueError", **params: object
) -> FrameworkStop:
    return FrameworkStop(exception, text, None, rule, path, message, **params)


def _check_modules(
    path: KeyPath, value: object, what: str, total: int | None = None, *, ranges: bool = False
) -> Iterator[FrameworkStop]:
    """Check modules with their lists of layers; with ``ranges`` each list is validated immediately."""
    label = f"TrainConfig.{dotted(path)}"
    if value is not None and not isinstance(value, dict):
        text = f"{label} must be a dict ({what} -> list of layer ranges), got {type(value).__name__}"
        # Exclusions that are not a mapping are reported by another check.
        yield _refuse("" if ranges else _INCOMPLETE, text, path, "not-mapping", exception="TypeError")
    for key, specs in value.items() if isinstance(value, dict) else ():
        here = (*path, key if isinstance(key, int) else str(key))
        if not isinstance(key, str) or not key.strip():
            yield _refuse(_INCOMPLETE, f"{label}: invalid {what} key {key!r}", here, "pattern")
        elif not isinstance(specs, list):
            text = f"{label}[{key!r}]: value must be a list or tuple of layer ranges, got {type(specs).__name__}"
            yield _refuse(_INCOMPLETE, text, here, "not-list", exception="TypeError")
        if ranges and isinstance(specs, list):
            yield from _check_specs(f"{label}[{key!r}]", here, specs, total)


def _check_ranges(path: KeyPath, modules: object, total: int | None) -> Iterator[FrameworkStop]:
    for key, specs in modules.items() if isinstance(modules, dict) else ():
        if isinstance(specs, list):
            label = f"TrainConfig.recompute_config.{dotted(path)}[{key!r}]"
            yield from _check_specs(label, (*path, str(key)), specs, total)


def _check_specs(
    label: str,
    path: KeyPath,
    specs: Any,  # noqa: ANN401 - the value as in the config
    total: int | None,
    prefetch: int = 0,
) -> Iterator[FrameworkStop]:
    """Yield the first error of a layer list: it must ascend without overlap and end at least ``prefetch`` before the last.

    The normalised texts are written back as the framework does, so immutable values fail here.
    """
    previous = -1
    try:
        for index, spec in enumerate(specs):
            text, first, last = _read_spec(f"{label}[{index}]", (*path, index), spec, total)
            specs[index] = text
            if first <= previous:
                order = f"{label}: layer specs must be in strictly ascending order; spec[{index}] '{text}' starts at {first} but previous spec ends at {previous}"
                raise _refuse(_BAD_LAYERS, order, (*path, index), "order", last=previous)
            previous = last
    except FrameworkStop as refusal:
        if not isinstance(specs, list):
            refusal.path, refusal.message = path, "list"
        yield refusal
    except (TypeError, RuntimeError) as error:
        # Not a list: a text cannot be modified, a mapping grows during iteration.
        yield _refuse(_BAD_LAYERS, str(error), path, "list", exception=type(error).__name__)
    else:
        if prefetch and total is not None and previous + prefetch >= total:
            most = total - prefetch - 1
            text = f"{label}: max layer id {previous} plus prefetch {prefetch} exceeds num_layers ({total}); max allowed layer id is {most}"
            yield _refuse(_SWAP_BEYOND, text, path, "default", most=most, ahead=prefetch)


def _read_spec(label: str, path: KeyPath, spec: object, total: int | None) -> tuple[str, int, int]:
    text = str(spec).strip()
    match = _SPEC.fullmatch(text)
    if not match:
        invalid = (
            f"{label}: invalid layer spec {spec!r}; expected one non-negative integer or 'start-end' (e.g. '5', '0-19')"
        )
        raise _refuse(_BAD_LAYERS, invalid, path, "form")
    try:
        first, last = int(match[1]), int(match[2] or match[1])
    except ValueError as error:  # thousands of digits
        raise _refuse(_BAD_LAYERS, str(error), path, "form") from None
    if first > last:
        raise _refuse(_BAD_LAYERS, f"{label}: range start must be <= end, got {spec!r}", path, "backwards")
    if total is not None and last >= total:
        beyond = f"{label}: layer id {last} out of range [0, {total - 1}], got {spec!r}"
        raise _refuse(_BAD_LAYERS, beyond, path, "range", most=total - 1)
    return text, first, last


def _check_excluded_names(value: object) -> Iterator[FrameworkStop]:
    """Check the operator names of 2.0, which apply to the whole model."""
    label = "TrainConfig.recompute.exclude_op"
    if value is not None and not isinstance(value, list):
        yield FrameworkStop("TypeError", f"{label} must be a list/tuple of op-name strings, got {type(value).__name__}")
    for index, name in enumerate(value if isinstance(value, list) else ()):
        if not isinstance(name, str) or not name.strip():
            yield FrameworkStop("ValueError", f"{label}[{index}]: must be a non-empty string, got {name!r}")


def check_swap(inputs: PynativeInputs, total: int | None) -> Iterator[FrameworkStop]:
    """Yield refusals of swap settings, in the framework's order."""
    prefetch = inputs.prefetch
    if total is not None and not 1 <= prefetch < total:
        text = f"TrainConfig.swap_config.default_prefetch: value {prefetch} out of range [1, {total - 1}]"
        yield _refuse(_SWAP_BEYOND, text, ("swap", "default_prefetch"), "prefetch", most=total - 1)
        prefetch = 0
    lists = {"layer_swap": inputs.layer_swap, "op_swap": inputs.op_swap}
    for key, entries in lists.items():
        if entries is not None and not isinstance(entries, list):
            text = f"TrainConfig.swap_config.{key} must be a list, got {type(entries).__name__}"
            yield _refuse(_BAD_SWAP, text, ("swap", key), "not-list", exception="TypeError")
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            yield from _check_swap_entry(key, index, entry)
    for key, entries in lists.items():
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            specs = entry.get("layers") if isinstance(entry, dict) else None
            if isinstance(specs, list):
                label = f"TrainConfig.swap_config.{key}[{index}].layers"
                yield from _check_specs(label, ("swap", key, index, "layers"), specs, total, prefetch)


def _check_swap_entry(key: str, index: int, entry: object) -> Iterator[FrameworkStop]:
    label, path = f"TrainConfig.swap_config.{key}[{index}]", ("swap", key, index)
    needed = ("op_name", "layers") if key == "op_swap" else ("layers",)
    if not isinstance(entry, dict):
        text = f"{label} must be a dict, got {type(entry).__name__}"
        yield _refuse(_BAD_SWAP, text, path, "not-entry", exception="TypeError")
    elif missing := [name for name in needed if name not in entry]:
        text = f"{label}: each entry must include {' and '.join(map(repr, needed))}, got {entry!r}"
        yield _refuse(_BAD_SWAP, text, path, "missing", missing=missing[-1])
    else:
        name, layers = entry.get("op_name"), entry["layers"]
        if key == "op_swap" and (not isinstance(name, str) or not name.strip()):
            text = f"{label}.op_name must be a non-empty str, got {name!r}"
            yield _refuse(_BAD_SWAP, text, (*path, "op_name"), "op-name")
        if not isinstance(layers, list):
            text = f"{label}.layers: expected list/tuple of {_RANGES}, got {type(layers).__name__}: {layers!r}"
            yield _refuse(_BAD_SWAP, text, (*path, "layers"), "layers", exception="TypeError")


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


def find_refused(context: CheckContext) -> Iterator[Violation]:
    """Report the refusals of recompute and swap settings that belong to one check (``rule`` is its ID)."""
    return report_refusals(str(context.options["rule"]), _all_refused(context))


def _all_refused(context: CheckContext) -> Iterator[FrameworkStop]:
    mode, model = context.get("recompute.mode"), context.model
    inputs = PynativeInputs(
        layers=0,
        version=model.release,
        mode=str(mode) if mode in ("full", "select") else "None",
        full_layers=context.get("recompute.full_recompute_layer"),
        select_module=context.get("recompute.select_module"),
        exclude_op=context.get("recompute.exclude_op"),
        comm=context.get("recompute_comm.enable") is True,
        comm_module=context.get("recompute_comm.select_module"),
        swap=context.get("swap.enable") is True,
        prefetch=context.integer("swap.default_prefetch", 1) or 0,
        layer_swap=context.get("swap.layer_swap"),
        op_swap=context.get("swap.op_swap"),
    ).copied()
    # Contradictory numbers of layers are reported by another check.
    same = all(one.value == model.layers for one in model.written_fields(LAYERS))
    total = model.layers + model.mtp_layers if model.layers is not None and same else None
    if inputs.mode != "None" or inputs.comm:
        yield from check_recompute(inputs, total)
    if inputs.swap:
        yield from check_swap(inputs, total)


def find_uneven_stages(context: CheckContext) -> Iterator[Violation]:
    """Report stages to which the layers cannot be assigned."""
    stages = context.integer("parallelism.pipeline_parallel", 1) or 1
    chunks = context.integer("parallelism.pipeline_parallel_interleave_num", 1) or 1
    value = context.source.get(("parallelism", "pipeline_parallel_layers_per_stage"), "auto")
    if stages > 1 and (value == "auto" or not isinstance(value, str)) and not passes(context):
        layers = None if context.model.mtp_layers else context.model.layers
        yield from report_refusals(UNEVEN_STAGES, check_stages(layers, stages, chunks, value))


_LOADER = ("train_dataset", "dataloader")


def find_model_without_stages(context: CheckContext) -> Iterator[Violation]:
    """Report pipeline stages of a model whose network cannot be split into stages (2.0 and 2.1)."""
    stages, model = context.integer("parallelism.pipeline_parallel", 1) or 1, context.model
    if stages > 1 and "dynamic" in model.facts.modes and not model.facts.stages:
        params = {"model": model.kind or model.architecture, "stages": stages, "release": model.release}
        yield Violation(("parallelism", "pipeline_parallel"), params=params)


def find_unsplit_model(context: CheckContext) -> Iterator[Violation]:
    """Report tensor parallelism of a model without latent attention, or with experts but no shared one (``_apply_layers_tp``, 2.0)."""
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
    """Report context parallelism without a compressed mask (``apply_context_parallel_model_io``, 2.0 and 2.1).

    The data set can also enable compression. Models with their own attention are skipped.
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
    """Report a data loader type that the trainer does not support; the names are listed in its code, not registered."""
    release = context.version
    known = sorted(registered("dataset_loader", release, context.dialect))
    kind = context.get("train_dataset.dataloader.type")
    if isinstance(kind, str) and kind not in known:
        yield Violation((*_LOADER, "type"), params={"known": ", ".join(known)})


def find_bad_lora(context: CheckContext) -> Iterator[Violation]:
    """Report settings that ``LoraConfig.__post_init__`` refuses (2.1)."""
    if not isinstance(context.get("lora_config"), dict):
        return
    target = context.get("lora_config.target_modules", "")
    if not isinstance(target, str) or not target.strip():
        yield Violation(("lora_config", "target_modules"))
    elif pattern_fault(target):
        yield Violation(("lora_config", "target_modules"), "pattern")
    for name in ("lora_rank", "lora_alpha"):
        if (context.integer(f"lora_config.{name}", 1) or 0) <= 0:
            yield Violation(("lora_config", name))
    dropout = context.get("lora_config.lora_dropout", 0.0)
    if isinstance(dropout, (int, float)) and not 0 <= dropout < 1:
        yield Violation(("lora_config", "lora_dropout"))
