"""Test the reader of shared libraries with libraries that the tests compile."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ms_tune.dryrun.cann_sim.inventory import SharedLibrary, names_in_data, read_shared_library
from tests.dryrun.machine import compile_c, needs_c_compiler, needs_elftools

pytestmark = [needs_c_compiler, needs_elftools]

_MACHINE_OFFSET = 18  # e_machine in the ELF header
_AARCH64 = 183

CODE = """
extern int from_another_library(int);
extern int from_nowhere(int);
extern int printf(const char *, ...);
static int internal(int x) { return x + 1; }
int exported_data = 7;
__attribute__((visibility("hidden"))) int hidden(int x) { return internal(x); }
int exported(int x) { return from_another_library(x) + from_nowhere(x) + printf("%d", hidden(x)); }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("elf")
    compile_c(folder, "libother.so", "int from_another_library(int x) { return x; }", "-Wl,-soname,libother.so.5")
    return compile_c(folder, "libsample.so", CODE, f"-L{folder}", "-lother", "-lc")


@pytest.fixture(scope="module")
def content(library: Path) -> SharedLibrary:
    read = read_shared_library(library)
    assert read is not None
    return read


def test_needed_libraries_are_named_by_their_soname(content: SharedLibrary) -> None:
    assert content.needed == {"libother.so.5", "libc.so.6"}


def test_exported_functions_and_data_are_defined(content: SharedLibrary) -> None:
    assert {"exported", "exported_data"} <= content.defined


def test_names_that_others_must_define_are_undefined(content: SharedLibrary) -> None:
    assert {"from_another_library", "from_nowhere"} <= content.undefined
    assert not content.undefined & content.defined


def test_symbols_of_a_versioned_library_are_left_out(content: SharedLibrary) -> None:
    assert "printf" not in content.undefined


def test_a_library_without_symbol_versions_is_read(tmp_path: Path) -> None:
    library = compile_c(tmp_path, "libbare.so", "extern int b(void); int a(void) { return b(); }", "-nostdlib")
    read = read_shared_library(library)
    assert read == SharedLibrary(frozenset(), frozenset({"a"}), frozenset({"b"}))


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"INPUT(libother.so)\n", b"\0" * 4096, "共享库".encode()])
def test_a_file_that_is_no_library_is_none(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "libtext.so"
    path.write_bytes(data)
    assert read_shared_library(path) is None


def test_a_library_cut_short_anywhere_is_none(tmp_path: Path, library: Path) -> None:
    whole = library.read_bytes()
    path = tmp_path / "libcut.so"
    for length in [*range(64), *range(64, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert read_shared_library(path) is None, f"cut to {length} of {len(whole)} bytes"


def test_a_library_for_another_processor_is_none(tmp_path: Path, library: Path) -> None:
    data = bytearray(library.read_bytes())
    struct.pack_into("<H", data, _MACHINE_OFFSET, _AARCH64)
    path = tmp_path / "libarm.so"
    path.write_bytes(data)
    assert read_shared_library(path) is None


DATA = r"""
const char names[] = "lead\0aclrtMalloc\0xaclrtFree\0aclrt-no\0aclrt with space\0HcclInit\0acl\0HcclUnterminated(";
"""


def test_names_are_whole_strings_that_begin_with_a_prefix(tmp_path: Path) -> None:
    library = compile_c(tmp_path, "libnames.so", DATA, "-nostdlib")
    assert names_in_data(library, ("aclrt", "Hccl")) == {"aclrtMalloc", "HcclInit"}
