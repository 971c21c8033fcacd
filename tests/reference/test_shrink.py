"""Test configs of MindSpeed-Core-MS and of the dynamic graph for the reference transformer: sizes, changes for the run, refusals."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.dialects.job_parts import SettingChange
from ms_tune.dryrun.request import DryrunRequest, PreparedRun
from ms_tune.dryrun.result import compare_theory, unlike_theory
from ms_tune.enums import Dialect, MemoryCategory
from ms_tune.errors import ConfigError, MsTuneError, UnsupportedError
from ms_tune.facts.query import data_folder
from ms_tune.job.detect import recognise
from ms_tune.reference.job import ReferenceJob
from ms_tune.text import Language, render
from tests import dynamic_jobs
from tests.dryrun.configs import MINDSPEED, edited, prepare_mindspeed, source_of, without
from tests.dryrun.fuzz import VALUES, paths, replaced
from tests.kinds import labels
from tests.reference.configs import CASES


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
def test_what_mindspeed_asks_and_the_transformer_does_not_do_is_refused_by_name(key: str, value: object) -> None:
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


@given(st.sampled_from(list(paths(MINDSPEED))), VALUES)
def test_no_value_of_mindspeed_makes_it_fail_in_another_way_than_it_says(
    path: tuple[str | int, ...], value: object
) -> None:
    outcome: PreparedRun | MsTuneError
    try:
        outcome = prepare_mindspeed(replaced(MINDSPEED, path, value), DryrunRequest(layers=2))
    except MsTuneError as error:
        outcome = error
    assert str(outcome) if isinstance(outcome, MsTuneError) else outcome.layers == 2


TEMPLATES = [
    "mindspeed_ms/llama2_7b.yaml",
    "mindspeed_ms/llama2_13b_vpp.yaml",
    "mindformers_pynative/deepseek3_1b_moe.yaml",
]


def prepared(config: dict[str, Any], devices: int | None, stage: int = 0, layers: int | None = None) -> PreparedRun:
    source = source_of(config)
    dialect = recognise(source.data).dialect or Dialect.MINDSPEED_MS
    request = DryrunRequest(config=Path("config.yaml"), stage=stage, layers=layers)
    return dynamic_jobs.prepare(source, "config.yaml", request, devices, dialect)


def template(name: str) -> dict[str, Any]:
    read = yaml.safe_load((data_folder("yaml_templates") / name).read_text("utf-8"))
    assert isinstance(read, dict)
    return read


EVERYTHING = [pytest.param(case.config, case.devices, id=name) for name, case in CASES.items()] + [
    pytest.param(template(name), None, id=name) for name in TEMPLATES
]


@pytest.mark.drawn(7)
@pytest.mark.parametrize(("config", "devices"), EVERYTHING)
def test_all_stages_together_have_all_layers(config: dict[str, Any], devices: int | None) -> None:
    first = prepared(config, devices)
    stages = [job(prepared(config, devices, stage)).stage for stage in range(first.stages)]
    numbers = sorted(layer.number for stage in stages for chunk in stage.chunks for layer in chunk.layers)
    shape = job(first).config.shape
    prediction = sum(layer.mtp for stage in stages for chunk in stage.chunks for layer in chunk.layers)
    assert numbers == list(range(shape.layers + prediction))
    assert [stage.chunks[0].embedding for stage in stages] == [index == 0 for index in range(first.stages)]
    assert [stage.chunks[-1].head for stage in stages] == [index == first.stages - 1 for index in range(first.stages)]


@pytest.mark.slow
@pytest.mark.parametrize(("config", "devices"), EVERYTHING)
@pytest.mark.parametrize("layers", [1, 2, 3, 7])
def test_the_changes_make_a_config_that_says_what_was_run(
    config: dict[str, Any], devices: int | None, layers: int
) -> None:
    """Write every change into the config: run in full, it is the same stage."""
    for stage in range(prepared(config, devices).stages):
        run = prepared(config, devices, stage, layers)
        assert run.layers == layers
        changed = copy.deepcopy(config)
        for change in run.changes:
            changed = edited(changed, change.key, change.after)
        try:
            again = prepared(changed, run.world_size, stage)
        except ConfigError:
            # A cell without layers cannot be written down in these dialects; a stage can be run without.
            assert any(not chunk.layers for chunk in job(run).stage.chunks)
            continue
        if any(not chunk.layers for chunk in job(run).stage.chunks):
            continue
        assert again.kinds == run.kinds
        assert [change for change in again.changes if "layer" in change.key] == []
        assert job(again).config.batch == job(run).config.batch


def test_without_word_about_devices_the_fewest_are_taken() -> None:
    assert prepared(template("mindspeed_ms/llama2_13b_vpp.yaml"), None).world_size == 8
    assert prepared(template("mindformers_pynative/deepseek3_1b_moe.yaml"), None).world_size == 4


def test_micro_batches_that_only_repeat_are_left_out_and_listed() -> None:
    run = prepared(template("mindspeed_ms/llama2_13b_vpp.yaml"), 16)
    assert job(run).config.batch.micro_batch_num == 12
    assert [(change.key, change.before, change.after) for change in run.changes] == [
        ("dataset_config.micro_batch_num", 16, 12)
    ]


REFUSED = [
    ("mindspeed_ms/llama2_13b_vpp.yaml", "model_config.num_attention_heads", 41),
    ("mindspeed_ms/llama2_13b_vpp.yaml", "model_config.vocab_size", 32001),
    ("mindspeed_ms/llama2_13b_vpp.yaml", "model_config.seq_length", 4095),
    ("mindspeed_ms/llama2_13b_vpp.yaml", "model_config.ffn_hidden_size", 13825),
    ("mindspeed_ms/llama2_13b_vpp.yaml", "dataset_config.micro_batch_num", 15),
    ("mindspeed_ms/llama2_13b_vpp.yaml", "moe_config", {"num_experts": 7}),
    ("mindspeed_ms/llama2_13b_vpp.yaml", "parallel_config.num_layer_list", [1, 2, 3]),
    ("mindformers_pynative/deepseek3_1b_moe.yaml", "parallelism.tensor_parallel", 2),
    ("mindformers_pynative/deepseek3_1b_moe.yaml", "training.global_batch_size", 63),
    ("mindformers_pynative/deepseek3_1b_moe.yaml", "model.n_routed_experts", 7),
]


@pytest.mark.parametrize(("name", "key", "value"), REFUSED)
def test_what_the_framework_would_refuse_is_refused(name: str, key: str, value: object) -> None:
    config = edited(template(name), key, value)
    if key == "moe_config":
        config = edited(config, "parallel_config.expert_model_parallel_size", 2)
    with pytest.raises(ConfigError):
        prepared(config, 16)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.model_type", "deepseek_v4"),
        ("model.experimental_attention_variant", "dsa"),
        ("model.hidden_act", "squared_relu"),
        ("parallelism.pipeline_parallel_schedule", "gpipe"),
        ("parallelism.cpu_offload", True),
        ("parallelism.dense_fsdp_shard_size", 2),
        ("optimizer.type", "Muon"),
        ("lora_config", {"rank": 8}),
    ],
)
def test_what_the_reference_transformer_does_not_do_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(UnsupportedError) as caught:
        prepared(edited(CASES["Qwen3"].config, key, value), 4)
    assert caught.value.message.params["key"] == key


def test_swap_and_unknown_modules_are_said_to_be_left_out() -> None:
    config = edited(CASES["Qwen3"].config, "swap", {"enable": True, "layer_swap": [{"layers": ["0-1"]}]})
    config = edited(config, "recompute", {"mode": "select", "select_module": {"mlp": ["0"], "self_attn": ["1"]}})
    run = prepared(config, 4)
    assert "reference.not-included.swap" in {message.id for message in run.not_included}
    messages = [render(message, Language.EN) for message in (*run.not_included, *run.warnings)]
    assert any("self_attn" in text for text in messages)


FUZZED = CASES["DeepSeek-V3"].config


@pytest.mark.slow
@given(st.sampled_from(list(paths(FUZZED))), VALUES)
def test_no_value_anywhere_makes_it_fail_in_another_way_than_it_says(
    path: tuple[str | int, ...], value: object
) -> None:
    outcome: PreparedRun | MsTuneError
    try:
        outcome = prepared(replaced(FUZZED, path, value), 8, layers=2)
    except MsTuneError as error:
        outcome = error
    assert str(outcome) if isinstance(outcome, MsTuneError) else outcome.layers == 2


def test_theory_is_reported_where_it_can_be_measured() -> None:
    reported = prepared(template("mindspeed_ms/llama2_7b.yaml"), 8).theory
    parameters = 6_738_415_616
    assert reported["weights"] == 2 * parameters
    assert reported["gradients"] == pytest.approx(4 * parameters, rel=1e-6)
    assert reported["optimizer_state"] == pytest.approx(12 * parameters / 8, rel=1e-6)
    whole, parts = (prepared(CASES["Qwen3"].config, devices).theory for devices in (2, 8))
    assert {name: size / parts[name] for name, size in whole.items()} == pytest.approx(
        dict.fromkeys(parts, 4), rel=0.01
    )


def test_what_is_unlike_theory_is_said() -> None:
    theory = {"weights": 10**10, "gradients": 10**9}
    weights, gradients = MemoryCategory.WEIGHTS, MemoryCategory.GRADIENTS
    assert list(unlike_theory(compare_theory(theory, {weights: 10**10 + 10**6, gradients: 10**9}))) == []
    (message,) = unlike_theory(compare_theory(theory, {weights: 10**10, gradients: 9 * 10**8}))
    assert message.params["measured"] == 9 * 10**8


def test_a_difference_is_a_part_of_theory() -> None:
    pairs = compare_theory(
        {"weights": 200, "gradients": 0}, {MemoryCategory.WEIGHTS: 201, MemoryCategory.ACTIVATIONS: 5}
    )
    assert [(pair.content, pair.measured, pair.expected) for pair in pairs] == [
        ("weights", 201, 200),
        ("gradients", 0, 0),
    ]
    assert [pair.difference for pair in pairs] == [pytest.approx(0.005), None]
    assert compare_theory({}, {MemoryCategory.WEIGHTS: 201}) == ()
