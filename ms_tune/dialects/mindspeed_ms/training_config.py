"""Read MindSpeed-Core-MS configs (r0.1.0) into the neutral model, section by section, with types checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.job_parts import (
    ContextMethod,
    DType,
    Experts,
    MicroBatches,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    Sharding,
    TrainingConfig,
)
from ms_tune.dialects.sections import Section
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError
from ms_tune.facts.models import LAYERS
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CONTEXT_METHODS = {
    "ulysses_cp_algo": ContextMethod.ULYSSES,
    "megatron_cp_algo": ContextMethod.RING,
    "hybrid_cp_algo": ContextMethod.HYBRID,
}


def read_mindspeed_ms(data: Mapping[str, object], path: Path) -> TrainingConfig:
    """Return the neutral model of a MindSpeed-Core-MS r0.1.0 config.

    Sections, defaults and forced values follow ``mindspeed_ms/core/config.py`` of that branch. Missing settings use the
    framework's defaults. Layers and recompute are read in :mod:`ms_tune.dialects.mindspeed_ms.read`.
    """
    model = Section(data, "model_config", path, Dialect.MINDSPEED_MS)
    training = Section(data, "training_config", path, Dialect.MINDSPEED_MS)
    parallel = Section(data, "parallel_config", path, Dialect.MINDSPEED_MS)
    batch = Section(data, "dataset_config", path, Dialect.MINDSPEED_MS)
    optimizer = Section(data, "optimizer_config", path, Dialect.MINDSPEED_MS)
    # core/config.py _check_arguments: fp16 and bf16 force params_dtype and compute_dtype.
    if training.get_or_default("bf16"):
        parameters = DType.BFLOAT16
    elif training.get_or_default("fp16"):
        parameters = DType.FLOAT16
    else:
        parameters = DType(model.get_choice("params_dtype", [dtype.value for dtype in DType], "float32"))
    mixed = training.get_or_default("bf16") or training.get_or_default("fp16")
    ddp = training.get_or_default("wrap_with_ddp")
    # training/training.py: bf16 with DDP forces accumulation in float32.
    fp32_gradients = ddp and (training.get_or_default("accumulate_allreduce_grads_in_fp32") or mixed)
    return TrainingConfig(
        shape=_read_shape(model, Section(data, "moe_config", path, Dialect.MINDSPEED_MS), path),
        parallelism=_read_parallelism(parallel),
        batch=MicroBatches(batch.get_or_default("batch_size"), batch.get_or_default("micro_batch_num")),
        precision=_read_precision(model, parameters, mixed=mixed, fp32_gradients=fp32_gradients),
        optimizer=Optimizer(
            optimizer.get_or_default("optimizer_type"),
            gradient_buffers=ddp,
            # Forced to False without DDP (core/config.py, use_distributed_optimizer).
            sharding=Sharding.OPTIMIZER
            if ddp and training.get_or_default("use_distributed_optimizer")
            else Sharding.NONE,
            overlaps=ddp and training.get_or_default("overlap_grad_reduce"),
            delays=training.get_or_default("delay_grad_reduce"),
            bucket_size=training.count("bucket_size") or None,
        ),
    )


def _read_precision(model: Section, parameters: DType, *, mixed: bool, fp32_gradients: bool) -> Precision:
    dtypes = [dtype.value for dtype in DType]
    compute = parameters if mixed else DType(model.get_choice("compute_dtype", dtypes, "float32"))
    wide_softmax = model.get_or_default("attention_softmax_in_fp32")
    return Precision(
        parameters,
        mixed,
        DType.FLOAT32 if fp32_gradients else parameters,
        compute=compute,
        softmax=None if wide_softmax else DType(model.get_choice("softmax_compute_dtype", dtypes, "float32")),
    )


def _read_shape(model: Section, moe: Section, path: Path) -> ModelShape:
    heads = model.get_or_default("num_attention_heads")
    hidden = model.get_or_default("hidden_size")
    if hidden % heads:
        raise ConfigError(
            msg("model.not-divisible", a="model_config.hidden_size", b="model_config.num_attention_heads"), path=path
        )
    groups = model.get_or_default("num_query_groups") if model.get_or_default("group_query_attention") else heads
    if heads % groups:
        raise ConfigError(
            msg("model.not-divisible", a="model_config.num_attention_heads", b="model_config.num_query_groups"),
            path=path,
        )
    return ModelShape(
        vocab_size=model.get_or_default("vocab_size"),
        hidden_size=hidden,
        ffn_hidden_size=model.get_or_default("ffn_hidden_size"),
        layers=model.get_or_default(LAYERS),
        num_attention_heads=heads,
        num_query_groups=groups,
        head_size=model.get("kv_channels", hidden // heads),
        seq_length=model.get_or_default("seq_length"),
        activation=_activation_name(model),
        normalization=model.get_or_default("normalization"),
        rotary=model.get_or_default("position_embedding_type") == "rope",
        tied_embeddings=not model.get_or_default("untie_embeddings_and_output_weights"),
        qkv_bias=model.get_or_default("qkv_has_bias"),
        output_bias=model.get_or_default("out_proj_has_bias"),
        mlp_bias=model.get_or_default("mlp_has_bias"),
        flash_attention=model.get_or_default("use_flash_attention"),
        experts=_read_experts(model, moe),
        legacy=True,
        fused_norm=model.get_or_default("normalization") != "RMSNorm",
        fused_rotary=model.get_or_default("apply_rope_fusion"),
        adds_mask=model.get_or_default("mask_func_type") == "attn_mask_add",
        heads_first=_heads_first(model),
    )


def _heads_first(model: Section) -> bool:
    """Return whether the heads axis comes first (``ParallelAttention`` in ``legacy/model/transformer.py``): not for the layout ``SBH``."""
    arguments = model.raw("fa_config")
    return not (isinstance(arguments, dict) and arguments.get("input_layout") == "SBH")


def _activation_name(model: Section) -> str:
    """Return the activation (``legacy/model/activation.py``): SwiGLU is one operator, which keeps only its input, or two."""
    name = model.get_or_default("hidden_act")
    return "fusedswiglu" if name == "swiglu" and model.get_or_default("apply_swiglu_fusion") else name


def _read_experts(model: Section, moe: Section) -> Experts | None:
    """Read the experts; all layers have them or none, and they run one by one (``moe_grouped_gemm`` is not implemented)."""
    count = moe.get_or_default("num_experts")
    if count == 1:
        return None
    factor = moe.raw("moe_expert_capacity_factor")
    return Experts(
        routed=count,
        per_token=moe.get_or_default("moe_router_topk"),
        ffn_hidden_size=model.get_or_default("ffn_hidden_size"),
        grouped=False,
        # A negative factor means no limit (core/config.py, moe_expert_capacity_factor).
        capacity_factor=float(factor) if isinstance(factor, int | float) and factor > 0 else None,
    )


def _read_parallelism(parallel: Section) -> Parallelism:
    virtual = parallel.raw("virtual_pipeline_model_parallel_size")
    return Parallelism(
        tensor=parallel.get_or_default("tensor_model_parallel_size"),
        pipeline=parallel.get_or_default("pipeline_model_parallel_size"),
        context=parallel.get_or_default("context_parallel_size"),
        expert=parallel.get_or_default("expert_model_parallel_size"),
        virtual_pipeline=None if virtual is None else parallel.get("virtual_pipeline_model_parallel_size", 1),
        sequence=parallel.get_or_default("sequence_parallel"),
        context_method=_CONTEXT_METHODS[
            parallel.get_choice("context_parallel_algo", list(_CONTEXT_METHODS), "ulysses_cp_algo")
        ],
        ulysses=parallel.get("ulysses_degree_in_cp", 1),
    )
