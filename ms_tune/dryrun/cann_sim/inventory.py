"""Find the libraries and names (linked or looked up) that the installed Ascend plug-in needs from CANN, and write substitutes."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO

from ms_tune.facts.query import load

_WORKSPACE = "GetWorkspaceSize"
_C_INTERFACE = re.compile(
    r"(?:acl(?:nn|rt|prof|mdl|mdlRI|tdt|op|blas|dump)?|Hccl|Hcom|rt|hal)[A-Z]\w+|[MmNASURIPC]\w{5,}"
)

# Excluded: names of the compiler's run time (weak, and intentionally absent) and MindSpore's own thread-locals.
_NOT_CANN = re.compile(r"_ITM_\w+|__\w+|_Jv_\w+|_ZT[HW]\w+|_ZNK?9mindspore\w+|_ZNK?5atb9\w+")


@dataclass(frozen=True, slots=True)
class Inventory:
    """The libraries and functions to provide for one installed MindSpore."""

    libraries: tuple[str, ...]  # file names of the missing libraries, sorted
    symbols: tuple[str, ...]  # names of the missing functions, sorted


def take_inventory(mindspore: Path) -> Inventory:
    """Return the names that the Ascend plug-in in the package folder ``mindspore`` needs; FileNotFoundError without a plug-in."""
    plugin = mindspore / "lib" / "plugin"
    if not (plugin / "libmindspore_ascend.so.2").is_file():
        raise FileNotFoundError(plugin / "libmindspore_ascend.so.2")
    askers = _read_libraries(
        [*plugin.glob("libmindspore_*ascend.so*"), *(mindspore / "lib").glob("libmindspore_ge_backend.so")]
    )
    askers |= _read_libraries((plugin / "ascend").rglob("*.so"))
    others = _read_libraries([*(mindspore / "lib").glob("*.so*"), *plugin.glob("libmindspore_ops_cpu.so")])
    others |= _read_libraries(mindspore.glob("_c_*.so"))
    shipped = {path.name for path in (askers | others)}
    defined = {name for library in (askers | others).values() for name in library.defined}

    needed = {name for library in askers.values() for name in library.needed}
    facts = load("cann_sim")
    libraries = {*needed, *facts["opened_by_name"]["libraries"]} - shipped - {*facts["system_libraries"]["libraries"]}
    symbols = {*facts["called_from_python"], *(name for library in askers.values() for name in library.undefined)}
    for path in askers | others:
        named = {name for name in names_in_data(path, facts["looked_up"]["prefixes"]) if _C_INTERFACE.fullmatch(name)}
        # Operators come in pairs, ``aclnnX`` and ``aclnnXGetWorkspaceSize``; the strings may contain either one.
        operators = {name.removesuffix(_WORKSPACE) for name in named if name.startswith("aclnn")}
        symbols |= named | operators | {name + _WORKSPACE for name in operators}
    symbols = {name for name in symbols - defined if not _NOT_CANN.fullmatch(name)}
    return Inventory(tuple(sorted(libraries)), tuple(sorted(symbols - _names_of_the_system(symbols))))


def _read_libraries(paths: Iterable[Path]) -> dict[Path, SharedLibrary]:
    libraries = {path: read_shared_library(path) for path in paths if path.is_file()}
    return {path: library for path, library in libraries.items() if library is not None}


def _names_of_the_system(names: Iterable[str]) -> set[str]:
    # Return the names that the C library, the C++ run time or Python define, by asking the dynamic linker.
    handles = [ctypes.CDLL(None)]
    for library in load("cann_sim")["system_libraries"]["libraries"]:
        try:
            handles.append(ctypes.CDLL(library))
        except OSError:  # not on this machine; MindSpore reports it if it needs it
            continue
    return {name for name in names if any(hasattr(handle, name) for handle in handles)}


_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section index, value, size
_UNDEFINED_SECTION = 0
_GLOBAL_VERSION = 1  # VER_NDX_LOCAL is 0, VER_NDX_GLOBAL is 1: neither names a versioned library
_VERSION_MASK = 0x7FFF


@dataclass(frozen=True, slots=True)
class SharedLibrary:
    """The dynamic symbols of one shared library."""

    needed: frozenset[str]  # names of the libraries that it links to (`DT_NEEDED`)
    defined: frozenset[str]  # names of the symbols that it defines
    # Names that another library must define. Symbols bound to a versioned library (glibc, libstdc++) are excluded:
    # CANN's libraries have no symbol versions.
    undefined: frozenset[str]


def read_shared_library(path: Path) -> SharedLibrary | None:
    """Return the dynamic symbols of an x86-64 shared library, or None if the file is something else.

    pyelftools finds the sections; the symbol table itself (a hundred thousand entries in MindSpore's libraries) is
    decoded here in one pass, fifty times as fast as one object per symbol.
    """
    with path.open("rb") as file:
        found = _find_sections(file, ".dynamic", ".dynsym", ".dynstr", ".gnu.version")
        if found is None or None in found[:3]:
            return None
        dynamic, symbols, names, versions = found
        defined, undefined = _split_symbols(symbols.data(), names.data(), versions.data() if versions else b"")
        needed = frozenset(str(tag.needed) for tag in dynamic.iter_tags("DT_NEEDED"))
    return SharedLibrary(needed, defined, undefined)


def _find_sections(file: BinaryIO, *names: str) -> list[Any] | None:
    # Return sections of an x86-64 library, None for each that it does not have; None if the file is something else.
    from elftools.elf import elffile  # noqa: PLC0415 - only with the dryrun extra

    try:
        elf = elffile.ELFFile(file)
        return [elf.get_section_by_name(name) for name in names] if elf["e_machine"] == "EM_X86_64" else None
    except elffile.ELFError:
        return None


def _split_symbols(table: bytes, names: bytes, versions: bytes) -> tuple[frozenset[str], frozenset[str]]:
    defined: set[str] = set()
    undefined: set[str] = set()
    version_of = struct.unpack(f"<{len(versions) // 2}H", versions)
    for index, (offset, _info, _other, section, _value, _size) in enumerate(_SYMBOL.iter_unpack(table)):
        if not offset:
            continue
        name = names[offset : names.index(b"\0", offset)].decode("ascii", errors="replace")
        if section != _UNDEFINED_SECTION:
            defined.add(name)
        elif not version_of or version_of[index] & _VERSION_MASK <= _GLOBAL_VERSION:
            undefined.add(name)
    return frozenset(defined), frozenset(undefined)


def names_in_data(path: Path, prefixes: Iterable[str]) -> set[str]:
    """Return the zero-terminated strings in the library's read-only data that are C names and begin with one of the prefixes."""
    with path.open("rb") as file:
        (section,) = _find_sections(file, ".rodata") or (None,)
        data = b"\0" + section.data() if section is not None else b""
    pattern = rf"\0((?:{'|'.join(prefixes)})\w*)(?=\0)".encode("ascii")
    return {name.decode("ascii") for name in re.findall(pattern, data)}


# MindSpore's own no-ops, 2.7 to 2.10: for the threads that poll for reports, and for the first use of the device by a process
_REPORTS = "_ZN9mindspore6device6ascend27SimuFuncIaclrtProcessReportIiEET_i"
_SET_DEVICE = "_ZN9mindspore6device6ascend23SimuFuncIaclrtSetDeviceIiEET_i"


@cache
def stand_ins() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the functions that must do more than return 0, by their (mangled) names, each with the macro that defines it.

    The first match counts. These are all that MindSpore 2.7 to 2.10 calls, or may call, in simulation level 1: C++ objects that are
    constructed, returned by value or by reference, and handles that are tested for null.
    """
    facts = load("cann_sim")
    return tuple(
        (re.compile(row["functions"].replace("PIMPL", facts["pimpl"])), row["macro"]) for row in facts["stand_ins"]
    )


def define_stand_in(symbol: str) -> str:
    """Return the macro call that defines one function."""
    facts = load("cann_sim")
    for pattern, macro in stand_ins():
        is_status = macro.startswith("RETURNS_HANDLE") and re.fullmatch(facts["returns_status"]["functions"], symbol)
        if pattern.fullmatch(symbol) and not is_status:
            return macro.format(name=symbol, soc_name=facts["soc_name"])
    return f"RETURNS_ZERO({symbol})"


def header_text() -> str:
    """Return the hand-written part, ``marks.h`` and ``stand_in.h``."""
    return _packaged_text("marks.h") + _packaged_text("stand_in.h")


def _packaged_text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def source_text(symbols: Iterable[str]) -> str:
    """Return the whole C file for these function names."""
    return header_text() + "\n" + "\n".join(define_stand_in(symbol) for symbol in symbols) + "\n"


def watching_text() -> str:
    """Return the C source of the library whose functions replace MindSpore's own (``marks.h`` and ``watching.h``)."""
    names = f"#define REPORTS {_REPORTS}\n#define SET_DEVICE {_SET_DEVICE}\n"
    return _packaged_text("marks.h") + names + _packaged_text("watching.h")
