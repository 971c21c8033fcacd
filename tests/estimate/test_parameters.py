"""The sizes of public models, compared with the parameters that their makers published."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ms_tune.enums import Dialect
from ms_tune.estimate.parameters import count_parameters
from ms_tune.facts.models import ModelConfig, model_of
from ms_tune.facts.query import load
from ms_tune.facts.sizes import find_public_model, parts_of

MODELS = load("sizes")["models"]
# Published: the total that Hugging Face computes from the weights' safetensors headers (for DeepSeek-V3 without the 11.5 billion
# of multi-token prediction and the biases that balance experts, as in README_WEIGHTS.md of deepseek-ai/DeepSeek-V3); of
# TeleChat2-115B `total_size` / 4 of model/115B/model.safetensors.index.json in Tele-AI/TeleChat2; of ChatGLM3, GLM-4-9B and
# openPangu what the loaded model reports (`sum(p.numel())`).
PUBLISHED = {
    "ChatGLM3-6B": ("zai-org/chatglm3-6b", 6_243_584_000),
    "DeepSeek-V2": ("deepseek-ai/DeepSeek-V2", 235_741_434_880),
    "DeepSeek-V2-Lite": ("deepseek-ai/DeepSeek-V2-Lite", 15_706_484_224),
    "DeepSeek-V2.5": ("deepseek-ai/DeepSeek-V2.5", 235_741_434_880),
    "DeepSeek-V3": ("deepseek-ai/DeepSeek-V3", 671_026_404_352),
    "GLM-4-9B": ("zai-org/glm-4-9b", 9_399_951_360),
    "GLM-4-9B-0414": ("zai-org/GLM-4-9B-0414", 9_400_279_040),
    "GLM-4.5-Air": ("zai-org/GLM-4.5-Air", 106_852_245_504),
    "InternLM2-7B": ("internlm/internlm2-7b", 7_737_708_544),
    "InternLM2.5-20B": ("internlm/internlm2_5-20b", 19_861_149_696),
    "Llama-2-13B": ("meta-llama/Llama-2-13b-hf", 13_015_864_320),
    "Llama-2-70B": ("meta-llama/Llama-2-70b-hf", 68_976_648_192),
    "Llama-2-7B": ("meta-llama/Llama-2-7b-hf", 6_738_415_616),
    "Llama-3-70B": ("meta-llama/Meta-Llama-3-70B", 70_553_706_496),
    "Llama-3-8B": ("meta-llama/Meta-Llama-3-8B", 8_030_261_248),
    "Llama-3.1-405B": ("meta-llama/Llama-3.1-405B", 405_853_388_800),
    "Llama-3.1-8B": ("meta-llama/Llama-3.1-8B", 8_030_261_248),
    "Llama-3.2-1B": ("meta-llama/Llama-3.2-1B", 1_235_814_400),
    "Llama-3.2-3B": ("meta-llama/Llama-3.2-3B", 3_212_749_824),
    "Mixtral-8x22B-v0.1": ("mistralai/Mixtral-8x22B-v0.1", 140_630_071_296),
    "Mixtral-8x7B-v0.1": ("mistralai/Mixtral-8x7B-v0.1", 46_702_792_704),
    "Qwen1.5-MoE-A2.7B": ("Qwen/Qwen1.5-MoE-A2.7B", 14_315_784_192),
    "Qwen2-57B-A14B": ("Qwen/Qwen2-57B-A14B", 57_408_658_944),
    "Qwen2-72B": ("Qwen/Qwen2-72B", 72_706_203_648),
    "Qwen2.5-14B": ("Qwen/Qwen2.5-14B", 14_770_033_664),
    "Qwen2.5-32B": ("Qwen/Qwen2.5-32B", 32_763_876_352),
    "Qwen2.5-3B": ("Qwen/Qwen2.5-3B", 3_085_938_688),
    "Qwen2.5-72B": ("Qwen/Qwen2.5-72B", 72_706_203_648),
    "Qwen2.5-7B": ("Qwen/Qwen2.5-7B", 7_615_616_512),
    "Qwen3-0.6B": ("Qwen/Qwen3-0.6B", 596_049_920),
    "Qwen3-14B": ("Qwen/Qwen3-14B", 14_768_307_200),
    "Qwen3-235B-A22B": ("Qwen/Qwen3-235B-A22B", 235_093_634_560),
    "Qwen3-30B-A3B": ("Qwen/Qwen3-30B-A3B", 30_532_122_624),
    "Qwen3-32B": ("Qwen/Qwen3-32B", 32_762_123_264),
    "Qwen3-8B": ("Qwen/Qwen3-8B", 8_190_735_360),
    "QwQ-32B": ("Qwen/QwQ-32B", 32_763_876_352),
    "TeleChat2-115B": ("Tele-AI/TeleChat2", 113_282_916_352),
    "Yi-34B": ("01-ai/Yi-34B", 34_388_917_248),
    "Yi-6B": ("01-ai/Yi-6B", 6_061_035_520),
    "openPangu-Embedded-7B": ("ascend-tribe/openpangu-embedded-7b-model", 8_030_887_936),
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
