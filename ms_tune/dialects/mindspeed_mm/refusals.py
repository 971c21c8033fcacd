"""What MindSpeed-MM refuses (26.0, 26.1): launch scripts (``validate_args_patch.py`` and the models), its FSDP2 YAML and ``tools.json``.

The files are named with each rule. What is not known without running the script is left alone: a rule is made where all its values are known.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.dialects.mindspeed_mm.detect import is_tools
from ms_tune.dialects.mindspeed_mm.read import (
    CONTEXT,
    FSDP2,
    GLOBAL,
    MICRO,
    PIPELINE,
    TENSOR,
    MultimodalSource,
    declared_settings,
    of_scripts,
    violation_at,
)
from ms_tune.errors import closest
from ms_tune.facts.mindspeed_mm import OWN_TOOLS
from ms_tune.source.shell.read import has_folder_above
from ms_tune.source.yaml import MISSING, is_same
from ms_tune.units import is_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ms_tune.diagnostics import KeyPath
    from ms_tune.dialects.check_context import CheckContext

_EXPERT, _BACKEND = "--expert-model-parallel-size", "--distributed-backend"
# `model_id` of classes that need no sizes for tiling; `wan_video_vae` is made of diffusers', and so is every other name (`ae/base.py`).
_OWN_AUTOENCODERS = (
    *("casualvae", "wfvae", "contextparallelcasualvae", "autoencoder_kl_hunyuanvideo", "stepvideovae", "movqvae"),
    *("flux_vae", "hunyuanvideo_15_vae"),
)
_PARTS = (("text_decoder",), ("image_encoder", "vision_encoder"), ("audio_encoder", "audio_encoder"), ("predictor",))


@of_scripts
def find_missing_files(source: MultimodalSource) -> Iterator[Violation]:
    """A file that the program is given and that is nowhere, though its folder is there (``mindspeed_mm/configs/config.py``)."""
    for option, word, path in source.files():
        if path is None and has_folder_above(source.path, word.text or ""):
            yield violation_at(source, option, {"file": word.text, "option": option}, span=source.span_of(word))


@of_scripts
def find_uneven_stages(source: MultimodalSource) -> Iterator[Violation]:
    """``pipeline_num_layers`` for another number of stages (``vlm_model.py``, ``deepseekvl_model.py``, ``predict_model.py``)."""
    pipeline, model = source.whole(PIPELINE, 1), source.file("--mm-model")
    if pipeline is None or pipeline <= 1 or model is None:
        return
    for part in _PARTS:
        listed = model.get((*part, "pipeline_num_layers"))
        if not isinstance(listed, list) or not listed:
            continue
        rows = [len(row) for row in listed if isinstance(row, list)] or [len(listed)]
        if any(row != pipeline for row in rows):
            params = {"part": ".".join(part), "found": rows[0], "stages": pipeline, "file": model.path.name}
            yield violation_at(source, PIPELINE, params)


@of_scripts
def find_uneven_batch(source: MultimodalSource) -> Iterator[Violation]:
    """A global batch that is no multiple of MBS x DP (``num_microbatches_calculator.py`` of Megatron)."""
    data, micro, total = source.data_parallel, source.whole(MICRO, 1), source.whole(GLOBAL)
    if data and micro and total and total % (micro * data):
        yield violation_at(source, GLOBAL, {"total": total, "micro": micro, "data": data})


@of_scripts
def find_uneven_world(source: MultimodalSource) -> Iterator[Violation]:
    """Processes that are no multiple of TP x PP x CP."""
    processes, sizes = source.command.launch.processes, source.sizes
    if processes and sizes and processes % prod(sizes):
        shown = " x ".join(map(str, sizes))
        yield violation_at(source, PIPELINE, {"processes": processes, "product": prod(sizes), "sizes": shown})


@of_scripts
def find_conflicts_with_sharding(source: MultimodalSource) -> Iterator[Violation]:
    """What ``--use-torch-fsdp2`` does not go with."""
    if not source.has("--use-torch-fsdp2"):
        return
    for option in (PIPELINE, _EXPERT):
        if (source.whole(option, 1) or 1) > 1:
            yield violation_at(source, option, {"option": f"{option} {source.value_of(option)}"})
    for option in ("--use-distributed-optimizer", "--fp16"):
        if source.has(option):
            yield violation_at(source, option, {"option": option})
    form = source.value_of("--ckpt-format")
    if form is not None and form not in ("torch_dist", "torch_dcp"):
        yield violation_at(source, "--ckpt-format", {"option": f"--ckpt-format {form}"})
    if source.variables.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1":
        yield violation_at(source, "--use-torch-fsdp2", {"option": "CUDA_DEVICE_MAX_CONNECTIONS=1"})


@of_scripts
def find_uneven_heads(source: MultimodalSource) -> Iterator[Violation]:
    """Heads of the language model that TP x CP does not divide (Ulysses); projectors have no attention and are left alone."""
    model, tensor, cut = source.file("--mm-model"), source.whole(TENSOR, 1), source.whole(CONTEXT, 1)
    algorithm = source.value_of("--context-parallel-algo") or ""
    if model is None or not tensor or not cut or (cut > 1 and algorithm != "ulysses_cp_algo"):
        return
    for part in (("text_decoder",), ("predictor",)):
        number = model.get((*part, "num_attention_heads"))
        if isinstance(number, int) and number > 0 and number % (tensor * cut):
            params = {"part": ".".join(part), "heads": number, "tensor": tensor, "cut": cut, "file": model.path.name}
            yield violation_at(source, TENSOR if tensor > 1 else CONTEXT, params)


@of_scripts
def find_missing_tool_settings(source: MultimodalSource) -> Iterator[Violation]:
    """A ``tools.json`` without a key that its readers ask for."""
    found = source.file("--mm-tool")
    if found is not None and found.path.as_posix().endswith(OWN_TOOLS):
        return  # the release's own, whatever release that is
    for path in (("memory_profile", "mem_info"), ("profile", "static_param", "analyse_flag")):
        section = found.get(path[:-1]) if found is not None else None
        if found is not None and isinstance(section, dict) and path[-1] not in section:
            yield violation_at(source, "--mm-tool", {"file": found.path.name, "name": ".".join(path)})


@of_scripts
def find_tiling_without_sizes(source: MultimodalSource) -> Iterator[Violation]:
    """Tiling of an autoencoder of diffusers that is given no sizes (``diffusers_ae_model.py`` looks into what is not there)."""
    model = source.file("--mm-model")
    section = model.get(("ae",)) if model is not None else None
    if model is None or not isinstance(section, dict) or section.get("enable_tiling") is not True:
        return
    name = section.get("model_id")
    if isinstance(name, str) and name not in _OWN_AUTOENCODERS and section.get("tiling_param") is None:
        yield violation_at(source, "--mm-model", {"file": model.path.name, "model": name})


@of_scripts
def find_offload_without_backend(source: MultimodalSource) -> Iterator[Violation]:
    """FSDP2's parameters on the host, and no backend for collectives there (``transformers/base_model.py``, and MindSpeed-MM's page about FSDP2)."""
    config = source.file(FSDP2)
    if config is None or not source.has("--use-torch-fsdp2") or config.get(("offload_to_cpu",)) is not True:
        return
    backend = source.value_of(_BACKEND)
    told = backend is not None if source.has(_BACKEND) else not source.command.open
    if told and "cpu:" not in (backend or ""):
        yield violation_at(source, FSDP2, {"file": config.path.name})


@of_scripts
def find_uneven_shards(source: MultimodalSource) -> Iterator[Violation]:
    """Sizes of the YAML that the number of processes does not go with (``ParallelArguments.model_post_init``)."""
    config, processes = source.file("config"), source.command.launch.processes
    if config is None or not processes:
        return
    sizes = {name: config.get(("parallel", name), 1) for name in ("ring_attention_size", "ulysses_parallel_size")}
    whole = [size for size in sizes.values() if isinstance(size, int) and size > 0]
    if len(whole) == len(sizes) and processes % prod(whole):
        yield violation_at(
            source, "config", {"processes": processes, "sizes": " x ".join(map(str, whole)), "file": config.path.name}
        )
    shards = config.get(("parallel", "fully_shard_parallel_size"), "auto")
    if isinstance(shards, int) and shards > 0 and processes % shards:
        yield violation_at(source, "config", {"processes": processes, "sizes": str(shards), "file": config.path.name})


_LISTED = {"level": ("level0", "level1", "level2"), "aic_metrics_type": ("PipeUtilization", "ArithmeticUtilization")}


def find_unlisted_choices(context: CheckContext) -> Iterator[Violation]:
    """A value that is none of those that the class lists, which pydantic refuses."""
    for path, value, setting in declared_settings(context):
        if not setting.choices or (value is None and "null" in setting.types):
            continue
        if not any(is_same(value, one) for one in setting.choices):
            similar = closest(str(value), [str(one) for one in setting.choices])
            params = {"choices": ", ".join(map(str, setting.choices)), "similar": similar}
            yield Violation(path, "similar" if similar else "default", params)


def find_wrong_types(context: CheckContext) -> Iterator[Violation]:
    """A value that pydantic cannot make into the declared type."""
    for path, value, setting in declared_settings(context):
        if setting.types and not setting.choices and not any(_fits(value, kind) for kind in setting.types):
            found = "null" if value is None else type(value).__name__
            if value is None and setting.default is None:
                continue  # what is declared as a text and is None all the same
            yield Violation(path, params={"wanted": " | ".join(setting.types), "found": found})


def find_bad_numbers(context: CheckContext) -> Iterator[Violation]:
    """Numbers that ``TrainingArguments`` and ``ParallelArguments`` refuse themselves (``model_post_init``)."""
    lr = _number(context, "training.lr", 5e-5)
    for name in ("lr_min", "lr_start"):
        low = _number(context, f"training.{name}", 0.0)
        if lr is not None and low is not None and lr < low:
            yield Violation(("training", name), "rate", {"name": name, "low": low, "rate": lr})
    share = _number(context, "training.mem_fraction_static", 0.8)
    if share is not None and not 0 < share <= 1:
        yield Violation(("training", "mem_fraction_static"), "share", {"given": share})
    for name in ("val_interval", "manual_gc_interval"):
        value = _number(context, f"training.{name}", 0)
        if value is not None and value < 0:
            yield Violation(("training", name), params={"name": name, "given": value})
    tensor = _number(context, "parallel.tensor_parallel_size", 1)
    if tensor is not None and tensor != 1:
        yield Violation(("parallel", "tensor_parallel_size"), "tensor", {"given": tensor})
    cut = (_number(context, "parallel.ring_attention_size", 1) or 1) * (
        _number(context, "parallel.ulysses_parallel_size", 1) or 1
    )
    shards = _number(context, "parallel.fully_shard_parallel_size", 0)
    if shards and shards < cut:
        yield Violation(("parallel", "fully_shard_parallel_size"), "shards", {"given": shards, "cut": cut})


def find_unknown_profiling(context: CheckContext) -> Iterator[Violation]:
    """Kinds and levels of profiling that ``tools/profiler.py`` refuses; FSDP2's own has the static kind only, on or off."""
    tools = is_tools(context.source.data)
    at: KeyPath = () if tools else ("tools",)
    kind = context.source.get((*at, "profile", "profile_type"), MISSING)
    kinds = ("static", "dynamic") if tools else ("static",)
    on = context.source.get((*at, "profile", "enable")) is True
    if kind is not MISSING and kind not in kinds and (on or not tools):
        yield Violation((*at, "profile", "profile_type"), params={"given": kind, "choices": ", ".join(kinds)})
    for name, listed in _LISTED.items():
        path = (*at, "profile", "static_param", name)
        given = context.source.get(path, MISSING)
        if given is not MISSING and given not in listed and (on or not tools):
            yield Violation(path, params={"given": given, "choices": ", ".join(listed)})


def find_missing_keys(context: CheckContext) -> Iterator[Violation]:
    """A key that the readers of ``tools.json`` ask for without a default: ``ConfigReader`` raises an AttributeError.

    ``memory_profile.mem_info`` since 2.2, ``profile.static_param.analyse_flag`` since 26.0.
    """
    if not is_tools(context.source.data):
        return
    own = context.source.path.absolute().as_posix().endswith(OWN_TOOLS)
    for path in (("memory_profile", "mem_info"), ("profile", "static_param", "analyse_flag")):
        section = context.source.get(path[:-1])
        if own and path[-1] == "analyse_flag":
            continue  # the release's own file, of one before 26.0
        if isinstance(section, dict) and path[-1] not in section:
            yield Violation(path, params={"section": ".".join(path[:-1]), "name": path[-1]}, at_key=True)


def _fits(value: object, kind: str) -> bool:
    """Whether pydantic takes a value for a type, as freely as it does by default."""
    if kind == "null":
        return value is None
    if kind == "bool":
        return (
            isinstance(value, bool)
            or value in (0, 1)
            or str(value).lower() in ("true", "false", "yes", "no", "on", "off", "0", "1")
        )
    if kind in ("int", "float"):
        return isinstance(value, (int, float)) or (isinstance(value, str) and is_number(value))
    if kind == "str":
        return isinstance(value, str)
    return isinstance(value, dict if kind == "dict" else list)


def _number(context: CheckContext, dotted: str, default: float) -> float | None:
    """A number as pydantic reads it; None where there is none."""
    value = context.get(dotted, default)
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    return float(value) if is_number(str(value)) else None
