"""MindSpore 2.7 to 2.10, and MSAdapter 0.5 to 0.8, which stands in for torch: what of them needs a device, a cluster, or another MindSpore."""

from __future__ import annotations

import functools
import inspect
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .support import put_around, tell

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from .process import HookedProcess

_DEVICES, _DEFAULT = "MS_TUNE_DEVICES", 8  # as the launcher was told; a node of Atlas 800T A2 has eight
_ROLE = "MS_ROLE"
_IN_PLACE = {  # the source of an operator, and its function
    "matmul_add": "npu_matmul_add_fp32",
    "groupmatmul_add": "npu_groupmatmul_add_fp32",
    "group_topk": "npu_group_topk",
}
_SOURCE = "GeneratorOp(self._seed"  # in mindspore/common/generator.py since 2.9


def count_devices(ascend: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """As many devices as a node of the job has.

    In simulation MindSpore asks its own no-op for ``aclrtGetDeviceCount`` (``LoadSimulationApiSymbols``), which leaves 0;
    Megatron then makes no groups (``megatron/training/initialize.py``).
    """

    def device_count(count: Callable[[], int]) -> int:
        told = os.environ.get(_DEVICES, "")
        return int(count()) or (int(told) if told.isdecimal() and int(told) else _DEFAULT)

    put_around(ascend, "device_count", device_count)
    tell(process, "device-count")


def make_generators(msadapter: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Make a generator as the MindSpore at hand does.

    MSAdapter 0.5 makes the operator behind it without the seed and the offset that MindSpore 2.9 wants of it
    (``msadapter/__init__.py``, ``mindspore/common/generator.py``).
    """
    own = msadapter.Generator
    base = own.__mro__[1]
    if _SOURCE not in inspect.getsource(base.__init__):
        return

    def __init__(self: Any, device: str = "cpu") -> None:  # noqa: ANN401, N807 - as the class's own
        del device
        base.__init__(self)

    own.__init__ = functools.wraps(own.__init__)(__init__)
    tell(process, "generator")


def leave_out_in_place(module: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """Leave out operators of CANN's transformer library that write their result into a tensor that they are given.

    MSAdapter 0.5 builds them with that library, which is not part of CANN's toolkit (``torch_npu/atb/__init__.py``). They
    allocate nothing but workspaces; those that make tensors are built as ever, and fail.
    """

    def load_in_simulation(load: Any, self: Any, name: str) -> Any:  # noqa: ANN401 - as the method
        operator = _IN_PLACE.get(name)
        if operator is None:
            return load(self, name)
        tell(process, "in-place", operator=operator)
        return SimpleNamespace(**{operator: lambda *_arguments, **_named: None})

    put_around(module.AtbOpBuilder, "load", load_in_simulation)


class _Os:
    """The module ``os`` as one module of MSAdapter sees it."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever is asked for
        return getattr(os, name)

    @staticmethod
    def getenv(key: str, default: str | None = None) -> str | None:
        """As ``os.getenv``, but for the role."""
        return os.environ.get(key, "MS_WORKER" if key == _ROLE else default)


def give_role(module: ModuleType, process: HookedProcess | None) -> None:
    """Let ``init_process_group`` believe that a launcher gave it a role, and MindSpore not.

    Without one it starts a scheduler (``msadapter/distributed/distributed_c10d.py``); with one, MindSpore's simulation
    waits for a scheduler for five minutes.
    """
    if _ROLE in os.environ:
        return
    module.os = _Os()  # type: ignore[attr-defined]  # what it imports
    tell(process, "role")
