"""Count floating-point operations of a transformer's forward pass per token, to compare the cost of layers.

A product of a row with an ``m x n`` matrix is ``2 m n`` operations. Attention scores count in full (``6 N`` and causal halves are
other conventions; between layers of one model they make no difference). Anything except matrix products (norms, rotary
embeddings, activation functions) adds almost no operations, though it does take time. Source: Narayanan et al., "Efficient
Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (2021), appendix.
"""

from __future__ import annotations

from ms_tune.dialects.job_parts import ModelShape
from ms_tune.errors import UnsupportedError
from ms_tune.facts.models import ModelConfig
from ms_tune.records import Record
from ms_tune.text import msg


class Attention(Record):
    """Sizes of a layer's attention."""

    heads: int  # query heads
    groups: int  # key and value heads
    head: int  # width of a query head, and of a key head
    value: int  # width of a value head
    query_rank: int = 0  # rank of the query projection (multi-head latent attention); 0 for none
    key_rank: int = 0  # the same for keys and values; 0 for ordinary attention
    rotary: int = 0  # part of a key shared by all heads (latent attention only)


class Widths(Record):
    """Sizes of a model."""

    hidden: int  # hidden size
    tokens: int  # tokens per sequence
    vocabulary: int  # vocabulary size
    attention: Attention
    feed_forward: int  # inner width of a dense layer
    gated: bool  # whether the feed-forward block has a gate next to its first product
    experts: int = 0  # experts per expert layer
    chosen: int = 0  # experts that each token is routed to
    expert: int = 0  # inner width of one expert
    shared: int = 0  # total inner width of the shared experts, used by every token


def layer_flops(widths: Widths, *, experts: bool) -> int:
    """Return the operations of one layer per token."""
    hidden, products = widths.hidden, 2 + widths.gated
    if not experts:
        return _attention_flops(widths) + 2 * products * hidden * widths.feed_forward
    inner = widths.chosen * widths.expert + widths.shared
    return _attention_flops(widths) + 2 * products * hidden * inner + 2 * hidden * widths.experts


def head_flops(widths: Widths) -> int:
    """Return the operations of the logits per token."""
    return 2 * widths.hidden * widths.vocabulary


def layer_parameters(widths: Widths, tensor: int, expert: int, *, experts: bool) -> int:
    """Return the weights of one layer's matrices on a TP and EP rank; each expert is whole on its rank."""
    products, hidden = 2 + widths.gated, widths.hidden
    inner = widths.shared if experts else widths.feed_forward
    own = (_attention_weights(widths) + products * hidden * inner) // tensor
    return own + (widths.experts * products * hidden * widths.expert // expert if experts else 0)


def _attention_flops(widths: Widths) -> int:
    return 2 * _attention_weights(widths) + score_flops(widths)


def _attention_weights(widths: Widths) -> int:
    one, hidden = widths.attention, widths.hidden
    wide = one.heads * one.head
    weights = one.heads * one.value * hidden  # of the output projection
    weights += one.query_rank * (hidden + wide) if one.query_rank else hidden * wide
    if one.key_rank:
        weights += hidden * (one.key_rank + one.rotary)
        return weights + one.key_rank * one.heads * (one.head - one.rotary + one.value)
    return weights + hidden * one.groups * (one.head + one.value)


def score_flops(widths: Widths) -> int:
    """Return the operations per token of a layer's attention scores and of their product with the values."""
    one = widths.attention
    return 2 * widths.tokens * one.heads * (one.head + one.value)


def prediction_flops(widths: Widths) -> int:
    """Return the operations per token of an MTP layer in excess of an ordinary layer: its projection and its logits.

    Source: DeepSeek-V3's report, section 2.2; Megatron-LM core_v0.12.1 ``transformer/multi_token_prediction.py`` (``eh_proj``).
    """
    return 2 * 2 * widths.hidden * widths.hidden + head_flops(widths)


# Names of fields in the models of MindFormers' older classes (legacy): Llama's, GLM's, GPT-2's and Bloom's of 0.3.
_OTHER_NAMES = {
    "hidden_size": ("embedding_size",),
    "num_attention_heads": ("num_heads",),
    "num_query_groups": ("n_kv_heads", "multi_query_group_num"),
    "ffn_hidden_size": ("intermediate_size",),
    "vocab_size": ("padded_vocab_size",),
    "num_moe_experts": ("expert_num",),
    "moe_router_topk": ("num_experts_chosen",),
}
_INNER = "ffn_hidden_size"
_NEEDED = ("hidden_size", "num_attention_heads", _INNER, "vocab_size", "seq_length")
_MULTIPLE = 256  # default of `multiple_of` (`LlamaConfig`)
_GATED = ("swiglu", "silu", "geglu", "fusedswiglu")


def widths_of(model: ModelConfig) -> Widths | None:
    """Return the sizes of a config's model that determine its operations; None if one of them is unknown."""
    hidden, heads = positive_size(model, "hidden_size"), positive_size(model, "num_attention_heads")
    words, tokens = positive_size(model, "vocab_size"), positive_size(model, "seq_length")
    inner = _inner_of(model)
    decoder = model.known or _is_legacy(model) or bool(model.written_fields("expand_ratio"))
    if not (hidden and heads and inner and words and tokens and decoder):
        return None
    experts = positive_size(model, "num_moe_experts") or 0
    experts = experts if experts > 1 else 0
    expert = positive_size(model, "moe_ffn_hidden_size") or inner
    # All shared experts act as one; without an explicit width it has their total width (`TransformerConfig.__post_init__`).
    shared = model.number("moe_shared_expert_intermediate_size")
    if shared is None and experts:
        shared = (positive_size(model, "shared_expert_num") or 0) * expert
    # Both legacy networks have a gate without a key for it (`LlamaFeedForward`; `ChatGLM2SwiGLU`).
    gated = _is_legacy(model) or model.value("gated_linear_unit") is True
    gated = gated or str(model.value("hidden_act")).lower() in _GATED
    return Widths(
        hidden=hidden,
        tokens=tokens,
        vocabulary=words,
        attention=_attention_of(model, hidden, heads),
        feed_forward=inner,
        gated=gated,
        experts=experts,
        chosen=(positive_size(model, "moe_router_topk") or 1) if experts else 0,
        expert=expert,
        shared=max(shared or 0, 0),
    )


def require_widths(model: ModelConfig) -> Widths:
    """Return the sizes of a config's model like :func:`widths_of`; UnsupportedError if one is unknown."""
    widths = widths_of(model)
    if widths is None:
        missing = ", ".join(missing_sizes(model))
        if not missing:
            raise UnsupportedError(msg("sizes.no-decoder", model=model.kind))
        raise UnsupportedError(msg("sizes.missing", missing=missing), msg("sizes.missing.hint"))
    return widths


def _attention_of(model: ModelConfig, hidden: int, heads: int) -> Attention:
    rank = positive_size(model, "kv_lora_rank")
    if model.facts.latent and rank:
        rotary = positive_size(model, "qk_pos_emb_head_dim") or 0
        head = (positive_size(model, "qk_head_dim") or hidden // heads) + rotary
        value = positive_size(model, "v_head_dim") or hidden // heads
        return Attention(heads, heads, head, value, positive_size(model, "q_lora_rank") or 0, rank, rotary)
    head = positive_size(model, "kv_channels") or hidden // heads
    return Attention(heads, positive_size(model, "num_query_groups") or heads, head, head)


def _is_legacy(model: ModelConfig) -> bool:
    # A class that is not the framework's own is taken for one like Llama if it has Llama's norm; others are not decoders like it.
    return model.facts.legacy or (not model.known and any(map(model.written_fields, ("rms_norm_eps", "multiple_of"))))


def _inner_of(model: ModelConfig) -> int | None:
    # Return the inner width, written or as a legacy network computes it (`LlamaFeedForward`); GPT-2's and Bloom's is a multiple.
    inner, hidden, ratio = (positive_size(model, name) for name in (_INNER, "hidden_size", "expand_ratio"))
    if inner or not hidden:
        return inner
    if ratio is not None or not _is_legacy(model):
        return hidden * ratio if ratio is not None else None
    wide, more = 4 * hidden, model.value("ffn_dim_multiplier")
    if isinstance(more, (int, float)) and not isinstance(more, bool) and 0 < more < wide:  # neither NaN nor infinite
        wide = int((more + 0.01) * wide)
    multiple = positive_size(model, "multiple_of") or _MULTIPLE
    return -(-int(2 * wide / 3) // multiple) * multiple


def positive_size(model: ModelConfig, name: str) -> int | None:
    """Return a positive size under any of its names, or None."""
    found = (model.number(one) for one in (name, *_OTHER_NAMES.get(name, ())))
    return next((size for size in found if size is not None and size > 0), None)


def missing_sizes(model: ModelConfig) -> tuple[str, ...]:
    """Return the unknown sizes without which :func:`widths_of` returns None."""
    return tuple(name for name in _NEEDED if not (_inner_of(model) if name == _INNER else positive_size(model, name)))


def widths_of_shape(shape: ModelShape) -> Widths:
    """Return the sizes that determine the operations of a model with a known shape."""
    latent, experts = shape.latent, shape.experts
    attention = Attention(shape.num_attention_heads, shape.num_query_groups, shape.head_size, shape.head_size)
    if latent is not None:
        heads = shape.num_attention_heads
        ranks = (latent.query_rank or 0, latent.key_value_rank, latent.rotary_size)
        attention = Attention(heads, heads, latent.head_size, latent.value_size, *ranks)
    return Widths(
        hidden=shape.hidden_size,
        tokens=shape.seq_length,
        vocabulary=shape.vocab_size,
        attention=attention,
        feed_forward=shape.ffn_hidden_size,
        gated=shape.gated,
        experts=experts.routed if experts else 0,
        chosen=experts.per_token if experts else 0,
        expert=experts.ffn_hidden_size if experts else 0,
        shared=experts.shared_ffn_hidden_size if experts else 0,
    )
