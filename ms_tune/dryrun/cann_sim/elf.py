"""Reads what a shared library needs, defines and names."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section index, value, size
_UNDEFINED_SECTION = 0
_GLOBAL_VERSION = 1  # VER_NDX_LOCAL is 0, VER_NDX_GLOBAL is 1: neither names a versioned library
_VERSION_MASK = 0x7FFF

_C_NAME = re.compile(rb"(\w+)\0")


@dataclass(frozen=True, slots=True)
class SharedLibrary:
    """The dynamic symbols of one shared library."""

    needed: frozenset[str]  # names of the libraries that it links to (`DT_NEEDED`)
    defined: frozenset[str]  # names of the symbols that it defines
    # Names that another library must define. Symbols bound to a versioned library (glibc, libstdc++) are left out:
    # CANN's libraries carry no symbol versions.
    undefined: frozenset[str]


def read_shared_library(path: Path) -> SharedLibrary | None:
    """The dynamic symbols of an x86-64 shared library, or None if the file is something else.

    pyelftools finds the sections; the symbol table itself (a hundred thousand entries in MindSpore's libraries) is
    decoded here in one sweep, fifty times as fast as one object a symbol.
    """
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - only with the dryrun extra
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    with path.open("rb") as file:
        try:
            elf = ELFFile(file)
            if elf["e_machine"] != "EM_X86_64":
                return None
            dynamic = elf.get_section_by_name(".dynamic")
            symbols = elf.get_section_by_name(".dynsym")
            names = elf.get_section_by_name(".dynstr")
        except ELFError:
            return None
        if dynamic is None or symbols is None or names is None:
            return None
        versions = elf.get_section_by_name(".gnu.version")
        defined, undefined = _split_symbols(symbols.data(), names.data(), versions.data() if versions else b"")
        needed = frozenset(str(tag.needed) for tag in dynamic.iter_tags("DT_NEEDED"))
    return SharedLibrary(needed, defined, undefined)


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
    """Zero-terminated strings of the library's read-only data that are C names and begin with one of the prefixes."""
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - only with the dryrun extra

    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".rodata")
        data = section.data() if section is not None else b""
    return {name for prefix in prefixes for name in _names_beginning_with(prefix.encode("ascii"), data)}


def _names_beginning_with(prefix: bytes, data: bytes) -> Iterator[str]:
    start = data.find(prefix)
    while start >= 0:
        match = _C_NAME.match(data, start)
        if match and (start == 0 or data[start - 1] == 0):
            yield match[1].decode("ascii")
        start = data.find(prefix, start + len(prefix))
