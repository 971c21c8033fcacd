"""Enough threads for graphs with conditions, and threads that ask the device for news wait for it, as on a device.

By default MindSpore takes a share of the machine's cores, which on a laptop is too small to build such graphs: "Can not
build a sub graph which contains ConditionSwitch" (``graph_scheduler.cc``, MindSpore 2.7 to 2.10). Memory does not depend
on the number.

For every stream a thread calls ``aclrtProcessReport`` over and over. In simulation that is a function of MindSpore's own, which
returns at once (``plugin/ascend/res_manager``, MindSpore 2.7 to 2.10): two threads in dynamic graph and seven and more in static
graph take what processors are free. The plug-in finds it as the linker does, and where a library that was loaded before has a
function of this name, takes that one: ours does nothing either, but takes its time (``cann_sim/inventory.py``). So is known which
processes use the device (:mod:`forks`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any

_LEAST = 8
_WATCHES = "MS_TUNE_WATCHES"  # the variable that names the library, where stand-ins for CANN were built


def let_watch() -> ctypes.PyDLL | None:
    """Load these functions, where there are any, before MindSpore loads its Ascend plug-in."""
    if path := os.environ.get(_WATCHES):
        with contextlib.suppress(OSError):
            return ctypes.PyDLL(path, mode=ctypes.RTLD_GLOBAL)
    return None


def install(mindspore: Any, _process: object) -> None:  # noqa: ANN401 - a module of a framework without types
    """Set a number that is large enough; a program may still set one of its own, once, as without ms-tune."""
    least = max(_LEAST, os.cpu_count() or 1)
    runtime = mindspore.runtime
    configuration = _configuration()
    configuration.set_dispatch_threads_num(least)
    ask = runtime.dispatch_threads_num
    asked: list[int] = []

    def dispatch_threads_num(threads_num: int) -> None:
        if asked:
            ask(threads_num)  # refuses, as it does without ms-tune
        asked.append(threads_num)
        configuration.set_dispatch_threads_num(max(least, threads_num))

    runtime.dispatch_threads_num = dispatch_threads_num


def _configuration() -> Any:  # noqa: ANN401 - as above
    """MindSpore's own record of such settings."""
    from mindspore._c_expression import RuntimeConf  # noqa: PLC0415 - once MindSpore is there

    return RuntimeConf.get_instance()
