from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ms_tune.memory.attribution import LARGEST, Attribution, Category, Holder, attribute
from ms_tune.memory.timeline import Peak, peak_of
from ms_tune.texts import Language, msg, render
from ms_tune.trace.memory_block import Block, BlockTrace, Frame
from ms_tune.trace.tensor_list import ListedTensor, TensorList
from tests.memory.test_phases import (
    ADAMW,
    BACKWARD_RUN,
    CALL,
    CONSTRUCT,
    FORWARD_RUN,
    GRAD,
    SITE,
    TRACKER,
    TRAIN,
)
from tests.trace.samples import MIB, SHARED_RUNS, SMALL_RUNS, block, trace, trace_of

FORWARD = (TRAIN, FORWARD_RUN, CALL, CONSTRUCT, CALL)
BACKWARD = (TRAIN, BACKWARD_RUN, GRAD)
UPDATE = (TRAIN, CALL, ADAMW)
LLAMA = "llama4L_pynative_launch_blocking"
QWEN = "mindformers_qwen3_8b_dp2tp4pp4/rank_24"


def at(rows: BlockTrace, tick: int) -> Peak:
    """The moment of a tick, as if it were the peak."""
    live = tuple(row for row in rows.blocks if 0 <= row.start <= tick and (row.end is None or tick < row.end))
    return Peak(sum(row.size for row in live), tick, 0, live, 0)


def of_run(run: str) -> Attribution:
    return attribute(peak_of(trace_of(run).blocks), trace_of(run), None)


def mib(attribution: Attribution) -> dict[str, float]:
    return {category.value: round(size / MIB, 1) for category, size in attribution.categories.items()}


def category_of(row: Block, *others: Block, tensors: TensorList | None = None) -> Category:
    rows = others if any(other is row for other in others) else (row, *others)
    result = attribute(Peak(row.size, row.start, 0, (row,), 0), trace(*rows), tensors)
    return next(category for category, size in result.categories.items() if size)


@pytest.mark.parametrize("run", [*SMALL_RUNS, *SHARED_RUNS])
def test_categories_add_up_to_the_peak(run: str) -> None:
    peak = peak_of(trace_of(run).blocks)
    result = attribute(peak, trace_of(run), None)
    assert list(result.categories) == list(Category)
    assert sum(result.categories.values()) == peak.bytes
    assert len(result.largest) <= LARGEST
    sizes = [holder.bytes for holder in result.largest]
    assert sizes == sorted(sizes, reverse=True)


def test_json_names_and_texts() -> None:
    assert [category.value for category in Category] == [
        "weights",
        "gradients",
        "optimizer_state",
        "activations",
        "workspace",
        "other",
    ]
    for category in Category:
        assert all(render(msg(f"memory.category.{category.value}"), language) for language in Language)


def test_llama_in_the_dynamic_graph_against_theory() -> None:
    # 1,071,681,536 parameters of 2 bytes: 2,044.1 MiB of weights and as much of each of Adam's two moments. At the peak,
    # in the second update, the gradients of the first step are still held: 3,838 MiB instead of 2,044.
    assert mib(of_run(LLAMA)) == {
        "weights": 2044.1,
        "gradients": 3838.2,
        "optimizer_state": 4088.2,
        "activations": 0.0,
        "workspace": 0.0,
        "other": 3516.1,  # fp32 copies inside the compiled optimizer
    }


def test_llama_at_the_start_of_the_backward_pass_against_theory() -> None:
    # Theory has 3,012.3 MiB of live tensors here: 2,996.3 that the forward pass made, and the attention masks of four
    # layers, which are copied from the host.
    rows = trace_of(LLAMA)
    start = min(row.start for row in rows.blocks if any(frame.function == "grad" for frame in row.stack)) - 1
    result = attribute(at(rows, start), rows, None)
    assert mib(result) | {"workspace": 0.0} == {
        "weights": 2044.1,
        "gradients": 0.0,
        "optimizer_state": 0.0,
        "activations": 2996.3,
        "workspace": 0.0,
        "other": 16.0,
    }
    dense = result.largest[0]
    assert (dense.operator, dense.category, dense.where) == ("Dense", Category.ACTIVATIONS, "/workspace/llama.py:17")


def test_llama_gradients_after_the_first_backward_pass() -> None:
    rows = trace_of(LLAMA)
    update = min(row.start for row in rows.blocks if row.node_name.startswith("adam_m."))
    assert mib(attribute(at(rows, update - 1), rows, None))["gradients"] == 2044.1


def test_qwen3_of_mindformers_against_theory() -> None:
    # 9 of 36 layers and the output layer, tensor parallel 4, all states in fp32 (see the shared reference).
    result = of_run(QWEN)
    assert mib(result) == {
        "weights": 2249.8,
        "gradients": 2249.8,
        "optimizer_state": 4499.7,
        "activations": 6152.3,
        "workspace": 0.0,
        "other": 1219.3,  # two logits of 593.5 MiB that the loss drops before the backward pass, and constants
    }
    split = result.largest[0]
    assert (split.operator, split.count, split.category) == ("SplitWithSize", 18, Category.ACTIVATIONS)
    assert split.where.endswith("/layers-CellList/*-TransformerLayer/mlp-MLPInterleaved/activation_func-SwiGlu")
    assert result.largest[1].name == "accu_grads.decoder.layers.*.mlp.linear_fc1.weight"


def test_adam_compiled_in_the_dynamic_graph() -> None:
    sizes = of_run("asc2").categories
    parameters = 524800 + 2560 + 20992 + 512  # 256 x 512 and 512 x 10 with biases, fp32, padded
    assert sizes[Category.WEIGHTS] == parameters + 2 * 512  # the step counter and the learning rate, too
    assert sizes[Category.OPTIMIZER_STATE] == 2 * parameters + 2 * 512  # the powers of beta, too
    assert sizes[Category.GRADIENTS] == 2 * parameters  # those of both steps are held


def test_useless_stacks_are_told() -> None:
    for run in ("over_limit", "v_simple"):
        result = of_run(run)
        assert not result.stacks_useful
        assert result.categories[Category.ACTIVATIONS] == 0
    assert of_run("asc2").stacks_useful
    assert of_run("asc_gO0").stacks_useful  # a graph needs none
    assert of_run("over_limit").largest == (Holder(8 * (1024 * MIB + 512), 8, "Zeros", Category.OTHER, "", None),)


def test_dynamic_graph_rules() -> None:
    state = block(50, kind="Weight", node_name="AdamW", stack=UPDATE, user_text="{51-90}", last_user_task=90)
    assert category_of(state) is Category.OPTIMIZER_STATE
    assert category_of(block(1, kind="Weight", stack=FORWARD, persistent=True), state) is Category.WEIGHTS
    assert category_of(block(2, 40, stack=FORWARD), state) is Category.ACTIVATIONS
    assert category_of(block(30, 35, stack=BACKWARD), state) is Category.OTHER
    assert category_of(block(30, 60, stack=BACKWARD), state) is Category.GRADIENTS
    assert category_of(block(30, None, stack=BACKWARD), state) is Category.GRADIENTS
    assert category_of(block(95, None, stack=BACKWARD), state) is Category.OTHER  # no update follows
    assert category_of(block(2, 3, kind="WorkSpace", stack=FORWARD)) is Category.WORKSPACE
    assert category_of(block(2, 3, kind="", task_name="")) is Category.WORKSPACE
    assert category_of(block(2, 9, kind="", task_name="")) is Category.OTHER
    assert category_of(block(2, None, kind="PyNativeInput", stack=FORWARD)) is Category.OTHER
    assert category_of(block(2, None, kind="ConstantValue", stack=FORWARD, persistent=True)) is Category.OTHER
    assert category_of(block(2, 40, stack=UPDATE)) is Category.OTHER
    made = Frame(f"{SITE}/mindspore/mint/optim/adamw.py", 182, "__init__")
    assert category_of(block(2, None, stack=(TRAIN, made))) is Category.OPTIMIZER_STATE


def test_clipped_gradients_of_the_dynamic_graph() -> None:
    state = block(50, kind="Weight", node_name="AdamW", stack=UPDATE, user_text="{51}")
    backward, clipped = block(30, 60, stack=BACKWARD), block(40, 60, stack=(TRAIN, Frame("/workspace/clip.py", 3, "f")))
    assert category_of(clipped, backward, state) is Category.GRADIENTS
    assert category_of(clipped, state) is Category.OTHER


def test_without_stacks_the_operator_tells_the_optimizer_state() -> None:
    assert category_of(block(5, kind="Weight", node_name="AdamW", stack=(TRACKER,))) is Category.OPTIMIZER_STATE
    assert category_of(block(5, kind="Weight", node_name="Dense", stack=(TRACKER,))) is Category.WEIGHTS
    assert category_of(block(5, stack=(TRACKER,))) is Category.OTHER


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("adam_m.layers.0.weight", Category.OPTIMIZER_STATE),
        ("adam_v.layers.0.weight", Category.OPTIMIZER_STATE),
        ("moment1.layers.0.weight", Category.OPTIMIZER_STATE),
        ("exp_avg_sq.layers.0.weight", Category.OPTIMIZER_STATE),
        ("beta1_power", Category.OPTIMIZER_STATE),
        ("accu_grads.layers.0.weight", Category.GRADIENTS),
        ("accum.layers.0.weight", Category.OPTIMIZER_STATE),
        ("linear.weight", Category.WEIGHTS),
        ("layers.0.weight", Category.WEIGHTS),
    ],
)
def test_parameters_of_a_graph(name: str, expected: Category) -> None:
    weight = block(1, kind="Weight", task_name="SyncTensorData", node_name="layers.0.weight")
    assert category_of(replace(weight, node_name=name), weight) is expected


def test_graph_rules() -> None:
    state = block(1, kind="Weight", task_name="SyncTensorData", node_name="adam_m.w", user_text="{100-200}")

    def kernel(start: int, end: int | None, path: str, kind: str = "Kernel") -> Block:
        return block(start, end, kind=kind, task_name=f"0_{path}", node_name=path, graph_name="kernel_graph0")

    forward = kernel(10, 80, "Default/net-Net/fc-Linear/Dense-op0")
    backward = kernel(50, 60, "Gradients/Default/net-Net/fc-Linear/Grad_Dense/MatMul-op0")
    others = (state, forward, backward)
    assert category_of(forward, state, backward) is Category.ACTIVATIONS
    assert category_of(kernel(20, 80, "Default/GeluExt-op0"), *others) is Category.ACTIVATIONS
    assert category_of(kernel(45, 80, "recompute_Default/net-Net/fc-Linear/Dense-op0"), *others) is Category.ACTIVATIONS
    assert category_of(backward, state, forward) is Category.OTHER
    assert category_of(replace(backward, end=101), state, forward) is Category.GRADIENTS
    # The compiler gives casts of the update the scope of a layer.
    assert category_of(kernel(70, 80, "Default/net-Net/fc-Linear/Cast-op9"), *others) is Category.OTHER
    assert category_of(kernel(150, 160, "Default/network-Step/optimizer-AdamW/Mul-op0"), *others) is Category.OTHER
    for kind in ("ContinuousMemory", "BatchMemory", "ConstantValue", "Somas", "GraphOutput"):
        assert category_of(kernel(10, 80, "Default/net-Net/fc-Linear/Dense-op0", kind), *others) is Category.OTHER
    assert category_of(kernel(10, 80, "kernel_graph_0_HostDSActor"), state) is Category.OTHER


def test_types_of_the_emulator() -> None:
    for kind, expected in (
        ("Parameter", Category.WEIGHTS),
        ("Gradient", Category.GRADIENTS),
        ("Optstate", Category.OPTIMIZER_STATE),
        ("Activation", Category.ACTIVATIONS),
        ("Temp", Category.OTHER),
    ):
        assert category_of(block(1, kind=kind, task_name="forward")) is expected


def test_the_tensor_list_goes_first() -> None:
    tensors = TensorList(
        weights=(ListedTensor("tied.weight", 0x1010, 64),),
        optimizer_state=(ListedTensor("master.weight", 0x3000, 64),),
        gradients=(ListedTensor("tied.weight", 0x1000, 64), ListedTensor("layers.3.w", 0x2000, 64)),
    )
    shared = block(1, stack=(TRACKER,), address=0x1000)
    gradient = block(9, stack=(TRACKER,), address=0x2000)
    master = block(9, stack=FORWARD, address=0x3000)
    rows = (shared, gradient, master)
    assert [category_of(row, *rows, tensors=tensors) for row in rows] == [
        Category.WEIGHTS,
        Category.GRADIENTS,
        Category.OPTIMIZER_STATE,
    ]
    assert category_of(block(9, stack=(TRACKER,), address=0x4000), *rows, tensors=tensors) is Category.OTHER
    # The list was made at the end: an earlier block at the address held something else.
    earlier = block(2, 5, stack=FORWARD, address=0x2000)
    assert category_of(earlier, *rows, tensors=tensors) is Category.ACTIVATIONS
    result = attribute(Peak(gradient.size, 9, 0, (gradient,), 0), trace(*rows), tensors)
    assert result.largest[0].name == "layers.*.w"
    assert result.tensors_missing == 0


def test_a_tensor_list_of_another_run_is_not_used() -> None:
    row = block(1, stack=FORWARD, address=0x1000)  # 512 bytes

    def listed(*weights: ListedTensor) -> Attribution:
        return attribute(at(trace(row), 1), trace(row), TensorList(weights, (), ()))

    fits, sticks_out, elsewhere = (
        ListedTensor("a", 0x1010, 496),
        ListedTensor("b", 0x1010, 497),
        ListedTensor("c", 9, 1),
    )
    assert listed(fits).tensors_missing == 0
    assert listed(fits).categories[Category.WEIGHTS] == 512
    assert listed(fits, elsewhere).tensors_missing == 1
    assert listed(fits, elsewhere).categories[Category.WEIGHTS] == 512
    assert listed(fits, elsewhere, sticks_out).tensors_missing == 2
    assert listed(fits, elsewhere, sticks_out).categories[Category.WEIGHTS] == 0
    assert listed(fits, elsewhere, sticks_out).categories[Category.ACTIVATIONS] == 512


def test_where() -> None:
    library = Frame(f"{SITE}/mindformers/models/qwen3/modeling.py", 7, "construct")
    framework = Frame(f"{SITE}/mindspore/ops/gen_ops_prim.py", 99, "__call__")
    for stack, expected in (
        ((*FORWARD, framework), "/workspace/model.py:17"),
        ((TRAIN, FORWARD_RUN, library, framework), f"{library.file}:7"),
        ((TRAIN, FORWARD_RUN, CONSTRUCT, library, framework), "/workspace/model.py:17"),
        (BACKWARD, "/workspace/train.py:58"),
        (UPDATE, "/workspace/train.py:58"),
        ((framework, TRACKER), f"{framework.file}:99"),
        ((TRACKER,), ""),
        ((), ""),
    ):
        row = block(1, stack=stack)
        assert attribute(at(trace(row), 1), trace(row), None).largest[0].where == expected


def test_an_empty_trace() -> None:
    result = attribute(peak_of([]), trace(), None)
    assert sum(result.categories.values()) == 0
    assert result.largest == ()
    assert result.stacks_useful


_STACKS = st.sampled_from([(), (TRACKER,), FORWARD, BACKWARD, UPDATE, (TRAIN,)])
_NODES = st.sampled_from(
    [
        "",
        "Add",
        "AdamW",
        "Default/a-A/Add-op0",
        "Gradients/Default/a-A/Add-op1",
        "Default/Cast-op2",
        "adam_m.w",
        "w",
        "/",
        ".",
    ]
)
_KINDS = st.sampled_from(["Weight", "PyNativeOutput", "PyNativeInput", "Kernel", "WorkSpace", "", "Somas", "?"])


@st.composite
def _traces(draw: st.DrawFn) -> BlockTrace:
    rows = []
    for _ in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 30))
        end = draw(st.none() | st.integers(start + 1, 40))
        row = block(
            start,
            end,
            draw(st.integers(0, 10_000)),
            kind=draw(_KINDS),
            task_name=draw(st.sampled_from(["PyNative", "3_Default", ""])),
            node_name=draw(_NODES),
            graph_name=draw(st.sampled_from(["", "kernel_graph0"])),
            stack=draw(_STACKS),
            address=draw(st.integers(0, 4) | st.just(2**64 - 1)),
            user_text=draw(st.sampled_from(["", "{}", "{3-9-9}", "{-}", "{7-}"])),
        )
        rows.append(row)
    return trace(*rows)


_LISTED = st.lists(st.builds(ListedTensor, st.text(max_size=3), st.integers(0, 20_000), st.integers(0, 99)), max_size=3)


@settings(deadline=None)
@given(_traces(), st.none() | st.builds(TensorList, *([_LISTED.map(tuple)] * 3)))
def test_any_trace_adds_up(rows: BlockTrace, tensors: TensorList | None) -> None:
    peak = peak_of(rows.blocks)
    result = attribute(peak, rows, tensors)
    assert sum(result.categories.values()) == peak.bytes
    assert list(result.categories) == list(Category)
    assert sum(holder.bytes for holder in result.largest) <= peak.bytes
