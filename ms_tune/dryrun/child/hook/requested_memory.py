"""How much device memory the program asks for, which in simulation MindSpore cannot tell, and as much of the host's as a server has.

A real device's pool takes ``max_device_memory`` up to the size that MindSpore knows of the chip. In simulation it knows of no chip, and
from 2.9 on takes no notice of more than 32 GiB (``AscendMemAdapter::GetDeviceMemSizeFromContext``), so that its statistics do not
have what the program asked for.

Copies to the host (``tensor.to("cpu", non_blocking=True)``) go into blocks of a GiB, one for each stream, up to four fifths of what the
host has free, divided by the processes of a machine (MindSpore 2.7 to 2.10, ``PinMemPool``, ``OffloadContext::offload_cpu_size``).
A laptop has room for three such blocks beside a job of four processes; then "Allocate memory failed" ends the program.
Nothing is written into them in simulation, so that they take no memory.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import Any

_HOST_BYTES = 1 << 40  # of an Atlas 800T A2 and its like
_MAX_SIZE = 2  # the place among the arguments of RuntimeConf.set_memory


class _Asked:
    gib: float | None = None


def install(mindspore: Any, _process: object) -> None:  # noqa: ANN401 - a module of a framework without types
    """Set the host's memory, and note ``mindspore.runtime.set_memory``, which goes before the context.

    A program may still set host memory of its own (``set_offload_context``); once the device is in use ``set_memory`` changes nothing.
    """
    compiled = importlib.import_module("mindspore._c_expression")
    with contextlib.suppress(Exception):  # a release that lacks it is left as it is
        compiled.OffloadContext.get_instance().set_offload_cpu_size(_HOST_BYTES)
    configuration = compiled.RuntimeConf
    set_memory = configuration.set_memory

    @functools.wraps(set_memory)
    def noting(self: Any, *sizes: Any) -> Any:  # noqa: ANN401 - as the method takes them
        if not mindspore.hal.is_initialized("Ascend"):
            _Asked.gib = float(sizes[_MAX_SIZE])
        return set_memory(self, *sizes)

    configuration.set_memory = noting


def asked_gib(mindspore: Any) -> float | None:  # noqa: ANN401 - as above
    """GiB that the program asked for, 1024 if nothing; to be asked once the device is in use, since nobody may set a value that was read."""
    if _Asked.gib is None:
        with contextlib.suppress(Exception):
            return float(mindspore.get_context("max_device_memory"))
    return _Asked.gib
