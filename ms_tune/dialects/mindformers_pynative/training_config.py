"""Read MindFormers dynamic-graph configs (2.0, 2.1) into the neutral model, section by section, with types checked.

Names and their aliases follow ``COMMON_CONFIG_MAPPING`` in ``mindformers/parallel_core/transformer_config_utils.py``,
defaults ``transformer_config.py`` in the same folder and ``pynative/config/config.py``; the trainer's use of them
``pynative/base_models/gpt/parallelize.py`` (``apply_fsdp``: weights, gradients and optimizer state are sharded,
gradients reduced and accumulated in float32) and ``pynative/optimizer/adamw.py`` (float32 copies and moments).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ms_tune.dialects.job_parts import (
    ContextMethod,
    DType,
    Experts,
    LatentAttention,
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
from ms_tune.facts.models import LAYERS, ModelFacts, facts_of
from ms_tune.facts.query import order, release_for
from ms_tune.text import msg

if TYPE_CHECKING:
    from pathlib import Path


_DIALECT = Dialect.MINDFORMERS_PYNATIVE
_DTYPES = tuple(dtype.value for dtype in DType)
_CONTEXT_METHODS = {"colossal": ContextMethod.RING, "ulysses": ContextMethod.ULYSSES, "hybrid": ContextMethod.HYBRID}
_COMPRESSED = ("use_attn_mask_compression", "use_eod_attn_mask_compression")
_GATED = ("silu", "swiglu", "fusedswiglu")


def read_pynative(data: Mapping[str, object], path: Path, devices: int) -> TrainingConfig:
    """Return the neutral model of a MindFormers dynamic-graph config."""
    model = Section(data, "model", path, _DIALECT)
    training = Section(data, "training", path, _DIALECT)
    parallelism = read_parallelism(data, path)
    compute = DType(model.get_choice("compute_dtype", _DTYPES, DType.BFLOAT16.value))
    written = DType(model.get_choice("params_dtype", _DTYPES, DType.FLOAT32.value))
    # ``layers/linear.py`` of 2.1: weights have the compute format, except norms, the embedding and the projections in
    # ``transformers/attention.py``, which use ``params_dtype``. In 2.0 that applies to all projections and experts.
    parameters, attention = (written, None) if before_2_1() else (compute, written)
    local = training.value("local_batch_size")
    return TrainingConfig(
        shape=_read_shape(model, path, whole=parallelism.context == 1),
        parallelism=parallelism,
        batch=MicroBatches(local, _micro_batches(training, devices // parallelism.model_size, local, path)),
        precision=Precision(
            parameters,
            mixed=True,
            gradients=DType.FLOAT32,
            embedding=DType(model.get_choice("embedding_params_dtype", _DTYPES, DType.FLOAT32.value)),
            norm=DType(model.get_choice("layernorm_compute_dtype", _DTYPES, DType.FLOAT32.value)),
            rotary=DType(model.get_choice("rotary_dtype", _DTYPES, DType.FLOAT32.value)),
            attention=None if attention is parameters else attention,
            compute=None if compute is parameters else compute,
        ),
        optimizer=_read_optimizer(data, path, parallelism, alone=devices == 1),
    )


def read_parallelism(data: Mapping[str, object], path: Path) -> Parallelism:
    """Return the parallel degrees; the data-parallel size follows from the devices."""
    section = Section(data, "parallelism", path, _DIALECT)
    chunks = section.value("pipeline_parallel_interleave_num")
    tensor = section.value("tensor_parallel")
    earlier = before_2_1() and tensor > 1
    method = section.get_choice("context_parallel_method", list(_CONTEXT_METHODS), "colossal")
    return Parallelism(
        tensor=tensor,
        pipeline=section.value("pipeline_parallel"),
        context=section.value("context_parallel"),
        expert=section.value("expert_parallel"),
        virtual_pipeline=chunks if chunks > 1 else None,
        # 2.0 ignores the key: `_apply_spmd_parallelism` leaves `enable_sp` at True.
        sequence=section.value("sequence_parallel") or earlier,
        context_method=_CONTEXT_METHODS[method],
        ulysses=section.get("ulysses_degree_in_cp", 1),
        split_loss=section.value("enable_loss_parallel") and tensor > 1,
        gathers_sequence=earlier,
    )


def before_2_1() -> bool:
    """Return whether the release is before 2.1: it splits layers with HyperParallel's tensors, and lacks fixes of 2.1."""
    return order(release_for(_DIALECT).version) < order("2.1")


def expert_layers(data: Mapping[str, object], path: Path, layers: int) -> tuple[bool, ...]:
    """Return which layers have experts (``transformer_config.py``: ``first_k_dense_replace`` or ``moe_layer_freq``)."""
    model = Section(data, "model", path, _DIALECT)
    if not model.count("num_moe_experts"):
        return (False,) * layers
    pattern = model.raw("moe_layer_freq")
    if isinstance(pattern, list) and len(pattern) == layers:
        return tuple(bool(item) for item in pattern)
    frequency = pattern if isinstance(pattern, int) and pattern > 0 else 1
    first = model.count("first_k_dense_replace")
    dense = model.raw("mlp_only_layers")
    named = set(dense) if isinstance(dense, list) else set()
    return tuple(number >= first and number % frequency == 0 and number not in named for number in range(layers))


def _micro_batches(training: Section, data_parallel: int, local: int, path: Path) -> int:
    """Return the micro-batches per step: global batch size / (data-parallel size x micro-batch size) (``trainer.py``)."""
    total: int = training.value("global_batch_size")
    count, rest = divmod(total, max(1, data_parallel) * local)
    if rest or not count:
        raise ConfigError(msg("model.global-batch", total=total, local=local, ways=max(1, data_parallel)), path=path)
    return count


def _read_shape(model: Section, path: Path, *, whole: bool) -> ModelShape:
    """Return the sizes; ``whole`` if every rank has the full sequence."""
    heads, hidden = model.first("num_attention_heads", None), model.get("hidden_size", None)
    groups = model.first("num_query_groups", heads)
    latent = _read_latent(model) if model.get("multi_latent_attention", default=False) else None
    if latent is None and heads % groups:
        raise ConfigError(
            msg("model.not-divisible", a="model.num_attention_heads", b="model.num_query_groups"), path=path
        )
    kind = model.get("model_type", "")
    facts = facts_of(release_for(_DIALECT).version, kind=kind)
    activation = model.get("hidden_act", "silu")
    # ``gated_linear_unit`` defaults to the setting of the MindFormers models.
    gated = activation in _GATED and model.get("gated_linear_unit", default=True)
    linear_bias = model.get("add_bias_linear", default=False)
    return ModelShape(
        vocab_size=model.get("vocab_size", None),
        hidden_size=hidden,
        ffn_hidden_size=model.first("ffn_hidden_size", None),
        layers=model.first(LAYERS, None),
        num_attention_heads=heads,
        num_query_groups=heads if latent else groups,
        head_size=latent.head_size if latent else model.first("kv_channels", hidden // heads),
        seq_length=model.get("seq_length", None),
        activation=("fusedswiglu" if activation == "fusedswiglu" else "swiglu") if gated else activation,
        normalization=model.get("normalization", "RMSNorm"),
        rotary=model.get("position_embedding_type", "rope") != "none",
        tied_embeddings=model.get("tie_word_embeddings", default=False) and facts.ties,
        qkv_bias=linear_bias or model.first("add_qkv_bias", kind == "glm4"),
        output_bias=linear_bias,
        mlp_bias=linear_bias,
        # ``pynative/transformers``: FlashAttention is always used, regardless of ``use_flash_attention``.
        flash_attention=True,
        rotary_fraction=_read_fraction(model, 0.5 if kind.startswith("glm4") else 1.0),
        # ``models/qwen3/modeling_qwen3_train_pynative.py``, 2.0 and 2.1: regardless of ``qk_layernorm``.
        qk_norm=kind.startswith("qwen3") or model.first("qk_layernorm", default=False),
        sandwich_norm=model.get("use_sandwich_norm", kind == "glm4"),
        latent=latent,
        experts=_read_experts(model, facts) if model.count("num_moe_experts") else None,
        # ``parallel_core/transformer_config.py``: layout and mask of FlashAttention.
        heads_first=whole,
        full_mask=whole and not any(model.get(key, default=False) for key in _COMPRESSED),
        tiled_words=before_2_1(),
        separate_tables=before_2_1(),
    )


def _read_latent(model: Section) -> LatentAttention:
    return LatentAttention(
        query_rank=model.count("q_lora_rank") or None,
        key_value_rank=model.get("kv_lora_rank", None),
        plain_size=model.first("qk_head_dim", 128),
        rotary_size=model.first("qk_pos_emb_head_dim", 64),
        value_size=model.get("v_head_dim", 128),
    )


def _read_experts(model: Section, facts: ModelFacts) -> Experts:
    width = model.first("moe_ffn_hidden_size", None)
    shared = model.count("shared_expert_num")
    factor = model.raw("moe_expert_capacity_factor")
    # DeepSeek's own converter omits `router_dense_type` (``models/deepseek3/config_converter_deepseek_v3.py``, 2.0 and
    # 2.1).
    known = [key for key in facts.names("moe_router_dtype") if model.raw(key) is not None]
    return Experts(
        routed=model.count("num_moe_experts"),
        per_token=model.first("moe_router_topk", 2),
        ffn_hidden_size=width,
        shared_ffn_hidden_size=model.get("moe_shared_expert_intermediate_size", shared * width) if shared else 0,
        shared_gate=model.get("use_shared_expert_gating", default=False),
        shared_split=before_2_1(),
        grouped=True,
        capacity_factor=float(factor) if isinstance(factor, int | float) and factor > 0 else None,
        router=DType(model.get_choice(known[0] if known else "moe_router_dtype", _DTYPES, DType.FLOAT32.value)),
        tensor_parallel=False,
        fused_order=model.get("moe_permute_fusion", default=False),
    )


def _read_fraction(model: Section, default: float) -> float:
    value = model.raw("partial_rotary_factor")
    value = model.raw("rotary_percent") if value is None else value
    return float(value) if isinstance(value, int | float) and 0 < value <= 1 else default


def _read_optimizer(data: Mapping[str, object], path: Path, parallelism: Parallelism, *, alone: bool) -> Optimizer:
    """Read the optimizer; on one device nothing is sharded, and each gradient is cast immediately (``trainer.py``)."""
    section = Section(data, "parallelism", path, _DIALECT)
    policy = section.get_choice("reshard_after_forward_policy", ("always", "never", "default"), "default")
    shards = section.raw("data_parallel_shard")
    again = policy == "always" or (policy == "default" and parallelism.pipeline == 1)
    return Optimizer(
        Section(data, "optimizer", path, _DIALECT).get("type", "AdamW"),
        gradient_buffers=not alone,
        sharding=Sharding.NONE if alone else Sharding.PARAMETERS,
        reshards=again,
        shards=shards if isinstance(shards, int) and shards > 0 else None,
        keeps_clones=before_2_1(),
    )
