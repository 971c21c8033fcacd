"""Finds what the installed Ascend plug-in asks of CANN: libraries, link-time names, names looked up at run time."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.dryrun.cann_sim.elf import SharedLibrary, names_in_data, read_shared_library

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# How the names of CANN's C interfaces begin. MindSpore looks them up with dlsym, so they stand among its strings.
_LOOKED_UP = (
    *("acl", "Hccl", "Hcom", "rt", "hal", "Msprof", "mstx", "mspti", "Nnopbase", "Adump"),
    *("InitHugeMemThreadLocal", "UnInitHugeMemThreadLocal", "ReleaseHugeMem", "InitPTACacheThreadLocal"),
    *("SetPTAHashKey", "CanUsePTACache", "PTAGetExecCache", "AddTensorAddrToCachedList"),
)

_C_INTERFACE = re.compile(
    r"(?:acl(?:nn|rt|prof|mdl|mdlRI|tdt|op|blas|dump)?|Hccl|Hcom|rt|hal)[A-Z]\w+|[MmNASURIPC]\w{5,}"
)

# Left alone: names of the compiler's run time (weak, and meant to stay absent) and MindSpore's own thread-locals.
_NOT_CANN = re.compile(r"_ITM_\w+|__\w+|_Jv_\w+|_ZT[HW]\w+|_ZNK?9mindspore\w+|_ZNK?5atb9\w+")

# dlopen-ed by name, so that no DT_NEEDED entry shows them (MindSpore 2.7 to 2.10, plugin/ascend/res_manager/symbol_interface).
_OPENED_BY_NAME = (
    "libacl_op_compiler.so",
    "libacl_tdt_channel.so",
    "libacl_tdt_queue.so",
    "libascend_hal.so",
    "libascendcl.so",
    "libhccl.so",
    "libms_tools_ext.so",
    "libmsprofiler.so",
    "libopapi.so",
)

# Called through ctypes (mindspore/parallel/_dp_allreduce_fusion.py), so that no library of MindSpore's names them.
_CALLED_FROM_PYTHON = ("HcomSetGradFusionByIndex", "HcomSetGradFusionBySize")

# Where the C library, the C++ run time and their like come from on every Linux.
_SYSTEM_LIBRARIES = (
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libz.so.1",
    "libgomp.so.1",
    "ld-linux-x86-64.so.2",
)


@dataclass(frozen=True, slots=True)
class Inventory:
    """What stand-ins must provide for one installed MindSpore."""

    libraries: tuple[str, ...]  # file names of the missing libraries, sorted
    symbols: tuple[str, ...]  # names of the missing functions, sorted


def take_inventory(mindspore: Path) -> Inventory:
    """What the Ascend plug-in under the package folder ``mindspore`` lacks.

    Raises:
        FileNotFoundError: The wheel has no Ascend plug-in.
    """
    plugin = mindspore / "lib" / "plugin"
    if not (plugin / "libmindspore_ascend.so.2").is_file():
        raise FileNotFoundError(plugin / "libmindspore_ascend.so.2")
    askers = _read([*plugin.glob("libmindspore_*ascend.so*"), *(mindspore / "lib").glob("libmindspore_ge_backend.so")])
    askers |= _read((plugin / "ascend").rglob("*.so"))
    others = _read([*(mindspore / "lib").glob("*.so*"), *plugin.glob("libmindspore_ops_cpu.so")])
    others |= _read(mindspore.glob("_c_*.so"))
    shipped = {path.name for path in (askers | others)}
    defined = {name for library in (askers | others).values() for name in library.defined}

    needed = {name for library in askers.values() for name in library.needed}
    libraries = {*needed, *_OPENED_BY_NAME} - shipped - set(_SYSTEM_LIBRARIES)
    symbols = {*_CALLED_FROM_PYTHON, *(name for library in askers.values() for name in library.undefined)}
    for path in askers | others:
        named = {name for name in names_in_data(path, _LOOKED_UP) if _C_INTERFACE.fullmatch(name)}
        symbols |= _with_partners(named)
    symbols = {name for name in symbols - defined if not _NOT_CANN.fullmatch(name)}
    return Inventory(tuple(sorted(libraries)), tuple(sorted(symbols - _names_of_the_system(symbols))))


def _read(paths: Iterable[Path]) -> dict[Path, SharedLibrary]:
    libraries = {path: read_shared_library(path) for path in paths if path.is_file()}
    return {path: library for path, library in libraries.items() if library is not None}


def _with_partners(names: set[str]) -> set[str]:
    """Operators come in pairs, ``aclnnX`` and ``aclnnXGetWorkspaceSize``; the strings may hold either one."""
    suffix = "GetWorkspaceSize"
    operators = {name.removesuffix(suffix) for name in names if name.startswith("aclnn")}
    return names | operators | {name + suffix for name in operators}


def _names_of_the_system(names: Iterable[str]) -> set[str]:
    """Those names that the C library, the C++ run time or Python define: asked of the dynamic linker itself."""
    handles = [ctypes.CDLL(None)]
    for library in _SYSTEM_LIBRARIES:
        try:
            handles.append(ctypes.CDLL(library))
        except OSError:  # not on this machine; MindSpore will tell if it needs it
            continue
    return {name for name in names if any(hasattr(handle, name) for handle in handles)}
