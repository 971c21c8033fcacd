"""Check that converted settings have the same effect on every layer by the rules of the other dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ms_tune.diagnostics import Severity
from ms_tune.dialects import MINDFORMERS, MINDFORMERS_PYNATIVE, MINDSPEED_MS, LayerPlan
from ms_tune.dialects.convert_layers import Converted, convert_plan
from ms_tune.dialects.mindformers.placement import RecomputeInputs, RecomputeValues, SwapValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.dialects.mindformers_pynative.placement import PynativeInputs
from ms_tune.dialects.mindformers_pynative.recompute import normalize_pynative
from ms_tune.normalize.sapp_lists import Sizes, parse_sapp
from ms_tune.normalize.sapp_lists import plan_sapp as sapp_plan
from tests.jobs import ids, normalize_source
from tests.normalize.conversion_cases import config_of


def has_error(converted: Converted) -> bool:
    return any(problem.severity is Severity.ERROR for problem in converted.problems)


def plan_of(values: Mapping[str, object], dialect: str) -> LayerPlan:
    return normalize_source(config_of(values, dialect, {}))


def essence(plan: LayerPlan) -> list[tuple[object, ...]]:
    """Return the recomputation and swap of each layer, without names of operators."""
    return [
        (one.layer, one.stage, one.chunk, one.recompute, bool(one.select_patterns), bool(one.comm_patterns))
        for one in plan.layers
    ]


def pynative(**settings: object) -> LayerPlan:
    return normalize_pynative(PynativeInputs(layers=8, **settings))  # type: ignore[arg-type] # of many types


def test_layers_that_counts_cannot_name_are_not_converted() -> None:
    plan = pynative(stages=2, mode="full", full_layers=["0", "2", "4-5"])
    for to in (MINDFORMERS, MINDSPEED_MS):
        converted = convert_plan(plan, to)
        assert "convert-holes" in ids(converted)
        assert not any(name.endswith(".recompute") and value for name, value in converted.values.items())


def test_an_empty_first_stage_is_one_for_the_embedding() -> None:
    inputs = RecomputeInputs(layers=8, stages=4, offset=[-2, 1, 1, 0], values=RecomputeValues(recompute=[0, 1, 1, 0]))
    plan = normalize(inputs)
    converted = convert_plan(plan, MINDSPEED_MS)
    assert converted.values["parallel_config.standalone_embedding_stage"] is True
    assert converted.values["parallel_config.num_layer_list"] == [3, 3, 2]
    assert essence(plan) == essence(plan_of(converted.values, MINDSPEED_MS))
    assert "convert-empty" in ids(convert_plan(plan, MINDFORMERS_PYNATIVE))


def test_chunks_of_one_stage_become_one() -> None:
    values = RecomputeValues(recompute=[[1], [1]])
    plan = normalize(RecomputeInputs(layers=4, interleave=True, interleave_num=2, values=values))
    converted = convert_plan(plan, MINDFORMERS_PYNATIVE)
    assert "convert-chunks-merged" in ids(converted)
    assert converted.values["recompute.full_recompute_layer"] == ["0", "2"]


def test_an_unknown_dialect() -> None:
    with pytest.raises(ValueError, match="megatrons"):
        convert_plan(pynative(), "megatrons")


def test_excludes() -> None:
    values = RecomputeValues(recompute=[2, 0], select_recompute_exclude={r"mlp\.mul": [3, 0]})
    plan = normalize(RecomputeInputs(layers=8, stages=2, values=values))
    assert "convert-excludes" in ids(convert_plan(plan, MINDSPEED_MS))
    new = convert_plan(plan, MINDFORMERS_PYNATIVE, version="2.1.0")
    assert new.values["recompute.exclude_op"] == {r"mlp\.mul": ["0-2"]}
    assert "convert-excludes" in ids(convert_plan(plan, MINDFORMERS_PYNATIVE, version="2.0"))
    back = convert_plan(plan_of(new.values, MINDFORMERS_PYNATIVE), MINDFORMERS)
    assert back.values["recompute_config.select_recompute_exclude"] == {r"mlp\.mul": [3, 0]}


def test_excluded_names_stay_names_in_their_own_release_only() -> None:
    plan = pynative(mode="full", full_layers=["0-3"], exclude_op=["mul", "add"], version="2.0")
    same, later = (convert_plan(plan, MINDFORMERS_PYNATIVE, version=version) for version in ("2.0", "2.1"))
    assert same.values["recompute.exclude_op"] == ["mul", "add"]
    assert "convert-excludes" not in ids(same)
    assert "recompute.exclude_op" not in later.values
    assert "convert-excludes" in ids(later)


def test_excludes_next_to_swap_have_no_effect_in_the_static_graph() -> None:
    """MindFormers ignores exclude lists while swap is on."""
    facts: dict[str, Any] = {"mode": "full", "full_layers": ["0-3"], "exclude_op": {"mlp": ["0-1"]}}
    apart = convert_plan(pynative(**facts), MINDFORMERS)
    assert "convert-excludes" not in ids(apart)
    assert apart.values["recompute_config.select_recompute_exclude"]
    swapping = convert_plan(pynative(**facts, swap=True, prefetch=2, layer_swap=[{"layers": ["5"]}]), MINDFORMERS)
    assert "convert-excludes" in ids(swapping)
    assert swapping.values["recompute_config.select_recompute_exclude"] is False


def test_swap_between_the_graphs() -> None:
    plan = pynative(
        mode="full",
        full_layers=["0"],
        swap=True,
        prefetch=2,
        layer_swap=[{"layers": ["1-2"]}],
        op_swap=[{"op_name": "self_attention", "layers": ["3-4"]}],
    )
    converted = convert_plan(plan, MINDFORMERS)
    assert {"convert-prefetch", "convert-swap-numbers"} <= ids(converted)
    assert converted.values["recompute_config.recompute"] == [0]
    static = plan_of(converted.values, MINDFORMERS)
    assert essence(plan) == essence(static)
    assert [layer.swap for layer in static.layers] == [layer.swap for layer in plan.layers]
    back = convert_plan(static, MINDFORMERS_PYNATIVE)
    assert not has_error(back)
    again = plan_of(back.values, MINDFORMERS_PYNATIVE)
    assert again.layers == plan.layers


@pytest.mark.parametrize(
    ("entries", "stages", "problem"),
    [
        ([(1, [7])], 1, "convert-swap-last"),
        ([(1, [1])], 2, "convert-swap-pipeline"),
        ([(1, [1]), (2, [2])], 1, "convert-one-prefetch"),
    ],
)
def test_swap_that_the_dynamic_graph_does_not_do(
    entries: list[tuple[int, list[int]]], stages: int, problem: str
) -> None:
    layer_swap = [{"backward_prefetch": prefetch, "layers": layers} for prefetch, layers in entries]
    swap = SwapValues(swap=True, layer_swap=layer_swap, op_swap=[])
    plan = normalize(RecomputeInputs(layers=8, stages=stages, swap=swap))
    assert plan.failure is None
    converted = convert_plan(plan, MINDFORMERS_PYNATIVE)
    assert problem in ids(converted)
    assert "swap.enable" not in converted.values
    assert "convert-swap" in ids(convert_plan(plan, MINDSPEED_MS))


SAPP = """
To put in yaml configuration:
        offset: [[-2, -1, -1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, -1]]
        recompute = [[1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
        select_recompute: [[3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ]
        select_comm_recompute: [[1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]
————————————— pp: 8, vp: 1, micro: 32 ————————————
   real    =   ideal   +   imba    + recompute
  0.5743   =  0.2188   +  0.2947   +  0.0608
"""


def test_sapps_lists_count_from_the_first_layer_on() -> None:
    plan = sapp_plan(parse_sapp(SAPP), Sizes(96, 16))
    converted = convert_plan(plan, MINDSPEED_MS)
    assert converted.values["parallel_config.num_layer_list"] == [4, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 5]
    prefix = "parallel_config.recompute_config"
    assert converted.values[f"{prefix}.recompute"] == [1, 1, 1] + [0] * 13
    assert converted.values[f"{prefix}.select_recompute"] == [2, 1] + [0] * 14
    assert converted.values[f"{prefix}.select_comm_recompute"] == [0] * 16
    assert essence(plan) == essence(plan_of(converted.values, MINDSPEED_MS))
    assert essence(plan) == essence(plan_of(convert_plan(plan, MINDFORMERS).values, MINDFORMERS))


def test_pasted_text_in_other_spellings() -> None:
    lists = parse_sapp("- offset: 0\n'recompute': [1, 0],\nselect_recompute=False\nmax_recompute: [[9]]\n")
    assert lists.offset is None
    assert lists.recompute == [[1, 0]]
    assert lists.select_recompute is None
