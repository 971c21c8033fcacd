"""The allocator: a pluggable one, or figures of none."""

import ctypes
import json
from pathlib import Path

__all__ = ["max_memory_reserved", "memory_stats", "memory_stats_as_nested_dict", "reset_peak_memory_stats"]
_current: list = []
_recorded: list = []


class CUDAPluggableAllocator:
    """An allocator from a library."""

    def __init__(self, path: str, take: str, give: str) -> None:
        self.library = ctypes.CDLL(path)
        self.take, self.give = getattr(self.library, take), getattr(self.library, give)
        self.take.restype, self.take.argtypes = ctypes.c_void_p, [ctypes.c_int64, ctypes.c_int, ctypes.c_void_p]
        self.give.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p]

    def allocator(self) -> "CUDAPluggableAllocator":
        """Return PyTorch's object for it."""
        return self

    def set_record_stream_fn(self, address: int) -> None:
        """Set a hook."""
        assert address

    set_reset_fn = set_record_stream_fn


change_current_allocator = _current.append


def take(size: int) -> int:
    """Allocate."""
    return _current[-1].take(size, 0, None)


def give(address: int, size: int) -> None:
    """Release."""
    _current[-1].give(address, size, 0, None)


def memory_stats_as_nested_dict(_device: object = None) -> dict:
    """Return figures; PyTorch has none of pluggable allocators."""
    assert not _current, "CUDAPluggableAllocator does not yet support getDeviceStats"
    return {f"{kind}_bytes": {"all": {"peak": size << 30}} for kind, size in (("allocated", 3), ("reserved", 4))}


reset_peak_memory_stats = memory_stats_as_nested_dict


def memory_stats(device: object = None) -> dict:
    """Return the figures by one name each."""
    found = memory_stats_as_nested_dict(device)  # looked up when it is called, as in PyTorch
    names = [(kind, name) for kind in found if isinstance(found[kind], dict) for name in found[kind]["all"]]
    return {f"{kind}.all.{name}": found[kind]["all"][name] for kind, name in names}


def max_memory_reserved() -> int:
    """Return the peak of the reserved bytes."""
    return memory_stats()["reserved_bytes.all.peak"]


def _record_memory_history(**settings: object) -> None:
    _recorded.append(settings)


def _dump_snapshot(path: str) -> None:
    Path(path).write_text(json.dumps(_recorded), encoding="utf-8")
