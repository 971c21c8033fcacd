"""What a layer, the embedding and the head cost beside each other, from the config's sizes: nothing in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.config.follow import followed
from ms_tune.estimate.flops import Attention, Widths, head_flops, layer_flops
from ms_tune.frameworks.models import Model, model_of
from ms_tune.normalize.source import dialect_of
from ms_tune.planning.table import Recompute

if TYPE_CHECKING:
    from ms_tune.fit.job import PlannedJob

# What the models of MindFormers' older classes (legacy) call a field.
_OTHER_NAMES = {
    "num_attention_heads": "num_heads",
    "num_query_groups": "n_kv_heads",
    "ffn_hidden_size": "intermediate_size",
    "num_moe_experts": "expert_num",
    "moe_router_topk": "num_experts_chosen",
}
# How much longer a backward pass takes: SAPP's shares of it (pipeline_balance/utils/recompute.py), which are within 2 % of the
# published steps of models of 22 billion to a trillion parameters (Korthikanti et al., 2022, table 5).
EXTRA = {
    Recompute.NONE: 0.0,
    Recompute.SELECT: 0.04,
    Recompute.COMM: 0.125,
    Recompute.BOTH: 0.165,
    Recompute.FULL: 0.5,
}
_GATED = ("swiglu", "silu", "geglu", "fusedswiglu")


@dataclass(frozen=True, slots=True)
class Costs:
    """Forward passes beside each other; a dense layer costs 1.

    Attributes:
        dense: A layer without experts.
        experts: A layer with experts.
        head: The output projection and the loss.
        known: Whether they come from the model's sizes; otherwise all layers are taken for equal and the head for nothing.
    """

    dense: float = 1.0
    experts: float = 1.0
    head: float = 0.0
    known: bool = False


def costs_of(job: PlannedJob) -> Costs:
    """What the parts of a job's model cost beside each other."""
    source = followed(job.loaded.source)
    widths = _widths(model_of(source, dialect_of(source), job.now.framework_version, source.beside))
    if widths is None:
        return Costs()
    dense = layer_flops(widths, experts=False)
    experts = layer_flops(widths, experts=True) if widths.experts else dense
    return Costs(1.0, experts / dense, head_flops(widths) / dense, known=True)


def _widths(model: Model) -> Widths | None:
    hidden, heads = _number(model, "hidden_size"), _number(model, "num_attention_heads")
    inner, words, tokens = (_number(model, name) for name in ("ffn_hidden_size", "vocab_size", "seq_length"))
    if not (hidden and heads and inner and words and tokens):
        return None
    experts = _number(model, "num_moe_experts") or 0
    experts = experts if experts > 1 else 0
    gated = model.value("gated_linear_unit") is True or str(model.value("hidden_act")).lower() in _GATED
    return Widths(
        hidden=hidden,
        tokens=tokens,
        vocabulary=words,
        attention=_attention(model, hidden, heads),
        feed_forward=inner,
        gated=gated,
        experts=experts,
        chosen=(_number(model, "moe_router_topk") or 1) if experts else 0,
        expert=_number(model, "moe_ffn_hidden_size") or inner,
        shared=_number(model, "moe_shared_expert_intermediate_size") or 0,
    )


def _attention(model: Model, hidden: int, heads: int) -> Attention:
    rank = _number(model, "kv_lora_rank")
    if model.facts.latent and rank:
        rotary = _number(model, "qk_pos_emb_head_dim") or 0
        head = (_number(model, "qk_head_dim") or hidden // heads) + rotary
        value = _number(model, "v_head_dim") or hidden // heads
        return Attention(heads, heads, head, value, _number(model, "q_lora_rank") or 0, rank, rotary)
    head = _number(model, "kv_channels") or hidden // heads
    return Attention(heads, _number(model, "num_query_groups") or heads, head, head)


def _number(model: Model, name: str) -> int | None:
    found = model.number(name)
    if found is None and name in _OTHER_NAMES:
        found = model.number(_OTHER_NAMES[name])
    return found if found is not None and found > 0 else None
