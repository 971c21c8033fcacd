from __future__ import annotations

from dataclasses import replace

import pytest

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.breakdown import PeakBreakdown, break_down_memory
from ms_tune.footprint.category import CONTENTS, Contents
from ms_tune.footprint.curve import compute_curve
from ms_tune.readers.memory_block import Block, Frame
from ms_tune.readers.tensors import ListedTensor, TensorList
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
from tests.readers.rows import BlockTrace, table_from, table_of
from tests.readers.samples import MIB, block, trace, trace_of

FORWARD = (TRAIN, FORWARD_RUN, CALL, CONSTRUCT, CALL)
BACKWARD = (TRAIN, BACKWARD_RUN, GRAD)
UPDATE = (TRAIN, CALL, ADAMW)
LLAMA = "llama4L_pynative_launch_blocking"


def at(rows: BlockTrace, tick: int | None = None, tensors: TensorList | None = None) -> PeakBreakdown:
    """Return the live blocks at a tick, or at the peak."""
    table = table_of(rows)
    curve = compute_curve(table)
    return break_down_memory(table, Contents(table, tensors), curve, curve.peak_tick if tick is None else tick)


def of_run(run: str) -> PeakBreakdown:
    return at(trace_of(run))


def mib(parts: PeakBreakdown) -> dict[str, float]:
    """Return the MiB of each category that is not empty."""
    return {content.value: round(size / MIB, 1) for content, size in parts.contents.items() if size > 0.05 * MIB}


def content_of(row: Block, *others: Block, tensors: TensorList | None = None) -> MemoryCategory:
    rows = others if any(other is row for other in others) else (row, *others)
    place = next(place for place, other in enumerate(rows) if other is row)
    return CONTENTS[int(Contents(table_from(rows), tensors).codes[place])]


def test_llama_in_the_dynamic_graph_against_theory() -> None:
    # 1,071,681,536 parameters of 2 bytes: 2,044.1 MiB of weights, and the same for each of Adam's two moments. At the
    # peak, in the second update, the gradients of the first step are still live: 3,838 MiB instead of 2,044.
    assert mib(of_run(LLAMA)) == {
        "weights": 2044.1,
        "gradients": 3838.2,
        "optimizer_state": 4088.2,
        "temporaries": 3500.0,  # fp32 copies inside the compiled optimizer
        "constants": 16.1,
    }


def test_llama_at_the_start_of_the_backward_pass_against_theory() -> None:
    # Theory has 3,012.3 MiB of live tensors here: 2,996.3 from the forward pass, and the attention masks of four
    # layers, which are copied from the host.
    rows = trace_of(LLAMA)
    start = min(row.start for row in rows.blocks if any(frame.function == "grad" for frame in row.stack)) - 1
    result = at(rows, start)
    assert mib(result) == {"weights": 2044.1, "activations": 2996.3, "constants": 16.0}
    dense = result.holders[0]
    assert (dense.operator, dense.category, dense.where) == (
        "Dense",
        MemoryCategory.ACTIVATIONS,
        "/workspace/llama.py:17",
    )


def test_adam_compiled_in_the_dynamic_graph() -> None:
    sizes = of_run("asc2").contents
    parameters = 524800 + 2560 + 20992 + 512  # 256 x 512 and 512 x 10 with biases, fp32, padded
    assert sizes[MemoryCategory.WEIGHTS] == parameters + 2 * 512  # the step counter and the learning rate, too
    assert sizes[MemoryCategory.OPTIMIZER_STATE] == 2 * parameters + 2 * 512  # the powers of beta, too
    assert sizes[MemoryCategory.GRADIENTS] == 2 * parameters  # those of both steps are live


def test_useless_stacks_are_reported() -> None:
    for run in ("over_limit", "v_simple"):
        assert not Contents(table_of(trace_of(run)), None).stacks_useful
        assert of_run(run).contents[MemoryCategory.ACTIVATIONS] == 0
    assert Contents(table_of(trace_of("asc2")), None).stacks_useful
    assert Contents(table_of(trace_of("asc_gO0")), None).stacks_useful  # a graph needs none
    (zeros,) = of_run("over_limit").holders
    assert (zeros.bytes, zeros.count, zeros.operator, zeros.category, zeros.where) == (
        *(8 * (1024 * MIB + 512), 8, "Zeros", MemoryCategory.UNATTRIBUTED, ""),
    )


def test_dynamic_graph_rules() -> None:
    state = block(50, kind="Weight", node_name="AdamW", stack=UPDATE, user_text="{51-90}", last_user_task=90)
    assert content_of(state) is MemoryCategory.OPTIMIZER_STATE
    assert content_of(block(1, kind="Weight", stack=FORWARD, persistent=True), state) is MemoryCategory.WEIGHTS
    assert content_of(block(2, 40, stack=FORWARD), state) is MemoryCategory.ACTIVATIONS
    assert content_of(block(30, 35, stack=BACKWARD), state) is MemoryCategory.TEMPORARIES
    assert content_of(block(30, 60, stack=BACKWARD), state) is MemoryCategory.GRADIENTS
    assert content_of(block(30, None, stack=BACKWARD), state) is MemoryCategory.GRADIENTS
    assert content_of(block(95, None, stack=BACKWARD), state) is MemoryCategory.TEMPORARIES  # no update follows
    assert content_of(block(2, 3, kind="WorkSpace", stack=FORWARD)) is MemoryCategory.WORKSPACE
    assert content_of(block(2, 3, kind="", task_name="")) is MemoryCategory.WORKSPACE
    assert content_of(block(2, 9, kind="", task_name="")) is MemoryCategory.UNATTRIBUTED
    assert content_of(block(2, None, kind="PyNativeInput", stack=FORWARD)) is MemoryCategory.CONSTANTS
    assert content_of(block(2, None, kind="ConstantValue", stack=FORWARD, persistent=True)) is MemoryCategory.CONSTANTS
    assert content_of(block(2, 40, stack=UPDATE)) is MemoryCategory.TEMPORARIES
    made = Frame(f"{SITE}/mindspore/mint/optim/adamw.py", 182, "__init__")
    assert content_of(block(2, None, stack=(TRAIN, made))) is MemoryCategory.OPTIMIZER_STATE


def test_clipped_gradients_of_the_dynamic_graph() -> None:
    state = block(50, kind="Weight", node_name="AdamW", stack=UPDATE, user_text="{51}")
    backward, clipped = block(30, 60, stack=BACKWARD), block(40, 60, stack=(TRAIN, Frame("/workspace/clip.py", 3, "f")))
    assert content_of(clipped, backward, state) is MemoryCategory.GRADIENTS
    assert content_of(clipped, state) is MemoryCategory.TEMPORARIES
    after = replace(clipped, start=52, end=99)  # the optimizer has run; another update follows
    assert content_of(after, backward, replace(state, user_text="{51-90}")) is MemoryCategory.TEMPORARIES


def test_without_stacks_the_operator_shows_the_optimizer_state() -> None:
    assert content_of(block(5, kind="Weight", node_name="AdamW", stack=(TRACKER,))) is MemoryCategory.OPTIMIZER_STATE
    assert content_of(block(5, kind="Weight", node_name="Dense", stack=(TRACKER,))) is MemoryCategory.WEIGHTS
    assert content_of(block(5, stack=(TRACKER,))) is MemoryCategory.UNATTRIBUTED


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("adam_m.layers.0.weight", MemoryCategory.OPTIMIZER_STATE),
        ("adam_v.layers.0.weight", MemoryCategory.OPTIMIZER_STATE),
        ("moment1.layers.0.weight", MemoryCategory.OPTIMIZER_STATE),
        ("exp_avg_sq.layers.0.weight", MemoryCategory.OPTIMIZER_STATE),
        ("beta1_power", MemoryCategory.OPTIMIZER_STATE),
        ("accu_grads.layers.0.weight", MemoryCategory.GRADIENTS),
        ("accum.layers.0.weight", MemoryCategory.OPTIMIZER_STATE),
        ("linear.weight", MemoryCategory.WEIGHTS),
        ("layers.0.weight", MemoryCategory.WEIGHTS),
    ],
)
def test_parameters_of_a_graph(name: str, expected: MemoryCategory) -> None:
    weight = block(1, kind="Weight", task_name="SyncTensorData", node_name="layers.0.weight")
    assert content_of(replace(weight, node_name=name), weight) is expected


def test_a_compiled_optimizer_of_the_dynamic_graph_names_its_state_only() -> None:
    weight = block(1, kind="Weight", node_name="MatMul", stack=FORWARD)
    task = "kernel_graph_0_DataPrepareActor"
    state = block(2, kind="Weight", task_name=task, node_name="accum.layers.3.fc2.weight")
    assert content_of(state, weight) is MemoryCategory.OPTIMIZER_STATE  # of nn.SGD
    assert content_of(state) is MemoryCategory.WEIGHTS
    assert content_of(replace(state, node_name="linear.fc2.weight"), weight) is MemoryCategory.WEIGHTS


def test_graph_rules() -> None:
    state = block(1, kind="Weight", task_name="SyncTensorData", node_name="adam_m.w", user_text="{100-200}")

    def kernel(start: int, end: int | None, path: str, kind: str = "Kernel") -> Block:
        return block(start, end, kind=kind, task_name=f"0_{path}", node_name=path, graph_name="kernel_graph0")

    forward = kernel(10, 80, "Default/net-Net/fc-Linear/Dense-op0")
    backward = kernel(50, 60, "Gradients/Default/net-Net/fc-Linear/Grad_Dense/MatMul-op0")
    others = (state, forward, backward)
    assert content_of(forward, state, backward) is MemoryCategory.ACTIVATIONS
    assert content_of(kernel(20, 80, "Default/GeluExt-op0"), *others) is MemoryCategory.ACTIVATIONS
    assert (
        content_of(kernel(45, 80, "recompute_Default/net-Net/fc-Linear/Dense-op0"), *others)
        is MemoryCategory.ACTIVATIONS
    )
    assert content_of(backward, state, forward) is MemoryCategory.TEMPORARIES
    assert content_of(replace(backward, end=101), state, forward) is MemoryCategory.GRADIENTS
    # The compiler assigns casts of the update to the scope of a layer.
    assert content_of(kernel(70, 80, "Default/net-Net/fc-Linear/Cast-op9"), *others) is MemoryCategory.TEMPORARIES
    assert (
        content_of(kernel(150, 160, "Default/network-Step/optimizer-AdamW/Mul-op0"), *others)
        is MemoryCategory.TEMPORARIES
    )
    for kind, expected in (
        ("ContinuousMemory", MemoryCategory.COMMUNICATION),
        ("BatchMemory", MemoryCategory.TEMPORARIES),
        ("ConstantValue", MemoryCategory.CONSTANTS),
        ("Somas", MemoryCategory.UNATTRIBUTED),
        ("GraphOutput", MemoryCategory.TEMPORARIES),
    ):
        assert content_of(kernel(10, 80, "Default/net-Net/fc-Linear/Dense-op0", kind), *others) is expected
    assert content_of(kernel(10, 20, "Default/net-Net/AllGather-op0"), *others) is MemoryCategory.COMMUNICATION
    assert content_of(kernel(10, 80, "kernel_graph_0_HostDSActor"), state) is MemoryCategory.TEMPORARIES


def test_types_of_the_emulator() -> None:
    for kind, expected in (
        ("Parameter", MemoryCategory.WEIGHTS),
        ("Gradient", MemoryCategory.GRADIENTS),
        ("Optstate", MemoryCategory.OPTIMIZER_STATE),
        ("Activation", MemoryCategory.ACTIVATIONS),
        ("Temp", MemoryCategory.TEMPORARIES),
    ):
        assert content_of(block(1, kind=kind, task_name="forward")) is expected


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
    assert [content_of(row, *rows, tensors=tensors) for row in rows] == [
        MemoryCategory.WEIGHTS,
        MemoryCategory.GRADIENTS,
        MemoryCategory.OPTIMIZER_STATE,
    ]
    assert content_of(block(9, stack=(TRACKER,), address=0x4000), *rows, tensors=tensors) is MemoryCategory.UNATTRIBUTED
    # The list is from the end: an earlier block at the address had another content.
    earlier = block(2, 5, stack=FORWARD, address=0x2000)
    assert content_of(earlier, *rows, tensors=tensors) is MemoryCategory.ACTIVATIONS
    contents = Contents(table_from(rows), tensors)
    assert contents.names[1] == "layers.3.w"
    assert contents.tensors_missing == 0


def test_a_tensor_list_of_another_run_is_not_used() -> None:
    row = block(1, stack=FORWARD, address=0x1000)  # 512 bytes

    def missing(*weights: ListedTensor) -> tuple[int, MemoryCategory]:
        contents = Contents(table_from([row]), TensorList(weights, (), ()))
        return contents.tensors_missing, CONTENTS[contents.codes[0]]

    fits, sticks_out, elsewhere = (
        ListedTensor("a", 0x1010, 496),
        ListedTensor("b", 0x1010, 497),
        ListedTensor("c", 9, 1),
    )
    assert missing(fits) == (0, MemoryCategory.WEIGHTS)
    assert missing(fits, elsewhere) == (1, MemoryCategory.WEIGHTS)
    assert missing(fits, elsewhere, sticks_out) == (2, MemoryCategory.ACTIVATIONS)


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
        assert at(trace(row)).holders[0].where == expected


# MiB at the peak, counted from the programs: tensors of the layers in a backward pass, weights, moments, sums of gradients.
@pytest.mark.parametrize(
    ("program", "tick", "counted"),
    [
        # 8 weights of 4, two moments each; a sum of the gradients and those of the micro-batch; 2 x 8 tensors of 8 kept
        ("accumulate", 1430, {"weights": 32, "optimizer_state": 64, "gradients": 64, "activations": 128}),
        # a quarter of the masters and of two moments; weights made of them; gradients; 2 x 8 tensors of 8 kept
        ("shards", 700, {"weights": 32, "optimizer_state": 24, "gradients": 32, "activations": 128}),
        # 6 weights of 2 in bfloat16, three states of 4 each; the second gradients and one sum that a variable holds
        ("lazy", 602, {"weights": 12, "optimizer_state": 72, "gradients": 28, "activations": 88}),
        # 32 tensors of 16: input and output of 8 layers, and the derivatives and transposes computed ahead
        ("jit_step", 1486, {"weights": 32, "optimizer_state": 64, "gradients": 0, "activations": 512}),
        # six outputs of 16, and the gradient of the mean, which the compiler computes ahead
        ("jit_loop", 62, {"weights": 6, "optimizer_state": 6, "gradients": 0, "activations": 112}),
    ],
)
def test_programs_without_names_for_their_tensors(program: str, tick: int, counted: dict[str, int]) -> None:
    found = at(trace_of(f"programs/{program}"), tick)
    sizes = {content.value: round(found.contents[content] / MIB) for content in MemoryCategory}
    assert {name: sizes[name] for name in counted} == counted
