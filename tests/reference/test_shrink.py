"""MindSpeed-Core-MS configs for the reference transformer: what is served, and what is changed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ms_tune.dialects.job_parts import DType, SettingChange
from ms_tune.dryrun.request import STEPS, DryrunRequest, PreparedRun
from ms_tune.enums import Dialect
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError, UsageError
from ms_tune.reference.job import ReferenceJob
from tests import dynamic_jobs
from tests.dryrun.configs import MINDSPEED, edited, prepare_mindspeed, source_of, without
from tests.dryrun.fuzz import VALUES, paths, replaced
from tests.kinds import labels


def job(run: PreparedRun) -> ReferenceJob:
    assert isinstance(run.job, ReferenceJob)
    return run.job


def recomputed_layers(run: PreparedRun) -> int:
    return sum(layer.full for chunk in job(run).stage.chunks for layer in chunk.layers)


def test_as_it_stands_the_config_is_run_unchanged() -> None:
    run = prepare_mindspeed(MINDSPEED)
    assert run.changes == ()
    assert not run.shrunk
    assert (run.layers, run.stage, run.stages, run.rank, run.world_size) == (8, 0, 1, 0, 1)
    assert job(run).stage.layers == 8
    assert job(run).steps == STEPS
    assert job(run).config.precision.gradients is DType.FLOAT32


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


def test_recompute_of_fewer_layers_than_are_left_stays() -> None:
    config = edited(MINDSPEED, "parallel_config.recompute_config.recompute", [1])
    run = prepare_mindspeed(config, DryrunRequest(layers=2))
    assert run.changes == (SettingChange("model_config.num_layers", 8, 2),)
    assert recomputed_layers(run) == 1
    assert labels(run.kinds) == {"dense, full recompute": 1, "dense": 1}


def test_as_many_layers_as_the_config_has_are_no_change() -> None:
    run = prepare_mindspeed(MINDSPEED, DryrunRequest(layers=8))
    assert run.changes == ()
    assert not run.shrunk


@pytest.mark.parametrize("devices", [1, 2, 8, 1024])
def test_devices_beyond_one_copy_of_the_model_are_data_parallel(devices: int) -> None:
    run = prepare_mindspeed(MINDSPEED, devices=devices)
    assert run.world_size == devices
    assert job(run).data_parallel == devices


def test_there_is_one_stage_only() -> None:
    with pytest.raises(UsageError) as caught:
        prepare_mindspeed(MINDSPEED, DryrunRequest(stage=1))
    assert caught.value.message.id == "dryrun.stage"


def test_the_users_own_values_are_not_changed() -> None:
    source = source_of(MINDSPEED)
    before = copy.deepcopy(source.data)
    run = dynamic_jobs.prepare(
        source, "config.yaml", DryrunRequest(config=Path("config.yaml"), layers=1), None, Dialect.MINDSPEED_MS
    )
    assert source.data == before
    assert not run.packaged


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
def test_kinds_of_recompute_without_effect_are_told(key: str) -> None:
    # With FlashAttention and SwiGLU, and without sequence parallelism, the framework accepts them and does nothing.
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
def test_a_size_that_is_missing_is_told(key: str) -> None:
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
