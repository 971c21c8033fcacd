"""The sizes of a Megatron program's model in its arguments, with the defaults that the program would give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dialects.job_parts import DType, Experts, LatentAttention, ModelShape
from ms_tune.errors import UnsupportedError
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.dialects.megatron.read import ArgumentReader

_NEEDED = ("hidden_size", "num_attention_heads", "seq_length", "padded_vocab_size")
_GATED = ("swiglu", "geglu", "gelu_tanh")  # each sets `gated_linear_unit` (mindspeed_llm/core/transformer/mlp.py)
# Names until 2.1; later releases write them over the present ones (mindspeed_llm/features_manager/arguments/deprecated_args.py).
_OLDER = {
    "multi_latent_attention": "multi_head_latent_attention",
    "qk_head_dim": "qk_nope_head_dim",
    "qk_pos_emb_head_dim": "qk_rope_head_dim",
    "moe_ffn_hidden_size": "moe_intermediate_size",
}
_NARROWED = 64  # the default width of `swiglu` alone is two thirds, in whole multiples of this (`validate_args`)
_MOST_EXPERTS = 1 << 16
_MOST = 1 << 32  # of a size: no model is near it


def shape_of(read: ArgumentReader, layers: int) -> ModelShape:
    """The sizes of a program's model.

    Source: ``validate_args`` in megatron/training/arguments.py (Megatron-LM core_v0.12.1), MindSpeed-LLM 2.0 to 26.1.

    Raises:
        UnsupportedError: A size that decides is not written; or no model has so many experts.
        NotEvaluableError: A value is not known without running the script.
    """
    needed = _NEEDED if read.integer("vocab_size") is None else _NEEDED[:-1]
    missing = [dest for dest in needed if read.integer(dest) is None]
    if missing:
        raise UnsupportedError(msg("check.script.no-size", argument=", ".join(map(read.written, missing))))
    hidden, heads = size_in(read, "hidden_size"), size_in(read, "num_attention_heads")
    gated = any(map(read.switch, _GATED))
    wide = hidden * 8 // 3 // _NARROWED * _NARROWED if read.switch("swiglu") else 4 * hidden
    inner, bias = size_in(read, "ffn_hidden_size", wide), read.switch("add_bias_linear")
    return ModelShape(
        vocab_size=size_in(read, "padded_vocab_size", _padded(read)),
        hidden_size=hidden,
        ffn_hidden_size=inner,
        num_layers=layers,
        num_attention_heads=heads,
        num_query_groups=size_in(read, "num_query_groups") if read.switch("group_query_attention") else heads,
        head_size=size_in(read, "kv_channels", hidden // heads),
        seq_length=size_in(read, "seq_length"),
        activation="swiglu" if gated else "gelu",
        normalization=read.text("normalization") or "LayerNorm",
        rotary=read.text("position_embedding_type") != "learned_absolute",
        tied_embeddings=not read.switch("untie_embeddings_and_output_weights"),
        qkv_bias=bias or read.switch("add_qkv_bias"),
        output_bias=bias or read.switch("add_dense_bias"),
        mlp_bias=bias,
        flash_attention=read.switch("use_flash_attn"),
        qk_norm=read.switch("qk_layernorm"),
        sandwich_norm=read.switch("post_norm"),
        latent=_latent(read) if any(map(read.switch, _dests("multi_latent_attention"))) else None,
        experts=_experts(read, inner) if (read.integer("num_experts") or 0) > 1 else None,
        legacy=True,
    )


def _latent(read: ArgumentReader) -> LatentAttention:
    return LatentAttention(
        query_rank=read.integer("q_lora_rank"),
        key_value_rank=size_in(read, "kv_lora_rank"),
        plain_size=size_in(read, "qk_head_dim"),
        rotary_size=size_in(read, "qk_pos_emb_head_dim"),
        value_size=size_in(read, "v_head_dim"),
    )


def _experts(read: ArgumentReader, inner: int) -> Experts:
    wide = size_in(read, "moe_ffn_hidden_size", inner)
    shared = (read.integer("n_shared_experts") or 0) * wide
    count = size_in(read, "num_experts")
    if count > _MOST_EXPERTS:
        raise UnsupportedError(msg("check.script.otherwise", argument=read.written("num_experts")))
    return Experts(
        count=count,
        per_token=size_in(read, "moe_router_topk"),
        ffn_hidden_size=wide,
        shared_ffn_hidden_size=read.integer("moe_shared_expert_intermediate_size") or shared,
        shared_gate=read.switch("shared_expert_gate"),
        shared_split=True,
        grouped=read.switch("moe_grouped_gemm"),
        router=DType.BFLOAT16,
        tensor_parallel=read.integer("expert_tensor_parallel_size") != 1,
    )


def _padded(read: ArgumentReader) -> int | None:
    """The words as they are filled up for the tensor-parallel ranks (``_vocab_size_with_padding``)."""
    words = read.integer("vocab_size")
    each = (read.integer("make_vocab_size_divisible_by") or 1) * (read.integer("tensor_model_parallel_size") or 1)
    return None if words is None else -(-words // each) * each


def _dests(name: str) -> tuple[str, ...]:
    """Where a value may stand, that which counts first."""
    older = _OLDER.get(name)
    return (name,) if older is None else (f"deprecated_{older}", older, name)


def size_in(read: ArgumentReader, dest: str, default: int | None = None) -> int:
    """A whole number above zero.

    Raises:
        UnsupportedError: It is not written, and has no default.
    """
    found = next((number for one in _dests(dest) if (number := read.integer(one)) is not None), default)
    if found is None or not 0 < found < _MOST:
        raise UnsupportedError(msg("check.script.no-size", argument=read.written(dest)))
    return found
