"""What MindSpeed-Core-MS r0.1.0 takes for granted and later releases of MindSpore, or simulation, do not give."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mindspore import Parameter, Tensor, mint
from mindspore.mint import distributed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mindspore import Type

_MOST_ON_THE_HOST = 1 << 28  # elements


def initialise_at_once() -> None:
    """Give tensors their memory when they are made.

    ``RMSNorm`` multiplies, and the gradient buffers slice, tensors that MindSpore 2.7 and later leave without data until
    ``init_data`` is called, and then refuse ("is uninitialized").
    """
    make = Tensor.__init__

    def made(self: Tensor, *arguments: object, **named: Any) -> None:  # noqa: ANN401 - as Tensor takes them
        if named.get("init") is not None and not arguments and _elements(named["shape"]) > _MOST_ON_THE_HOST:
            # A buffer: as an array it would be larger than many hosts' memory.
            make(self, mint.empty(named["shape"], dtype=named["dtype"]))
            return
        make(self, *arguments, **named)
        if self.has_init:
            self.init_data()

    Tensor.__init__ = made


def _elements(shape: int | Sequence[int]) -> int:
    return shape if isinstance(shape, int) else math.prod(shape)


def start_without_gradients() -> None:
    """Give every parameter the gradient None until it has one.

    The optimizer for mixed precision without DDP asks for ``parameter.grad`` before it sets it; Parameter has no such
    attribute in MindSpore 2.7 and 2.9.
    """
    if not hasattr(Parameter, "grad"):
        Parameter.grad = None


def receive_by_the_public_function(communication: Any) -> None:  # noqa: ANN401 - a module of the framework, no types
    """Receive from other stages through ``mint.distributed``.

    The inner operator that the pipeline's ``IRecv`` calls ends the simulated process with a segmentation fault (MindSpore
    2.7 and 2.9); the public function makes the same tensor and works.
    """

    def receive(tag: int, source: int, shape: Sequence[int], group: str, dtype: Type) -> tuple[Tensor, Any]:
        buffer = mint.empty(tuple(shape), dtype=dtype)
        return buffer, distributed.irecv(buffer, distributed.get_global_rank(group, source), group=group, tag=tag)

    communication.inner_comm_irecv_op = receive
