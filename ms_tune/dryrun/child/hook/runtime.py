"""What MindSpore's run time is told and asked: memory of the device and of the host, threads that work and threads that wait."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import time
from pathlib import Path
from typing import Any

from .support import put_around

_LEAST_THREADS = 8
_WATCHES = "MS_TUNE_WATCHES"  # the variable that names the library, where stand-ins for CANN were built
_HOST_BYTES = 1 << 40  # of an Atlas 800T A2 and its like
_TO_BEGIN, _LOOK = 1.0, 0.01  # seconds
_MAX_SIZE = 2  # the place among the arguments of RuntimeConf.set_memory


class _RequestedMemory:
    gib: float | None = None


def let_watch() -> ctypes.PyDLL | None:
    """Have threads that ask the device for news wait for it, as on a device; before MindSpore loads its Ascend plug-in.

    For every stream a thread calls ``aclrtProcessReport`` over and over. In simulation that is a function of MindSpore's own, which
    returns at once (``plugin/ascend/res_manager``, MindSpore 2.7 to 2.10): two threads in dynamic graph and seven and more in static
    graph take what processors are free. The plug-in finds it as the linker does, and where a library that was loaded before has a
    function of this name, takes that one: ours does nothing either, but takes its time (``cann_sim/inventory.py``). So is known which
    processes use the device (:mod:`forks`).
    """
    if path := os.environ.get(_WATCHES):
        with contextlib.suppress(OSError):
            return ctypes.PyDLL(path, mode=ctypes.RTLD_GLOBAL)
    return None


def let_threads_begin() -> None:
    """Wait until all threads of this process have run; to be called before MindSpore ends.

    What a thread that asks for news reads first is MindSpore's (2.9), and is taken away at the end without a look whether the thread has
    come to it. Where a busy machine had not started one yet, a short program ended in a crash.
    """
    end = time.monotonic() + _TO_BEGIN
    while time.monotonic() < end and any(map(_has_never_waited, Path("/proc/self/task").iterdir())):
        time.sleep(_LOOK)


def _has_never_waited(thread: Path) -> bool:
    with contextlib.suppress(OSError):
        return "\nvoluntary_ctxt_switches:\t0\n" in (thread / "status").read_text("utf-8", "replace")
    return False


def install(mindspore: Any, _process: object) -> None:  # noqa: ANN401 - a module of a framework without types
    """Set threads and memory; a release that lacks one of them is left as it is."""
    compiled = importlib.import_module("mindspore._c_expression")
    for change in (_set_threads, _set_host_memory, _note_memory):
        with contextlib.suppress(Exception):
            change(mindspore, compiled)


def _set_threads(mindspore: Any, compiled: Any) -> None:  # noqa: ANN401 - as above
    # By default MindSpore takes a share of the machine's cores, which on a laptop is too small for graphs with conditions: "Can not
    # build a sub graph which contains ConditionSwitch" (``graph_scheduler.cc``, 2.7 to 2.10). Memory does not depend on the number.
    least = max(_LEAST_THREADS, os.cpu_count() or 1)
    configuration = compiled.RuntimeConf.get_instance()
    configuration.set_dispatch_threads_num(least)
    asked: list[int] = []

    def dispatch_threads_num(ask: Any, threads_num: int) -> None:  # noqa: ANN401 - a function
        if asked:
            ask(threads_num)  # refuses, as it does without ms-tune: a program may set it once
        asked.append(threads_num)
        configuration.set_dispatch_threads_num(max(least, threads_num))

    put_around(mindspore.runtime, "dispatch_threads_num", dispatch_threads_num)


def _set_host_memory(_mindspore: Any, compiled: Any) -> None:  # noqa: ANN401 - as above
    # Copies to the host (``tensor.to("cpu", non_blocking=True)``) go into blocks of a GiB, one for each stream, up to four fifths of
    # what the host has free, divided by the processes of a machine (MindSpore 2.7 to 2.10, ``PinMemPool``,
    # ``OffloadContext::offload_cpu_size``). A laptop has room for three such blocks beside a job of four processes; then "Allocate
    # memory failed" ends the program. Nothing is written into them in simulation, so that they take no memory. A program may still
    # set host memory of its own (``set_offload_context``).
    compiled.OffloadContext.get_instance().set_offload_cpu_size(_HOST_BYTES)


def _note_memory(mindspore: Any, compiled: Any) -> None:  # noqa: ANN401 - as above
    # ``mindspore.runtime.set_memory`` goes before the context; once the device is in use it changes nothing.
    def set_memory(before: Any, self: Any, *sizes: Any) -> Any:  # noqa: ANN401 - as the method takes them
        if not mindspore.hal.is_initialized("Ascend"):
            _RequestedMemory.gib = float(sizes[_MAX_SIZE])
        return before(self, *sizes)

    put_around(compiled.RuntimeConf, "set_memory", set_memory)


def requested_gib(mindspore: Any) -> float | None:  # noqa: ANN401 - as above
    """GiB that the program asked for, 1024 if nothing; to be asked once the device is in use, since nobody may set a value that was read.

    A real device's pool takes ``max_device_memory`` up to the size that MindSpore knows of the chip. In simulation it knows of no
    chip, and from 2.9 on takes no notice of more than 32 GiB (``AscendMemAdapter::GetDeviceMemSizeFromContext``), so that its
    statistics do not have what the program asked for.
    """
    if _RequestedMemory.gib is None:
        with contextlib.suppress(Exception):
            return float(mindspore.get_context("max_device_memory"))
    return _RequestedMemory.gib
