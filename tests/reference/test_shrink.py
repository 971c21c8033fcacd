"""Test MindSpeed-Core-MS configs for the reference transformer: supported settings, and changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.dryrun.request import DryrunRequest, PreparedRun
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError
from ms_tune.reference.job import ReferenceJob
from tests.dryrun.configs import MINDSPEED, edited, prepare_mindspeed, without
from tests.dryrun.fuzz import VALUES, paths, replaced
from tests.kinds import labels


def job(run: PreparedRun) -> ReferenceJob:
    assert isinstance(run.job, ReferenceJob)
    return run.job


def recomputed_layers(run: PreparedRun) -> int:
    return sum(layer.full for chunk in job(run).stage.chunks for layer in chunk.layers)


def test_fewer_layers_are_listed_as_changes_and_recompute_is_clamped() -> None:
    run = prepare_mindspeed(MINDSPEED, DryrunRequest(layers=2))
    assert run.changes == (
        SettingChange("model_config.num_layers", 8, 2),
        SettingChange("parallel_config.recompute_config.recompute", [8], [2]),
    )
    assert run.shrunk
    assert run.layers == job(run).stage.layers == 2
    assert labels(run.kinds) == {"dense, full recompute": 2}
    assert recomputed_layers(run) == 2


NOT_SERVED: dict[str, Any] = {
    "parallel_config.zero_level": "z3",
    "model_config.num_experts": 8,
    "model_config.hidden_act": "squared_relu",
    "model_config.normalization": "BatchNorm",
    "optimizer_config.optimizer_type": "mint.SGD",
    "lora_config.use_lora": True,
}


@pytest.mark.parametrize(("key", "value"), NOT_SERVED.items())
def test_what_the_reference_transformer_does_not_do_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(UnsupportedError) as caught:
        prepare_mindspeed(edited(MINDSPEED, key, value))
    assert caught.value.message.params["key"] == key
    assert caught.value.hint is not None


@pytest.mark.parametrize("key", ["select_recompute", "select_comm_recompute"])
def test_kinds_of_recompute_without_effect_are_reported(key: str) -> None:
    # With FlashAttention and SwiGLU, and without sequence parallelism, the framework accepts them without effect.
    run = prepare_mindspeed(edited(MINDSPEED, "parallel_config.recompute_config", {"recompute": [2], key: [6]}))
    assert [warning.id for warning in run.warnings] != []
    assert not any(layer.select or layer.communication for chunk in job(run).stage.chunks for layer in chunk.layers)
    assert recomputed_layers(run) == 2


@pytest.mark.parametrize("key", ["select_recompute", "select_comm_recompute"])
def test_more_recomputed_layers_than_there_are_is_the_frameworks_error(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare_mindspeed(edited(MINDSPEED, "parallel_config.recompute_config", {"recompute": [3], key: [6]}))
    assert key in str(caught.value.message.params)
    assert "Recompute layers must less or equal num layers" in str(caught.value.message.params)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("moe_config.num_experts", 1),
        ("moe_config", None),
        ("lora_config.use_lora", False),
        ("lora_config", None),
        ("model_config.normalization", "FusedRMSNorm"),
        ("optimizer_config.optimizer_type", "SpeedAdamW"),
        ("parallel_config.recompute_config.recompute", [0]),
        ("parallel_config.recompute_config", None),
        ("parallel_config.recompute_config.select_recompute", [0]),
    ],
)
def test_what_it_does_is_not_refused(key: str, value: object) -> None:
    assert prepare_mindspeed(edited(MINDSPEED, key, value)).layers == 8


@pytest.mark.parametrize("key", ["model_config.num_layers", "model_config.hidden_size", "model_config.vocab_size"])
def test_a_size_that_is_missing_is_reported(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare_mindspeed(without(MINDSPEED, key))
    assert caught.value.message.params["key"] == key


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(paths(MINDSPEED))), VALUES)
def test_no_value_anywhere_makes_it_fail_in_another_way_than_it_says(
    path: tuple[str | int, ...], value: object
) -> None:
    outcome: PreparedRun | MsTuneError
    try:
        outcome = prepare_mindspeed(replaced(MINDSPEED, path, value), DryrunRequest(layers=2))
    except MsTuneError as error:
        outcome = error
    assert str(outcome) if isinstance(outcome, MsTuneError) else outcome.layers == 2
