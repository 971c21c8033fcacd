"""Read MindSpeed-Core-MS configs (r0.1.0) into the neutral model, section by section, with types checked."""

from __future__ import annotations

from collections.abc import Mapping
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
    if training.value("bf16"):
        parameters = DType.BFLOAT16
    elif training.value("fp16"):
        parameters = DType.FLOAT16
    else:
        parameters = DType(model.get_choice("params_dtype", [dtype.value for dtype in DType], "float32"))
    mixed = training.value("bf16") or training.value("fp16")
    ddp = training.value("wrap_with_ddp")
    # training/training.py: bf16 with DDP forces accumulation in float32.
    fp32_gradients = ddp and (training.value("accumulate_allreduce_grads_in_fp32") or mixed)
    return TrainingConfig(
        shape=_read_shape(model, Section(data, "moe_config", path, Dialect.MINDSPEED_MS), path),
        parallelism=_read_parallelism(parallel),
        batch=MicroBatches(batch.value("batch_size"), batch.value("micro_batch_num")),
        precision=_read_precision(model, parameters, mixed=mixed, fp32_gradients=fp32_gradients),
        optimizer=Optimizer(
            optimizer.value("optimizer_type"),
            gradient_buffers=ddp,
            # Forced to False without DDP (core/config.py, use_distributed_optimizer).
            sharding=Sharding.OPTIMIZER if ddp and training.value("use_distributed_optimizer") else Sharding.NONE,
            overlaps=ddp and training.value("overlap_grad_reduce"),
            delays=training.value("delay_grad_reduce"),
            bucket_size=training.count("bucket_size") or None,
        ),
    )


def _read_precision(model: Section, parameters: DType, *, mixed: bool, fp32_gradients: bool) -> Precision:
    dtypes = [dtype.value for dtype in DType]
    compute = parameters if mixed else DType(model.get_choice("compute_dtype", dtypes, "float32"))
    wide_softmax = model.value("attention_softmax_in_fp32")
    return Precision(
        parameters,
        mixed,
        DType.FLOAT32 if fp32_gradients else parameters,
        compute=compute,
        softmax=None if wide_softmax else DType(model.get_choice("softmax_compute_dtype", dtypes, "float32")),
    )


def _read_shape(model: Section, moe: Section, path: Path) -> ModelShape:
    heads = model.value("num_attention_heads")
    hidden = model.value("hidden_size")
    if hidden % heads:
        raise ConfigError(
            msg("model.not-divisible", a="model_config.hidden_size", b="model_config.num_attention_heads"), path=path
        )
    groups = model.value("num_query_groups") if model.value("group_query_attention") else heads
    if heads % groups:
        raise ConfigError(
            msg("model.not-divisible", a="model_config.num_attention_heads", b="model_config.num_query_groups"),
            path=path,
        )
    return ModelShape(
        vocab_size=model.value("vocab_size"),
        hidden_size=hidden,
        ffn_hidden_size=model.value("ffn_hidden_size"),
        layers=model.value(LAYERS),
        num_attention_heads=heads,
        num_query_groups=groups,
        head_size=model.get("kv_channels", hidden // heads),
        seq_length=model.value("seq_length"),
        activation=_activation_name(model),
        normalization=model.value("normalization"),
        rotary=model.value("position_embedding_type") == "rope",
        tied_embeddings=not model.value("untie_embeddings_and_output_weights"),
        qkv_bias=model.value("qkv_has_bias"),
        output_bias=model.value("out_proj_has_bias"),
        mlp_bias=model.value("mlp_has_bias"),
        flash_attention=model.value("use_flash_attention"),
        experts=_read_experts(model, moe),
        legacy=True,
        fused_norm=model.value("normalization") != "RMSNorm",
        fused_rotary=model.value("apply_rope_fusion"),
        adds_mask=model.value("mask_func_type") == "attn_mask_add",
        heads_first=_heads_first(model),
    )


def _heads_first(model: Section) -> bool:
    """Return whether the heads axis comes first (``ParallelAttention`` in ``legacy/model/transformer.py``): not for the layout ``SBH``."""
    arguments = model.raw("fa_config")
    return not (isinstance(arguments, dict) and arguments.get("input_layout") == "SBH")


def _activation_name(model: Section) -> str:
    """Return the activation (``legacy/model/activation.py``): SwiGLU is one operator, which keeps only its input, or two."""
    name = model.value("hidden_act")
    return "fusedswiglu" if name == "swiglu" and model.value("apply_swiglu_fusion") else name


def _read_experts(model: Section, moe: Section) -> Experts | None:
    """Read the experts; all layers have them or none, and they run one by one (``moe_grouped_gemm`` is not implemented)."""
    count = moe.value("num_experts")
    if count == 1:
        return None
    factor = moe.raw("moe_expert_capacity_factor")
    return Experts(
        routed=count,
        per_token=moe.value("moe_router_topk"),
        ffn_hidden_size=model.value("ffn_hidden_size"),
        grouped=False,
        # A negative factor means no limit (core/config.py, moe_expert_capacity_factor).
        capacity_factor=float(factor) if isinstance(factor, int | float) and factor > 0 else None,
    )


def _read_parallelism(parallel: Section) -> Parallelism:
    virtual = parallel.raw("virtual_pipeline_model_parallel_size")
    return Parallelism(
        tensor=parallel.value("tensor_model_parallel_size"),
        pipeline=parallel.value("pipeline_model_parallel_size"),
        context=parallel.value("context_parallel_size"),
        expert=parallel.value("expert_model_parallel_size"),
        virtual_pipeline=None if virtual is None else parallel.get("virtual_pipeline_model_parallel_size", 1),
        sequence=parallel.value("sequence_parallel"),
        context_method=_CONTEXT_METHODS[
            parallel.get_choice("context_parallel_algo", list(_CONTEXT_METHODS), "ulysses_cp_algo")
        ],
        ulysses=parallel.get("ulysses_degree_in_cp", 1),
    )
