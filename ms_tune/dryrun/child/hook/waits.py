"""Threads that ask the device for news wait for it, as they would on a device.

MindSpore starts a thread for every stream that calls ``aclrtProcessReport`` over and over. In simulation it is MindSpore's own
stand-in of that function that is called, which returns at once (``plugin/ascend/res_manager``, MindSpore 2.7 to 2.10): two
threads in dynamic graph and seven and more in static graph use up whatever processors are free. The plug-in looks the stand-in up as
the linker does, and where a library that was loaded before has a function of this name, takes that one: ours sleeps. It does
nothing else, and nor does MindSpore's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

_LIBRARY = "MS_TUNE_WAITS"  # the variable that names the library, where stand-ins for CANN were built


def load() -> None:
    """Load the library, where there is one, before MindSpore loads its Ascend plug-in."""
    if path := os.environ.get(_LIBRARY):
        with contextlib.suppress(OSError):
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
