"""Swap: the guide's examples to the letter, what it does to recompute values, and what the framework refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ms_tune.layers.mindformers.inputs import RecomputeInputs, RecomputeValues, SwapValues
from ms_tune.layers.mindformers.plan import normalize
from ms_tune.layers.mindformers.trees import layer_lines
from ms_tune.layers.result import Effect, SwapPlan, Warned
from ms_tune.layers.tree import layer_model

if TYPE_CHECKING:
    from ms_tune.layers.result import RecomputePlan

LLAMA = RecomputeInputs(layers=4)  # the guide trains Llama2-7B with four layers on one stage
OPERATORS = [
    {"op_name": "attention", "backward_prefetch": 20, "layers": [0, 1, 2]},
    {"op_name": "attention", "backward_prefetch": 10, "layers": [3]},
    {"op_name": "feed_forward", "backward_prefetch": 15, "layers": [1, 2]},
]


def swapped(inputs: RecomputeInputs = LLAMA, *, recompute: dict[str, Any] | None = None, **swap: Any) -> RecomputePlan:  # noqa: ANN401
    values = RecomputeValues(**(recompute or {}))
    return normalize(replace(inputs, values=values, swap=SwapValues(**{"swap": True, **swap})))


def lines(inputs: RecomputeInputs = LLAMA, *, recompute: dict[str, Any] | None = None, **swap: Any) -> list[str]:  # noqa: ANN401
    model = layer_model("LlamaForCausalLM", "1.9")
    assert model is not None
    full = replace(inputs, values=RecomputeValues(**(recompute or {})), swap=SwapValues(**{"swap": True, **swap}))
    # The framework's source leaves runs of blanks in its lines; the guide shows one.
    return [" ".join(line.split()) for line in layer_lines(full, normalize(full), model)]


def ids(plan: RecomputePlan) -> set[str]:
    return {problem.id for problem in plan.problems}


def failure(plan: RecomputePlan) -> str:
    assert plan.failure is not None
    assert plan.formative is None
    return f"{plan.failure.exception}: {plan.failure.text}"


def test_the_guides_first_example_the_default() -> None:
    assert lines(default_prefetch=10) == [
        f"Set op_swap at layer {layer}: attention.flash_attention, value=10" for layer in range(4)
    ]
    plan = swapped(default_prefetch=10)
    assert all(layer.swap == (SwapPlan(r".*\.flash_attention", 10),) for layer in plan.layers)


def test_the_guides_second_example_whole_layers() -> None:
    assert lines(layer_swap=[{"backward_prefetch": 20, "layers": [0, 3]}]) == [
        "Set layer swap at layer 0 and value is: 20",
        "Set layer swap at layer 3 and value is: 20",
    ]


def test_the_blanks_of_the_frameworks_lines() -> None:
    """Lines of 1.9's source (parallel_core/training_graph/transformer/utils.py) go on in the next: 33 blanks, or 29."""
    model = layer_model("LlamaForCausalLM", "1.9")
    assert model is not None
    for layers, blanks in ((True, 33), ([0], 29)):
        swap = SwapValues(swap=True, layer_swap=[{"backward_prefetch": 20, "layers": layers}])
        full = replace(LLAMA, swap=swap)
        assert (
            layer_lines(full, normalize(full), model)[0] == f"Set layer swap at layer 0{' ' * blanks}and value is: 20"
        )


def test_the_guides_third_example_operators() -> None:
    assert lines(op_swap=OPERATORS) == [
        "Set op_swap at layer 0: .attention, value=20",
        "Set op_swap at layer 1: .attention, value=20, .feed_forward, value=15",
        "Set op_swap at layer 2: .attention, value=20, .feed_forward, value=15",
        "Set op_swap at layer 3: .attention, value=10",
    ]


def test_the_guides_fourth_example_with_recompute() -> None:
    assert lines(recompute={"select_recompute": {"feed_forward": [0, 3]}}, op_swap=OPERATORS) == [
        "Set select recompute at layer 0: feed_forward",
        "Set op_swap at layer 0: .attention, value=20",
        "Set op_swap at layer 1: .attention, value=20, .feed_forward, value=15",
        "Set op_swap at layer 2: .attention, value=20, .feed_forward, value=15",
        "Set select recompute at layer 3: feed_forward",
        "Set op_swap at layer 3: .attention, value=10",
    ]


def test_lists_name_layers_when_swap_is_on() -> None:
    inputs = RecomputeInputs(layers=8, stages=4)
    plan = swapped(inputs, recompute={"recompute": [3, 5], "select_comm_recompute": [5, 7]})
    assert [layer.recompute for layer in plan.layers] == [
        Effect.FULL if layer in {3, 5} else Effect.COMM if layer == 7 else Effect.NONE for layer in range(8)
    ]
    assert plan.formative is not None
    shown = plan.formative.as_lists()
    assert shown["layer_recompute"] == [3, 5]
    assert shown["select_recompute"] == {r"feed_forward\.mul": [], r"feed_forward\.w1\.activation\.silu": []}
    assert shown["op_swap"] == {r".*\.flash_attention": [{"backward_prefetch": 1, "layers": True}]}
    assert "swap-recomputed" in ids(plan)
    assert any(
        isinstance(line, Warned) and line.startswith(".*\\.flash_attention operator in layer 3") for line in plan.log
    )


@pytest.mark.parametrize(
    ("swap", "recompute", "words"),
    [
        ({"swap": 1}, {}, "TypeError: The 'swap' must be a bool, but got int."),
        ({"layer_swap": 3}, {}, "ValueError: layer_swap must be a list or dict"),
        ({"layer_swap": [{"layers": [1]}]}, {}, "KeyError: 'backward_prefetch'"),
        ({"op_swap": [{"layers": [1], "backward_prefetch": 1}]}, {}, "KeyError: 'op_name'"),
        ({"layer_swap": [{"backward_prefetch": 0, "layers": [1]}]}, {}, "must be positive, but get 0."),
        ({"layer_swap": [{"backward_prefetch": "Auto", "layers": [1]}]}, {}, "must be positive, but get Auto."),
        ({"layer_swap": [{"backward_prefetch": True, "layers": [1]}]}, {}, "but got 'True' with type 'bool'."),
        ({"layer_swap": [{"backward_prefetch": 1, "layers": [[1]]}]}, {}, "must be int, but get <class 'list'>."),
        ({"default_prefetch": 0}, {}, "but get <class 'int'> and 0."),
        (
            {"layer_swap": [{"backward_prefetch": 1, "layers": True}, {"backward_prefetch": 2, "layers": [1]}]},
            {},
            "Inconsistent 'backward_prefetch' values.",
        ),
        ({}, {"recompute": [[1]]}, "element of it must be int, but get <class 'list'>."),
        ({}, {"select_recompute": ["x"]}, "element of it must be int, but get <class 'str'>."),
        ({}, {"select_recompute": {"x": True}}, "must be list when enabling swap, but get <class 'bool'>."),
        ({}, {"recompute": 3}, "AttributeError: 'int' object has no attribute 'items'"),
        ({}, {"recompute": {}}, "ValueError: Illegal input list for select_recompute: {}"),
    ],
)
def test_what_the_framework_refuses(swap: dict[str, Any], recompute: dict[str, Any], words: str) -> None:
    assert words in failure(swapped(recompute=recompute, **swap))


def test_entries_are_read_while_swap_is_off() -> None:
    assert failure(swapped(swap=False, layer_swap=[{"layers": [1]}])) == "KeyError: 'backward_prefetch'"
    plan = swapped(swap=False, op_swap=[{"op_name": "attention", "layers": [1]}])
    assert plan.failure is None
    assert ids(plan) == {"swap-off"}


def test_a_model_that_never_hears_of_swap() -> None:
    core = RecomputeInputs(layers=8, stages=4, legacy=False)
    plan = swapped(core, recompute={"recompute": [2, 1, 0, 0]})
    assert plan.formative is not None
    assert plan.formative.as_lists()["layer_recompute"] == [[2, 1, 0, 0]]
    assert not any(layer.swap for layer in plan.layers)
    assert "swap-dropped" in ids(plan)
    # The check that runs before still takes the section at its word.
    assert "must be list when enabling swap" in failure(swapped(core, recompute={"select_recompute": {"x": True}}))


def test_such_a_model_swaps_by_its_own_section() -> None:
    core = RecomputeInputs(layers=4, legacy=False, core_swap=SwapValues(swap=True))
    plan = normalize(core)
    assert all(layer.swap == (SwapPlan(r".*\.flash_attention", 1),) for layer in plan.layers)


@pytest.mark.parametrize(
    ("swap", "recompute", "expected"),
    [
        ({"layer_swap": []}, {}, {"swap-nothing"}),
        ({"layer_swap": [{"backward_prefetch": 1, "layers": [0, 9]}]}, {}, {"swap-outside"}),
        ({}, {"select_comm_recompute": [1, 1]}, {"swap-repeated"}),
        ({}, {"select_recompute_exclude": {"a": [1]}}, {"swap-no-exclude"}),
        (
            {"layer_swap": [{"backward_prefetch": 1, "layers": [0]}, {"backward_prefetch": 2, "layers": [0, 1]}]},
            {},
            {"swap-shadowed"},
        ),
        ({"op_swap": OPERATORS}, {"select_recompute": {"attention": [1]}}, {"swap-select"}),
    ],
)
def test_traps(swap: dict[str, Any], recompute: dict[str, Any], expected: set[str]) -> None:
    plan = swapped(recompute=recompute, **swap)
    assert plan.failure is None
    assert ids(plan) == expected


def test_a_pattern_for_all_layers_does_not_hide_the_ones_behind_it() -> None:
    """``_check_swap_recompute_conflict`` of mindformers/modules/transformer/transformer.py goes on with the next one."""
    values = RecomputeValues(recompute=False, select_recompute={"attention": True, "feed_forward": [1]})
    core = RecomputeInputs(layers=4, legacy=False, core_swap=SwapValues(swap=True, op_swap=OPERATORS), values=values)
    told = [" ".join(line.split()) for line in normalize(core).log if isinstance(line, Warned)]
    assert told == [
        "attention operator in all layers that is enabled swap do not work! Because it is enabled recompute.",
        "feed_forward operator in layer 1 that is enabled swap do not work! Because it is enabled recompute.",
    ]


def test_stages_are_not_set_before_1_8() -> None:
    inputs = RecomputeInputs(layers=4, stages=2, version="1.7")
    assert "swap-no-stage" in ids(swapped(inputs))
    assert "swap-no-stage" not in ids(swapped(replace(inputs, version="1.8")))


def test_a_prefetch_that_is_a_flag() -> None:
    assert "prefetch-flag" in ids(swapped(default_prefetch=True))
    assert "prefetch-flag" in ids(swapped(op_swap=[{**OPERATORS[0], "backward_prefetch": True}]))
    assert "prefetch-flag" not in ids(swapped(op_swap=OPERATORS))


def test_an_empty_name_of_an_operator_swaps_nothing() -> None:
    swap = SwapValues(swap=True, op_swap={"op_name": "", "backward_prefetch": 1, "layers": [0, 1]})
    plan = normalize(RecomputeInputs(layers=2, swap=swap))
    assert plan.failure is None
    assert [layer.swap for layer in plan.layers] == [(), ()]
