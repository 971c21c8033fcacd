"""Test the layers in the dynamic graph of MindFormers 2.0 and 2.1, and the lines of its log, with hand-made cases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.dialects.mindformers_pynative.placement import PynativeInputs
from ms_tune.dialects.mindformers_pynative.recompute import normalize_pynative
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render
from tests.jobs import dynamic_plan, failure

if TYPE_CHECKING:
    from ms_tune.dialects import LayerPlan


def plan_of(text: str, layers: int = 8, version: str | None = None) -> LayerPlan:
    return dynamic_plan(parse_source(f"model: {{num_layers: {layers}}}\n{text}", Path("config.yaml")), version)


def ids(plan: LayerPlan) -> set[str]:
    for problem in plan.problems:
        assert all(render(problem.message, language) for language in Language)
    return {problem.id for problem in plan.problems} - {"one-card", "as-written"}


def full(plan: LayerPlan) -> list[int]:
    return [layer.layer for layer in plan.layers if layer.recompute is RecomputeMode.FULL]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            "auto",
            (
                "ValueError: Number of layers (7) is not divisible by total stages (2)."
                "Please configure the model distribution via 'pipeline_parallel_layers_per_stage'."
            ),
        ),
        ("null", "TypeError: object of type 'NoneType' has no len()"),
        (
            "['0-x', '4-6']",
            "ValueError: Invalid layer range format: 0-x. Layer IDs must be integers, got '0' and 'x'",
        ),
    ],
)
def test_placements_that_the_framework_refuses(value: str, text: str) -> None:
    plan = plan_of(f"parallelism: {{pipeline_parallel: 2, pipeline_parallel_layers_per_stage: {value}}}", layers=7)
    assert failure(plan) == text


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("['0-2', '4-7']", "layers-missing"),
        ("['0-4', '4-7']", "layers-twice"),
        ("['0-3', '4-9']", "layers-beyond"),
        ("['4-7', '0-3']", "layers-out-of-order"),
    ],
)
def test_ranges_that_do_not_cover_the_model_pass_without_a_word(value: str, problem: str) -> None:
    plan = plan_of(f"parallelism: {{pipeline_parallel: 2, pipeline_parallel_layers_per_stage: {value}}}")
    assert plan.failure is None
    assert ids(plan) == {problem}


@pytest.mark.parametrize(
    ("recompute", "text"),
    [
        (
            "{mode: full, full_recompute_layer: ['0-2', '2']}",
            (
                "ValueError: TrainConfig.recompute_config.recompute.full_recompute_layer: layer specs must be in strictly "
                "ascending order; spec[1] '2' starts at 2 but previous spec ends at 2"
            ),
        ),
        (
            "{full_recompute_layers: [0]}",
            "ValueError: Unknown configuration keys for RecomputeConfig: ['full_recompute_layers']",
        ),
        (
            "{mode: select, full_recompute_layer: [0], select_module: {mlp: [x]}}",
            "ValueError: invalid literal for int() with base 10: 'x'",
        ),
        ("{mode: select, select_module: {'mlp(': [0]}}", "regex.error: "),
    ],
)
def test_recompute_that_the_framework_refuses(recompute: str, text: str) -> None:
    assert failure(plan_of(f"recompute: {recompute}")) == text


@pytest.mark.parametrize(("given", "expected"), [("0-7", {"prediction-layers-left"}), ("0-6", set()), ("0-8", set())])
def test_prediction_layers_that_full_recompute_leaves(given: str, expected: set[str]) -> None:
    text = f"model: {{num_layers: 8, mtp_num_layers: 1}}\nrecompute: {{mode: full, full_recompute_layer: ['{given}']}}"
    plan = dynamic_plan(parse_source(text, Path("config.yaml")))
    assert ids(plan) == expected


@pytest.mark.parametrize(
    ("swap", "text"),
    [
        ("default_prefetch: 0", "ValueError: TrainConfig.swap_config.default_prefetch: value 0 out of range [1, 7]"),
        ("layer_swap: {layers: [1]}", "TypeError: TrainConfig.swap_config.layer_swap must be a list, got dict"),
        (
            "layer_swap: [{layers: True}]",
            (
                "TypeError: TrainConfig.swap_config.layer_swap[0].layers: expected list/tuple of layer ids or ranges like "
                "['5'], ['0-19'], got bool: True"
            ),
        ),
    ],
)
def test_swap_that_the_framework_refuses(swap: str, text: str) -> None:
    assert failure(plan_of(f"swap: {{enable: True, {swap}}}")) == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("training: {}", "the number of layers"),
        ("model: {num_layers: 4, n_layer: 5}", "the same setting"),
        ("model: {num_layers: '4'}", "an integer"),
        ("model: {num_layers: 4}\nparallelism: {pipeline_parallel: 999999}", "exceeds"),
    ],
)
def test_configs_that_cannot_be_read(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        dynamic_plan(parse_source(text, Path("config.yaml")))


def test_other_versions_are_not_served() -> None:
    with pytest.raises(UnsupportedError, match=r"1\.9"):
        plan_of("", version="1.9")


MODULES = (
    *("self_attention", "self_attention.gather", "self_attention.core_attention"),
    *("mlp", "mlp.linear_fc1"),
)
RULER = "-" * 69


def log_of(version: str, **settings: Any) -> list[str]:  # noqa: ANN401 - of many types
    layers = range(settings["layers"] + settings.get("mtp_layers", 0))
    plan = normalize_pynative(PynativeInputs(version=version, modules=dict.fromkeys(layers, MODULES), **settings))
    assert plan.failure is None
    return list(plan.log)


# Four layers and a prediction layer on two stages: every stage logs its own layers, the last one also the prediction
# layer.
STAGES = {
    "layers": 4,
    "mtp_layers": 1,
    "stages": 2,
    "mode": "select",
    "full_layers": ["1"],
    "select_module": {"self_attention": ["0"], "self_attention.core_attention": ["2"], "mlp": ["4"]},
    "comm": True,
    "comm_module": {"self_attention.gather": ["2-3"]},
}


def test_recompute_of_every_kind_on_two_stages_in_2_1() -> None:
    assert log_of("2.1", exclude_op={"self_attention.gather": ["0"]}, **STAGES) == [
        "--- Final Recompute Configuration Map---",
        "layer0: self_attention",
        RULER,
        "--- Final ExcludeOp Configuration Map---",
        "layer0: self_attention.gather",
        RULER,
        "--- Final Comm Select Recompute Configuration Map---",
        RULER,
        "Set exclude recompute at layer 0: self_attention.gather",
        "Set select recompute at layer 0: self_attention",
        "Set full recompute at layer 1",
        "--- Final Recompute Configuration Map---",
        "layer2: self_attention.core_attention",
        "layer4: mlp",
        RULER,
        "--- Final ExcludeOp Configuration Map---",
        RULER,
        "--- Final Comm Select Recompute Configuration Map---",
        "layer2: self_attention.gather",
        "layer3: self_attention.gather",
        RULER,
        "Set select recompute at layer 2: self_attention.core_attention",
        "Set select recompute at layer 4: mlp",
    ]


def test_a_layer_of_prediction_needs_the_last_layer_in_the_last_cell() -> None:
    """If the last cell ends with another layer, there is no prediction layer after it."""
    settings = {"layers": 4, "mtp_layers": 1, "stages": 2, "layers_per_stage": ["2-3", "0-1"]}
    assert log_of("2.1", mode="full", full_layers=["0-4"], **settings) == [
        f"Set full recompute at layer {layer}" for layer in (2, 3, 0, 1)
    ]


@pytest.mark.parametrize(("version", "title"), [("2.0", "Select Swap"), ("2.1", "Swap")])
def test_swap_of_layers_and_of_modules(version: str, title: str) -> None:
    modules = [{"op_name": "mlp", "layers": ["2"]}]
    swap: dict[str, Any] = {"layers": 4, "mtp_layers": 1, "swap": True}
    layers = [{"layers": ["0"], "backward_prefetch": 1}]
    of_modules = [f"--- Final {title} Configuration Map---", "layer2: mlp", RULER]
    assert log_of(version, op_swap=modules, **swap) == [*of_modules, "Set select swap at layer 2: mlp"]
    assert log_of(version, layer_swap=layers, **swap) == ["Set layer swap at layer 0"]
    both = ["Set layer swap at layer 0", "Set select swap at layer 2: mlp"]
    assert log_of(version, op_swap=modules, layer_swap=layers, **swap) == [*of_modules, *both]


@pytest.mark.parametrize("exclude", [{"2.0": ["MatMul"]}, {"2.1": {"self_attention": ["0"]}}])
def test_communication_without_any_other_recompute(exclude: dict[str, Any]) -> None:
    """Only 2.0 logs what it would save if nothing is recomputed."""
    ((version, value),) = exclude.items()
    comm = {"comm": True, "comm_module": {"self_attention.gather": ["0"]}}
    of_comm = ["--- Final Comm Select Recompute Configuration Map---", "layer0: self_attention.gather", RULER]
    first = ["Ops excluded from recompute (MUST_SAVE): ['MatMul']"] if version == "2.0" else []
    assert log_of(version, layers=2, mode="None", exclude_op=value, full_layers=["1"], **comm) == [*first, *of_comm]


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_what_is_switched_off_is_not_logged(version: str) -> None:
    off = {
        "select_module": {"mlp": ["0"]},
        "comm_module": {"mlp": ["0"]},
        "op_swap": [{"op_name": "mlp", "layers": [0]}],
    }
    assert log_of(version, layers=2, full_layers=["0"], **off) == []
    assert log_of(version, layers=2, mode="full", full_layers=["1"], **off) == ["Set full recompute at layer 1"]
