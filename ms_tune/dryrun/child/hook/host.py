"""As much memory of the host as a server has, for what a program copies there beside its work.

Such copies (``tensor.to("cpu", non_blocking=True)``) go into blocks of a GiB, one for each stream, up to four fifths of what the host
has free, divided by the processes of a machine (MindSpore 2.7 to 2.10, ``PinMemPool``, ``OffloadContext::offload_cpu_size``).
A laptop has room for three such blocks beside a job of four processes; then "Allocate memory failed" ends the program.
Nothing is written into them in simulation, so that they take no memory.
"""

from __future__ import annotations

import importlib

_BYTES = 1 << 40  # of an Atlas 800T A2 and its like


def install(_mindspore: object, _process: object) -> None:
    """Set it; a program may still set one of its own (``set_offload_context``)."""
    importlib.import_module("mindspore._c_expression").OffloadContext.get_instance().set_offload_cpu_size(_BYTES)
