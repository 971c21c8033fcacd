"""What the blocks of a Megatron program hold that outlive a step."""

from __future__ import annotations

import pytest

from ms_tune.memory.contents import CONTENTS, Content, Contents
from ms_tune.memory.megatron import Lasting, lasting
from ms_tune.memory.phases import EAGER
from ms_tune.trace.memory_block import NEVER_FREED, Frame
from tests.trace.rows import table_from
from tests.trace.samples import block

MODEL = ("/any/where/megatron/training/training.py", "get_model")
LAYER = ("/any/where/megatron/core/tensor_parallel/layers.py", "__init__")
BUFFER = ("/any/where/megatron/core/distributed/param_and_grad_buffer.py", "__init__")
PADDED = ("/any/where/mindspeed/core/distributed/param_and_grad_buffer.py", "param_and_grad_buffer_init_pad")
OWN = ("/any/where/mindspeed_llm/core/distributed/param_and_grad_buffer.py", "param_and_grad_buffer_init")
MAKER = ("/any/where/megatron/core/optimizer/__init__.py", "get_megatron_optimizer")
MASTERS = ("/any/where/megatron/core/optimizer/optimizer.py", "__init__")
MINDSPEED = ("/any/where/mindspeed/core/optimizer/adamw.py", "step")
OTHER = ("/home/me/training.py", "get_model")


def stack(*frames: tuple[str, str], line: int = 1) -> tuple[Frame, ...]:
    return tuple(Frame(file, line, function) for file, function in frames)


@pytest.mark.parametrize(
    ("frames", "holds"),
    [
        ((MODEL, LAYER), Lasting.WEIGHTS),
        ((MODEL, BUFFER), Lasting.GRADIENTS),
        ((MODEL, PADDED), Lasting.GRADIENTS),
        ((MODEL, OWN), Lasting.GRADIENTS),
        ((MAKER, MASTERS), Lasting.OPTIMIZER_STATE),
        ((MINDSPEED,), Lasting.OPTIMIZER_STATE),
        ((MASTERS,), None),
        ((OTHER, LAYER), None),
        ((), None),
    ],
)
def test_it_is_told_by_the_function_that_made_it(frames: tuple[tuple[str, str], ...], holds: Lasting | None) -> None:
    assert lasting([stack(*frames)]) == [holds]


def test_the_first_tensor_of_a_buffer_with_two_holds_the_weights() -> None:
    stacks = [stack(MODEL, BUFFER, line=628), stack(MODEL, BUFFER, line=617), stack(MODEL, LAYER)]
    assert lasting(stacks) == [Lasting.GRADIENTS, Lasting.WEIGHTS, Lasting.WEIGHTS]


@pytest.mark.parametrize(
    ("frames", "end", "holds"),
    [
        ((MODEL, LAYER), NEVER_FREED, Content.WEIGHTS),
        ((MODEL, BUFFER), NEVER_FREED, Content.GRADIENTS),
        ((MAKER, MASTERS), NEVER_FREED, Content.OPTIMIZER_STATE),
        ((MINDSPEED,), NEVER_FREED, Content.OPTIMIZER_STATE),
        ((MODEL, LAYER), 9, Content.TEMPORARIES),
        ((MINDSPEED,), 9, Content.TEMPORARIES),
    ],
)
def test_of_what_is_freed_it_tells_nothing(frames: tuple[tuple[str, str], ...], end: int, holds: Content) -> None:
    rows = [
        block(
            start=2,
            end=None if end == NEVER_FREED else end,
            kind="PyNativeOutput",
            task_name=EAGER,
            stack=stack(*frames),
        )
    ]
    assert CONTENTS[int(Contents(table_from(rows), None).codes[0])] is holds
