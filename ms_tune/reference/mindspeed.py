"""``mindspeed-ms`` configs as jobs for the reference transformer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ms_tune.dialects.cells import is_full
from ms_tune.dialects.job_parts import (
    ContextMethod,
    DType,
    Experts,
    MicroBatches,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    SettingChange,
    Sharding,
    TrainingConfig,
)
from ms_tune.dialects.stage import StageLayer
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.training import mindspeed_framework
from ms_tune.reference.read import DynamicJob, Names, fewest_devices, placed_layers, refuse_unserved, section_of
from ms_tune.reference.training_config import Section
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ms_tune.dialects.job_parts import JobView
    from ms_tune.dialects.layer_plan import LayerSpec
    from ms_tune.reference.read import Placed
    from ms_tune.source.yaml import SourceFile
    from ms_tune.text import Message

_NORMS = ("RMSNorm", "FusedRMSNorm", "LayerNorm", "FusedLayerNorm")
_ACTIVATIONS = ("swiglu", "fusedswiglu", "gelu", "fast_gelu", "silu", "relu")
_OPTIMIZERS = ("mint.AdamW", "SpeedAdamW")
_NAMES = Names(
    tensor="parallel_config.tensor_model_parallel_size",
    context="parallel_config.context_parallel_size",
    expert="parallel_config.expert_model_parallel_size",
    heads="model_config.num_attention_heads",
    groups="model_config.num_query_groups",
    width="model_config.ffn_hidden_size",
    words="model_config.vocab_size",
    tokens="model_config.seq_length",
    experts="moe_config.num_experts",
    micro_batches="dataset_config.micro_batch_num",
    hidden="model_config.hidden_size",
)
_CONTEXT_METHODS = {
    "ulysses_cp_algo": ContextMethod.ULYSSES,
    "megatron_cp_algo": ContextMethod.RING,
    "hybrid_cp_algo": ContextMethod.HYBRID,
}
# What selective recompute repeats, by the framework's name and by the reference transformer's.
_MODULES = {"mlp.act_func": "mlp.activation_func", "attention.core_attention": "self_attention.core_attention"}
_CELL_ACTIVATIONS = ("gelu", "fast_gelu")  # the others are functions, which recompute does not reach (transformer.py)


def read_mindspeed(job: JobView, devices: int | None) -> DynamicJob:
    """The job of a MindSpeed-Core-MS config.

    Raises:
        ConfigError: The framework would refuse the config.
    """
    source = job.written
    config = _as_installed(read_mindspeed_ms(source.data, source.path))
    _check_experts(source, config)
    layers, warnings = placed_layers(job.plan, _layer_of(config), source.path)
    return DynamicJob(
        config=config,
        layers=layers,
        devices=devices or fewest_devices(config),
        names=_NAMES,
        batch_key=(_NAMES.micro_batches, 1),
        layer_changes=_layer_changes,
        not_included=tuple(_not_included(source, config)),
        warnings=warnings,
        validated=(msg("reference.standing.mindspeed"),),
    )


def _as_installed(config: TrainingConfig) -> TrainingConfig:
    """The config with the number format of normalisations that the installed framework gives them.

    MindSpeed-Core-MS r0.1.0 makes their weights in ``params_dtype`` (legacy/model/norm.py, get_norm). MindFormers 1.6 makes
    those of FusedRMSNorm in ``compute_dtype`` and all others in float32 (transformer/norm.py there).
    """
    framework, precision = mindspeed_framework(), config.precision
    if framework is None or not framework.package.startswith("mindformers."):
        return config
    norm = precision.compute if config.shape.normalization == "FusedRMSNorm" else DType.FLOAT32
    return replace(config, precision=replace(precision, norm=norm))


def _layer_of(config: TrainingConfig) -> Callable[[LayerSpec], StageLayer]:
    shape, parallel = config.shape, config.parallelism

    def layer_of(plan: LayerSpec) -> StageLayer:
        select = tuple(_MODULES[pattern] for pattern in plan.select_patterns)
        if shape.flash_attention and shape.activation not in _CELL_ACTIVATIONS:
            select = ()
        return StageLayer(
            number=plan.layer,
            experts=shape.experts is not None,
            full=is_full(plan),
            select=select,
            communication=bool(plan.comm_patterns) and parallel.sequence and parallel.tensor > 1,
        )

    return layer_of


def _layer_changes(before: Sequence[Placed], after: Sequence[Placed]) -> Iterator[SettingChange]:
    """The lists that say the same of other layers; only one stage differs."""
    yield SettingChange("model_config.num_layers", len(before), len(after))
    chunks = 1 + max(chunk for chunk, _, _ in before)
    stages = 1 + max(stage for _, stage, _ in before)

    def table(layers: Sequence[Placed], chosen: Callable[[StageLayer], bool]) -> list[Any]:
        counts = Counter((chunk, stage) for chunk, stage, layer in layers if chosen(layer))
        rows = [[counts[chunk, stage] for stage in range(stages)] for chunk in range(chunks)]
        return rows if chunks > 1 else rows[0]

    recompute = "parallel_config.recompute_config"
    lists: dict[str, Callable[[StageLayer], bool]] = {
        f"{recompute}.recompute": lambda layer: layer.full,
        f"{recompute}.select_recompute": lambda layer: bool(layer.select),
        f"{recompute}.select_comm_recompute": lambda layer: layer.communication,
    }
    if stages > 1:
        lists = {"parallel_config.num_layer_list": lambda _: True, **lists}
    for key, chosen in lists.items():
        old, new = table(before, chosen), table(after, chosen)
        if old != new:
            yield SettingChange(key, old, new)


def _not_included(source: SourceFile, config: TrainingConfig) -> Iterator[Message]:
    model, optimizer = section_of(source, "model_config"), section_of(source, "optimizer_config")
    if model.get("hidden_dropout") or model.get("attention_dropout"):
        yield msg("reference.not-included.dropout")
    if optimizer.get("clip_grad"):
        yield msg("reference.not-included.clipping")
    if model.get("recompute_method") == "uniform" and (model.get("recompute_num_layers") or 1) > 1:
        yield msg("reference.not-included.uniform")
    if config.shape.experts:
        yield msg("reference.not-included.routing")


def check_mindspeed_served(source: SourceFile, config: TrainingConfig) -> None:
    """The reference transformer does all that the config asks for.

    Raises:
        UnsupportedError: It does not.
    """
    parallel, shape = config.parallelism, config.shape
    sections = {name: section_of(source, name) for name in ("model_config", "parallel_config", "lora_config")}
    model, zero_level = sections["model_config"], sections["parallel_config"].get("zero_level")
    refuse_unserved(
        {
            "parallel_config.zero_level": (zero_level, zero_level is None),
            "model_config.num_experts": (model.get("num_experts"), model.get("num_experts") in (None, 1)),
            "model_config.hidden_act": (shape.activation, shape.activation in _ACTIVATIONS),
            "model_config.normalization": (shape.normalization, shape.normalization in _NORMS),
            "model_config.use_flash_attention": (False, shape.flash_attention or parallel.context == 1),
            "optimizer_config.optimizer_type": (config.optimizer.name, config.optimizer.name in _OPTIMIZERS),
            "lora_config.use_lora": (True, not sections["lora_config"].get("use_lora")),
        }
    )


def _check_experts(source: SourceFile, config: TrainingConfig) -> None:
    shape, parallel = config.shape, config.parallelism
    if shape.experts and parallel.context > 1 and parallel.expert > 1:  # core/parallel_state.py
        raise ConfigError(msg("reference.experts-and-context"), path=source.path)
    if shape.experts and parallel.tensor > 1 and not parallel.sequence:  # legacy/model/moe/moe_layer.py
        raise ConfigError(msg("reference.experts-need-sequence"), path=source.path)


def read_mindspeed_ms(data: Mapping[str, object], path: Path) -> TrainingConfig:
    """The neutral model of a MindSpeed-Core-MS r0.1.0 config.

    Sections, defaults and forced values follow ``mindspeed_ms/core/config.py`` of that branch. What the config does not say takes
    the framework's own default. Layers and recompute are read in :mod:`ms_tune.dialects.mindspeed_ms.read`.

    Raises:
        ConfigError: A required key is missing or a value cannot be.
    """
    model = Section(data, "model_config", path, Dialect.MINDSPEED_MS)
    training = Section(data, "training_config", path, Dialect.MINDSPEED_MS)
    parallel = Section(data, "parallel_config", path, Dialect.MINDSPEED_MS)
    batch = Section(data, "dataset_config", path, Dialect.MINDSPEED_MS)
    optimizer = Section(data, "optimizer_config", path, Dialect.MINDSPEED_MS)
    # core/config.py _check_arguments: fp16 and bf16 force params_dtype and compute_dtype.
    if training.known("bf16"):
        parameters = DType.BFLOAT16
    elif training.known("fp16"):
        parameters = DType.FLOAT16
    else:
        parameters = DType(model.one_of("params_dtype", [dtype.value for dtype in DType], "float32"))
    mixed = training.known("bf16") or training.known("fp16")
    ddp = training.known("wrap_with_ddp")
    # training/training.py: bf16 with DDP forces accumulation in float32.
    fp32_gradients = ddp and (training.known("accumulate_allreduce_grads_in_fp32") or mixed)
    return TrainingConfig(
        shape=_read_shape(model, Section(data, "moe_config", path, Dialect.MINDSPEED_MS), path),
        parallelism=_read_parallelism(parallel),
        batch=MicroBatches(batch.known("batch_size"), batch.known("micro_batch_num")),
        precision=_read_precision(model, parameters, mixed=mixed, fp32_gradients=fp32_gradients),
        optimizer=Optimizer(
            optimizer.known("optimizer_type"),
            gradient_buffers=ddp,
            # Forced to False without DDP (core/config.py, use_distributed_optimizer).
            sharding=Sharding.OPTIMIZER if ddp and training.known("use_distributed_optimizer") else Sharding.NONE,
            overlaps=ddp and training.known("overlap_grad_reduce"),
            delays=training.known("delay_grad_reduce"),
            bucket_size=training.count("bucket_size") or None,
        ),
    )


def _read_precision(model: Section, parameters: DType, *, mixed: bool, fp32_gradients: bool) -> Precision:
    dtypes = [dtype.value for dtype in DType]
    compute = parameters if mixed else DType(model.one_of("compute_dtype", dtypes, "float32"))
    wide_softmax = model.known("attention_softmax_in_fp32")
    return Precision(
        parameters,
        mixed,
        DType.FLOAT32 if fp32_gradients else parameters,
        compute=compute,
        softmax=None if wide_softmax else DType(model.one_of("softmax_compute_dtype", dtypes, "float32")),
    )


def _read_shape(model: Section, moe: Section, path: Path) -> ModelShape:
    heads = model.known("num_attention_heads")
    hidden = model.known("hidden_size")
    if hidden % heads:
        raise ConfigError(
            msg("model.not-divisible", a="model_config.hidden_size", b="model_config.num_attention_heads"), path=path
        )
    groups = model.known("num_query_groups") if model.known("group_query_attention") else heads
    if heads % groups:
        raise ConfigError(
            msg("model.not-divisible", a="model_config.num_attention_heads", b="model_config.num_query_groups"),
            path=path,
        )
    return ModelShape(
        vocab_size=model.known("vocab_size"),
        hidden_size=hidden,
        ffn_hidden_size=model.known("ffn_hidden_size"),
        num_layers=model.known("num_layers"),
        num_attention_heads=heads,
        num_query_groups=groups,
        head_size=model.get("kv_channels", hidden // heads),
        seq_length=model.known("seq_length"),
        activation=_activation_name(model),
        normalization=model.known("normalization"),
        rotary=model.known("position_embedding_type") == "rope",
        tied_embeddings=not model.known("untie_embeddings_and_output_weights"),
        qkv_bias=model.known("qkv_has_bias"),
        output_bias=model.known("out_proj_has_bias"),
        mlp_bias=model.known("mlp_has_bias"),
        flash_attention=model.known("use_flash_attention"),
        experts=_read_experts(model, moe),
        legacy=True,
        fused_norm=model.known("normalization") != "RMSNorm",
        fused_rotary=model.known("apply_rope_fusion"),
        adds_mask=model.known("mask_func_type") == "attn_mask_add",
        heads_first=_heads_first(model),
    )


def _heads_first(model: Section) -> bool:
    """``legacy/model/transformer.py``, ParallelAttention: heads lie side by side for the layout ``SBH`` only."""
    arguments = model.raw("fa_config")
    return not (isinstance(arguments, dict) and arguments.get("input_layout") == "SBH")


def _activation_name(model: Section) -> str:
    """``legacy/model/activation.py``: SwiGLU as one operator, which keeps its input only, or as two."""
    name = model.known("hidden_act")
    return "fusedswiglu" if name == "swiglu" and model.known("apply_swiglu_fusion") else name


def _read_experts(model: Section, moe: Section) -> Experts | None:
    """Every layer has experts or none has; they run one after the other (``moe_grouped_gemm`` is not implemented)."""
    count = moe.known("num_experts")
    if count == 1:
        return None
    factor = moe.raw("moe_expert_capacity_factor")
    return Experts(
        count=count,
        per_token=moe.known("moe_router_topk"),
        ffn_hidden_size=model.known("ffn_hidden_size"),
        grouped=False,
        # A factor below zero stands for none (core/config.py, moe_expert_capacity_factor).
        capacity_factor=float(factor) if isinstance(factor, int | float) and factor > 0 else None,
    )


def _read_parallelism(parallel: Section) -> Parallelism:
    virtual = parallel.raw("virtual_pipeline_model_parallel_size")
    return Parallelism(
        tensor=parallel.known("tensor_model_parallel_size"),
        pipeline=parallel.known("pipeline_model_parallel_size"),
        context=parallel.known("context_parallel_size"),
        expert=parallel.known("expert_model_parallel_size"),
        virtual_pipeline=None if virtual is None else parallel.get("virtual_pipeline_model_parallel_size", 1),
        sequence=parallel.known("sequence_parallel"),
        context_method=_CONTEXT_METHODS[
            parallel.one_of("context_parallel_algo", list(_CONTEXT_METHODS), "ulysses_cp_algo")
        ],
        ulysses=parallel.get("ulysses_degree_in_cp", 1),
    )
