"""Checks of launch scripts of MindSpeed-MM: what ``validate_args_patch.py`` and the models refuse, or switch off.

What is not known without running the script is left alone: a rule is made where all its values are known.
"""

from __future__ import annotations

from functools import wraps
from math import prod
from typing import TYPE_CHECKING

from ms_tune.dialects.check_context import Violation
from ms_tune.facts.mindspeed_mm import OWN_TOOLS
from ms_tune.lint.multimodal import MultimodalSource
from ms_tune.source.shell.read import has_folder_above
from ms_tune.units import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ms_tune.diagnostics import Location
    from ms_tune.dialects.check_context import CheckContext

_TENSOR, _PIPELINE, _CONTEXT = (
    "--tensor-model-parallel-size",
    "--pipeline-model-parallel-size",
    "--context-parallel-size",
)
_EXPERT, _CHUNKS = "--expert-model-parallel-size", "--virtual-pipeline-model-parallel-size"
_MICRO, _GLOBAL = "--micro-batch-size", "--global-batch-size"
_FSDP2, _BACKEND = "--fsdp2-config-path", "--distributed-backend"
# `model_id` of classes that need no sizes for tiling; `wan_video_vae` is made of diffusers', and so is every other name (`ae/base.py`).
_OWN_AUTOENCODERS = (
    *("casualvae", "wfvae", "contextparallelcasualvae", "autoencoder_kl_hunyuanvideo", "stepvideovae", "movqvae"),
    *("flux_vae", "hunyuanvideo_15_vae"),
)
_PARTS = (("text_decoder",), ("image_encoder", "vision_encoder"), ("audio_encoder", "audio_encoder"), ("predictor",))


def of_scripts(
    check: Callable[[MultimodalSource], Iterator[Violation]],
) -> Callable[[CheckContext], Iterator[Violation]]:
    """A check that is made for the commands of scripts, and for no other file of this dialect."""

    @wraps(check)
    def made(context: CheckContext) -> Iterator[Violation]:
        if isinstance(context.source, MultimodalSource):
            yield from check(context.source)

    return made


@of_scripts
def absent(source: MultimodalSource) -> Iterator[Violation]:
    """A file that the program is given and that is nowhere, though its folder is there (``mindspeed_mm/configs/config.py``)."""
    for option, word, path in source.files():
        if path is None and has_folder_above(source.path, word.text or ""):
            yield _at(source, option, {"file": word.text, "option": option}, span=source.span_of(word))


@of_scripts
def stages(source: MultimodalSource) -> Iterator[Violation]:
    """``pipeline_num_layers`` for another number of stages (``vlm_model.py``, ``deepseekvl_model.py``, ``predict_model.py``)."""
    pipeline, model = source.whole(_PIPELINE, 1), source.file("--mm-model")
    if pipeline is None or pipeline <= 1 or model is None:
        return
    for part in _PARTS:
        listed = model.get((*part, "pipeline_num_layers"))
        if not isinstance(listed, list) or not listed:
            continue
        rows = [len(row) for row in listed if isinstance(row, list)] or [len(listed)]
        if any(row != pipeline for row in rows):
            params = {"part": ".".join(part), "found": rows[0], "stages": pipeline, "file": model.path.name}
            yield _at(source, _PIPELINE, params)


@of_scripts
def accumulation(source: MultimodalSource) -> Iterator[Violation]:
    """``GRAD_ACC_STEP`` that the batch is not made of: the scripts' own formula is GBS = MBS x GRAD_ACC_STEP x DP."""
    steps = whole_number(source.variables.get("GRAD_ACC_STEP", ""))
    data, micro, total = _data(source), source.whole(_MICRO, 1), source.whole(_GLOBAL)
    if steps is not None and data and micro and total and total != micro * steps * data:
        product = micro * steps * data
        params = {"total": total, "steps": steps, "micro": micro, "data": data, "product": product}
        yield _at(source, _GLOBAL, params)


@of_scripts
def batch(source: MultimodalSource) -> Iterator[Violation]:
    """A global batch that is no multiple of MBS x DP (``num_microbatches_calculator.py`` of Megatron)."""
    data, micro, total = _data(source), source.whole(_MICRO, 1), source.whole(_GLOBAL)
    if data and micro and total and total % (micro * data):
        yield _at(source, _GLOBAL, {"total": total, "micro": micro, "data": data})


@of_scripts
def world(source: MultimodalSource) -> Iterator[Violation]:
    """Processes that are no multiple of TP x PP x CP."""
    processes, sizes = source.command.launch.processes, _sizes(source)
    if processes and sizes and processes % prod(sizes):
        shown = " x ".join(map(str, sizes))
        yield _at(source, _PIPELINE, {"processes": processes, "product": prod(sizes), "sizes": shown})


@of_scripts
def sequence(source: MultimodalSource) -> Iterator[Violation]:
    """``--sequence-parallel`` without tensor parallelism, which is switched off."""
    if source.has("--sequence-parallel") and source.whole(_TENSOR, 1) == 1:
        yield _at(source, "--sequence-parallel")


@of_scripts
def repeated(source: MultimodalSource) -> Iterator[Violation]:
    """An option that stands twice with different values: the last one wins."""
    before: dict[str, list[str | None]] = {}
    for one in source.command.given:
        new = [value.text for value in one.values]
        old = before.get(one.name)
        if old is not None and new and old != new and None not in (*old, *new):
            params = {"option": one.name, "old": " ".join(map(str, old)), "new": " ".join(map(str, new))}
            yield _at(source, one.name, params, span=source.span_of(one.word))
        before[one.name] = new


@of_scripts
def fully_sharded(source: MultimodalSource) -> Iterator[Violation]:
    """What ``--use-torch-fsdp2`` does not go with."""
    if not source.has("--use-torch-fsdp2"):
        return
    for option in (_PIPELINE, _EXPERT):
        if (source.whole(option, 1) or 1) > 1:
            yield _at(source, option, {"option": f"{option} {source.value_of(option)}"})
    for option in ("--use-distributed-optimizer", "--fp16"):
        if source.has(option):
            yield _at(source, option, {"option": option})
    form = source.value_of("--ckpt-format")
    if form is not None and form not in ("torch_dist", "torch_dcp"):
        yield _at(source, "--ckpt-format", {"option": f"--ckpt-format {form}"})
    if source.variables.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1":
        yield _at(source, "--use-torch-fsdp2", {"option": "CUDA_DEVICE_MAX_CONNECTIONS=1"})


@of_scripts
def heads(source: MultimodalSource) -> Iterator[Violation]:
    """Heads of the language model that TP x CP does not divide (Ulysses); projectors have no attention and are left alone."""
    model, tensor, cut = source.file("--mm-model"), source.whole(_TENSOR, 1), source.whole(_CONTEXT, 1)
    algorithm = source.value_of("--context-parallel-algo") or ""
    if model is None or not tensor or not cut or (cut > 1 and algorithm != "ulysses_cp_algo"):
        return
    for part in (("text_decoder",), ("predictor",)):
        number = model.get((*part, "num_attention_heads"))
        if isinstance(number, int) and number > 0 and number % (tensor * cut):
            params = {"part": ".".join(part), "heads": number, "tensor": tensor, "cut": cut, "file": model.path.name}
            yield _at(source, _TENSOR if tensor > 1 else _CONTEXT, params)


@of_scripts
def snapshot(source: MultimodalSource) -> Iterator[Violation]:
    """A memory window that ends behind the training: on the Megatron path nobody stops it, and nothing is written."""
    tools, steps = source.file("--mm-tool"), source.whole("--train-iters")
    if tools is None or steps is None or tools.get(("memory_profile", "enable")) is not True:
        return
    end = tools.get(("memory_profile", "end_step"))
    if isinstance(end, int) and end > steps:
        yield _at(source, "--mm-tool", {"end": end, "steps": steps, "file": tools.path.name})


@of_scripts
def tools(source: MultimodalSource) -> Iterator[Violation]:
    """A ``tools.json`` without a key that its readers ask for."""
    found = source.file("--mm-tool")
    if found is not None and found.path.as_posix().endswith(OWN_TOOLS):
        return  # the release's own, whatever release that is
    for path in (("memory_profile", "mem_info"), ("profile", "static_param", "analyse_flag")):
        section = found.get(path[:-1]) if found is not None else None
        if found is not None and isinstance(section, dict) and path[-1] not in section:
            yield _at(source, "--mm-tool", {"file": found.path.name, "name": ".".join(path)})


@of_scripts
def snapshots_twice(source: MultimodalSource) -> Iterator[Violation]:
    """Snapshots at out of memory beside a memory window, which clears the history that they would hold (torch_npu)."""
    found = source.file("--mm-tool")
    on = found is not None and found.get(("memory_profile", "enable")) is True
    if on and source.variables.get("OOM_SNAPSHOT_ENABLE", "0") not in ("0", ""):
        yield _at(source, "--mm-tool")


@of_scripts
def tiling(source: MultimodalSource) -> Iterator[Violation]:
    """Tiling of an autoencoder of diffusers that is given no sizes (``diffusers_ae_model.py`` looks into what is not there)."""
    model = source.file("--mm-model")
    section = model.get(("ae",)) if model is not None else None
    if model is None or not isinstance(section, dict) or section.get("enable_tiling") is not True:
        return
    name = section.get("model_id")
    if isinstance(name, str) and name not in _OWN_AUTOENCODERS and section.get("tiling_param") is None:
        yield _at(source, "--mm-model", {"file": model.path.name, "model": name})


@of_scripts
def checkpoint(source: MultimodalSource) -> Iterator[Violation]:
    """A checkpoint between two turns of an encoder that is offloaded meanwhile (``pretrain_sora.py``)."""
    model, steps = source.file("--mm-model"), source.whole("--save-interval")
    interval = model.get(("encoder_offload_interval",)) if model is not None else None
    if model is None or not isinstance(interval, int) or interval < 1:
        return
    if steps and source.has("--save") and steps % interval:
        yield _at(source, "--save-interval", {"file": model.path.name, "steps": steps, "interval": interval})


@of_scripts
def offload(source: MultimodalSource) -> Iterator[Violation]:
    """FSDP2's parameters on the host, and no backend for collectives there (``transformers/base_model.py``, and MindSpeed-MM's page about FSDP2)."""
    config = source.file(_FSDP2)
    if config is None or not source.has("--use-torch-fsdp2") or config.get(("offload_to_cpu",)) is not True:
        return
    backend = source.value_of(_BACKEND)
    told = backend is not None if source.has(_BACKEND) else not source.command.open
    if told and "cpu:" not in (backend or ""):
        yield _at(source, _FSDP2, {"file": config.path.name})


@of_scripts
def recompute(source: MultimodalSource) -> Iterator[Violation]:
    """Megatron's recompute beside that of FSDP2's YAML (``transformers/base_model.py``, and MindSpeed-MM's page about FSDP2)."""
    config = source.file(_FSDP2)
    if config is not None and source.has("--use-torch-fsdp2") and config.get(("recompute_modules",)):
        for option in ("--recompute-granularity", "--recompute-activations"):
            if source.has(option):
                yield _at(source, option, {"file": config.path.name, "option": option})


@of_scripts
def sharded_world(source: MultimodalSource) -> Iterator[Violation]:
    """Sizes of the YAML that the number of processes does not go with (``ParallelArguments.model_post_init``)."""
    config, processes = source.file("config"), source.command.launch.processes
    if config is None or not processes:
        return
    sizes = {name: config.get(("parallel", name), 1) for name in ("ring_attention_size", "ulysses_parallel_size")}
    whole = [size for size in sizes.values() if isinstance(size, int) and size > 0]
    if len(whole) == len(sizes) and processes % prod(whole):
        yield _at(
            source, "config", {"processes": processes, "sizes": " x ".join(map(str, whole)), "file": config.path.name}
        )
    shards = config.get(("parallel", "fully_shard_parallel_size"), "auto")
    if isinstance(shards, int) and shards > 0 and processes % shards:
        yield _at(source, "config", {"processes": processes, "sizes": str(shards), "file": config.path.name})


def _sizes(source: MultimodalSource) -> list[int]:
    """TP, PP and CP; nothing if one of them is not known."""
    found = [source.whole(name, 1) for name in (_TENSOR, _PIPELINE, _CONTEXT)]
    return [size for size in found if size] if all(found) else []


def _data(source: MultimodalSource) -> int | None:
    """The data-parallel size; None if it is not known, or not whole."""
    processes, sizes = source.command.launch.processes, _sizes(source)
    return processes // prod(sizes) if processes and sizes and processes % prod(sizes) == 0 else None


def _at(
    source: MultimodalSource, option: str, params: Mapping[str, object] | None = None, *, span: Location | None = None
) -> Violation:
    given = source.given(option)
    if span is None and given is not None:
        span = source.span_of(given.values[0] if given.values else given.word)
    if span is None and source.command.launch.program is not None:
        span = source.span_of(source.command.launch.program)
    return Violation((option,), params=params or {}, span=span)
