"""Test the sizes of a model from a config: every name of a field, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ms_tune.enums import Dialect
from ms_tune.estimate.flops import Attention, Widths, positive_size, widths_of
from ms_tune.facts.models import ModelConfig, model_of


@dataclass(frozen=True)
class Config:
    data: dict[Any, Any]


def of_section(**values: object) -> ModelConfig:
    """Return a model of the dynamic graph."""
    return model_of(Config({"model": {**SIZES, **values}}), Dialect.MINDFORMERS_PYNATIVE, "2.1")


def of_fields(**values: object) -> ModelConfig:
    """Return a model of MindSpeed-Core-MS, whose class sets no value for most fields."""
    return model_of(Config({"model_config": {**SIZES, **values}}), Dialect.MINDSPEED_MS, "r0.1.0")


SIZES: dict[str, object] = {
    "hidden_size": 12,
    "num_attention_heads": 4,
    "ffn_hidden_size": 20,
    "vocab_size": 50,
    "seq_length": 16,
}
PLAIN = Widths(12, 16, 50, Attention(4, 4, 3, 3), 20, gated=False, expert=20)
MLA = {"kv_lora_rank": 5, "q_lora_rank": 7, "qk_head_dim": 6, "qk_pos_emb_head_dim": 2, "v_head_dim": 9}


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, PLAIN),
        ({"num_query_groups": 2}, PLAIN._replace(attention=Attention(4, 2, 3, 3))),
        ({"num_query_groups": 0}, PLAIN),
        ({"kv_channels": 8}, PLAIN._replace(attention=Attention(4, 4, 8, 8))),
        ({"gated_linear_unit": True}, PLAIN._replace(gated=True)),
        ({"gated_linear_unit": 1}, PLAIN),
        ({"hidden_act": "SwiGLU"}, PLAIN._replace(gated=True)),
        ({"hidden_act": "gelu"}, PLAIN),
        ({"num_moe_experts": 1, "moe_router_topk": 3}, PLAIN),
        ({"num_moe_experts": 2, "moe_router_topk": 0}, PLAIN._replace(experts=2, chosen=1)),
        (
            {"num_moe_experts": 8, "moe_router_topk": 3, "moe_ffn_hidden_size": 6},
            PLAIN._replace(experts=8, chosen=3, expert=6),
        ),
        ({"moe_shared_expert_intermediate_size": 10}, PLAIN._replace(shared=10)),
    ],
    ids=str,
)
def test_the_sizes_of_a_model(values: dict[str, object], found: Widths) -> None:
    assert widths_of(of_fields(**{"num_query_groups": None, **values})) == found


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("value", [0, -1, None, "12"])
def test_without_one_of_the_sizes_nothing_is_known(name: str, value: object) -> None:
    assert widths_of(of_fields(**{name: value})) is None


def test_latent_attention() -> None:
    found = widths_of(of_section(model_type="deepseek_v3", **MLA))
    assert found is not None
    assert found.attention == Attention(4, 4, 6 + 2, 9, 7, 5, 2)
    nothing = {"q_lora_rank": None, "qk_head_dim": 0, "v_head_dim": 0, "qk_pos_emb_head_dim": 0}
    found = widths_of(of_section(model_type="deepseek_v3", **{**MLA, **nothing}))
    assert found is not None
    assert found.attention == Attention(4, 4, 3, 3, 0, 5, 0)


@pytest.mark.parametrize(
    ("written", "shared"),
    [
        ({}, 6),  # the class's default
        ({"n_shared_experts": 3}, 18),
        ({"n_shared_experts": 0}, 0),
        ({"n_shared_experts": 3, "moe_shared_expert_intermediate_size": 10}, 10),
    ],
    ids=str,
)
def test_shared_experts_are_as_wide_as_they_are_together(written: dict[str, int], shared: int) -> None:
    experts = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 6}
    found = widths_of(of_section(model_type="deepseek_v3", **MLA, **experts, **written))
    assert found is not None
    assert (found.experts, found.expert, found.shared) == (8, 6, shared)


def test_ranks_mean_nothing_in_a_model_whose_attention_is_not_latent() -> None:
    found = widths_of(of_section(model_type="qwen3", head_dim=6, num_key_value_heads=2, **MLA))
    assert found is not None
    assert found.attention == Attention(4, 2, 6, 6)


def test_the_older_classes_have_names_of_their_own() -> None:
    section = {"type": "LlamaConfig", "hidden_size": 12, "num_heads": 4, "n_kv_heads": 2, "intermediate_size": 20}
    section |= {"vocab_size": 50, "seq_length": 16}
    model = model_of(
        Config({"model": {"model_config": section}, "moe_config": {"expert_num": 8, "num_experts_chosen": 3}}),
        Dialect.MINDFORMERS,
        "1.6",
    )
    found = widths_of(model)
    assert found is not None
    assert (found.attention, found.feed_forward) == (Attention(4, 2, 3, 3), 20)
    assert (found.experts, found.chosen, found.expert) == (8, 3, 20)
    assert found.gated, "LlamaFeedForward has w1, w2 and w3, and no key says so"


@pytest.mark.parametrize(("value", "number"), [(1, 1), (0, None), (-3, None), (True, None), (2.0, None), ("2", None)])
def test_a_size_is_a_whole_number_above_zero(value: object, number: int | None) -> None:
    assert positive_size(of_fields(hidden_size=value), "hidden_size") == number
