"""Test swap: the guide's examples, its effect on recompute values, and the framework's refusals."""

from __future__ import annotations

from typing import Any

import pytest

from ms_tune.dialects import FrameworkStop, LayerPlan, SwapPlan, Warned
from ms_tune.dialects.mindformers.operators import layer_lines
from ms_tune.dialects.mindformers.placement import RecomputeInputs, RecomputeValues, SwapValues
from ms_tune.dialects.mindformers.recompute import normalize
from ms_tune.dialects.mindformers.swap import check_prefetch
from ms_tune.dialects.operators import layer_model
from tests.jobs import failure, ids

LLAMA = RecomputeInputs(layers=4)  # the guide trains Llama2-7B with four layers on one stage
OPERATORS = [
    {"op_name": "attention", "backward_prefetch": 20, "layers": [0, 1, 2]},
    {"op_name": "attention", "backward_prefetch": 10, "layers": [3]},
    {"op_name": "feed_forward", "backward_prefetch": 15, "layers": [1, 2]},
]


def swapped(inputs: RecomputeInputs = LLAMA, *, recompute: dict[str, Any] | None = None, **swap: Any) -> LayerPlan:  # noqa: ANN401
    values = RecomputeValues(**(recompute or {}))
    return normalize(inputs._replace(values=values, swap=SwapValues(**{"swap": True, **swap})))


def lines(inputs: RecomputeInputs = LLAMA, *, recompute: dict[str, Any] | None = None, **swap: Any) -> list[str]:  # noqa: ANN401
    model = layer_model("LlamaForCausalLM", "1.9")
    assert model is not None
    full = inputs._replace(values=RecomputeValues(**(recompute or {})), swap=SwapValues(**{"swap": True, **swap}))
    # The framework's source has runs of blanks in its lines; the guide has single blanks.
    return [" ".join(line.split()) for line in layer_lines(full, normalize(full), model)]


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
    """Lines of 1.9's source (parallel_core/training_graph/transformer/utils.py) continue on the next one: 33 blanks, or 29."""
    model = layer_model("LlamaForCausalLM", "1.9")
    assert model is not None
    for layers, blanks in ((True, 33), ([0], 29)):
        swap = SwapValues(swap=True, layer_swap=[{"backward_prefetch": 20, "layers": layers}])
        full = LLAMA._replace(swap=swap)
        assert (
            layer_lines(full, normalize(full), model)[0] == f"Set layer swap at layer 0{' ' * blanks}and value is: 20"
        )


def test_the_guides_fourth_example_with_recompute() -> None:
    assert lines(recompute={"select_recompute": {"feed_forward": [0, 3]}}, op_swap=OPERATORS) == [
        "Set select recompute at layer 0: feed_forward",
        "Set op_swap at layer 0: .attention, value=20",
        "Set op_swap at layer 1: .attention, value=20, .feed_forward, value=15",
        "Set op_swap at layer 2: .attention, value=20, .feed_forward, value=15",
        "Set select recompute at layer 3: feed_forward",
        "Set op_swap at layer 3: .attention, value=10",
    ]


@pytest.mark.parametrize(
    ("swap", "recompute", "words"),
    [
        ({"swap": 1}, {}, "TypeError: The 'swap' must be a bool, but got int."),
        ({"layer_swap": 3}, {}, "ValueError: layer_swap must be a list or dict"),
        ({"op_swap": [{"layers": [1], "backward_prefetch": 1}]}, {}, "KeyError: 'op_name'"),
    ],
)
def test_what_the_framework_refuses(swap: dict[str, Any], recompute: dict[str, Any], words: str) -> None:
    assert words in failure(swapped(recompute=recompute, **swap))


def test_a_pattern_for_all_layers_does_not_hide_the_ones_after_it() -> None:
    """``_check_swap_recompute_conflict`` of mindformers/modules/transformer/transformer.py continues with the next pattern."""
    values = RecomputeValues(recompute=False, select_recompute={"attention": True, "feed_forward": [1]})
    core = RecomputeInputs(layers=4, legacy=False, core_swap=SwapValues(swap=True, op_swap=OPERATORS), values=values)
    reported = [" ".join(line.split()) for line in normalize(core).log if isinstance(line, Warned)]
    assert reported == [
        "attention operator in all layers that is enabled swap do not work! Because it is enabled recompute.",
        "feed_forward operator in layer 1 that is enabled swap do not work! Because it is enabled recompute.",
    ]


def test_whole_layers_that_are_recomputed_are_warned_of() -> None:
    """Each layer that an entry swaps is included, or all layers if an entry does not name any; layers without entry are not."""
    words = "operator in layer {} that is enabled swap do not work! Because it is enabled recompute."
    for layers, expected in ((True, [1, 3]), ([3, 0], [3]), ([], []), (False, [])):
        plan = swapped(recompute={"recompute": [1, 3]}, layer_swap=[{"backward_prefetch": 1, "layers": layers}])
        lines = [" ".join(line.split()) for line in plan.log if isinstance(line, Warned)]
        assert lines == [f"All {words.format(layer)}" for layer in expected], layers


@pytest.mark.parametrize(
    ("version", "layers", "blanks"), [("1.8", [1], 35), ("1.8", True, 31), ("1.9", [1], 31), ("1.9", True, 31)]
)
def test_the_blanks_of_that_warning(version: str, layers: object, blanks: int) -> None:
    """``_check_layer_swap_recompute_conflict``: 1.6 to 1.8 have two warnings, one of which is four columns further right."""
    inputs = LLAMA._replace(version=version)
    plan = swapped(inputs, recompute={"recompute": [1]}, layer_swap=[{"backward_prefetch": 1, "layers": layers}])
    (line,) = (line for line in plan.log if isinstance(line, Warned))
    assert line.startswith(f"All operator in layer 1 that{' ' * blanks}is enabled swap")


ENTRY = {"backward_prefetch": 1, "layers": [1]}


@pytest.mark.parametrize(
    ("swap", "recompute", "text"),
    [
        (
            {"layer_swap": [{**ENTRY, "layers": 3}]},
            {},
            "ValueError: Invalid layer_swap configuration: 3. Expected 'layers' to be a list, tuple, or bool.",
        ),
        ({"op_swap": [{**ENTRY, "op_name": "a", "backward_prefetch": 0}]}, {}, "Type of op_swap(a).backward_prefetch must be int and the value of op_swap(a).backward_prefetch must be positive, but get 0."),
        ({}, {"select_recompute": {1: [1]}}, "ValueError: Op_name of select_recompute must be str when enabling swap, but get <class 'int'>."),
    ],
)  # fmt: skip
def test_the_frameworks_words_about_swap(swap: dict[str, Any], recompute: dict[str, Any], text: str) -> None:
    assert failure(swapped(recompute=recompute, **swap)).endswith(text)


@pytest.mark.parametrize(
    ("prefetch", "expected"),
    [
        ("Auto", None),
        (0, None),
        (7, None),
        ("auto", "ValueError: For 'Cell', the 'backward_prefetch' must be str and must be in '['Auto']', but got 'auto'."),
        (-1, "ValueError: The input value must be int and must >= 0, but got '-1' with type 'int'."),
        (False, "TypeError: The input value must be int and must >= 0, but got 'False' with type 'bool'."),
        (1.5, "TypeError: The input value must be int, but got 'float'"),
        (None, "TypeError: The input value must be int, but got 'NoneType'"),
    ],
)  # fmt: skip
def test_what_offload_says_to_a_prefetch(prefetch: object, expected: str | None) -> None:
    if expected is None:
        check_prefetch(prefetch)
        return
    with pytest.raises(FrameworkStop) as caught:
        check_prefetch(prefetch)
    assert str(caught.value) == expected


def test_entries_of_one_operator_that_agree_are_one() -> None:
    both = [{**ENTRY, "op_name": ["a", "b"], "layers": True}, {**ENTRY, "op_name": "a"}]
    formative = swapped(op_swap=both).formative
    assert formative is not None
    assert formative["op_swap"] == {
        "a": [{"backward_prefetch": 1, "layers": True}],
        "b": [{"backward_prefetch": 1, "layers": True}],
    }


def find_problems(
    *entries: dict[str, Any],
    recompute: dict[str, Any] | None = None,
    **swap: Any,  # noqa: ANN401
) -> dict[str, dict[str, Any]]:
    plan = swapped(RecomputeInputs(layers=12), recompute=recompute, **({"layer_swap": [*entries]} | swap))
    assert plan.failure is None
    return {problem.id: dict(problem.message.params) for problem in plan.problems}


def test_silent_problems_show_their_layers() -> None:
    numbers = [11, 12, 13, -1, 3, 3]
    assert find_problems({**ENTRY, "layers": numbers}) == {
        "swap-outside": {"name": "layer_swap", "layers": "12, 13, -1", "last": 11},
        "swap-repeated": {"name": "layer_swap", "layers": "3"},
    }
    assert find_problems({**ENTRY, "layers": [0, 11]}) == {}
    assert (
        find_problems({**ENTRY, "layers": [*range(12, 20)]})["swap-outside"]["layers"]
        == "12, 13, 14, 15, 16, 17, 18, 19"
    )
    assert find_problems({**ENTRY, "layers": [*range(12, 21)]})["swap-outside"]["layers"].endswith("19, …")
    assert find_problems(ENTRY, {**ENTRY, "layers": [1, 2]}) == {}  # the same once more
    shadowed = find_problems(ENTRY, {**ENTRY, "backward_prefetch": 2, "layers": [5, 1]})
    assert shadowed == {"swap-shadowed": {"name": "layer_swap", "layers": "1"}}
    assert find_problems(ENTRY, recompute={"recompute": [1, 2]}) == {"swap-recomputed": {"layers": "1"}}
    assert find_problems(ENTRY, recompute={"recompute": [2]}) == {}
    both = find_problems(recompute={"select_recompute": {"a": [1, 2]}}, op_swap=[{**ENTRY, "op_name": "a"}])
    assert both == {"swap-select": {"pattern": "a", "layers": "1"}}
    repeated = find_problems(ENTRY, recompute={"select_recompute": [4, 4]})
    assert repeated == {"swap-repeated": {"name": "select_recompute", "layers": "4"}}
    repeated = find_problems(ENTRY, recompute={"select_recompute": {"a": [1], "b": [2, 2]}})
    assert repeated == {"swap-repeated": {"name": "select_recompute['b']", "layers": "2"}}


def test_swap_over_stages_and_next_to_excludes() -> None:
    """Before 1.8 no layer has a stage while swap is on; exclude lists never apply with swap."""
    for version, stages, expected in (("1.7", 1, False), ("1.7", 2, True), ("1.8", 2, False)):
        plan = swapped(RecomputeInputs(layers=4, stages=stages, version=version))
        assert ("swap-no-stage" in ids(plan)) is expected
    plan = swapped(recompute={"select_recompute_exclude": True, "select_comm_recompute_exclude": [1]})
    (problem,) = (problem for problem in plan.problems if problem.id == "swap-no-exclude")
    assert problem.message.params == {"keys": "select_recompute_exclude, select_comm_recompute_exclude"}
