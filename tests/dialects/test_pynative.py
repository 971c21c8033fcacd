"""What each layer does in the dynamic graph of MindFormers 2.0 and 2.1, by hand-made cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ms_tune.diagnostics import Severity
from ms_tune.dialects import MINDFORMERS_PYNATIVE, LayerPlan, SwapPlan, write_specs
from ms_tune.dialects.mindformers_pynative.placement import PynativeInputs
from ms_tune.dialects.mindformers_pynative.recompute import normalize_pynative
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render
from tests.jobs import dynamic_plan

MODULES = (
    "self_attention",
    "self_attention.gather",
    "self_attention.linear_qkv",
    "self_attention.core_attention",
    "mlp",
    "mlp.linear_fc1",
)


def plan_of(text: str, layers: int = 8, version: str | None = None) -> LayerPlan:
    return dynamic_plan(parse_source(f"model: {{num_layers: {layers}}}\n{text}", Path("config.yaml")), version)


def with_modules(**settings: Any) -> LayerPlan:  # noqa: ANN401 - of many types
    modules = dict.fromkeys(range(9), MODULES)
    return normalize_pynative(PynativeInputs(layers=8, modules=modules, **settings))


def failure(plan: LayerPlan) -> str:
    assert plan.failure is not None
    assert plan.formative is None
    assert plan.layers == ()
    assert plan.problems[0].severity is Severity.ERROR
    return f"{plan.failure.exception}: {plan.failure.text}"


def ids(plan: LayerPlan) -> set[str]:
    for problem in plan.problems:
        assert all(render(problem.message, language) for language in Language)
    return {problem.id for problem in plan.problems} - {"one-card", "as-written"}


def full(plan: LayerPlan) -> list[int]:
    return [layer.layer for layer in plan.layers if layer.recompute is RecomputeMode.FULL]


def test_layers_are_shared_out_evenly() -> None:
    plan = plan_of("parallelism: {pipeline_parallel: 2, pipeline_parallel_interleave_num: 2}")
    assert plan.dialect == MINDFORMERS_PYNATIVE
    assert plan.framework_version == "2.1"
    assert plan.placement == ((2, 2), (2, 2))
    assert [(layer.chunk, layer.stage) for layer in plan.layers][::2] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert plan.formative is not None
    assert plan.formative["pipeline_parallel_layers_per_stage"] == ["0-1,4-5", "2-3,6-7"]


def test_a_text_for_each_stage() -> None:
    text = "parallelism: {pipeline_parallel: 2, pipeline_parallel_interleave_num: 2, "
    plan = plan_of(text + "pipeline_parallel_layers_per_stage: ['0-2,4', '3, 5-7']}")
    assert plan.placement == ((3, 1), (1, 3))
    assert ids(plan) == set()


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
        ("[[0], [1]]", "AttributeError: 'list' object has no attribute 'split'"),
        (
            "['0-6']",
            (
                "ValueError: The length of 'pipeline_parallel_layers_per_stage' (1) must equal 'pipeline_parallel' (2), "
                "but got 1 entries for 2 PP ranks."
            ),
        ),
        (
            "['0-2,3', '4-6']",
            (
                "ValueError: PP rank 0 has 2 chunk(s) in 'pipeline_parallel_layers_per_stage' (got '0-2,3'), but "
                "'pipeline_parallel_interleave_num' is 1. Each PP rank must have exactly 1 comma-separated chunk(s)."
            ),
        ),
        (
            "['0-x', '4-6']",
            "ValueError: Invalid layer range format: 0-x. Layer IDs must be integers, got '0' and 'x'",
        ),
        (
            "['3-0', '4-6']",
            "ValueError: Invalid layer range format: 3-0. layer_start must be less than or equal to layer_end.",
        ),
        (
            "['0-1-2', '4-6']",
            "ValueError: Invalid layer range format: 0-1-2. Expected format is 'start-end' or 'single_layer'.",
        ),
        (
            "3",
            (
                "TypeError: Expected typing.Union[typing.List[typing.List[int]], typing.List[str], str, NoneType] for "
                "'ParallelismConfig.pipeline_parallel_layers_per_stage', got int (3)"
            ),
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


def test_layers_recomputed_in_full() -> None:
    plan = plan_of("recompute: {mode: full, full_recompute_layer: [0-2, 5, '7']}")
    assert full(plan) == [0, 1, 2, 5, 7]
    assert plan.formative is not None
    assert plan.formative["full_recompute_layer"] == ["0-2", "5", "7"]
    assert plan.log[:2] == ("Set full recompute at layer 0", "Set full recompute at layer 1")


@pytest.mark.parametrize(
    ("recompute", "text"),
    [
        (
            "{mode: full, full_recompute_layer: ['0-8']}",
            (
                "ValueError: TrainConfig.recompute_config.recompute.full_recompute_layer[0]: layer id 8 out of range "
                "[0, 7], got '0-8'"
            ),
        ),
        (
            "{mode: full, full_recompute_layer: [-1]}",
            (
                "ValueError: TrainConfig.recompute_config.recompute.full_recompute_layer[0]: invalid layer spec -1; "
                "expected one non-negative integer or 'start-end' (e.g. '5', '0-19')"
            ),
        ),
        (
            "{mode: full, full_recompute_layer: ['0-2', '2']}",
            (
                "ValueError: TrainConfig.recompute_config.recompute.full_recompute_layer: layer specs must be in strictly "
                "ascending order; spec[1] '2' starts at 2 but previous spec ends at 2"
            ),
        ),
        (
            "{mode: full}",
            "ValueError: TrainConfig.recompute: mode is 'full' but full_recompute_layer is missing or empty",
        ),
        ("{mode: full, full_recompute_layer: 0-3}", "TypeError: 'str' object does not support item assignment"),
        ("{mode: full, full_recompute_layer: True}", "TypeError: 'bool' object is not iterable"),
        ("{mode: null}", "ValueError: RecomputeConfig.mode must be 'None', 'full', or 'select', got None"),
        ("{mode: none}", "ValueError: RecomputeConfig.mode must be 'None', 'full', or 'select', got none"),
        (
            "{full_recompute_layers: [0]}",
            "ValueError: Unknown configuration keys for RecomputeConfig: ['full_recompute_layers']",
        ),
        ("True", "TypeError: Expected RecomputeConfig for 'TrainConfig.recompute', got bool"),
        ("null", "TypeError: Field 'TrainConfig.recompute' cannot be None"),
        (
            "{mode: select, full_recompute_layer: [0], select_module: {mlp: [x]}}",
            "ValueError: invalid literal for int() with base 10: 'x'",
        ),
        ("{mode: select, select_module: {'mlp(': [0]}}", "regex.error: "),
    ],
)
def test_recompute_that_the_framework_refuses(recompute: str, text: str) -> None:
    assert failure(plan_of(f"recompute: {recompute}")) == text


def test_full_wins_and_a_module_covers_what_is_inside() -> None:
    plan = with_modules(
        mode="select",
        full_layers=[0],
        select_module={"self_attention": ["0-1"], r"self_attention\..*": ["1-2"], "mlp": [0]},
    )
    assert full(plan) == [0]
    assert plan.layers[0].overridden == ("self_attention", "mlp")
    assert plan.layers[1].select_patterns == ("self_attention",)
    assert plan.layers[2].select_patterns == (
        "self_attention.core_attention",
        "self_attention.gather",
        "self_attention.linear_qkv",
    )


def test_a_plain_dot_is_any_character() -> None:
    plan = with_modules(mode="select", select_module={"mlp.linear_fc1": [0], "mlp..*": [1], "layers.*.mlp": [2]})
    assert plan.layers[1].select_patterns == ("mlp.linear_fc1",)
    assert plan.layers[2].select_patterns == ()
    assert ids(plan) == {"no-match", "path-from-outside"}


def test_communication_is_covered_by_what_is_selected() -> None:
    plan = with_modules(
        mode="select",
        select_module={"self_attention": [1]},
        comm=True,
        comm_module={"self_attention.gather": ["0-1"]},
    )
    assert plan.layers[0].recompute is RecomputeMode.COMM
    assert plan.layers[1].comm_patterns == ()


def test_what_is_excluded_is_a_list_in_2_0_and_a_mapping_in_2_1() -> None:
    names, mapping = "[matmul]", "{mlp: [0-1]}"
    text = "recompute: {mode: full, full_recompute_layer: [0], exclude_op: %s}"
    old = plan_of(text % names, version="2.0.0")
    assert old.framework_version == "2.0"
    assert old.layers[0].select_excludes == ("matmul",)
    assert old.layers[1].select_excludes == ()
    new = plan_of(text % mapping, version="2.1.0")
    assert new.layers[1].select_excludes == ("mlp",)
    assert failure(plan_of(text % mapping, version="2.0")) == (
        "TypeError: TrainConfig.recompute.exclude_op must be a list/tuple of op-name strings, got dict"
    )
    assert failure(plan_of(text % names, version="2.1")) == (
        "TypeError: TrainConfig.recompute.exclude_op must be a dict (module path -> list of layer ranges), got list"
    )


def test_swap() -> None:
    text = "swap: {enable: True, default_prefetch: 2, layer_swap: [{layers: ['1-2']}, {layers: [3]}]"
    plan = plan_of(text + ", op_swap: [{op_name: mlp, layers: [2-4], backward_prefetch: 5}]}")
    assert [layer.swap for layer in plan.layers[1:5]] == [
        (SwapPlan("", 2),),
        (SwapPlan("", 2),),
        (SwapPlan("mlp", 2),),
        (SwapPlan("mlp", 2),),
    ]
    assert ids(plan) == {"first-entry-only", "prefetch-ignored"}


@pytest.mark.parametrize(
    ("swap", "text"),
    [
        ("default_prefetch: 0", "ValueError: TrainConfig.swap_config.default_prefetch: value 0 out of range [1, 7]"),
        ("layer_swap: {layers: [1]}", "TypeError: TrainConfig.swap_config.layer_swap must be a list, got dict"),
        (
            "layer_swap: [{layers: ['7']}]",
            (
                "ValueError: TrainConfig.swap_config.layer_swap[0].layers: max layer id 7 plus prefetch 1 exceeds "
                "num_layers (8); max allowed layer id is 6"
            ),
        ),
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


def test_swap_and_stages() -> None:
    plan = plan_of("parallelism: {pipeline_parallel: 2}\nswap: {enable: True}")
    assert failure(plan) == "ValueError: swap is not supported with pipeline parallel"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("swap: {enable: True}", {"swap-of-nothing"}),
        ("swap: {layer_swap: [{layers: [1]}]}", {"switched-off"}),
        ("recompute: {full_recompute_layer: [0]}", {"mode-none"}),
        ("recompute: {mode: full, full_recompute_layer: [0], select_module: {mlp: [0]}}", {"select-in-full"}),
        (
            "recompute: {mode: select, full_recompute_layer: [0], select_module: {mlp: [99]}}",
            {"ranges-unchecked", "no-match"},
        ),
        ("recompute_comm: {select_module: {mlp: [0]}}", {"switched-off"}),
        (
            "recompute: {mode: full, full_recompute_layer: [1]}\nswap: {enable: True, layer_swap: [{layers: [1]}]}",
            {"swap-and-recompute"},
        ),
        (
            "swap: {enable: True, op_swap: [{op_name: mlp, layers: [0]}, {op_name: mlp, layers: [1]}]}",
            {"last-entry-only"},
        ),
        ("parallelism: {pipeline_parallel_interleave_num: 2}", {"interleave-ignored"}),
        ("parallelism: {pipeline_parallel_layers_per_stage: ['0-7']}", {"layers-per-stage-ignored"}),
        ("parallelism: {pipeline_parallel: 2, pipeline_parallel_interleave_num: -1}", {"no-chunks"}),
    ],
)
def test_what_passes_without_a_word(text: str, found: set[str]) -> None:
    plan = plan_of(text)
    assert plan.failure is None
    assert ids(plan) == found


def test_one_card() -> None:
    text = "recompute: {mode: full, full_recompute_layer: [0]}"
    assert "one-card" in {problem.id for problem in plan_of(text).problems}
    sharded = plan_of(f"{text}\nparallelism: {{data_parallel_shard: 8}}")
    assert "one-card" not in {problem.id for problem in sharded.problems}


def test_prediction_layers_count_behind_the_others() -> None:
    text = "model: {num_hidden_layers: 4, num_nextn_predict_layers: 1}\nrecompute: {mode: full, full_recompute_layer: [%s]}"
    all_but_one = dynamic_plan(parse_source(text % "0-3", Path("config.yaml")))
    assert "prediction-layers-left" in ids(all_but_one)
    plan = dynamic_plan(parse_source(text % "0-4", Path("config.yaml")))
    assert full(plan) == [0, 1, 2, 3, 4]
    assert plan.placement == ((4,),)


def test_the_schedule_is_looked_at_last() -> None:
    text = "parallelism: {pipeline_parallel: 2, pipeline_parallel_schedule: %s}"
    assert failure(plan_of(text % "zb")).startswith("ValueError: Unsupported pipeline_parallel_schedule 'zb'.")
    assert failure(plan_of(text % "interleaved_1f1b")).startswith("ValueError: pipeline_parallel_schedule=")
    assert plan_of(text % "GPipe").failure is None


def test_aliases_are_written_into_as_the_framework_does() -> None:
    text = "recompute: {mode: select, select_module: {mlp: &layers [0-2], self_attention: *layers}}"
    assert [len(layer.select_patterns) for layer in plan_of(text).layers] == [2, 2, 2, 0, 0, 0, 0, 0]


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


def test_the_number_of_layers_may_come_from_elsewhere() -> None:
    source = parse_source("recompute: {mode: full, full_recompute_layer: [0-60]}", Path("config.yaml"))
    assert len(full(dynamic_plan(source, layers=61))) == 61


def test_other_versions_are_not_served() -> None:
    with pytest.raises(UnsupportedError, match=r"1\.9"):
        plan_of("", version="1.9")


def test_the_normal_form_is_its_own() -> None:
    first = plan_of("recompute: {mode: select, full_recompute_layer: [0, 1, 2], select_module: {mlp: [0-3, 5, 6]}}")
    assert first.formative is not None
    again = normalize_pynative(
        PynativeInputs(
            layers=8,
            mode="select",
            full_layers=first.formative["full_recompute_layer"],
            select_module=first.formative["select_module"],
        )
    )
    assert again.formative == first.formative
    assert [layer.select_patterns for layer in again.layers] == [layer.select_patterns for layer in first.layers]


@pytest.mark.parametrize(
    ("layers", "wanted"),
    [([], []), ([3], ["3"]), ([0, 1, 2, 5], ["0-2", "5"]), ([2, 1, 1, 0], ["0-2"])],
)
def test_the_shortest_list(layers: list[int], wanted: list[str]) -> None:
    assert write_specs(layers) == wanted


def test_what_is_set_at_each_layer_is_said_of_known_modules_only() -> None:
    """The lines of pynative/.../activation_checkpoint.py and swap: of the modules in a layer, those that were chosen."""
    inputs = PynativeInputs(
        layers=2,
        mode="select",
        select_module={"mlp": ["1"]},
        swap=True,
        op_swap=[{"op_name": "self_attention", "layers": ["0"]}],
    )
    modules = dict.fromkeys(range(2), ("mlp", "self_attention"))
    lines = normalize_pynative(inputs._replace(modules=modules)).log
    said = [line for line in lines if line.startswith("Set ")]
    assert said == ["Set select recompute at layer 1: mlp", "Set select swap at layer 0: self_attention"]
    assert not any(line.startswith("Set ") for line in normalize_pynative(inputs).log)


def test_a_module_that_may_come_with_the_split_of_the_model_is_kept_for_communication_alone() -> None:
    settings: dict[str, Any] = {
        "mode": "select",
        "select_module": {"mlp.all_gather": ["0"], "mlp.linear_fc1": ["0"]},
        "comm": True,
        "comm_module": {"self_attention.all_gather": ["1"]},
    }
    known, unknown = with_modules(**settings), with_modules(**settings, comm_known=False)
    assert [list(plan.layers[0].select_patterns) for plan in (known, unknown)] == [["mlp.linear_fc1"]] * 2
    assert [list(plan.layers[1].comm_patterns) for plan in (known, unknown)] == [[], ["self_attention.all_gather"]]


@pytest.mark.parametrize(("layers", "severity"), [(list(range(1, 8)), Severity.INFO), ([1, 2, 5], Severity.WARNING)])
def test_a_pattern_for_all_other_layers_is_meant_for_those_that_have_it(layers: list[int], severity: Severity) -> None:
    """Of layers recomputed in full nothing more is asked, so that a pattern for the others is one for all layers."""
    plan = normalize_pynative(
        PynativeInputs(
            layers=8,
            stages=2,
            mode="select",
            full_layers=[0],
            select_module={"mlp.linear_fc1": layers},
            modules={layer: MODULES if layer < 4 else MODULES[:5] for layer in range(8)},
        )
    )
    assert full(plan) == [0]
    assert [one.severity for one in plan.problems if one.id == "cell-unmatched"] == [severity]
