"""Test the values that the frameworks' classes make of a model's section."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ms_tune.enums import Dialect
from ms_tune.facts.models import UNKNOWN, Field, ModelConfig, ValueOrigin, model_of

STATIC, DYNAMIC = Dialect.MINDFORMERS, Dialect.MINDFORMERS_PYNATIVE


@dataclass(frozen=True)
class Config:
    data: dict[Any, Any]


def core(release: str = "1.9", beside: dict[str, Any] | None = None, /, **values: object) -> ModelConfig:
    config = Config({"use_legacy": False, "model": {"model_config": values}})
    return model_of(config, STATIC, release, beside)


@pytest.mark.parametrize(
    ("kind", "dense"), [("deepseek_v3", 3), ("glm4_moe", 1), ("telechat3_moe", 3), ("qwen3_moe", None)]
)
def test_dense_layers_in_front_are_the_classs_own_matter(kind: str, dense: int | None) -> None:
    origin = ValueOrigin.GENERAL_DEFAULT if dense is None else ValueOrigin.CLASS_DEFAULT
    assert core(model_type=kind).field("first_k_dense_replace") == Field("first_k_dense_replace", dense, origin)
    config = Config({"model": {"model_type": kind}})
    assert model_of(config, DYNAMIC, "2.1").number("first_k_dense_replace") == dense


@pytest.mark.parametrize("key", ["num_layers", "num_hidden_layers"])
def test_a_field_is_written_under_any_of_its_names(key: str) -> None:
    field = core("1.8", **{"model_type": "deepseek_v3", key: 6}).field("num_layers")
    origin = ValueOrigin.WRITTEN if key == "num_layers" else ValueOrigin.ALIAS
    assert field == Field("num_layers", 6, origin, ("model", "model_config", key))


def test_a_name_of_another_class_represents_nothing() -> None:
    model = core("2.1", model_type="deepseek_v3", num_experts=8)
    assert model.value("num_moe_experts") == 256
    assert core("1.8", model_type="deepseek_v3", num_experts=8).value("num_moe_experts") == 8


def test_a_null_is_filled_up_from_another_setting() -> None:
    model = core(model_type="qwen3", num_key_value_heads=None, num_attention_heads=12)
    assert model.value("num_query_groups") == 12


def test_what_follows_from_a_written_setting_is_unknown() -> None:
    model = model_of(Config({"model": {"model_type": "deepseek_v4", "head_dim": 256}}), DYNAMIC, "2.1")
    assert model.field("qk_head_dim").origin is ValueOrigin.UNKNOWN
    assert model_of(Config({"model": {"model_type": "deepseek_v4"}}), DYNAMIC, "2.1").value("qk_head_dim") == 448


def test_the_class_writes_one_key_to_another() -> None:
    assert core(model_type="telechat", num_attention_heads=16).value("n_head") == 16


@pytest.mark.parametrize("named", ["DeepseekV3ForCausalLM", ["DeepseekV3ForCausalLM", "other"]])
def test_a_network_shows_the_class(named: object) -> None:
    model = core(architectures=named)
    assert (model.kind, model.architecture, model.value("num_moe_experts")) == (
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        256,
    )


def test_of_an_unknown_class_only_what_is_written_is_known() -> None:
    model = core(model_type="mine", num_hidden_layers=4)
    assert (model.known, model.kind, model.number("num_layers")) == (False, "mine", 4)
    assert model.value("first_k_dense_replace") is UNKNOWN
    assert model.value("moe_token_dispatcher_type") is UNKNOWN


def test_a_folder_with_weights_that_nobody_opened_hides_what_is_left_out() -> None:
    config = Config(
        {"use_legacy": False, "pretrained_model_dir": "w", "model": {"model_config": {"model_type": "qwen3"}}}
    )
    assert model_of(config, STATIC, "1.9").value("num_layers") is UNKNOWN
    assert model_of(config, STATIC, "1.9", {}).value("num_layers") == 32
    model = model_of(config, STATIC, "1.9", {"num_hidden_layers": 7, "model_type": "llama"})
    assert (model.kind, model.field("num_layers")) == ("qwen3", Field("num_layers", 7, ValueOrigin.ALIAS))


def test_experts_of_a_section_of_their_own_come_first() -> None:
    config = Config(
        {
            "use_legacy": False,
            "moe_config": {"n_routed_experts": 8},
            "model": {"model_config": {"model_type": "deepseek_v3", "n_routed_experts": 16}},
        }
    )
    field = model_of(config, STATIC, "1.9").field("num_moe_experts")
    assert (field.value, field.path) == (8, ("moe_config", "n_routed_experts"))


def test_legacy_models() -> None:
    config = Config({"model": {"arch": {"type": "LlamaForCausalLM"}, "model_config": {"type": "LlamaConfig"}}})
    model = model_of(config, STATIC, "1.6")
    assert (model.kind, model.architecture) == ("LlamaConfig", "LlamaForCausalLM")
    assert model.field("num_layers") == Field("num_layers", 32, ValueOrigin.CLASS_DEFAULT)
    assert model.number("expert_num") == 1
    own = model_of(Config({"model": {"model_config": {"type": "Mine", "num_layers": 3}}}), STATIC, "1.6")
    assert (own.known, own.number("num_layers"), own.value("offset")) == (False, 3, UNKNOWN)
