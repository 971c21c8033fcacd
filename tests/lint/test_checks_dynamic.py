"""Test checks of MindSpeed-Core-MS and of MindFormers' dynamic graph, with forms that were run through the frameworks."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language

MINDSPEED = built_in(Dialect.MINDSPEED_MS)


def lint_mindspeed(text: str) -> list[str]:
    findings = lint(parse_source(text, Path("a.yaml")), Dialect.MINDSPEED_MS, MINDSPEED)
    assert all(finding.id != "MST001" for finding in findings), [f.message.say(Language.EN) for f in findings]
    return [finding.id for finding in findings]


# Each was run through the library itself (r0.1.0).
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("parallel_config: {tensor_model_parallel_size: '2'}", ["MST610"]),
        ("parallel_config: {virtual_pipeline_model_parallel_size: 0}", ["MST611"]),
        ("parallel_config: {virtual_pipeline_model_parallel_size: }", []),
        ("parallel_config: {recv_dtype: fp16}", ["MST612"]),
        ("dataset_config: {batch_size: 1.0}", ["MST610"]),
        ("model_config: {norm_epsilon: 1e-5}", ["MST610", "MST102"]),
        ("training_config: {loss_scale: 1.0}", []),
        ("model_config: {select_recompute: [1]}", ["MST610"]),
        ("parallel_config: {num_layer_list: 4}", ["MST618", "MST610"]),
        ("model_config: {rotary_config: {rotary_base: 1.0}}", ["MST610"]),
    ],
)
def test_values_of_mindspeed(text: str, expected: list[str]) -> None:
    assert sorted(lint_mindspeed(f"{text}\n")) == sorted(expected)


def config(layers: int, stages: int, chunks: int | None, values: str) -> str:
    chunk = f"\n  virtual_pipeline_model_parallel_size: {chunks}" if chunks else ""
    return (
        f"model_config: {{num_layers: {layers}}}\ndataset_config: {{micro_batch_num: {stages * 2}}}\n"
        f"parallel_config:\n  pipeline_model_parallel_size: {stages}\n  tensor_model_parallel_size: 2\n"
        f"  sequence_parallel: True{chunk}\n  recompute_config: {{{values}}}\n"
    )


@pytest.mark.parametrize(
    ("layers", "stages", "chunks", "values", "expected"),
    [
        (4, 2, None, "recompute: [2, 1], select_recompute: [1, 1]", ["MST622"]),
        (4, 2, None, "recompute: [2, 1], select_comm_recompute: [1, 1]", ["MST622"]),
        (4, 2, None, "recompute: [1, 1, 1]", ["MST620"]),
        (8, 2, 2, "recompute: [1, 1]", ["MST620"]),
        (8, 2, 2, "recompute: [[2, 1], [0, 1]], select_recompute: [[0, 1], [2, 1]]", []),
        (12, 3, 2, "recompute: [[1, 1], [1, 1], [1, 1]]", ["MST620"]),
        (4, 2, None, "recompute: [-1, 1]", ["MST621"]),
        (4, 1, None, "recompute: [2]", []),
        (4, 2, None, "recompute: False", []),
        (8, 2, 2, "recompute: [[1, 1], [1]]", ["MST620"]),
    ],
)
def test_recompute_lists(layers: int, stages: int, chunks: int | None, values: str, expected: list[str]) -> None:
    assert lint_mindspeed(config(layers, stages, chunks, values)) == expected


@pytest.mark.parametrize(
    ("value", "layers", "stages", "chunks", "expected"),
    [
        ("[2, 2]", 8, 2, None, ["MST617"]),
        ("[4, 0]", 4, 2, None, ["MST617"]),
        ("'[[1, 1], [1, 1]]'", 4, 2, 2, []),
        ("'(2, 1)'", 4, 2, None, ["MST617"]),
        ("'__import__(\"os\")'", 4, 2, None, ["MST669"]),  # only parsed as a literal, which it is not
        ("[1, 1, 1, 1]", 4, 4, 4, ["MST617", "MST616"]),
    ],
)
def test_layer_lists(value: str, layers: int, stages: int, chunks: int | None, expected: list[str]) -> None:
    text = config(layers, stages, chunks, "").replace("  recompute_config: {}\n", f"  num_layer_list: {value}\n")
    assert sorted(lint_mindspeed(text)) == sorted(expected)


def test_unknown_keys_of_mindspeed() -> None:
    assert lint_mindspeed("model_config: {num_layer: 4}\n") == ["MST608"]
    assert lint_mindspeed("model_config: {my_own_key: 4}\n") == ["MST609"]
    assert lint_mindspeed("my_section: {a: 1}\nx-anchor: &a 1\n") == []
    assert lint_mindspeed("trainin_config: {a: 1}\n") == ["MST608"]


CHECKS = built_in(Dialect.MINDFORMERS_PYNATIVE)
PARALLEL = "parallelism: {tensor_parallel: 2, sequence_parallel: True}\n"
MODEL = "model: {model_type: glm4, architectures: Glm4ForCausalLM, num_hidden_layers: 8}\n"


def lint_ids(text: str, version: str | None = None) -> list[str]:
    findings = lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS_PYNATIVE, CHECKS, version)
    assert all(finding.id != "MST001" for finding in findings), [f.message.say(Language.EN) for f in findings]
    return [finding.id for finding in findings]


# Each of these forms was run through `TrainConfig.from_dict` and the validators of 2.0.0 and 2.1.0.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("training: {steps: True}", ["MST705"]),
        ("training: {max_norm: 1}", []),
        ("training: ", ["MST705"]),
        ("optimizer: {anything: 1}", []),
        ("optimizer: {betas: [0.9, '0.95']}", ["MST705"]),
        ("checkpoint: {prefix: }", []),
        ("lr_scheduler: {}", ["MST707"]),
        ("parallelism: {pipeline_parallel_layers_per_stage: [[1, 2]]}", []),
        ("parallelism: {pipeline_parallel: 2, pipeline_parallel_layers_per_stage: }", ["MST730"]),
        (
            "parallelism: {pipeline_parallel: 2, pipeline_parallel_interleave_num: 2, pipeline_parallel_layers_per_stage: ['0', '1']}",
            ["MST730"] * 2,
        ),
        ("parallelism: {tensor_parallel: 0}", ["MST706"]),
        ("recompute: {full_recompute_layer: '0-3', mode: None}", ["MST713"]),
    ],
)
def test_values(text: str, expected: list[str]) -> None:
    assert lint_ids(f"{text}\n") == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("mode: full, full_recompute_layer: [0-3, '7']", []),
        ("mode: full, full_recompute_layer: ['8']", ["MST711"]),
        ("mode: full, full_recompute_layer: ['3-1']", ["MST711"]),
        ("mode: full, full_recompute_layer: ['0-3', '3']", ["MST711"]),
        ("mode: full, full_recompute_layer: [-1]", ["MST711"]),
        ("mode: full", ["MST710"]),
        ("mode: select, select_module: {mlp: 3}", ["MST710"]),
        ("mode: select, select_module: {'': ['0']}", ["MST710"]),
        ("mode: select, full_recompute_layer: ['0'], select_module: {mlp: ['99']}", ["MST756"]),  # not looked at
        ("mode: select, select_module: {'layers.*.self_attention.*': [0-7]}", ["MST712"]),
        ("mode: select, select_module: {'self_attention.layers': [0-7]}", []),
        ("mode: 'select', select_module: {mlp: ['0']}, exclude_op: {mlp: ['9']}", ["MST711"]),
    ],
)
def test_recompute(values: str, expected: list[str]) -> None:
    assert lint_ids(f"{PARALLEL}recompute: {{{values}}}\ntraining: {{steps: 1}}\nmodel: {MODEL[7:]}") == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("mode: select, select_module: {mlp: ['0-3']}, exclude_op: {mlp: ['0-3']}", ["MST757"]),
        ("mode: select, select_module: {mlp: ['0-3']}, exclude_op: {mlp.linear_fc1: ['0-3']}", []),
        ("mode: select, select_module: {mlp: ['0-3']}, exclude_op: {self_attention: ['4-5']}", ["MST757"]),
        ("mode: full, full_recompute_layer: ['0-3'], exclude_op: {mlp: ['3-4']}", []),
        ("mode: full, full_recompute_layer: ['0-3'], exclude_op: {mlp: ['4']}", ["MST757"]),
        ("mode: select, full_recompute_layer: ['0-3'], select_module: {mlp: ['1', '3']}", ["MST756"]),
        ("exclude_op: {mlp: ['1']}", ["MST751"]),
    ],
)
def test_layers_of_several_settings(values: str, expected: list[str]) -> None:
    assert lint_ids(f"{PARALLEL}recompute: {{{values}}}\ntraining: {{steps: 1}}\nmodel: {MODEL[7:]}", "2.1") == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("global_batch_size: 64, rampup_batch_size: [16, 16, 100]", []),
        ("global_batch_size: 64, rampup_batch_size: [64, 7, 100]", []),  # there is no step
        ("global_batch_size: 64, rampup_batch_size: [65, 1, 100]", ["MST758"]),
        ("global_batch_size: 64, local_batch_size: 8, rampup_batch_size: [12, 52, 100]", ["MST758"]),
        ("global_batch_size: 64, local_batch_size: 8, rampup_batch_size: [16, 12, 100]", ["MST758"]),
    ],
)
def test_a_growing_batch(values: str, expected: list[str]) -> None:
    assert lint_ids(f"training: {{{values}}}\n", "2.1") == expected


def test_stages_hold_every_layer_once() -> None:
    text = f"parallelism: {{pipeline_parallel: 2, pipeline_parallel_layers_per_stage: RANGES}}\n{MODEL}"
    text += "training: {global_batch_size: 8}\n"
    cases = {
        "['0-3', '4-7']": [],
        "['0-3', '5-7']": ["MST747"],
        "['0-4', '4-7']": ["MST747"],
        "['4-7', '0-3']": ["MST747"],
        "['0-2', '2-6']": ["MST747"] * 2,  # one twice, another missing
        "['0-3', '4-8']": ["MST748"],
    }
    assert {ranges: lint_ids(text.replace("RANGES", ranges)) for ranges in cases} == cases


def test_prediction_layers_are_the_last_ids() -> None:
    model = MODEL.replace("glm4", "deepseek_v3").replace("Glm4", "DeepseekV3")
    text = f"{PARALLEL}{model[:-2]}, num_nextn_predict_layers: 1, mtp_loss_scaling_factor: 0.3}}\nrecompute: {{mode: full, full_recompute_layer: [LAYER]}}\n"
    assert lint_ids(text.replace("LAYER", "'0-8'")) == []
    assert lint_ids(text.replace("LAYER", "'0-9'")) == ["MST711"]


def test_versions_show_the_keys() -> None:
    assert lint_ids("training: {global_batch_size: 2, rampup_batch_size: [1, 1, 1]}\n", "2.1") == []
    assert lint_ids("training: {rampup_batch_size: [1, 1, 1]}\n", "2.0.0") == ["MST745"]
    assert lint_ids("monitor: {tensorboard: {tensorboard_dir: a}}\n", "2.1.0") == ["MST704", "MST737"]
    assert lint_ids("parallelism: {tensor_parallel: 2}\n", "2.0") == []
