"""Where MindSpeed-Core-MS r0.1.0 puts each layer and what the layer recomputes, by hand-made cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ms_tune.diagnostics import Severity
from ms_tune.dialects import MINDSPEED_MS, FrameworkStop, LayerPlan
from ms_tune.dialects.mindspeed_ms.placement import CountArray, MindSpeedInputs, add
from ms_tune.dialects.mindspeed_ms.recompute import normalize_mindspeed_ms
from ms_tune.enums import RecomputeMode
from ms_tune.errors import ConfigError, UnsupportedError
from ms_tune.source.yaml import parse_source
from ms_tune.text import Language, render
from tests.jobs import mindspeed_plan


def plan_of(text: str) -> LayerPlan:
    return mindspeed_plan(parse_source(text, Path("config.yaml")))


def parallel(settings: str, layers: int = 8, stages: int = 2, model: str = "") -> LayerPlan:
    return plan_of(
        f"model_config: {{num_layers: {layers}, {model}}}\n"
        f"parallel_config: {{pipeline_model_parallel_size: {stages}, {settings}}}\n"
    )


def failure(plan: LayerPlan) -> str:
    assert plan.failure is not None
    assert plan.formative is None
    assert plan.layers == ()
    assert plan.problems[0].severity is Severity.ERROR
    return f"{plan.failure.exception}: {plan.failure.text}"


def ids(plan: LayerPlan) -> set[str]:
    for problem in plan.problems:
        assert all(render(problem.message, language) for language in Language)
    return {problem.id for problem in plan.problems}


def effects(plan: LayerPlan) -> str:
    """One letter a layer; a capital for those that repeat their communication too."""
    letters = {RecomputeMode.FULL: "f", RecomputeMode.SELECT: "s", RecomputeMode.COMM: "C", RecomputeMode.NONE: "-"}
    return "".join(
        letters[layer.recompute].upper() if layer.comm_patterns else letters[layer.recompute] for layer in plan.layers
    )


def test_the_remainder_goes_to_the_last_stage_but_one() -> None:
    plan = parallel("", layers=62, stages=4)
    assert plan.dialect == MINDSPEED_MS
    assert plan.framework_version == "r0.1.0"
    assert plan.placement == ((15, 16, 16, 15),)
    assert plan.formative is not None
    assert plan.formative["num_layer_list"] == [15, 16, 16, 15]


def test_layers_run_through_all_stages_chunk_by_chunk() -> None:
    plan = parallel("virtual_pipeline_model_parallel_size: 2", layers=9)
    assert plan.placement == ((3, 2), (2, 2))
    assert [(layer.layer, layer.chunk, layer.stage) for layer in plan.layers][4:6] == [(4, 0, 1), (5, 1, 0)]


@pytest.mark.parametrize("value", ["[[3, 1], [2, 2]]", "'[[3, 1], [2, 2]]'", "'((3, 1), (2, 2))'"])
def test_a_list_of_layers_is_a_list_or_a_text(value: str) -> None:
    plan = parallel(f"virtual_pipeline_model_parallel_size: 2, num_layer_list: {value}")
    assert plan.placement == ((3, 1), (2, 2))
    assert plan.log[0] == "Custom num layer list is [[3 1]\n [2 2]]. Num_layers in vpp_rank:0, pp_rank:0 is 3."


def test_lists_count_behind_the_layers_recomputed_in_full() -> None:
    lists = "{recompute: [1, 0], select_recompute: [2, 1], select_comm_recompute: [1, 3]}"
    plan = parallel(f"recompute_config: {lists}")
    assert effects(plan) == "fSs-SCC-"
    assert plan.formative is not None
    assert plan.formative["select_recompute"] == [2, 1]
    assert plan.log == (
        "in pp_rank:0, full_recompute_layers is 1, select_recompute_layers is 2, select_comm_recompute_layers is 1",
        "in pp_rank:1, full_recompute_layers is 0, select_recompute_layers is 1, select_comm_recompute_layers is 3",
    )


def test_texts_beside_the_section_win() -> None:
    plan = parallel("recompute_config: {recompute: [1, 1]}, recompute: '[2, 0]', select_recompute: '(1, 1)'")
    assert effects(plan) == "ffs-s---"
    assert "string-wins" in ids(plan)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("num_layer_list: 4", "TypeError: The type of 'num_layer_list' should be 'list', but got type 'int'."),
        (
            "num_layer_list: [2, 2]",
            "ValueError: The number of model layers is 8, but the sum of num_layer_list  [2, 2] is 4.",
        ),
        (
            "num_layer_list: [8, 0]",
            "ValueError: All elements of num_layer_list should be larger than 0, but got [8 0].",
        ),
        ("num_layer_list: [4, 2, 2]", "ValueError: The shape of num_layer_list (3,) must equal to pp_layout (2,)"),
        ("recompute_config: []", "TypeError: recompute_config should be a dict."),
        (
            "recompute_config: {full_recompute_list: [1, 1]}",
            "ValueError: Key 'full_recompute_list' is not supported in recompute_config.",
        ),
        ("recompute_config: {recompute: True}", "TypeError: Key 'recompute' should be list in recompute_config."),
        ("recompute: [1, 1]", "ValueError: malformed node or string: [1, 1]"),
        ("recompute: 'True'", "TypeError: 'bool' object is not iterable"),
        ("recompute_config: {recompute: [-1, 1]}", "ValueError: recompute_num_array has element < 0"),
        (
            "recompute_config: {recompute: [1, 1, 1]}",
            "ValueError: The shape of recompute_num_list (3,) must equal to pp_layout (2,)",
        ),
        (
            "recompute_config: {recompute: [2, 1], select_comm_recompute: [3, 0]}",
            (
                "ValueError: Recompute layers must less or equal num layers, but got select_comm_recompute_layers 3 + "
                "full_recompute_layers 2 > num_layers 4."
            ),
        ),
        (
            "recompute_config: {recompute: [1.5, 1]}",
            "TypeError: 'numpy.float64' object cannot be interpreted as an integer",
        ),
        ("sequence_parallel: 1", "TypeError: The 'sequence_parallel' must be a bool, but got int."),
        (
            "virtual_pipeline_model_parallel_size: 0",
            (
                "ValueError: The 'virtual_pipeline_model_parallel_size' must be int and must > 0, but got '0' with "
                "type 'int'."
            ),
        ),
    ],
)
def test_what_the_framework_refuses(settings: str, text: str) -> None:
    assert failure(parallel(settings)) == text


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (
            "encoder_num_layers: 4",
            ("NotImplementedError: `encoder_num_layers` and `decoder_num_layers` are not supported for now."),
        ),
        (
            "recompute_num_layers: 9",
            "ValueError: The 'recompute_num_layers' must be in range of [1, 8], but got 9 with type 'int'.",
        ),
        ("select_recompute: [1]", "TypeError: The 'select_recompute' must be a bool, but got list."),
    ],
)
def test_what_the_framework_refuses_in_the_model(model: str, text: str) -> None:
    assert failure(parallel("", model=model)) == text


def test_too_few_layers() -> None:
    assert failure(parallel("virtual_pipeline_model_parallel_size: 2", layers=3)) == (
        "RuntimeError: The number of model layers is 3, but using pipeline parallel requires at least "
        "'pp(2) * vpp(2) = 4' layers for splitting"
    )


def test_chunks_need_stages() -> None:
    assert failure(parallel("virtual_pipeline_model_parallel_size: 2", stages=1)) == (
        "RuntimeError: pipeline-model-parallel size should be greater than 1 with interleaved schedule"
    )


def test_a_value_that_stops_some_ranks_only() -> None:
    plan = parallel("recompute_config: {recompute: [2, 9]}")
    assert "full_recompute_layers 9 > num_layers 4." in failure(plan)
    text = render(plan.problems[0].message, Language.EN)
    assert "only the ranks of stage 1 stop" in text
    assert plan.placement == ((4, 4),)


def test_the_stages_that_stop_are_named_four_at_most() -> None:
    text = told(parallel("recompute_config: {recompute: [2, 9, 1, 9, 9, 9]}", layers=12, stages=6))
    assert "chunk 0 of stage 1; only the ranks of stage 1, 3, 4, 5 stop" in text
    text = told(parallel("recompute_config: {recompute: [9, 9, 1, 9, 9, 9]}", layers=12, stages=6))
    assert "chunk 0 of stage 0; only the ranks of stage 0, 1, 3, 4, … stop" in text


def test_where_all_ranks_stop_the_reason_is_told_and_no_rank() -> None:
    text = told(parallel("recompute_config: {full_recompute_list: [1, 1]}"))
    assert "the tuning guide names full_recompute_list" in text
    text = told(parallel("recompute_config: {recompute: [9, 9]}"))
    assert "full_recompute_layers 9 > num_layers 4." in text
    assert "only the ranks" not in text


def told(plan: LayerPlan) -> str:
    assert plan.failure is not None
    return render(plan.problems[0].message, Language.EN)


def test_the_fault_of_a_stage_for_the_embedding() -> None:
    settings = "standalone_embedding_stage: True, recompute_config: {recompute: [1, 1, 1]}"
    plan = parallel(settings, layers=9, stages=4)
    assert failure(plan).endswith("full_recompute_layers 1 > num_layers 0.")
    assert "bug of the framework, at chunk 0:" in render(plan.problems[0].message, Language.EN)
    plan = parallel(settings.replace("1, 1]", "1, 0]"), layers=9, stages=4)
    assert plan.placement == ((0, 3, 3, 3),)
    assert effects(plan) == "f--f-----"


def test_one_stage_takes_lists_of_one() -> None:
    plan = parallel("num_layer_list: [1, 7], recompute_config: {recompute: [3]}", stages=1)
    assert effects(plan) == "fff-----"
    assert ids(plan) == {"num-layer-list-ignored"}


@pytest.mark.parametrize(
    ("model", "wanted", "problems"),
    [
        ("recompute_granularity: full, recompute_method: block, recompute_num_layers: 3", "fff-fff-", set()),
        ("recompute_granularity: full, recompute_method: uniform, recompute_num_layers: 3", "f" * 8, set()),
        ("recompute_granularity: full", "-" * 8, {"full-incomplete"}),
        ("recompute_method: block", "-" * 8, {"method-without-full"}),
        ("recompute_granularity: selective", "s" * 8, set()),
        ("recompute_activations: True", "s" * 8, set()),
        ("select_recompute: True", "s" * 8, set()),
    ],
)
def test_the_settings_of_the_model(model: str, wanted: str, problems: set[str]) -> None:
    plan = parallel("", model=model)
    assert effects(plan) == wanted
    assert ids(plan) == problems


def test_lists_beside_the_settings_of_the_model() -> None:
    lists = "recompute_config: {recompute: [1, 0]}"
    plan = parallel(lists, model="recompute_granularity: selective")
    assert effects(plan) == "fsssssss"
    assert "selective-stays" in ids(plan)
    plan = parallel(lists, model="recompute_granularity: full, recompute_method: block, recompute_num_layers: 4")
    assert effects(plan) == "f-------"
    assert "model-recompute-ignored" in ids(plan)
    plan = parallel(lists, model="select_recompute: True")
    assert plan.layers[0].overridden == ("attention.core_attention",)
    assert not any(layer.overridden for layer in plan.layers if layer.recompute is not RecomputeMode.FULL)
    assert any(layer.recompute is not RecomputeMode.FULL for layer in plan.layers)
    assert "flag-beside-lists" in ids(plan)


@pytest.mark.parametrize(
    ("activation", "flash", "found"), [("swiglu", True, True), ("gelu", True, False), ("swiglu", False, False)]
)
def test_selective_recompute_of_a_function_does_nothing(activation: str, *, flash: bool, found: bool) -> None:
    model = f"hidden_act: {activation}, use_flash_attention: {flash}"
    plan = parallel("recompute_config: {select_recompute: [1, 1]}", model=model)
    assert plan.layers[0].select_patterns == ("mlp.act_func" if flash else "attention.core_attention",)
    assert ("select-no-effect" in ids(plan)) is found


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ("tensor_model_parallel_size: 2, sequence_parallel: True", set()),
        ("tensor_model_parallel_size: 2", {"comm-no-sequence-parallel"}),
        ("sequence_parallel: True", {"comm-one-tensor-rank"}),
    ],
)
def test_communication_that_is_not_there(settings: str, found: set[str]) -> None:
    plan = parallel(f"recompute_config: {{select_comm_recompute: [1, 1]}}, {settings}")
    assert ids(plan) == found


def test_a_mixture_of_experts_has_no_activation() -> None:
    text = (
        "model_config: {num_layers: 4, use_flash_attention: True}\nmoe_config: {num_experts: 8}\n"
        "parallel_config: {recompute_config: {select_recompute: [1]}}\n"
    )
    assert failure(plan_of(text)) == "AttributeError: The 'MoELayer' object has no attribute 'act_func'."


def test_settings_that_nothing_reads() -> None:
    text = (
        "model_config: {num_layers: 4}\nrecompute_config: {recompute: [1]}\nparallel_config:\n"
        "  full_recompute_list: [1]\n  num_layers_per_virtual_pipeline_stage: 2\n"
        "  virtual_pipeline_model_parallel_size: 1\n"
    )
    assert ids(plan_of(text)) == {"top-level-ignored", "guide-key", "per-virtual-stage-ignored", "one-chunk"}


@pytest.mark.parametrize(("one", "other"), [(True, 5), (5, True), (False, 5), (True, True), (False, True)])
def test_a_bool_and_a_number_are_added_as_in_numpy(one: int, other: int) -> None:
    numpy = pytest.importorskip("numpy", reason="numpy comes with an extra")
    found, wanted = add(one, other), numpy.add(one, other)
    assert (found, type(found)) == (wanted, type(wanted.item()))


def test_true_and_false_count_as_numbers() -> None:
    plan = parallel("recompute_config: {recompute: [True, False]}")
    assert effects(plan) == "f-------"
    assert "bool-counts" in ids(plan)
    both = parallel("recompute_config: {select_recompute: [True, True], select_comm_recompute: [True, True]}")
    assert failure(both).startswith("TypeError: numpy boolean subtract")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("parallel_config: {}", "the number of layers"),
        ("model_config: []", "must be a mapping"),
        ("model_config: {num_layers: 99999}", "exceeds 10000"),
        (f"model_config: {{num_layers: 4}}\nparallel_config: {{recompute: '{'[' * 300_000}'}}", "exceeds 200000"),
    ],
)
def test_configs_that_cannot_be_read(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_of(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "-" * 100_000 + "1", "- " * 60 + "1"])
def test_deep_texts_do_no_harm(text: str) -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        parallel(f"recompute: '{text}'")


def test_other_versions_are_not_served() -> None:
    source = parse_source("model_config: {num_layers: 4}", Path("config.yaml"))
    with pytest.raises(UnsupportedError, match=r"r0\.3\.0"):
        mindspeed_plan(source, "r0.3.0")


def test_the_normal_form_is_its_own() -> None:
    tables = [[[2, 0], [1, 1]], [[1, 2], [0, 0]], [[0, 1], [1, 2]]]
    kinds = ("recompute", "select_recompute", "select_comm_recompute")
    lists: dict[str, Any] = dict(zip(kinds, tables, strict=True))
    first = normalize_mindspeed_ms(MindSpeedInputs(layers=14, stages=2, chunks=2, recompute_config=lists))
    assert first.formative is not None
    again = normalize_mindspeed_ms(
        MindSpeedInputs(
            layers=14,
            stages=2,
            chunks=2,
            num_layer_list=first.formative["num_layer_list"],
            recompute_config={kind: first.formative[kind] for kind in kinds},
        )
    )
    assert again.formative == first.formative
    assert again.layers == first.layers


def test_a_thousand_layers() -> None:
    rows = [[1] * 64] * 8
    lists: dict[str, object] = {"recompute": rows, "select_recompute": rows}
    plan = normalize_mindspeed_ms(MindSpeedInputs(layers=1024, stages=64, chunks=8, recompute_config=lists))
    assert len(plan.layers) == 1024


@pytest.mark.parametrize("other", [True, 7, 0.5, "b", "longer than numbers are in NumPy's texts"], ids=str)
def test_texts_among_numbers_are_as_wide_as_in_numpy(other: object) -> None:
    numpy = pytest.importorskip("numpy")
    width = numpy.array(["a", other]).dtype.itemsize // 4
    with pytest.raises(FrameworkStop) as caught:
        CountArray((2,), ("a", other), str).total()
    assert f"(dtype('<U{width}'), dtype('<U{width}'))" in caught.value.text
