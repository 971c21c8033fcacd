"""Test the categories of persistent blocks of a Megatron program."""

from __future__ import annotations

import pytest

from ms_tune.enums import MemoryCategory
from ms_tune.footprint.category import CONTENTS, Contents, find_lasting_categories
from ms_tune.footprint.phases import EAGER
from ms_tune.readers.memory_block import NEVER_FREED, Frame
from tests.readers.rows import table_from
from tests.readers.samples import block

MODEL = ("/any/where/megatron/training/training.py", "get_model")
LAYER = ("/any/where/megatron/core/tensor_parallel/layers.py", "__init__")
BUFFER = ("/any/where/megatron/core/distributed/param_and_grad_buffer.py", "__init__")
PADDED = ("/any/where/mindspeed/core/distributed/param_and_grad_buffer.py", "param_and_grad_buffer_init_pad")
OWN = ("/any/where/mindspeed_llm/core/distributed/param_and_grad_buffer.py", "param_and_grad_buffer_init")
OTHER = ("/home/me/training.py", "get_model")
MAKER = ("/any/where/megatron/core/optimizer/__init__.py", "get_megatron_optimizer")
MASTERS = ("/any/where/megatron/core/optimizer/optimizer.py", "__init__")
MINDSPEED = ("/any/where/mindspeed/core/optimizer/adamw.py", "step")


def stack(*frames: tuple[str, str], line: int = 1) -> tuple[Frame, ...]:
    return tuple(Frame(file, line, function) for file, function in frames)


def test_the_first_tensor_of_a_buffer_with_two_holds_the_weights() -> None:
    stacks = [stack(MODEL, BUFFER, line=628), stack(MODEL, BUFFER, line=617), stack(MODEL, LAYER)]
    assert find_lasting_categories(stacks) == [MemoryCategory.GRADIENTS, MemoryCategory.WEIGHTS, MemoryCategory.WEIGHTS]
    assert find_lasting_categories([stack(MASTERS), ()]) == [None, None]


@pytest.mark.parametrize(
    ("frames", "end", "holds"),
    [
        ((MODEL, LAYER), NEVER_FREED, MemoryCategory.WEIGHTS),
        ((MODEL, BUFFER), NEVER_FREED, MemoryCategory.GRADIENTS),
        ((MODEL, PADDED), NEVER_FREED, MemoryCategory.GRADIENTS),
        ((MODEL, OWN), NEVER_FREED, MemoryCategory.GRADIENTS),
        ((OTHER, LAYER), NEVER_FREED, MemoryCategory.TEMPORARIES),
        ((MAKER, MASTERS), NEVER_FREED, MemoryCategory.OPTIMIZER_STATE),
        ((MINDSPEED,), NEVER_FREED, MemoryCategory.OPTIMIZER_STATE),
        ((MODEL, LAYER), 9, MemoryCategory.TEMPORARIES),
        ((MINDSPEED,), 9, MemoryCategory.TEMPORARIES),
    ],
)
def test_of_what_is_freed_it_shows_nothing(
    frames: tuple[tuple[str, str], ...], end: int, holds: MemoryCategory
) -> None:
    row = block(2, None if end == NEVER_FREED else end, task_name=EAGER, stack=stack(*frames))
    assert CONTENTS[int(Contents(table_from([row]), None).codes[0])] is holds


BACKWARD = ("/any/site-packages/mindspore/ops/functional.py", "run_backward")
EXCHANGE = ("/any/where/megatron/core/pipeline_parallel/schedules.py", "send_backward_recv_forward")
RECEIVER = ("/any/where/megatron/core/pipeline_parallel/p2p_communication.py", "create_tensor_recv_prev")


@pytest.mark.parametrize("buffered", [True, False])
def test_what_the_last_stage_holds_of_the_next_micro_batch_is_no_gradient(*, buffered: bool) -> None:
    """The stage allocates its next input in its backward pass: with 4 layers of 1,024 this added 1.9 % to the gradients."""
    lives = [
        (1, None, (MODEL, BUFFER if buffered else LAYER)),
        (2, None, (MAKER, MASTERS)),
        (3, 20, (EXCHANGE, BACKWARD)),
        (4, 20, (EXCHANGE, RECEIVER, BACKWARD)),
        (9, 12, (MINDSPEED,)),
    ]
    rows = [block(start, end, task_name=EAGER, stack=stack(*frames)) for start, end, frames in lives]
    codes = Contents(table_from(rows), None).codes
    held = [CONTENTS[int(one)] for one in codes]
    assert held[0] is (MemoryCategory.GRADIENTS if buffered else MemoryCategory.WEIGHTS)
    assert held[2] is (MemoryCategory.TEMPORARIES if buffered else MemoryCategory.GRADIENTS)
    assert held[3] is MemoryCategory.ACTIVATIONS
