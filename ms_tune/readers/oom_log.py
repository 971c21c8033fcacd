"""Reads why a run had no more memory out of its log: MindSpore's, PyTorch's and torch_npu's words, and the driver's.

The words are those of ``ascend_two_pointer_mem_adapter.cc`` (MindSpore 2.3 to 2.10), ``CUDACachingAllocator.cpp`` (PyTorch 1.13 to
2.13) and ``NPUCachingAllocator.cpp`` (torch_npu 2.x). The driver's (plog) are known by their functions' names only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError
from ms_tune.readers.reading import reading
from ms_tune.readers.runtime_log import failed_request, lines_of_log, read_runtime_log
from ms_tune.text import msg
from ms_tune.units import GIB, KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_UNITS = {"bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_SIZE = r"(\d{1,12}(?:\.\d{1,4})?) (bytes|KiB|MiB|GiB)"
_TORCH = re.compile(rf"(?P<kind>CUDA|NPU|HIP|XPU) out of memory\. Tried to allocate {_SIZE}")
_PARTS = {
    "capacity": re.compile(rf"(?:has a total capacity of |; ){_SIZE}(?= total capacity| of which)"),
    "free": re.compile(rf"{_SIZE}(?= (?:is )?free\b)"),
    "used": re.compile(rf"{_SIZE}(?= (?:already allocated|is allocated by PyTorch))"),
    "held": re.compile(rf"{_SIZE}(?= reserved in total by PyTorch)"),
    "cached": re.compile(rf"{_SIZE}(?= is reserved by PyTorch but unallocated)"),
}
_DRIVER = re.compile(
    r"(?:halMemAlloc|aclrtMalloc\w{0,40}|rtMalloc\w{0,40}|DevMemAlloc\w{0,40}).{0,300}?fail.{0,300}?size\s{0,2}[=:]\s{0,2}(?P<size>\d{1,15})",
    re.IGNORECASE,
)
_FRAME = re.compile(r'\s{0,40}File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9}), in (?P<function>.{1,200})')
_LIBRARY = re.compile(r"(?:site|dist)-packages/|/lib/python3|^<")


@dataclass(frozen=True, slots=True)
class MemoryFailure:
    """The first request that failed, as far as the log tells; None where it does not."""

    framework: str  # whose words tell: `mindspore`, `torch`, `torch_npu`, `driver`
    line: int  # the line of the log
    wanted: int | None  # bytes asked for
    limit: int | None  # bytes that the framework may take, or that the device has
    free: int | None  # bytes that the device had left
    used: int | None  # bytes in use by tensors
    held: int | None  # bytes that the framework held, in use or not
    operator: str  # the operator that asked
    where: str  # `file:line` of the innermost frame of the script

    @property
    def is_of_torch(self) -> bool:
        """Whether the words are those of PyTorch or torch_npu."""
        return self.framework.startswith("torch")

    @property
    def likely_cause(self) -> str:
        """``fragments`` if what was held and unused would have done, ``need`` if not, else ``unknown``."""
        if None in (self.wanted, self.used, self.held):
            return "unknown"
        assert self.wanted is not None  # noqa: S101 - as just seen
        assert self.used is not None  # noqa: S101
        assert self.held is not None  # noqa: S101
        return "fragments" if self.held - self.used >= self.wanted else "need"

    @property
    def short_bytes(self) -> int | None:
        """Bytes that were missing, even if nothing had been in fragments."""
        if self.likely_cause != "need" or self.wanted is None or self.used is None or self.limit is None:
            return None
        return max(0, self.used + self.wanted - self.limit)


def read_memory_failure(path: Path) -> MemoryFailure:
    """Read a log. Raises TraceError: the file cannot be read, or tells of no request that failed."""
    where = ""
    found: tuple[str, int, int | None] | None = None
    with reading(path), path.open("rb") as file:
        for number, line in enumerate(lines_of_log(file), 1):
            frame = _FRAME.match(line) if 'File "' in line else None
            if frame is not None:
                if not _LIBRARY.search(frame["file"]):
                    where = f"{frame['file']}:{frame['line']}"
            elif "out of memory" in line and (match := _TORCH.search(line)):
                return _read_torch_failure(match, line, number, where)
            elif "Out of Memory!!!" in line or "memory isn't enough and alloc failed" in line or failed_request(line):
                found = found or ("mindspore", number, None)
            elif "ail" in line and "alloc" in line.lower() and (match := _DRIVER.search(line)):
                found = found or ("driver", number, int(match["size"]))
    if found is None:
        raise TraceError(msg("oom.nothing"), msg("oom.nothing.hint"), path=path)
    framework, at, size = found
    log = read_runtime_log(path)
    request, statistics = log.out_of_memory, log.statistics
    pools = log.pools
    used = sum(pool.used_mib for pool in pools) * MIB if pools else statistics.peak_mib * MIB if statistics else None
    held = (
        sum(pool.total_mib for pool in pools) * MIB if pools else statistics.footprint_mib * MIB if statistics else None
    )
    limit = statistics.used_mib * MIB if statistics else None
    return MemoryFailure(
        framework=framework if request is None else "mindspore",
        line=at,
        wanted=request.bytes if request is not None and request.bytes is not None else size,
        limit=limit,
        free=max(0, limit - held) if limit is not None and held is not None else None,
        used=used,
        held=held,
        operator=(request.operator or "") if request is not None else "",
        where=where,
    )


def _read_torch_failure(match: re.Match[str], line: str, number: int, where: str) -> MemoryFailure:
    parts: Mapping[str, int | None] = {
        name: _size_in_bytes(found[1], found[2]) if (found := pattern.search(line)) else None
        for name, pattern in _PARTS.items()
    }
    used, held, cached = parts["used"], parts["held"], parts["cached"]
    if held is None and used is not None and cached is not None:
        held = used + cached
    return MemoryFailure(
        framework="torch_npu" if match["kind"] == "NPU" else "torch",
        line=number,
        wanted=_size_in_bytes(match[2], match[3]),
        limit=parts["capacity"],
        free=parts["free"],
        used=used,
        held=held,
        operator="",
        where=where,
    )


def _size_in_bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])
