"""Report, record or plan the device memory of a training, within its processes; only the standard library is used.

``ms-tune memory run`` passes its settings in one environment variable. PyTorch's and torch_npu's own functions do the work:
``memory_stats``, ``_record_memory_history`` and ``_dump_snapshot`` (``torch/cuda/memory.py`` 2.1 to 2.13,
``torch_npu/npu/memory.py``), and their pluggable allocators. A failure is reported on stderr, and the training goes on without.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import sys
from array import array
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

VARIABLE = "MS_TUNE_MEMORY_RUN"
_GIB = 1 << 30
_MOST_EVENTS = 5_000_000
# As ms_figures of allocator.cpp writes them.
_FIGURES = ("requests", "planned", "departures", "occupied", "live", "live_peak", "reserved", "reserved_peak")
_COUNTS = 10
_PADDING = {"cuda": 0, "npu": 32}  # torch_npu reads up to 32 bytes beyond a block


def _rank() -> int:
    found = os.environ.get("RANK", "0")
    return int(found) if found.isdigit() else 0


def _tell(text: str) -> None:
    sys.stderr.write(f"ms-tune: rank {_rank()} {text}\n")
    sys.stderr.flush()


def begin(name: str) -> None:
    """Set up the report, the recording or the plan after the import of PyTorch or torch_npu."""
    try:
        settings = json.loads(os.environ.get(VARIABLE, "{}"))
        torch = sys.modules["torch"]
        if name == "torch":
            _training.settings = settings
            importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(_training.end_step)
        kind = "npu" if name == "torch_npu" else "cuda"
        if kind == "npu" or torch.version.cuda or torch.version.hip:
            _training.attach(_Device(kind, getattr(torch, kind)))
    except Exception as error:  # noqa: BLE001 - the training goes on
        _tell(f"not set up: {type(error).__name__}: {error}")


class _NotAppliedError(Exception):
    def __init__(self, *, why: str) -> None:
        super().__init__(why)


class _Device:
    """Device memory as PyTorch's modules ``cuda`` and ``npu`` give it."""

    def __init__(self, kind: str, module: Any) -> None:  # noqa: ANN401 - a module of PyTorch
        self.kind, self.module = kind, module
        self.library: ctypes.CDLL | None = None

    @property
    def is_used(self) -> bool:
        return bool(self.module.is_initialized())

    def stats(self) -> Mapping[str, int]:
        """Return peaks since the start of the training, of the current device."""
        found = self.module.memory_stats()
        return {
            "allocated": found.get("allocated_bytes.all.peak", 0),
            "reserved": found.get("reserved_bytes.all.peak", 0),
        }

    # --- recording ---

    def record(self, dump: Callable[[], None]) -> None:
        """Record all events from the first one on; ``dump`` is also called when memory is short."""

        def start() -> None:
            self.module.memory._record_memory_history(max_entries=_MOST_EVENTS)  # noqa: SLF001 - as its documentation does
            core = sys.modules["torch_npu" if self.kind == "npu" else "torch"]._C  # noqa: SLF001
            observe = getattr(core, f"_{self.kind}_attach_out_of_memory_observer")
            observe(lambda *_: dump())

        self.module._lazy_call(start)  # noqa: SLF001 - before the first allocation

    def dump(self, path: Path) -> None:
        part = path.with_suffix(".part")
        self.module.memory._dump_snapshot(str(part))  # noqa: SLF001
        part.replace(path)

    # --- the allocator that follows a plan ---

    def follow(self, library: str, plan: Mapping[str, Any]) -> None:
        """Replace the allocator before its first use."""
        if plan["padding"] != _PADDING[self.kind]:
            raise _NotAppliedError(why="the plan is of a snapshot of another kind of device")
        own = ctypes.CDLL(library)
        own.ms_open.restype = ctypes.c_char_p
        kind = b"acl" if self.kind == "npu" else b"cuda"
        missing = own.ms_open(kind, ctypes.c_int64(_PADDING[self.kind]), f"rank {_rank()} ".encode())
        if missing:
            raise _NotAppliedError(why=f"{missing.decode()} was not found in the loaded libraries")
        for stream in plan["streams"]:
            _pass_stream(own, stream)
        memory = self.module.memory
        allocator = getattr(memory, f"{self.kind.upper()}PluggableAllocator")(library, "ms_malloc", "ms_free")
        hooks = {"set_record_stream_fn": own.ms_record_stream, "set_reset_fn": own.ms_release}
        if self.kind == "npu":
            hooks["set_erase_stream_fn"] = own.ms_erase_stream
        for name, hook in hooks.items():
            getattr(allocator.allocator(), name)(ctypes.cast(hook, ctypes.c_void_p).value)
        memory.change_current_allocator(allocator)
        self.library = own
        replaced = {"memory_stats_as_nested_dict": self._nested_stats, "reset_peak_memory_stats": self._reset_peaks}
        for name, function in replaced.items():  # PyTorch's own raise errors for pluggable allocators
            for module in (memory, self.module):
                setattr(module, name, function)
        atexit.register(own.ms_statistics)

    def settle(self) -> None:
        """Give blocks free that other streams have used: torch_npu's queue hides their events from the allocator."""
        if self.library is not None and self.kind == "npu":
            self.library.ms_settle(self.module.current_device())

    def _number(self, device: Any) -> int:  # noqa: ANN401 - a number, a name or a torch.device
        if device is None:
            return int(self.module.current_device())
        return device if isinstance(device, int) else int(getattr(device, "index", None) or str(device).split(":")[-1])

    def _nested_stats(self, device: object = None) -> dict[str, Any]:
        found = (ctypes.c_int64 * _COUNTS)()
        if self.library is None:
            return {}
        self.library.ms_figures(self._number(device), found)
        now = dict(zip(_FIGURES, found, strict=False))

        def entry(current: int, peak: int) -> dict[str, dict[str, int]]:
            return {"all": {"current": current, "peak": peak, "allocated": 0, "freed": 0}}

        live, reserved = entry(now["live"], now["live_peak"]), entry(now["reserved"], now["reserved_peak"])
        names = {"allocated_bytes": live, "active_bytes": live, "requested_bytes": live, "reserved_bytes": reserved}
        return {**names, "num_alloc_retries": 0, "num_ooms": 0}

    def _reset_peaks(self, device: object = None) -> None:
        if self.library is not None:
            self.library.ms_reset_peak(self._number(device))


def _pass_stream(library: ctypes.CDLL, stream: Mapping[str, Any]) -> None:
    sizes, offsets = array("q", stream["sizes"]), array("q", stream["offsets"])
    _, last, period = stream["repeats"]
    pointers = [ctypes.c_void_p(column.buffer_info()[0]) for column in (sizes, offsets)]
    numbers = [ctypes.c_int64(number) for number in (last, period, stream["height"])]
    if len(sizes) != len(offsets) or not library.ms_plan(ctypes.c_int64(len(sizes)), *pointers, *numbers):
        raise _NotAppliedError(why="the plan is damaged")


class _Training:
    """The training in this process: its iterations are the steps of the first optimizer that makes one."""

    def __init__(self) -> None:
        self.settings: Mapping[str, Any] = {}
        self._device: _Device | None = None
        self._optimizer: int | None = None
        self._steps = 0
        self._dumped = False

    def attach(self, device: _Device) -> None:
        self._device = device
        if self.settings["mode"] == "record":
            device.record(partial(self._dump, "memory was short"))
            atexit.register(self._dump, "the training ended")
        elif self.settings["mode"] == "plan":
            device.follow(self.settings["library"], _read_plan(Path(self.settings["plan"])))

    def end_step(self, optimizer: object, *_: object) -> None:
        """Count a step of an optimizer; it must not fail."""
        if self._optimizer is None:
            self._optimizer = id(optimizer)
        if self._optimizer != id(optimizer):
            return
        self._steps += 1
        try:
            self._after_step()
        except Exception as error:  # noqa: BLE001 - the training goes on
            _tell(f"iteration {self._steps}: {type(error).__name__}: {error}")

    def _after_step(self) -> None:
        if self._device is None or not self._device.is_used:
            if self._steps == 1:
                _tell("no memory of a CUDA device or NPU is used")
            return
        self._device.settle()
        if self.settings["mode"] == "record" and self._steps == self.settings["steps"]:
            self._dump(f"{self._steps} iterations")
        if self.settings["mode"] != "record" and self._steps % self.settings["every"] == 0:
            self._report(self._device)

    def _report(self, device: _Device) -> None:
        now = device.stats()
        share = f"{now['allocated'] / now['reserved']:.1%}" if now["reserved"] else "-"
        peaks = ", ".join(f"{name} peak {size / _GIB:.3f} GiB" for name, size in now.items())
        _tell(f"device {device.module.current_device()} iteration {self._steps}: {peaks}, utilisation {share}")

    def _dump(self, why: str) -> None:
        if self._dumped or self._device is None or not self._device.is_used:
            return
        self._dumped = True
        path = Path(self.settings["folder"]) / f"rank_{_rank()}.pickle"
        self._device.dump(path)
        _tell(f"wrote {path} ({why})")


def _read_plan(path: Path) -> Mapping[str, Any]:
    if path.is_dir():
        path /= f"rank_{_rank()}.json"
    plan: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["allocator"]
    return plan


_training = _Training()
