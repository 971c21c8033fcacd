"""Conversions: the settings of another dialect, by its own rules, do the same to every layer."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ms_tune.diagnostics import Severity
from ms_tune.dialects import MINDFORMERS, MINDFORMERS_PYNATIVE, MINDSPEED_MS, LayerPlan
from ms_tune.dialects.convert_layers import Converted, convert_plan
from ms_tune.dialects.draft import name_ranges
from ms_tune.dialects.mindformers.placement import RecomputeInputs, RecomputeValues, SwapValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.dialects.mindformers_pynative.placement import PynativeInputs
from ms_tune.dialects.mindformers_pynative.recompute import normalize_pynative
from ms_tune.dialects.mindspeed_ms.placement import MindSpeedInputs
from ms_tune.dialects.mindspeed_ms.recompute import normalize_mindspeed_ms
from ms_tune.enums import RecomputeMode
from ms_tune.errors import UsageError
from ms_tune.normalize.sapp_lists import SappLists, Sizes, parse_sapp
from ms_tune.normalize.sapp_lists import plan_sapp as sapp_plan
from ms_tune.text import Language, render
from tests.dialects.plan_cases import essence, mindformers_plan, mindspeed_plan, plan_of, pynative_plan

DIALECTS = (MINDFORMERS, MINDFORMERS_PYNATIVE, MINDSPEED_MS)
PLANS = {MINDFORMERS: mindformers_plan, MINDFORMERS_PYNATIVE: pynative_plan, MINDSPEED_MS: mindspeed_plan}


def ids(converted: Converted) -> set[str]:
    for problem in converted.problems:
        assert all(render(problem.message, language) for language in Language)
    return {problem.id for problem in converted.problems}


def is_said(converted: Converted) -> bool:
    return any(problem.severity is Severity.ERROR for problem in converted.problems)


def compare(plan: LayerPlan, other: LayerPlan, *, merged: bool) -> None:
    assert other.failure is None, (other.failure, plan.formative)
    if merged:
        assert [(row[0], *row[3:]) for row in essence(other)] == [(row[0], *row[3:]) for row in essence(plan)]
    else:
        assert essence(other) == essence(plan)


@pytest.mark.slow
@pytest.mark.parametrize("to", DIALECTS)
@pytest.mark.parametrize("start", DIALECTS)
def test_there_and_back(start: str, to: str) -> None:
    whole = 0
    for seed in range(200):
        plan = PLANS[start](Random(seed))  # noqa: S311 - reproducible
        assert plan.failure is None
        there = convert_plan(plan, to)
        ids(there)
        if is_said(there):
            continue
        other = plan_of(there.values, to)
        merged = "convert-chunks-merged" in ids(there)
        compare(plan, other, merged=merged)
        back = convert_plan(other, start)
        if is_said(back):
            # Chunks that were merged into one cell may leave holes behind them.
            assert merged
            continue
        whole += 1
        compare(plan, plan_of(back.values, start), merged=merged)
    assert whole > 80


@pytest.mark.parametrize("to", DIALECTS)
@pytest.mark.parametrize("start", DIALECTS)
def test_what_is_left_out_is_missing_and_named(start: str, to: str) -> None:
    for seed in range(200):
        plan = PLANS[start](Random(seed))  # noqa: S311 - reproducible
        there = convert_plan(plan, to)
        if not is_said(there):
            continue
        assert ids(there) & {"convert-holes", "convert-empty"}
        for problem in there.problems:
            if problem.id == "convert-holes":
                key = problem.message.params["key"]
                found = {name: value for name, value in there.values.items() if name.endswith(f".{key}")}
                assert not any(value for value in found.values())


def pynative(**settings: object) -> LayerPlan:
    return normalize_pynative(PynativeInputs(layers=8, **settings))  # type: ignore[arg-type] # of many types


def test_layers_that_counts_cannot_name_are_not_converted() -> None:
    plan = pynative(stages=2, mode="full", full_layers=["0", "2", "4-5"])
    for to in (MINDFORMERS, MINDSPEED_MS):
        converted = convert_plan(plan, to)
        assert "convert-holes" in ids(converted)
        assert not any(name.endswith(".recompute") and value for name, value in converted.values.items())


def test_cumulative_counts_become_exclusive_ones() -> None:
    values = RecomputeValues(recompute=[1, 0], select_recompute=[3, 2], select_comm_recompute=[1, 4])
    plan = normalize(RecomputeInputs(layers=8, stages=2, values=values))
    converted = convert_plan(plan, MINDSPEED_MS)
    assert converted.values["parallel_config.num_layer_list"] == [4, 4]
    prefix = "parallel_config.recompute_config"
    assert converted.values[f"{prefix}.recompute"] == [1, 0]
    assert converted.values[f"{prefix}.select_recompute"] == [2, 2]
    assert converted.values[f"{prefix}.select_comm_recompute"] == [0, 4]
    assert not converted.problems


def test_an_offset_becomes_counts_and_ranges() -> None:
    inputs = RecomputeInputs(layers=9, stages=4, offset=[-1, 1, 1, 0], values=RecomputeValues(recompute=[0, 1, 0, 0]))
    plan = normalize(inputs)
    assert convert_plan(plan, MINDSPEED_MS).values["parallel_config.num_layer_list"] == [1, 3, 3, 2]
    converted = convert_plan(plan, MINDFORMERS_PYNATIVE)
    assert converted.values["parallelism.pipeline_parallel_layers_per_stage"] == ["0", "1-3", "4-6", "7-8"]
    assert converted.values["recompute.full_recompute_layer"] == ["1"]


def test_an_empty_first_stage_is_one_for_the_embedding() -> None:
    inputs = RecomputeInputs(layers=8, stages=4, offset=[-2, 1, 1, 0], values=RecomputeValues(recompute=[0, 1, 1, 0]))
    plan = normalize(inputs)
    converted = convert_plan(plan, MINDSPEED_MS)
    assert converted.values["parallel_config.standalone_embedding_stage"] is True
    assert converted.values["parallel_config.num_layer_list"] == [3, 3, 2]
    compare(plan, plan_of(converted.values, MINDSPEED_MS), merged=False)
    assert "convert-empty" in ids(convert_plan(plan, MINDFORMERS_PYNATIVE))


def test_the_fault_of_a_stage_for_the_embedding_is_not_walked_into() -> None:
    inputs = RecomputeInputs(layers=8, stages=4, offset=[-2, 1, 1, 0], values=RecomputeValues(recompute=[0, 1, 1, 1]))
    converted = convert_plan(normalize(inputs), MINDSPEED_MS)
    assert "convert-standalone" in ids(converted)
    assert "parallel_config.recompute_config.recompute" not in converted.values


def test_a_pipeline_that_turns_round_has_no_other_form() -> None:
    inputs = RecomputeInputs(layers=8, stages=2, interleave=True, interleave_num=2, scheduler="zero_bubble_v")
    plan = normalize(inputs)
    for to in (MINDSPEED_MS, MINDFORMERS_PYNATIVE):
        converted = convert_plan(plan, to)
        assert ids(converted) == {"convert-order"}
        assert not converted.values


def test_a_config_that_stops_the_framework_is_not_converted() -> None:
    plan = normalize_mindspeed_ms(MindSpeedInputs(layers=2, stages=4))
    assert ids(convert_plan(plan, MINDFORMERS)) == {"convert-no-plan"}


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


def test_excludes_by_layer_stay_so_where_the_target_takes_them() -> None:
    """Names for the whole model are those of the dynamic graph of 2.0, and of no other release or graph."""
    values = RecomputeValues(recompute=[2, 0], select_recompute_exclude={r"mlp\.mul": [3, 0]})
    static = normalize(RecomputeInputs(layers=8, stages=2, values=values))
    dynamic = pynative(mode="full", full_layers=["0-3"], exclude_op={"mlp.mul": ["0-2"]}, version="2.1")
    for plan in (static, dynamic):
        found = convert_plan(plan, MINDFORMERS_PYNATIVE, version="2.1").values["recompute.exclude_op"]
        assert isinstance(found, dict)
        assert list(found.values()) == [["0-2"]]


def test_of_many_layers_a_message_names_the_first_eight() -> None:
    assert name_ranges([0, 1, 2, 5]) == "0-2, 5"
    assert name_ranges(range(0, 16, 2)) == "0, 2, 4, 6, 8, 10, 12, 14"
    assert name_ranges(range(0, 18, 2)) == "0, 2, 4, 6, 8, 10, 12, 14, …"


def test_excluded_names_stay_names_in_their_own_release_only() -> None:
    plan = pynative(mode="full", full_layers=["0-3"], exclude_op=["mul", "add"], version="2.0")
    same, later = (convert_plan(plan, MINDFORMERS_PYNATIVE, version=version) for version in ("2.0", "2.1"))
    assert same.values["recompute.exclude_op"] == ["mul", "add"]
    assert "convert-excludes" not in ids(same)
    assert "recompute.exclude_op" not in later.values
    assert "convert-excludes" in ids(later)


def test_excludes_beside_swap_have_no_effect_in_the_static_graph() -> None:
    """With swap on, MindFormers reads no exclude lists."""
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
    compare(plan, static, merged=False)
    assert [layer.swap for layer in static.layers] == [layer.swap for layer in plan.layers]
    back = convert_plan(static, MINDFORMERS_PYNATIVE)
    assert not is_said(back)
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
    compare(plan, plan_of(converted.values, MINDSPEED_MS), merged=False)
    compare(plan, plan_of(convert_plan(plan, MINDFORMERS).values, MINDFORMERS), merged=False)


def test_sapps_lists_mean_what_mindformers_makes_of_them() -> None:
    random = Random(7)  # noqa: S311 - reproducible
    for _ in range(100):
        stages, chunks = random.randrange(1, 5), random.randrange(1, 4)
        counts = [[random.randrange(1, 5) for _ in range(stages)] for _ in range(chunks)]
        layers = sum(map(sum, counts))
        offset = [[count - layers // (stages * chunks) for count in row] for row in counts]
        full = [[random.randrange(count + 1) for count in row] for row in counts]
        more = [
            [random.randrange(low, count + 1) for low, count in zip(lows, row, strict=True)]
            for lows, row in zip(full, counts, strict=True)
        ]
        plan = sapp_plan(SappLists(offset, full, more, full), Sizes(layers, stages, chunks))
        values = RecomputeValues(recompute=full, select_recompute=more, select_comm_recompute=full)
        inputs = RecomputeInputs(
            layers=layers, stages=stages, offset=offset, interleave=True, interleave_num=chunks, values=values
        )
        assert plan.failure is None
        # A kind that reaches no other layers than full recompute does is nothing that full recompute could override.
        meant = normalize(inputs).layers
        assert [layer._replace(overridden=()) for layer in meant] == [
            layer._replace(overridden=()) for layer in plan.layers
        ]


@pytest.mark.parametrize(
    ("lists", "text"),
    [
        (([[0, 0]], [[2, 0]], [[1, 0]], None), "SAPP counts those as well"),
        (([[0, 0]], [[1, 0]], [[1, 0]], [[0, 0]]), "SAPP counts those as well"),
        (([[0, 0]], [[5, 0]], None, None), "asks for 5 of 4 layers"),
        (([[0, 1]], [[0, 0]], None, None), "places 9 layers"),
        (([[0, 0], [0, 0]], [[0, 0]], None, None), "offset has the shape 2 x 2"),
    ],
)
def test_lists_that_cannot_be_sapps(lists: tuple[Any, ...], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        sapp_plan(SappLists(*lists), Sizes(8, 2))


def test_kinds_that_sapp_was_not_asked_for() -> None:
    plan = sapp_plan(SappLists(None, [[2, 1]], None, None), Sizes(8, 2))
    assert {layer.recompute for layer in plan.layers} == {RecomputeMode.FULL, RecomputeMode.NONE}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nothing here", "none of the lists"),
        ("recompute: [[1]]\nrecompute: [[1]]", "duplicate key"),
        ("recompute: [[1, [2]]]", "must be a list of integers"),
        ("recompute: [[1, 2], [3]]", "must be a list of integers"),
        ("recompute: [__import__('os')]", "must be a list of integers"),
        ("recompute: [[1, 2]", "must be a list of integers"),
        ("recompute: " + "[" * 5000, "must be a list of integers"),
        ("recompute: [[99999999999]]", "must be a list of integers"),
        ("x" * 300_000, "exceeds 200000 characters"),
    ],
)
def test_pasted_text_that_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse_sapp(text)
    assert render(caught.value.message, Language.ZH)


def test_pasted_text_in_other_spellings() -> None:
    lists = parse_sapp("- offset: 0\n'recompute': [1, 0],\nselect_recompute=False\nmax_recompute: [[9]]\n")
    assert lists.offset is None
    assert lists.recompute == [[1, 0]]
    assert lists.select_recompute is None
