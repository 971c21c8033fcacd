"""MindSpore 2.7 to 2.10: what it answers in simulation as if there were no device."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from . import tell

if TYPE_CHECKING:
    from ms_tune.dryrun.child.hook.process import HookedProcess

_DEVICES, _DEFAULT = "MS_TUNE_DEVICES", 8  # as the launcher was told; a node of Atlas 800T A2 has eight


def device_count(ascend: Any, process: HookedProcess | None) -> None:  # noqa: ANN401 - a module without types
    """As many devices as a node of the job has.

    In simulation MindSpore asks its own no-op for ``aclrtGetDeviceCount`` (``LoadSimulationApiSymbols``), which leaves 0;
    Megatron then makes no groups (``megatron/training/initialize.py``).
    """
    count = ascend.device_count

    @functools.wraps(count)
    def device_count() -> int:
        found = int(count())
        if found:
            return found
        told = os.environ.get(_DEVICES, "")
        return int(told) if told.isdecimal() and int(told) else _DEFAULT

    ascend.device_count = device_count
    tell(process, "device-count")
