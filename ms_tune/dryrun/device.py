"""How much memory a device has, and how much of it MindSpore lets a model use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.texts import msg
from ms_tune.units import GIB, MIB, gib

if TYPE_CHECKING:
    from ms_tune.texts import Message

# On-chip memory as sold. Chip names are those of aclrtGetSocName (Ascend910B1 ...), which users meet in logs.
CHIPS = {
    "ascend910": 32 * GIB,
    "ascend910b1": 64 * GIB,
    "ascend910b2": 64 * GIB,
    "ascend910b3": 64 * GIB,
    "ascend910b4": 32 * GIB,
    "ascend910_93": 64 * GIB,
}
DEFAULT_MEMORY = 64 * GIB  # what MindSpore itself assumes in simulation


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """What a peak is compared with.

    Attributes:
        bytes: Memory that MindSpore lets the model use.
        device_bytes: Memory of the device.
        source: Where the numbers come from.
    """

    bytes: int
    device_bytes: int
    source: Message


def usable_memory(device_bytes: int) -> int:
    """Bytes that MindSpore takes for itself on a device with so much memory.

    A sixteenth is left to HCCL and the runtime, the rest is rounded down to 2 MiB, and 10 MiB more are kept back:
    65536M give "MindSpore Used memory size: 61430M" (the log line of MindSpore 2.7 to 2.10).
    """
    rounded = device_bytes * 15 // 16 // (2 * MIB) * (2 * MIB)
    return max(rounded - 10 * MIB, 0)


def memory_limit(device_bytes: int | None, max_device_memory: int | None) -> MemoryLimit:
    """The limit for a device, capped by the config's ``max_device_memory`` as MindSpore caps it."""
    device = device_bytes or DEFAULT_MEMORY
    usable = usable_memory(device)
    if max_device_memory is not None and max_device_memory < usable:
        return MemoryLimit(max_device_memory, device, msg("dryrun.limit.config", size=gib(max_device_memory)))
    return MemoryLimit(usable, device, msg("dryrun.limit.device" if device_bytes else "dryrun.limit.default"))
