"""Test the placement and recomputation of layers by MindSpeed-Core-MS r0.1.0, with hand-made cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.dialects import LayerPlan
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render
from tests.jobs import failure, ids, mindspeed_plan


def plan_of(text: str) -> LayerPlan:
    return mindspeed_plan(parse_source(text, Path("config.yaml")))


def parallel(settings: str, layers: int = 8, stages: int = 2, model: str = "") -> LayerPlan:
    return plan_of(
        f"model_config: {{num_layers: {layers}, {model}}}\n"
        f"parallel_config: {{pipeline_model_parallel_size: {stages}, {settings}}}\n"
    )


def effects(plan: LayerPlan) -> str:
    """Return one letter per layer; a capital if its communication is recomputed too."""
    letters = {RecomputeMode.FULL: "f", RecomputeMode.SELECT: "s", RecomputeMode.COMM: "C", RecomputeMode.NONE: "-"}
    return "".join(
        letters[layer.recompute].upper() if layer.comm_patterns else letters[layer.recompute] for layer in plan.layers
    )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            "num_layer_list: [8, 0]",
            "ValueError: All elements of num_layer_list should be larger than 0, but got [8 0].",
        ),
        ("recompute_config: {recompute: [-1, 1]}", "ValueError: recompute_num_array has element < 0"),
        (
            "recompute_config: {recompute: [1.5, 1]}",
            "TypeError: 'numpy.float64' object cannot be interpreted as an integer",
        ),
        ("num_layer_list: [a, 8]", "TypeError: 'str' object cannot be interpreted as an integer"),
        ("sequence_parallel: 1", "TypeError: The 'sequence_parallel' must be a bool, but got int."),
    ],
)
def test_what_the_framework_refuses(settings: str, text: str) -> None:
    assert failure(parallel(settings)) == text


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (
            "encoder_num_layers: 4",
            ("NotImplementedError: `encoder_num_layers` and `decoder_num_layers` are not supported for now."),
        ),
        (
            "recompute_num_layers: 9",
            "ValueError: The 'recompute_num_layers' must be in range of [1, 8], but got 9 with type 'int'.",
        ),
        ("select_recompute: [1]", "TypeError: The 'select_recompute' must be a bool, but got list."),
    ],
)
def test_what_the_framework_refuses_in_the_model(model: str, text: str) -> None:
    assert failure(parallel("", model=model)) == text


def test_a_value_that_stops_some_ranks_only() -> None:
    plan = parallel("recompute_config: {recompute: [2, 9]}")
    assert "full_recompute_layers 9 > num_layers 4." in failure(plan)
    text = render(plan.problems[0].message, Language.EN)
    assert "only the ranks of stage 1 stop" in text
    assert plan.placement == ((4, 4),)


def test_settings_that_nothing_reads() -> None:
    text = (
        "model_config: {num_layers: 4}\nrecompute_config: {recompute: [1]}\nparallel_config:\n"
        "  full_recompute_list: [1]\n  num_layers_per_virtual_pipeline_stage: 2\n"
        "  virtual_pipeline_model_parallel_size: 1\n"
    )
    assert ids(plan_of(text)) == {"top-level-ignored", "guide-key", "per-virtual-stage-ignored", "one-chunk"}


def test_true_and_false_count_as_numbers() -> None:
    plan = parallel("recompute_config: {recompute: [True, False]}")
    assert effects(plan) == "f-------"
    assert "bool-counts" in ids(plan)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("parallel_config: {}", "the number of layers"),
        ("model_config: []", "must be a mapping"),
        ("model_config: {num_layers: 99999}", "exceeds 10000"),
        (f"model_config: {{num_layers: 4}}\nparallel_config: {{recompute: '{'[' * 300_000}'}}", "exceeds 200000"),
    ],
)
def test_configs_that_cannot_be_read(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_of(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "-" * 100_000 + "1", "- " * 60 + "1"])
def test_deep_texts_do_no_harm(text: str) -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        parallel(f"recompute: '{text}'")


def test_other_versions_are_not_served() -> None:
    source = parse_source("model_config: {num_layers: 4}", Path("config.yaml"))
    with pytest.raises(UnsupportedError, match=r"r0\.3\.0"):
        mindspeed_plan(source, "r0.3.0")


def test_a_mixture_of_experts_has_no_activation() -> None:
    text = (
        "model_config: {num_layers: 4, use_flash_attention: True}\nmoe_config: {num_experts: 8}\n"
        "parallel_config: {recompute_config: {select_recompute: [1]}}\n"
    )
    assert failure(plan_of(text)) == "AttributeError: The 'MoELayer' object has no attribute 'act_func'."
