from __future__ import annotations

import numpy as np
import pytest

from ms_tune.footprint.phases import ORDER, FrameOrigin, Phase, Phases, classify_frame
from ms_tune.readers.memory_block import Block, Frame
from tests.readers.rows import table_from
from tests.readers.samples import block

SITE = "/opt/venv/lib/python3.11/site-packages"
TRAIN = Frame("/workspace/train.py", 58, "step")
FORWARD_RUN = Frame(f"{SITE}/mindspore/ops/composite/base.py", 118, "_pynative_func_grad_forward")
BACKWARD_RUN = Frame(f"{SITE}/mindspore/ops/composite/base.py", 151, "_pynative_func_grad_backward")
GRAD = Frame(f"{SITE}/mindspore/graph/api.py", 1877, "grad")
CONSTRUCT = Frame("/workspace/model.py", 17, "construct")
CALL = Frame(f"{SITE}/mindspore/nn/cell.py", 1420, "__call__")
ADAMW = Frame(f"{SITE}/mindspore/mint/optim/adamw.py", 189, "construct")
TRACKER = Frame("/usr/lib/python3.11/traceback.py", 228, "extract_stack")
STEP_CELL = Frame("/workspace/step.py", 9, "construct")
BPROP = Frame(f"{SITE}/mindspore/common/recompute.py", 400, "bprop")


def phases_of(blocks: list[Block], state: list[Block], *, around: bool = False) -> list[Phase | None]:
    phases = Phases(table_from(blocks), np.array([any(row is block for block in state) for row in blocks]))
    return [
        ORDER[found - 1] if found else None for found in (phases.guessed_codes if around else phases.own_codes).tolist()
    ]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/workspace/model.py", FrameOrigin.USER),
        ("/home/someone/mindspore/train.py", FrameOrigin.USER),
        ("/home/someone/mindformers/run_mindformer.py", FrameOrigin.USER),
        ("/home/someone/mindformers/mindformers/core/optim/adamw.py", FrameOrigin.LIBRARY),
        (f"{SITE}/mindformers/models/qwen3/modeling_qwen3.py", FrameOrigin.LIBRARY),
        ("/usr/lib/python3/dist-packages/somewhere/a.py", FrameOrigin.LIBRARY),
        (f"{SITE}/ms_tune/dryrun/child/run.py", FrameOrigin.LIBRARY),
        (f"{SITE}/mindspore/nn/cell.py", FrameOrigin.FRAMEWORK),
        ("/src/mindspore/python/mindspore/nn/cell.py", FrameOrigin.FRAMEWORK),
        ("C:\\python\\Lib\\site-packages\\mindspore\\nn\\cell.py", FrameOrigin.FRAMEWORK),
        ("/usr/lib/python3.11/traceback.py", FrameOrigin.NOISE),
        ("<frozen runpy>", FrameOrigin.NOISE),
        ("", FrameOrigin.NOISE),
        ("/venv/lib/python3.11/site-packages/ms_tune/dryrun/child/hook/finite_checks.py", FrameOrigin.NOISE),
    ],
)
def test_whose_code_a_frame_is(file: str, expected: FrameOrigin) -> None:
    assert classify_frame(Frame(file, 1, "f")) is expected


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ((TRAIN, FORWARD_RUN, CALL, CONSTRUCT, CALL), Phase.FORWARD),
        ((TRAIN, FORWARD_RUN), Phase.FORWARD),
        ((TRAIN, BACKWARD_RUN, GRAD), Phase.BACKWARD),
        ((TRAIN, BACKWARD_RUN, GRAD, BPROP, CALL, CONSTRUCT), Phase.FORWARD),  # recompute
        ((TRAIN, BACKWARD_RUN, GRAD, BPROP, GRAD), Phase.BACKWARD),
        ((TRAIN, CALL, ADAMW), Phase.UPDATE),
        ((STEP_CELL, BACKWARD_RUN, GRAD), Phase.BACKWARD),
        ((STEP_CELL, CALL), None),  # the training step is a cell itself
        ((TRAIN,), None),
        ((TRACKER,), None),
    ],
)
def test_phases_of_stacks(stack: tuple[Frame, ...], expected: Phase | None) -> None:
    first, second = block(1, stack=(TRAIN, FORWARD_RUN, CONSTRUCT)), block(2, stack=stack)
    assert phases_of([first, second], [])[1] is expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Default/net-Net/blocks-CellList/0-Block/fc1-Linear/Dense-op0", Phase.FORWARD),
        ("Default/net-Net/MeanExt-op0", Phase.FORWARD),
        ("recompute_Default/network-Grad/net-Net/0-Block/RealDiv-op0", Phase.FORWARD),
        ("Gradients/Default/net-Net/0-Block/fc2-Linear/Grad_Dense/MatMul-op0", Phase.BACKWARD),
        ("Gradients/recompute_Default/net-Net/Grad_Mul/Mul-op0", Phase.BACKWARD),
        ("Default/network-MFPipelineWithLossScaleCell/optimizer-AdamW/Mul-op289", Phase.UPDATE),
        ("Default/network-MFPipelineWithLossScaleCell/clip_grad_norm-ClipGradNorm/Square-op0", Phase.STEP),
        ("Default/network-MFPipelineWithLossScaleCell/Mul-op0", Phase.STEP),
        ("Default/Cast-op0", None),
        ("kernel_graph_0_HostDSActor", None),
    ],
)
def test_phases_of_scopes(path: str, expected: Phase | None) -> None:
    row = block(1, kind="Kernel", task_name=f"3_{path}", node_name=path, graph_name="kernel_graph0")
    assert phases_of([row], []) == [expected]


_UPDATE = "Default/network-MFPipelineWithLossScaleCell/optimizer-AdamW/Mul-op8"
_FORWARD = "Default/network-MFPipelineWithLossScaleCell/network-Net/rotary_pos_emb-RotaryEmbedding/Add-op8"
_BACKWARD = "Gradients/Default/network-MFPipelineWithLossScaleCell/network-Net/MatMul-op0"


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ((_UPDATE, _FORWARD, "Default/Cast-op0", _UPDATE), "uuuu"),
        ((_UPDATE, _FORWARD, _FORWARD, _BACKWARD, _UPDATE), "uffbu"),  # the next step
        ((_UPDATE, _FORWARD), "uf"),
        ((_FORWARD, _UPDATE), "fu"),
        ((_BACKWARD, _FORWARD, _BACKWARD), "bfb"),  # recompute
    ],
)
def test_an_operator_of_the_update_may_be_under_the_scope_of_an_equal_one(
    paths: tuple[str, ...], expected: str
) -> None:
    rows = [block(i, kind="Kernel", task_name=path, node_name=path) for i, path in enumerate(paths, start=1)]
    assert "".join(str(phase and phase.value[0]) for phase in phases_of(rows, [], around=True)) == expected


def test_a_graph_of_nothing_but_the_optimizer() -> None:
    state = block(1, kind="Weight", task_name="kernel_graph_0_DataPrepareActor", node_name="moment1.w")
    cast = block(
        2, kind="Kernel", task_name="0_Default/Cast-op0", node_name="Default/Cast-op0", graph_name="kernel_graph0"
    )
    assert phases_of([state, cast], [state])[1] is Phase.UPDATE
    assert phases_of([state, cast], [])[1] is None
