from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.diagnostics import Severity
from ms_tune.enums import Dialect
from ms_tune.lint.checklist import built_in
from ms_tune.lint.engine import lint
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language
from tests.source.corpus import SITE_PACKAGES, wheel_configs

CHECKS = built_in(Dialect.MINDFORMERS)


def found(text: str, version: str | None = None) -> list[str]:
    findings = lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, CHECKS, version)
    assert all(finding.id != "MST001" for finding in findings), [f.message.say(Language.EN) for f in findings]
    return [finding.id for finding in findings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("parallel_config: {data_parallel: True}", ["MST212"]),
        ("parallel_config: {data_parallel: }", ["MST212"]),
        ("parallel_config: {data_parallel: 2.0}", ["MST212"]),
        ("parallel_config: {gradient_aggregation_group: 0}", ["MST214"]),
        ("parallel_config: {pipeline_stage: 2, vocab_emb_dp: }", []),
        ("train_precision_sync: 1", ["MST212"]),
        ("context: {mode: True}", []),  # True is 1, also for MindFormers' dictionary
        ("callbacks: [{type: MFLossMonitor}, {name: B}]", ["MST206"]),
        ("optimizer: {}", []),
        ("trainer: 5", ["MST208"]),
        ("run_mode: predict\noptimizer: {weight_decay: 1}", []),
        ("use_parallel: False\nparallel: {anything: 1}", []),
        ("use_parallel: True\nparallel: {anything: 1}", ["MST216"]),
        ("use_parallel: True\nparallel: {pipeline_config: {pipeline_interleave: True}}", ["MST305"]),
        ("use_parallel: True\nparallel: {pipeline_config: [1]}", ["MST305"]),
        (
            "use_parallel: True\nparallel: {pipeline_config: {a: 1, pipeline_interleave: 1, pipeline_scheduler: x}}",
            ["MST305"] * 3,
        ),
        ("use_parallel: True\nparallel: {full_batch: False}", ["MST314"]),
        ("use_parallel: True\nparallel: {full_batch: False, parallel_mode: 0}", []),
        ("context: {jit_config: O1}", ["MST514"]),
        ("context: {jit_config: {infer_boost: on}}", ["MST514"]),  # a bool in YAML
        ("profiler_level: 2\nprofile: True", ["MST511", "MST509"]),
        ("runner_config: {gradient_accumulation_steps: True}", ["MST313"]),
    ],
)
def test_values(text: str, expected: list[str]) -> None:
    assert found(f"{text}\n") == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("recompute: 5", ["MST409"]),
        ("recompute: ", ["MST409"]),
        ("recompute: {a: True}", ["MST409"]),
        ("recompute: [1, null]", ["MST409"]),
        ("recompute: [True, False]", []),
        ("recompute: [[1, 1], [1, 1]]", ["MST409"]),
        ("select_recompute: {a: 1}", ["MST409"]),
        ("select_recompute: [[9, 1]]", ["MST409", "MST411"]),  # clamped values are refused when read again
        ("select_recompute: {'a(': True}", ["MST409"]),
        ("recompute: [9, 9]", ["MST411"]),
        ("recompute: [1]", ["MST410"]),
        ("recompute: [2, 2]\n  select_recompute: [2, 2]", ["MST413"]),
    ],
)
def test_recompute_plans(values: str, expected: list[str]) -> None:
    text = f"parallel_config: {{pipeline_stage: 2}}\nmodel: {{model_config: {{num_layers: 4, offset: 0}}}}\nrecompute_config:\n  {values}\n"
    assert sorted(found(text)) == sorted(expected)
    assert found(f"base_config: other.yaml\n{text}") == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("swap: True", []),
        ("swap: True, default_prefetch: True", []),  # check_rules.py asks for an int, and True is one
        ("swap: True, default_prefetch: False", ["MST416"]),
        ("swap: True, layer_swap: {layers: True, backward_prefetch: 0}", ["MST416"]),
        ("swap: False, op_swap: [{op_name: a, layers: [1]}]", ["MST432"]),
        ("swap: True, op_swap: [{op_name: a, layers: [1]}]", ["MST416"]),
        ("swap: False, op_swap: [{layers: [1]}]", ["MST415"]),
        ("swap: False, layer_swap: [{layers: [True], backward_prefetch: 1}]", ["MST415"]),
        (
            "layer_swap: [{layers: True, backward_prefetch: 1}, {layers: [1], backward_prefetch: 2}]",
            ["MST415"],
        ),
        ("swap: 1", ["MST213"]),
        ("layer_swap: 5", ["MST415"]),
        ("layer_swap: [5]", ["MST415"]),
        ("layer_swap: []", []),
    ],
)
def test_swap(values: str, expected: list[str]) -> None:
    assert found(f"parallel_config: {{pipeline_stage: 2}}\nswap_config: {{{values}}}\n") == expected


def test_the_known_faults_of_shipped_configs_are_told() -> None:
    for path in wheel_configs():
        if path.name == "pretrain_telechat3_105b_a4b_4k.yaml":
            assert {"MST302", "MST511"} <= set(found(path.read_text(encoding="utf-8")))
    qwen = "use_legacy: False\nrecompute_config: {recompute: True, recompute_slice_activation: True}\n"
    assert found(qwen) == ["MST403"]
    assert found(qwen, "1.6") == []


def framework() -> dict[str, Any]:
    """MindFormers' own classes about swap, taken out of their files: nothing of MindSpore is imported."""

    def take(file: str, names: tuple[str, ...]) -> ast.Module:
        tree = ast.parse((SITE_PACKAGES / "mindformers" / file).read_text(encoding="utf-8"))
        return ast.Module([node for node in tree.body if getattr(node, "name", "") in names], [])

    def check_bool(value: object, name: str) -> None:
        if not isinstance(value, bool):
            raise TypeError(name)

    validator = type("Validator", (), {"check_bool": staticmethod(check_bool)})
    space: dict[str, Any] = {"_Config": object, "Validator": validator}
    parts = (
        ("modules/transformer/transformer.py", ("TransformerSwapConfig",)),
        ("tools/check_rules.py", ("_rule_recompute_no_pp", "_rule_swap_no_pp", "_check_swap")),
    )
    for file, names in parts:
        exec(compile(take(file, names), file, "exec"), space)  # noqa: S102 - the framework itself is the oracle
    return space


LAYERS = st.sampled_from([True, False, [0], [0, 1], [[0], [1]], [True], "x", None, [], [1.5]])
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "layers": LAYERS,
        "backward_prefetch": st.sampled_from([1, 2, 0, "Auto", None]),
        "op_name": st.sampled_from(["a", ["a", "b"], 3]),
    },
)
SWAP = st.fixed_dictionaries(
    {},
    optional={
        "swap": st.sampled_from([True, False, 1]),
        "default_prefetch": st.sampled_from([1, 0, "1"]),
        "layer_swap": st.none() | ENTRY | st.lists(ENTRY, max_size=2) | st.just(5),
        "op_swap": st.none() | ENTRY | st.lists(ENTRY, max_size=2) | st.just("x"),
    },
)


@pytest.mark.slow
@pytest.mark.skipif(not wheel_configs(), reason="mindformers is not installed")
@given(swap=SWAP)
def test_errors_about_swap_are_those_of_the_installed_mindformers(swap: dict[str, Any]) -> None:
    space = framework()
    wanted = False
    try:
        config = space["TransformerSwapConfig"](**yaml.safe_load(yaml.safe_dump(swap)))
        space["_check_swap"](type("Config", (), {"swap_config": config}))
    except (TypeError, ValueError, KeyError, AttributeError):
        wanted = True
    text = yaml.safe_dump({"parallel_config": {"pipeline_stage": 2}, "swap_config": swap or {"swap": False}})
    findings = lint(parse_source(text, Path("a.yaml")), Dialect.MINDFORMERS, CHECKS)
    assert any(finding.severity is Severity.ERROR for finding in findings) is wanted
