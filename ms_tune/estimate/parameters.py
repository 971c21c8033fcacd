"""Count the parameters of a model from its sizes, whichever of the public families it belongs to.

Layers for multi-token prediction do not count, as in the published figures (DeepSeek-V3: 671 billion), nor do biases that only balance
experts. The settings have the names of a ``config.json`` of Hugging Face, or other names of MindFormers' fields.
"""

from __future__ import annotations

from collections.abc import Mapping

from ms_tune.dialects.job_parts import (
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
from ms_tune.dialects.stage import Chunk, Stage, StageLayer
from ms_tune.estimate.flops import widths_of
from ms_tune.estimate.persistent import stage_weights
from ms_tune.estimate.static import StaticModel
from ms_tune.facts.models import LAYERS, ModelConfig
from ms_tune.facts.sizes import parts_of
from ms_tune.records import Any

_MOST_LAYERS = 10_000  # no model has so many; an untrusted config may claim any number
_EXPERTS = ("num_moe_experts", "num_local_experts")
_LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def count_parameters(model: ModelConfig) -> int | None:
    """Return the parameters of a model; None if one of its sizes is unknown."""
    if model.facts.legacy:
        return _count_legacy_parameters(model)
    shape = _shape_of(model)
    if shape is None or shape.layers > _MOST_LAYERS:
        return None
    dense = shape.layers
    if shape.experts is not None:
        dense = model.number("first_k_dense_replace") or 0
    layers = tuple(StageLayer(number, experts=number >= dense) for number in range(shape.layers))
    config = TrainingConfig(
        shape,
        Parallelism(1, 1, 1, 1, None, sequence=False),
        MicroBatches(1, 1),
        Precision(DType.BFLOAT16, mixed=False, gradients=DType.BFLOAT16),
        Optimizer("AdamW", gradient_buffers=False, sharding=Sharding.NONE),
    )
    stage = Stage(0, 1, (Chunk(layers, embedding=True, head=True),))
    biases = shape.layers * shape.hidden_size if parts_of(model.kind or "").get("down_bias") else 0
    return sum(weight.size for weight in stage_weights(config, stage) if weight.trained) + biases


def _count_legacy_parameters(model: ModelConfig) -> int | None:
    # Return those of a network of MindFormers' legacy classes, without an adapter's.
    widths, layers = widths_of(model), model.number(LAYERS) or 0
    if widths is None or not 0 < layers <= _MOST_LAYERS:
        return None
    kinds = tuple(StageLayer(number, experts=widths.experts > 0) for number in range(layers))
    stage = Stage(0, 1, (Chunk(kinds, embedding=True, head=True),))
    whole = StaticModel(model, widths, 1, 1, whole_vocabulary=False)
    return sum(weight.size for weight in whole.model_weights(stage))


def _shape_of(model: ModelConfig) -> ModelShape | None:
    names = ("vocab_size", "hidden_size", "intermediate_size", LAYERS, "num_attention_heads")
    words, hidden, inner, layers, heads = map(model.number, names)
    if not (words and hidden and inner and layers and heads):
        return None
    parts = parts_of(model.kind or "")
    latent = _latent_of(model) if parts.get("latent") or model.facts.latent else None
    return ModelShape(
        vocab_size=words,
        hidden_size=hidden,
        ffn_hidden_size=inner,
        layers=layers,
        num_attention_heads=heads,
        num_query_groups=model.number("num_key_value_heads") or heads,
        head_size=model.number("head_dim") or hidden // heads,
        seq_length=1,
        activation="swiglu",
        normalization="RMSNorm",
        rotary=True,
        tied_embeddings=model.value("tie_word_embeddings") is True,
        qkv_bias=_has(model, parts, "qkv_bias") or model.value("attention_bias") is True,
        output_bias=_has(model, parts, "output_bias"),
        mlp_bias=False,
        flash_attention=True,
        qk_norm=latent is not None or _has(model, parts, "qk_norm"),
        sandwich_norm=_has(model, parts, "sandwich_norm"),
        latent=latent,
        experts=_experts_of(model, inner, parts),
    )


def _has(model: ModelConfig, parts: Mapping[str, Any], name: str) -> bool:
    rule = parts.get(name, False)
    return model.value(rule) is True if isinstance(rule, str) else bool(rule)


def _latent_of(model: ModelConfig) -> LatentAttention | None:
    rank, plain, rotary, value = map(model.number, _LATENT)
    if not (rank and plain and rotary and value):
        return None
    return LatentAttention(model.number("q_lora_rank") or None, rank, plain, rotary, value, joined=False)


def _experts_of(model: ModelConfig, inner: int, parts: Mapping[str, Any]) -> Experts | None:
    routed = next((count for count in map(model.number, _EXPERTS) if count), None)
    if routed is None or routed == 1:
        return None
    width = model.number("moe_intermediate_size") or inner
    shared = model.number("shared_expert_intermediate_size") or model.number("moe_shared_expert_intermediate_size")
    return Experts(
        routed,
        1,
        width,
        shared or (model.number("n_shared_experts") or 0) * width,
        shared_gate=_has(model, parts, "shared_gate"),
    )
