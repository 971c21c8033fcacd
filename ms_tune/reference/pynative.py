"""Convert ``mindformers-pynative`` configs to jobs for the reference transformer."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ms_tune.dialects import on_devices, write_specs
from ms_tune.dialects.draft import is_full
from ms_tune.dialects.job_parts import ModelShape, SettingChange, TrainingConfig
from ms_tune.dialects.mindformers_pynative.read import read_shards
from ms_tune.dialects.mindformers_pynative.training_config import (
    before_2_1,
    expert_layers,
    read_parallelism,
    read_pynative,
)
from ms_tune.dialects.sections import find_section
from ms_tune.dialects.stage import StageLayer
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.models import model_of
from ms_tune.facts.query import default_release, release_for
from ms_tune.reference.read import (
    FUSED_ADAMW,
    DynamicJob,
    Names,
    Placed,
    fewest_devices,
    placed_layers,
    refuse_unserved,
)
from ms_tune.source.yaml import SourceFile
from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from ms_tune.dialects import JobView, LayerPlan, LayerSpec

# Sizes that the reference transformer needs, and that a model's class may provide.
_SIZES = (
    *("vocab_size", "seq_length", "hidden_size", "intermediate_size", "num_hidden_layers", "num_nextn_predict_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "multi_latent_attention", "q_lora_rank"),
    *("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_routed_experts", "num_experts"),
    *("n_shared_experts", "num_experts_per_tok", "moe_intermediate_size", "first_k_dense_replace"),
)
_NORMS = ("RMSNorm", "LayerNorm")
_ACTIVATIONS = ("swiglu", "fusedswiglu", "gelu", "silu", "relu")
_OPTIMIZERS = ("AdamW",)
_FUSED_KEYS = ("enable_fused_opt", "use_fused")
_SCHEDULES = ("1f1b", "interleaved_1f1b")
_NAMES = Names(
    tensor="parallelism.tensor_parallel",
    context="parallelism.context_parallel",
    expert="parallelism.expert_parallel",
    heads="model.num_attention_heads",
    groups="model.num_key_value_heads",
    width="model.intermediate_size",
    words="model.vocab_size",
    tokens="model.seq_length",
    experts="model.n_routed_experts",
    micro_batches="training.global_batch_size",
)


def read_pynative_job(job: JobView, devices: int | None) -> DynamicJob:
    """Return the job of a MindFormers dynamic-graph config."""
    _check_model(job.original)
    source, defaults = _with_sizes(job.original)
    parallelism = read_parallelism(source.data, source.path)
    _check_stages(source, parallelism.pipeline)
    count = devices or _fewest_devices(source)
    config = _as_trained(source, read_pynative(source.data, source.path, count), count)
    written = job.with_source(source).plan  # rejects more layers than any model has
    plan = on_devices(written, count)
    experts = expert_layers(source.data, source.path, config.shape.layers)
    _check_tensor(source, config, experts=any(experts))

    def layer_of(layer: LayerSpec) -> StageLayer:
        mtp = layer.layer >= len(experts)
        return StageLayer(
            number=layer.layer,
            # A layer of multi-token prediction is built like the last ordinary layer.
            experts=experts[-1] if mtp else experts[layer.layer],
            mtp=mtp,
            full=is_full(layer),
            select=() if is_full(layer) else tuple(layer.select_patterns),
        )

    layers, warnings = placed_layers(plan, layer_of, source.path)
    data_parallel = count // parallelism.model_size
    return DynamicJob(
        config=config,
        layers=layers,
        devices=count,
        names=_NAMES,
        batch_key=(_NAMES.micro_batches, config.batch.micro_batch_size * data_parallel),
        layer_changes=_layer_changes,
        not_included=tuple(_not_included(source, config, plan)),
        warnings=(*defaults, *warnings, *([msg("reference.one-device")] if plan.layers != written.layers else [])),
        validated=tuple(_list_validated(config)),
        unproved=tuple(_list_unproved(config, count)),
    )


def _list_validated(config: TrainingConfig) -> Iterator[Message]:
    # Yield the validations of the reference transformer for this job (docs/reference-model.md).
    tensor = config.parallelism.tensor > 1
    if not (tensor and before_2_1()):
        yield msg("reference.standing.held" if tensor else "reference.standing.one-device")


def _list_unproved(config: TrainingConfig, devices: int) -> Iterator[Message]:
    # Yield the parts that could not be validated. MindFormers uses HyperParallel ~=1.0 for sharded weights, parts of sequences
    # and pipelines, but it is on no package index. With tensor parallelism, the forward pass of 2.0 uses its tensors; that of
    # 2.1 does not.
    parallel, release = config.parallelism, release_for(Dialect.MINDFORMERS_PYNATIVE).version
    shared = devices // parallel.model_size * parallel.context
    if parallel.tensor > 1 and before_2_1():
        yield msg("reference.standing.tensor-2.0", release=release)
    if shared > 1:
        yield msg("reference.standing.sharded", ranks=shared)
    if parallel.context > 1:
        yield msg("reference.standing.context", ranks=parallel.context)
    if parallel.pipeline > 1:
        yield msg("reference.standing.pipeline", stages=parallel.pipeline)


def _with_sizes(source: SourceFile) -> tuple[SourceFile, tuple[Message, ...]]:
    # Return the config with the default sizes of its model's class, and a note about them.
    model = model_of(source, Dialect.MINDFORMERS_PYNATIVE, default_release(Dialect.MINDFORMERS_PYNATIVE))
    taken = {
        key: model.facts.defaults[key]
        for key in _SIZES
        if model.facts.defaults.get(key) is not None and not model.written_fields(key)
    }
    if not taken:
        return source, ()
    listed = ", ".join(f"{key}: {value}" for key, value in taken.items())
    completed = source.replace(data={**source.data, "model": {**find_section(source.data, "model"), **taken}})
    return completed, (msg("reference.defaults", kind=model.kind, keys=listed),)


def _as_trained(source: SourceFile, config: TrainingConfig, devices: int) -> TrainingConfig:
    # Return the config with the effective settings of its optimizer and gradients. Gradients have no buffers: the first part of a
    # step is kept, and freed after the update (HyperParallel, ``platform/mindspore/fully_shard/param.py`` at 019ed966,
    # ``apply_reduced_grad`` and ``zero_grad``). So their size is certain only if every peak includes all of them in float32: from
    # the second micro-batch on, without a pipeline that keeps them whole, copies that are summed, or weights (experts) that this
    # rank has in full and accumulates. AdamW is one operator if the config requests it (``pynative/optimizer/adamw.py``, 2.1).
    written, parallel, optimizer = find_section(source.data, "optimizer"), config.parallelism, config.optimizer
    ways = devices // parallel.model_size
    ranks, experts = ways * parallel.context, config.shape.experts is not None
    parts = (
        ranks > 1 and optimizer.shards in (None, ways) and not (experts and ranks * parallel.tensor <= parallel.expert)
    )
    there = parts and parallel.pipeline == 1 and config.batch.micro_batch_num > 1
    optimizer = optimizer._replace(gradient_buffers=there)
    if optimizer.name in _OPTIMIZERS and any(written.get(key) is True for key in _FUSED_KEYS):
        optimizer = optimizer._replace(name=FUSED_ADAMW)
    # From 2.1 on the loss is always split, regardless of ``enable_loss_parallel`` (``apply_non_moe_tp`` of
    # pynative/base_models/gpt/parallelize.py); in 2.0 the key decides.
    splits = parallel.tensor > 1 and (parallel.split_loss or not before_2_1())
    return config._replace(optimizer=optimizer, parallelism=parallel._replace(split_loss=splits))


def _fewest_devices(source: SourceFile) -> int:
    # Return the number of devices from the config, or the fewest that fit the model.
    shards, parallelism = read_shards(source), read_parallelism(source.data, source.path)
    if shards:
        return parallelism.model_size * shards
    # The number of micro-batches depends on the devices and does not matter here: one rank, all samples.
    any_batch = {**source.data, "training": {}}
    return fewest_devices(read_pynative(any_batch, source.path, parallelism.model_size))


def _layer_changes(before: Sequence[Placed], after: Sequence[Placed]) -> Iterator[SettingChange]:
    # Yield the changed keys with layer numbers, which are renumbered.
    old, new = _layer_keys(before), _layer_keys(after)
    for key, value in old.items():
        if value != new[key] or key == "model.num_hidden_layers":
            yield SettingChange(key, value, new[key])


def _layer_keys(placed: Sequence[Placed]) -> dict[str, object]:
    layers = [layer for _, _, layer in placed]
    patterns = sorted({pattern for layer in layers for pattern in layer.select})
    return {
        "model.num_hidden_layers": sum(not layer.mtp for layer in layers),
        "model.first_k_dense_replace": next((number for number, layer in enumerate(layers) if layer.experts), 0),
        "recompute.full_recompute_layer": write_specs([n for n, layer in enumerate(layers) if layer.full]),
        "recompute.select_module": {
            pattern: write_specs([n for n, layer in enumerate(layers) if pattern in layer.select])
            for pattern in patterns
        },
        "parallelism.pipeline_parallel_layers_per_stage": _per_stage(placed),
    }


def _per_stage(layers: Sequence[Placed]) -> list[str]:
    stages = 1 + max(stage for _, stage, _ in layers)
    chunks = 1 + max(chunk for chunk, _, _ in layers)

    def ids(stage: int, chunk: int) -> str:
        own = [n for n, (where, at, layer) in enumerate(layers) if (where, at) == (chunk, stage) and not layer.mtp]
        return ",".join(write_specs(own))

    return [] if stages == 1 else [",".join(ids(stage, chunk) for chunk in range(chunks)) for stage in range(stages)]


def _not_included(source: SourceFile, config: TrainingConfig, plan: LayerPlan) -> Iterator[Message]:
    model, parallelism = find_section(source.data, "model"), find_section(source.data, "parallelism")
    if any(layer.swap for layer in plan.layers):
        yield msg("reference.not-included.swap")
    if any(layer.comm_patterns for layer in plan.layers):
        yield msg("reference.not-included.comm-recompute")
    if any(layer.select_excludes for layer in plan.layers):
        yield msg("reference.not-included.exclude")
    yield from _unknown_modules(config, plan)
    if model.get("hidden_dropout") or model.get("attention_dropout"):
        yield msg("reference.not-included.dropout")
    if (model.get("chunk_loss_num") or 1) != 1:
        yield msg("reference.not-included.chunk-loss")
    dispatcher = parallelism.get("moe_token_dispatcher_type", "alltoall")
    if config.shape.experts and dispatcher != "alltoall":
        yield msg("reference.not-included.dispatcher", dispatcher=dispatcher)
    if config.shape.experts:
        yield msg("reference.not-included.routing")
    if config.parallelism.pipeline == 1 and parallelism.get("reshard_after_forward_policy") == "always":
        yield msg("reference.not-included.reshard")
    yield msg("reference.not-included.sharding")


def _unknown_modules(config: TrainingConfig, plan: LayerPlan) -> Iterator[Message]:
    paths = {path for experts in (False, True) for path in module_paths(config.shape, experts=experts)}
    for pattern in sorted({pattern for layer in plan.layers for pattern in layer.select_patterns}):
        with contextlib.suppress(re.error):
            if any(re.fullmatch(pattern, path) for path in paths):
                continue
        yield msg("reference.not-included.pattern", pattern=pattern)


def _check_model(source: SourceFile) -> None:
    # Must run before other keys are read: other kinds of models lack the keys that ordinary ones must have.
    model = find_section(source.data, "model")
    variant, kind = model.get("experimental_attention_variant"), model.get("model_type")
    refuse_unserved(
        {
            "model.model_type": (kind, kind != "deepseek_v4"),
            "model.experimental_attention_variant": (variant, variant is None),
        }
    )


def _check_stages(source: SourceFile, stages: int) -> None:
    # Reject a pipeline of a model that MindFormers cannot split into stages: its figures would match no job.
    release = release_for(Dialect.MINDFORMERS_PYNATIVE).version
    model = model_of(source, Dialect.MINDFORMERS_PYNATIVE, release)
    if stages > 1 and "dynamic" in model.facts.modes and not model.facts.stages:
        raise ConfigError(
            msg("reference.no-stages", model=model.kind or model.architecture, stages=stages, release=release),
            path=source.path,
        )


def _check_tensor(source: SourceFile, config: TrainingConfig, *, experts: bool) -> None:
    # Reject tensor parallelism of a model that MindFormers cannot split: 2.0 only supports latent attention with a shared expert.
    shape = config.shape
    if config.parallelism.tensor == 1 or not before_2_1():
        return
    alone = experts and shape.experts is not None and not shape.experts.shared_ffn_hidden_size
    if shape.latent and not alone:
        return
    said = "no-shared-expert" if shape.latent else "no-tensor"
    params = {"ranks": config.parallelism.tensor, "release": release_for(Dialect.MINDFORMERS_PYNATIVE).version}
    raise ConfigError(msg(f"reference.{said}", **params), path=source.path, hint=msg("reference.no-tensor.hint"))


def check_pynative_served(source: SourceFile, config: TrainingConfig) -> None:
    """Raise :class:`UnsupportedError` if the reference transformer does not support a setting of the config."""
    shape, parallel = config.shape, find_section(source.data, "parallelism")
    lora, schedule = source.data.get("lora_config"), parallel.get("pipeline_parallel_schedule", "1f1b")
    shards = parallel.get("dense_fsdp_shard_size")
    refuse_unserved(
        {
            "model.hidden_act": (shape.activation, shape.activation in _ACTIVATIONS),
            "model.normalization": (shape.normalization, shape.normalization in _NORMS),
            "parallelism.pipeline_parallel_schedule": (schedule, schedule in _SCHEDULES),
            "parallelism.cpu_offload": (True, not parallel.get("cpu_offload")),
            "parallelism.dense_fsdp_shard_size": (shards, shards is None),
            "optimizer.type": (config.optimizer.name, config.optimizer.name in (*_OPTIMIZERS, FUSED_ADAMW)),
            "lora_config": (lora, not lora),
        }
    )
    if config.parallelism.tensor > 1 and not config.parallelism.sequence:  # pynative/config/config.py, 2.1
        raise ConfigError(msg("reference.tensor-needs-sequence"), path=source.path)


def module_paths(shape: ModelShape, *, experts: bool) -> tuple[str, ...]:
    """Return the dotted paths of the modules in a layer, named like the network's own cells."""
    attention = ["linear_qkv", "core_attention", "linear_proj"]
    if shape.latent:
        attention += ["linear_kvb", "k_layernorm", "rotary"]  # without norms these exist but do nothing
        attention += ["q_layernorm", "linear_qb"] if shape.latent.query_rank else []
    else:
        attention += ["q_layernorm", "k_layernorm"] if shape.qk_norm else []
        attention += ["rotary"] if shape.rotary else []
    block = ["linear_fc1", "activation_func", "linear_fc2"]
    if experts and shape.experts:
        shared = ["shared_experts", *(f"shared_experts.{name}" for name in block)]
        block = ["router", "experts", "experts.activation_func"]
        block += shared if shape.experts.shared_ffn_hidden_size else []
    norms = ["input_layernorm", "pre_mlp_layernorm"]
    norms += ["post_self_attn_layernorm", "post_mlp_layernorm"] if shape.sandwich_norm else []
    inside = (*(f"self_attention.{name}" for name in attention), *(f"mlp.{name}" for name in block))
    return (*norms, "self_attention", "mlp", *inside)
