"""The sizes of public models, compared with the parameters that their makers published."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ms_tune.enums import Dialect
from ms_tune.estimate.static import count_parameters, list_expert_layers, public_shape_of
from ms_tune.facts.models import ModelConfig, model_of
from ms_tune.facts.query import load
from ms_tune.facts.sizes import find_public_model, parts_of
from tests.files import read_data

MODELS = load("sizes")["models"]
PUBLISHED: dict[str, tuple[str, int]] = {
    name: (page, count) for name, (page, count) in read_data("public_models.yaml")["published"].items()
}


def public(name: str) -> ModelConfig:
    """The model of a config of MindFormers 1.9 that takes all its sizes from the table."""
    return model_of(SimpleNamespace(data={"use_legacy": False}), Dialect.MINDFORMERS, "1.9", MODELS[name]["config"])


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_public_model_has_the_published_parameters(name: str) -> None:
    assert count_parameters(public(name)) == PUBLISHED[name][1]


# Billions in the name; TeleChat3-105B-A4.7B and GLM-4.5 (355) count their layer of multi-token prediction.
@pytest.mark.parametrize("name", sorted(MODELS.keys() - PUBLISHED.keys() - {"GLM-4.5", "TeleChat3-105B-A4.7B"}))
def test_another_public_model_has_about_the_parameters_that_its_name_says(name: str) -> None:
    count, (said,) = count_parameters(public(name)), [part for part in name.split("-") if part[-1] == "B"]
    assert count is not None
    assert float(said[:-1]) == pytest.approx(count / 1e9, rel=0.13)


def test_every_model_type_of_the_table_says_which_parts_its_layers_have() -> None:
    assert load("sizes")["parts"].keys() == {one["config"]["model_type"] for one in MODELS.values()}
    assert parts_of("unheard") == {}


def test_a_model_with_a_size_missing_is_not_counted() -> None:
    config = {key: value for key, value in MODELS["Llama-2-7B"]["config"].items() if key != "hidden_size"}
    model = model_of(SimpleNamespace(data={"use_legacy": False}), Dialect.MINDFORMERS, "1.9", config)
    assert count_parameters(model) is None


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/data/weights/Qwen3-32B", "Qwen3-32B"),
        ("Qwen3-32B-Base/", "Qwen3-32B"),
        ("D:\\models\\Qwen2.5-7B-Instruct", "Qwen2.5-7B"),
        ("qwen2_5_7b", "Qwen2.5-7B"),
        ("/hub/models--Qwen--Qwen3-30B-A3B/snapshots/ad44e777bcd18fa416d9da3bd8f70d33ebb85d39", "Qwen3-30B-A3B"),
        ("Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B-A3B"),
        ("qwen2_57b_a14b", "Qwen2-57B-A14B"),
        ("llama3_8b", "Llama-3-8B"),
        ("Meta-Llama-3-8B-Instruct", "Llama-3-8B"),
        ("Llama-2-7b-chat-hf", "Llama-2-7B"),
        ("DeepSeek-R1-0528", "DeepSeek-V3"),
        ("deepseekV3", "DeepSeek-V3"),
        ("telechat3_36b", "TeleChat3-36B"),
        ("Mixtral-8x7B-Instruct-v0.1", "Mixtral-8x7B-v0.1"),
        ("/path/hf_dir", None),
        ("path/to/model_dir", None),
        ("Qwen3", None),
        ("Qwen3-32B-4layer", None),
        ("DeepSeek-R1-Distill-Qwen-7B", None),
        ("Qwen2-57B", None),
        ("Mistral-7B-v0.3", None),
        ("", None),
    ],
)
def test_a_name_or_a_folder_refers_to_a_model_or_to_none(path: str, name: str | None) -> None:
    found = find_public_model(path)
    assert (found and found.name) == name


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, [True] * 6),
        ({"first_k_dense_replace": 2}, [False] * 2 + [True] * 4),
        ({"num_experts": 1}, [False] * 6),
    ],
)
def test_which_layers_of_a_public_model_have_experts(change: dict[str, object], expected: list[bool]) -> None:
    config = {**MODELS["Qwen3-30B-A3B"]["config"], "num_hidden_layers": 6, **change}
    model = model_of(SimpleNamespace(data={"use_legacy": False}), Dialect.MINDFORMERS, "1.9", config)
    shape = public_shape_of(model)
    assert shape is not None
    assert list_expert_layers(model, shape) == expected
