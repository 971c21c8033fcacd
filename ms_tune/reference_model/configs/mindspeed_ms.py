"""Reads MindSpeed-Core-MS r0.1.0 configs (dynamic graph) into the neutral model.

Sections, defaults and forced values follow ``mindspeed_ms/core/config.py`` of branch r0.1.0. What the config does not say
takes the framework's own default. Layers and recompute are read in :mod:`ms_tune.normalize.mindspeed_ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.config.model import (
    Batch,
    ContextMethod,
    DType,
    Experts,
    ModelShape,
    Optimizer,
    Parallelism,
    Precision,
    Sharding,
    TrainingConfig,
)
from ms_tune.errors import ConfigError
from ms_tune.reference_model.configs.section import Section
from ms_tune.texts import msg

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CONTEXT_METHODS = {
    "ulysses_cp_algo": ContextMethod.ULYSSES,
    "megatron_cp_algo": ContextMethod.RING,
    "hybrid_cp_algo": ContextMethod.HYBRID,
}


def read_mindspeed_ms(data: Mapping[str, object], path: Path) -> TrainingConfig:
    """The neutral model of a MindSpeed-Core-MS config.

    Raises:
        ConfigError: A required key is missing or a value cannot be.
    """
    model = Section(data, "model_config", path)
    training = Section(data, "training_config", path)
    parallel = Section(data, "parallel_config", path)
    batch = Section(data, "dataset_config", path)
    optimizer = Section(data, "optimizer_config", path)
    # core/config.py _check_arguments: fp16 and bf16 force params_dtype and compute_dtype.
    if training.get("bf16", default=False):
        parameters = DType.BFLOAT16
    elif training.get("fp16", default=False):
        parameters = DType.FLOAT16
    else:
        parameters = DType(model.one_of("params_dtype", [dtype.value for dtype in DType], "float32"))
    mixed = training.get("bf16", default=False) or training.get("fp16", default=False)
    ddp = training.get("wrap_with_ddp", default=False)
    # training/training.py: bf16 with DDP forces accumulation in float32.
    fp32_gradients = ddp and (training.get("accumulate_allreduce_grads_in_fp32", default=False) or mixed)
    return TrainingConfig(
        shape=_read_shape(model, Section(data, "moe_config", path), path),
        parallelism=_read_parallelism(parallel),
        batch=Batch(batch.get("batch_size", 1), batch.get("micro_batch_num", 1)),
        precision=_read_precision(model, parameters, mixed=mixed, fp32_gradients=fp32_gradients),
        optimizer=Optimizer(
            optimizer.get("optimizer_type", "AdamWeightDecay"),
            gradient_buffers=ddp,
            # Forced to False without DDP (core/config.py, use_distributed_optimizer).
            sharding=Sharding.OPTIMIZER
            if ddp and training.get("use_distributed_optimizer", default=False)
            else Sharding.NONE,
            overlaps=ddp and training.get("overlap_grad_reduce", default=False),
            delays=training.get("delay_grad_reduce", default=False),
            bucket_size=training.count(("bucket_size",)) or None,
        ),
    )


def _read_precision(model: Section, parameters: DType, *, mixed: bool, fp32_gradients: bool) -> Precision:
    dtypes = [dtype.value for dtype in DType]
    compute = parameters if mixed else DType(model.one_of("compute_dtype", dtypes, "float32"))
    wide_softmax = model.get("attention_softmax_in_fp32", default=True)
    return Precision(
        parameters,
        mixed,
        DType.FLOAT32 if fp32_gradients else parameters,
        compute=compute,
        softmax=None if wide_softmax else DType(model.one_of("softmax_compute_dtype", dtypes, "float32")),
    )


def _read_shape(model: Section, moe: Section, path: Path) -> ModelShape:
    heads = model.get("num_attention_heads", None)
    hidden = model.get("hidden_size", None)
    if hidden % heads:
        raise ConfigError(
            msg("model.not-divisible", a="model_config.hidden_size", b="model_config.num_attention_heads"), path=path
        )
    groups = model.get("num_query_groups", 32) if model.get("group_query_attention", default=False) else heads
    if heads % groups:
        raise ConfigError(
            msg("model.not-divisible", a="model_config.num_attention_heads", b="model_config.num_query_groups"),
            path=path,
        )
    return ModelShape(
        vocab_size=model.get("vocab_size", None),
        hidden_size=hidden,
        ffn_hidden_size=model.get("ffn_hidden_size", None),
        num_layers=model.get("num_layers", None),
        num_attention_heads=heads,
        num_query_groups=groups,
        head_size=model.get("kv_channels", hidden // heads),
        seq_length=model.get("seq_length", None),
        activation=_activation(model),
        normalization=model.get("normalization", "LayerNorm"),
        rotary=model.get("position_embedding_type", "absolute") == "rope",
        tied_embeddings=not model.get("untie_embeddings_and_output_weights", default=False),
        qkv_bias=model.get("qkv_has_bias", default=True),
        output_bias=model.get("out_proj_has_bias", default=True),
        mlp_bias=model.get("mlp_has_bias", default=True),
        flash_attention=model.get("use_flash_attention", default=False),
        experts=_read_experts(model, moe),
        legacy=True,
        fused_norm=model.get("normalization", "LayerNorm") != "RMSNorm",
        fused_rotary=model.get("apply_rope_fusion", default=False),
        adds_mask=model.get("mask_func_type", "attn_mask_add") == "attn_mask_add",
        heads_first=_heads_first(model),
    )


def _heads_first(model: Section) -> bool:
    """``legacy/model/transformer.py``, ParallelAttention: heads lie side by side for the layout ``SBH`` only."""
    arguments = model.raw("fa_config")
    return not (isinstance(arguments, dict) and arguments.get("input_layout") == "SBH")


def _activation(model: Section) -> str:
    """``legacy/model/activation.py``: SwiGLU as one operator, which keeps its input only, or as two."""
    name = model.get("hidden_act", "gelu")
    return "fusedswiglu" if name == "swiglu" and model.get("apply_swiglu_fusion", default=False) else name


def _read_experts(model: Section, moe: Section) -> Experts | None:
    """Every layer has experts or none has; they run one after the other (``moe_grouped_gemm`` is not implemented)."""
    count = moe.get("num_experts", 1)
    if count == 1:
        return None
    factor = moe.raw("moe_expert_capacity_factor")
    return Experts(
        count=count,
        per_token=moe.get("moe_router_topk", 2),
        ffn_hidden_size=model.get("ffn_hidden_size", None),
        grouped=False,
        # A factor below zero stands for none (core/config.py, moe_expert_capacity_factor).
        capacity_factor=float(factor) if isinstance(factor, int | float) and factor > 0 else None,
    )


def _read_parallelism(parallel: Section) -> Parallelism:
    virtual = parallel.raw("virtual_pipeline_model_parallel_size")
    return Parallelism(
        tensor=parallel.get("tensor_model_parallel_size", 1),
        pipeline=parallel.get("pipeline_model_parallel_size", 1),
        context=parallel.get("context_parallel_size", 1),
        expert=parallel.get("expert_model_parallel_size", 1),
        virtual_pipeline=None if virtual is None else parallel.get("virtual_pipeline_model_parallel_size", 1),
        sequence=parallel.get("sequence_parallel", default=False),
        context_method=_CONTEXT_METHODS[
            parallel.one_of("context_parallel_algo", list(_CONTEXT_METHODS), "ulysses_cp_algo")
        ],
        ulysses=parallel.get("ulysses_degree_in_cp", 1),
    )
