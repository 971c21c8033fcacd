"""Adjust MindSpore's run time in simulation: device and host memory, dispatch threads, and waiting threads."""

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
_WATCHES = "MS_TUNE_WATCHES"  # the variable with the library's path, if it was built
_HOST_BYTES = 1 << 40  # as on an Atlas 800T A2 and similar
_TO_BEGIN, _LOOK = 1.0, 0.01  # seconds
_MAX_SIZE = 2  # index of the argument of RuntimeConf.set_memory


class _RequestedMemory:
    gib: float | None = None


def let_watch() -> ctypes.PyDLL | None:
    """Make threads that poll the device for reports wait, as on a device; call before MindSpore loads its Ascend plug-in.

    One thread per stream calls ``aclrtProcessReport`` repeatedly. In simulation this is a function of MindSpore that returns at
    once (``plugin/ascend/res_manager``, MindSpore 2.7 to 2.10): two threads in dynamic graph, and seven or more in static graph,
    use all free processors. The linker prefers a function of that name in a library loaded earlier: ours also does nothing, but
    waits (``cann_sim/inventory.py``). It also records which processes use the device (:mod:`forks`).
    """
    if path := os.environ.get(_WATCHES):
        with contextlib.suppress(OSError):
            return ctypes.PyDLL(path, mode=ctypes.RTLD_GLOBAL)
    return None


def let_threads_begin() -> None:
    """Wait until all threads of this process have run; call before MindSpore ends.

    The first object that a polling thread reads belongs to MindSpore (2.9), which destroys it at the end without checking whether
    the thread has read it. On a busy machine, where a thread had not started yet, a short program crashed.
    """
    end = time.monotonic() + _TO_BEGIN
    while time.monotonic() < end and any(map(_has_never_waited, Path("/proc/self/task").iterdir())):
        time.sleep(_LOOK)


def _has_never_waited(thread: Path) -> bool:
    with contextlib.suppress(OSError):
        return "\nvoluntary_ctxt_switches:\t0\n" in (thread / "status").read_text("utf-8", "replace")
    return False


def install(mindspore: Any, _process: object) -> None:  # noqa: ANN401 - a module of a framework without types
    """Set threads and memory; settings that a release lacks are skipped."""
    compiled = importlib.import_module("mindspore._c_expression")
    for change in (_set_threads, _set_host_memory, _note_memory):
        with contextlib.suppress(Exception):
            change(mindspore, compiled)


def _set_threads(mindspore: Any, compiled: Any) -> None:  # noqa: ANN401 - as above
    # By default MindSpore uses a share of the machine's cores, which on a laptop is too small for graphs with conditions: "Can
    # not build a sub graph which contains ConditionSwitch" (``graph_scheduler.cc``, 2.7 to 2.10). Memory does not depend on it.
    least = max(_LEAST_THREADS, os.cpu_count() or 1)
    configuration = compiled.RuntimeConf.get_instance()
    configuration.set_dispatch_threads_num(least)
    asked: list[int] = []

    def dispatch_threads_num(ask: Any, threads_num: int) -> None:  # noqa: ANN401 - a function
        if asked:
            ask(threads_num)  # raises an error, as without ms-tune: a program may set it only once
        asked.append(threads_num)
        configuration.set_dispatch_threads_num(max(least, threads_num))

    put_around(mindspore.runtime, "dispatch_threads_num", dispatch_threads_num)


def _set_host_memory(_mindspore: Any, compiled: Any) -> None:  # noqa: ANN401 - as above
    # Copies to the host (``tensor.to("cpu", non_blocking=True)``) use blocks of 1 GiB per stream, up to four fifths of
    # the host's free memory divided by the processes per machine (MindSpore 2.7 to 2.10, ``PinMemPool``,
    # ``OffloadContext::offload_cpu_size``). A laptop has room for three such blocks with a job of four processes; then
    # "Allocate memory failed" ends the program. In simulation nothing is written into them, so they use no memory. A
    # program can still set its own host memory (``set_offload_context``).
    compiled.OffloadContext.get_instance().set_offload_cpu_size(_HOST_BYTES)


def _note_memory(mindspore: Any, compiled: Any) -> None:  # noqa: ANN401 - as above
    # ``mindspore.runtime.set_memory`` has priority over the context; once the device is in use it has no effect.
    def set_memory(before: Any, self: Any, *sizes: Any) -> Any:  # noqa: ANN401 - as the method takes them
        if not mindspore.hal.is_initialized("Ascend"):
            _RequestedMemory.gib = float(sizes[_MAX_SIZE])
        return before(self, *sizes)

    put_around(compiled.RuntimeConf, "set_memory", set_memory)


def requested_gib(mindspore: Any) -> float | None:  # noqa: ANN401 - as above
    """Return the GiB that the program requested, 1024 if nothing; to be called once the device is in use.

    A real device's pool uses ``max_device_memory`` up to MindSpore's memory size for the chip. In simulation the chip is unknown,
    and from 2.9 on more than 32 GiB is ignored (``AscendMemAdapter::GetDeviceMemSizeFromContext``), so MindSpore's statistics do
    not contain the request. Reading the value earlier would prevent the program from setting it.
    """
    if _RequestedMemory.gib is None:
        with contextlib.suppress(Exception):
            return float(mindspore.get_context("max_device_memory"))
    return _RequestedMemory.gib
