from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language
from tests.jobs import startup_of

CHECKS = built_in(Dialect.MINDFORMERS)


def lint_ids(text: str, version: str | None = None) -> list[str]:
    findings = lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, CHECKS, version)
    assert all(finding.id != "MST001" for finding in findings), [f.message.say(Language.EN) for f in findings]
    return [finding.id for finding in findings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("parallel_config: {data_parallel: True}", ["MST212"]),
        ("parallel_config: {data_parallel: }", ["MST212"]),
        ("parallel_config: {gradient_aggregation_group: 0}", ["MST214"]),
        ("parallel_config: {pipeline_stage: 2, vocab_emb_dp: }", []),
        ("context: {mode: True}", []),  # True is 1, also for MindFormers' dictionary
        ("callbacks: [{type: MFLossMonitor}, {name: B}]", ["MST206"]),
        ("optimizer: {}", []),
        ("trainer: 5", ["MST208"]),
        ("run_mode: predict\noptimizer: {weight_decay: 1}", []),
        ("use_parallel: False\nparallel: {anything: 1}", []),
        ("use_parallel: True\nparallel: {anything: 1}", ["MST216"]),
        (
            "use_parallel: True\nparallel: {pipeline_config: {a: 1, pipeline_interleave: 1, pipeline_scheduler: x}}",
            ["MST305"] * 3,
        ),
        ("use_parallel: True\nparallel: {full_batch: False, parallel_mode: 0}", []),
        ("context: {jit_config: O1}", ["MST514"]),
        ("context: {jit_config: {infer_boost: on}}", ["MST514"]),  # a bool in YAML
    ],
)
def test_values(text: str, expected: list[str]) -> None:
    assert lint_ids(f"{text}\n") == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("recompute: 5", ["MST409"]),
        ("recompute: [1, null]", ["MST409"]),
        ("recompute: [True, False]", []),
        ("recompute: [[1, 1], [1, 1]]", ["MST409"]),
        ("select_recompute: [[9, 1]]", ["MST409", "MST411"]),  # clamped values are refused when read again
        ("select_recompute: {'a(': True}", ["MST409"]),
        ("recompute: [9, 9]", ["MST411"]),
        ("recompute: [2, 2]\n  select_recompute: [2, 2]", ["MST413"]),
    ],
)
def test_recompute_plans(values: str, expected: list[str]) -> None:
    text = f"parallel_config: {{pipeline_stage: 2}}\nmodel: {{model_config: {{num_layers: 4, offset: 0}}}}\nrecompute_config:\n  {values}\n"
    assert sorted(lint_ids(text)) == sorted(expected)
    assert lint_ids(f"base_config: other.yaml\n{text}") == []


@pytest.mark.parametrize("value", ["{'feed_forward.mul': True}", "['feed_forward.mul']"])
def test_a_finding_about_a_pattern_is_at_the_pattern(value: str) -> None:
    text = f"recompute_config:\n  select_recompute: {value}\n"
    (finding,) = lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, CHECKS)
    assert text[finding.location.start : finding.location.end] == "'feed_forward.mul'"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("swap: True, default_prefetch: True", []),  # check_rules.py requires an int, and True is one
        ("swap: True, layer_swap: {layers: True, backward_prefetch: 0}", ["MST416"]),
        ("swap: False, op_swap: [{op_name: a, layers: [1]}]", ["MST432"]),
        ("swap: True, op_swap: [{op_name: a, layers: [1]}]", ["MST416"]),
        (
            "layer_swap: [{layers: True, backward_prefetch: 1}, {layers: [1], backward_prefetch: 2}]",
            ["MST415"],
        ),
        ("swap: 1", ["MST213"]),
        ("layer_swap: 5", ["MST415"]),
        ("layer_swap: []", []),
    ],
)
def test_swap(values: str, expected: list[str]) -> None:
    assert lint_ids(f"parallel_config: {{pipeline_stage: 2}}\nswap_config: {{{values}}}\n") == expected


@pytest.mark.parametrize(
    ("layers", "offset", "refused"),
    [(8, "[1, 0]", True), (8, "[1, -1]", False), (9, "[1, 0]", False), (9, "[0, 0]", True)],
)
def test_an_offset_is_judged_by_exactly_the_layers_that_are_written(layers: int, offset: str, *, refused: bool) -> None:
    model = f"{{model_type: qwen3, architectures: Qwen3ForCausalLM, num_hidden_layers: {layers}, offset: {offset}}}"
    text = f"use_legacy: False\nuse_parallel: True\nparallel_config: {{pipeline_stage: 2}}\nmodel: {{model_config: {model}}}\n"
    assert ("MST302" in lint_ids(text)) is refused


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("interleave", [True, False])
def test_stages_have_several_chunks_only_in_a_parallel_job(*, parallel: bool, interleave: bool) -> None:
    settings = f"parallel: {{pipeline_config: {{pipeline_interleave: {interleave}}}}}"
    source = parse_source(
        f"use_parallel: {parallel}\nparallel_config: {{pipeline_stage: 2}}\n{settings}\n", Path("a.yaml")
    )
    assert startup_of(source).interleaves is (parallel and interleave)


def test_a_second_name_is_marked_at_its_key() -> None:
    text = """use_legacy: False
model:
  model_config:
    model_type: qwen3
    architectures: [Qwen3ForCausalLM]
    init_method_std: 0.02
"""
    (found,) = (
        one for one in lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, CHECKS) if one.id == "MST338"
    )
    assert text[found.location.start : found.location.end] == "init_method_std"


@pytest.mark.parametrize(
    ("frequency", "refused"),
    [("1", False), ("2", True), ("True", False), ("[0, 1, 1, 1]", False), ("[1, 1, 1, 1]", True)],
)
def test_leading_dense_layers_and_the_frequency_of_experts(frequency: str, *, refused: bool) -> None:
    model = f"model_type: deepseek_v3, architectures: DeepseekV3ForCausalLM, num_hidden_layers: 4, first_k_dense_replace: 1, moe_layer_freq: {frequency}"
    text = f"use_legacy: False\nmodel: {{model_config: {{{model}}}}}\n"
    assert ("MST33511" in lint_ids(text)) is refused


LLAMA = "use_parallel: True\nrun_mode: train\nmodel:\n  arch: {{type: LlamaForCausalLM}}\n  model_config: {{type: LlamaConfig, num_layers: 4, {}}}\n"


@pytest.mark.parametrize(
    ("setting", "refused"),
    [
        ("compute_dtype: float32", False),
        ("compute_dtype: Float16", False),
        ("compute_dtype: float17", True),
        ("compute_dtype: null", True),
        ("embedding_init_type: null", False),
        ("embedding_init_type: float17", True),
    ],
)
def test_null_is_a_data_type_only_where_the_class_has_no_default(setting: str, *, refused: bool) -> None:
    assert ("MST346" in lint_ids(LLAMA.format(setting), "1.9")) is refused


@pytest.mark.parametrize(
    ("version", "key", "refused"),
    [("1.6", "recompute", True), ("1.6", "select_recompute", False), ("1.8", "select_recompute", True)],
)
def test_a_negative_number_of_layers_ends_only_where_it_is_read(version: str, key: str, *, refused: bool) -> None:
    model = "model: {model_config: {model_type: qwen3, architectures: Qwen3ForCausalLM, num_hidden_layers: 4}}\n"
    lists = f"parallel_config: {{pipeline_stage: 2}}\nrecompute_config: {{{key}: [-1, 1]}}\n"
    text = f"use_legacy: False\nuse_parallel: True\nrun_mode: train\n{lists}{model}"
    assert ("MST402" in lint_ids(text, version)) is refused
