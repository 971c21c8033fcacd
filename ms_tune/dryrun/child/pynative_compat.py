"""What MindFormers' dynamic-graph trainer does with the host's memory, which in simulation serves nobody."""

from __future__ import annotations

import os
from typing import Any

import mindspore
from mindspore import Parameter, Tensor, mint

_SMALL = 1 << 20  # bytes; step counts and the like keep their values


def leave_the_host_alone() -> None:
    """Make parameters from tensors without bringing the tensors' values to the host.

    ``AdamW._init_main_params`` (MindFormers 2.0 and 2.1, pynative/optimizer/adamw.py) makes a parameter of every float32 copy,
    and MindSpore (2.10, ``Parameter._get_parameter_new_args``) reads the tensor's values into a NumPy array for it: a model
    of 7 billion weights would need 28 GB on the host, and as much again for the moments that are made from the copies. On
    the device nothing changes: the parameter has its memory there from the first operator that reads it.

    On devices (``--real``) values count, and nothing is changed.
    """
    if "MS_SIMULATION_LEVEL" not in os.environ:
        return
    made_of = Parameter._get_parameter_new_args  # noqa: SLF001 - there is no other place

    def without_values(data: Any, *rest: Any) -> tuple[Any, ...]:  # noqa: ANN401 - as Parameter takes them
        if isinstance(data, Tensor) and not data.has_init and _has_memory(data) and data.nbytes > _SMALL:
            return Tensor, mint.empty(data.shape, dtype=data.dtype, device="CPU")
        made: tuple[Any, ...] = made_of(data, *rest)
        return made

    Parameter._get_parameter_new_args = staticmethod(without_values)  # noqa: SLF001 - as above


def _has_memory(tensor: Tensor) -> bool:
    """Whether a tensor has memory and its parameter is to have some: a model is first made without any."""
    return not tensor.is_meta and mindspore.get_context("device_target") != "meta"
