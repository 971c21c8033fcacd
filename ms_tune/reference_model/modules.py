"""The paths of the modules inside a layer of the reference transformer: what patterns of a config can reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ms_tune.config.model import ModelShape


def module_paths(shape: ModelShape, *, experts: bool) -> tuple[str, ...]:
    """Dotted paths of the modules in a layer, as the network's own cells are named.

    Args:
        shape: The sizes of the model.
        experts: The layer has experts.
    """
    attention = ["linear_qkv", "core_attention", "linear_proj"]
    if shape.latent:
        attention += ["linear_kvb", "k_layernorm", "rotary"]
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
    return (
        *norms,
        "self_attention",
        *(f"self_attention.{name}" for name in attention),
        "mlp",
        *(f"mlp.{name}" for name in block),
    )
