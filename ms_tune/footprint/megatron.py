"""What blocks hold that outlive a step of a Megatron program, by the functions of Megatron's that made them.

Sources: Megatron-LM core_v0.12.1, ``megatron/training/training.py`` (``get_model``), ``megatron/core/distributed/param_and_grad_buffer.py``,
``megatron/core/pipeline_parallel/p2p_communication.py``,
``megatron/core/optimizer``; MindSpeed v2.2.0_core_r0.12.1 has optimizers of its own in files of the same folders.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ms_tune.readers.memory_block import Frame

_TRAINING = re.compile(r"(?:^|/)megatron/training/training\.py$")
_BUFFER = re.compile(r"(?:^|/)core/distributed/param_and_grad_buffer\.py$")
_OPTIMIZER = re.compile(r"(?:^|/)core/optimizer/\w+\.py$")
_EXCHANGE = re.compile(r"(?:^|/)pipeline_parallel/p2p_communication\.py$")
_MODEL = "get_model"
_RECEIVER = "create_tensor_recv_prev"
# Behind the first: MindSpeed v2.3.0 with --param-and-grad-buffer-pad, MindSpeed-LLM v26.1.0.
_BUFFER_MAKERS = frozenset({"__init__", "param_and_grad_buffer_init_pad", "param_and_grad_buffer_init"})
_OPTIMIZER_MAKERS = frozenset({"get_megatron_optimizer", "step", "step_with_ready_grads"})


class Lasting(Enum):
    """What a block that outlives a step holds."""

    WEIGHTS = "weights"
    OPTIMIZER_STATE = "optimizer_state"
    GRADIENTS = "gradients"


def lasting(stacks: Sequence[Sequence[Frame]]) -> list[Lasting | None]:
    """What a block of each stack holds if it is never freed; None where Megatron does not tell.

    A buffer of parameters and gradients is one object with one or two tensors: the gradients', and before it, with the
    distributed optimizer, the parameters', which the weights become parts of.
    """
    lines = [_line_of_buffer(stack) for stack in stacks]
    made = sorted({line for line in lines if line is not None})
    parameters = made[0] if len(made) > 1 else None
    return [
        _lasting(stack) if line is None else Lasting.WEIGHTS if line == parameters else Lasting.GRADIENTS
        for stack, line in zip(stacks, lines, strict=True)
    ]


def received(stack: Iterable[Frame]) -> bool:
    """Whether a block is what a stage gets from the one before: its input, which it keeps for its backward pass.

    The last stage asks for that of the next micro-batch in its backward pass (``send_backward_recv_forward``), where what lives
    on to the update is a gradient otherwise.
    """
    return any(frame.function == _RECEIVER and _EXCHANGE.search(frame.file.replace("\\", "/")) for frame in stack)


def _lasting(stack: Iterable[Frame]) -> Lasting | None:
    found = None
    for frame in stack:
        path = frame.file.replace("\\", "/")
        if frame.function in _OPTIMIZER_MAKERS and _OPTIMIZER.search(path):
            return Lasting.OPTIMIZER_STATE
        if frame.function == _MODEL and _TRAINING.search(path):
            found = Lasting.WEIGHTS
    return found


def _line_of_buffer(stack: Iterable[Frame]) -> int | None:
    """The line at which a buffer makes one of its tensors."""
    for frame in stack:
        if frame.function in _BUFFER_MAKERS and _BUFFER.search(frame.file.replace("\\", "/")):
            return frame.line
    return None
