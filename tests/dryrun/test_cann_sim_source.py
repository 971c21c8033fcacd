"""Test the stand-in for each missing function, and the C file made of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ms_tune.dryrun.cann_sim import inventory
from ms_tune.dryrun.cann_sim.inventory import Inventory, define_stand_in, read_shared_library, source_text
from tests.dryrun.machine import (
    C_COMPILER,
    needs_c_compiler,
    needs_elftools,
    needs_mindspore,
)
from tests.files import read_data

FUNCTIONS = read_data("cann_sim/functions.yaml")
EXPECTED, STATUS = FUNCTIONS["expected"], FUNCTIONS["status"]


@pytest.mark.parametrize(("symbol", "macro"), EXPECTED.items())
def test_a_function_that_must_do_more_than_return_gets_its_macro(symbol: str, macro: str) -> None:
    assert define_stand_in(symbol) == macro.format(symbol)


@pytest.mark.parametrize("symbol", STATUS)
def test_every_other_function_returns_zero(symbol: str) -> None:
    assert define_stand_in(symbol) == f"RETURNS_ZERO({symbol})"


@needs_c_compiler
@needs_elftools
def test_the_library_exports_exactly_the_symbols(tmp_path: Path) -> None:
    assert C_COMPILER is not None
    symbols = [*EXPECTED, *STATUS]
    (tmp_path / "standin.c").write_text(source_text(symbols), encoding="utf-8")
    output = tmp_path / "libstandin.so"
    flags = ["-shared", "-fPIC", "-fvisibility=hidden", "-nostdlib", "-fno-builtin", "-w"]
    subprocess.run([C_COMPILER, *flags, "-o", str(output), str(tmp_path / "standin.c")], check=True)
    library = read_shared_library(output)
    assert library is not None
    assert library.defined == set(symbols)
    assert library.needed == set()
    of_marks = {
        "getenv",
        "getpid",
        "mkdir",
        "write",
        "creat",
        "close",
        "unlink",
        "rmdir",
    }  # from the C library, which exists
    assert library.undefined == {"_ZNSs4_Rep20_S_empty_rep_storageE"} | of_marks


@needs_mindspore
@needs_elftools
@pytest.mark.mindspore
class TestInstalledMindSpore:
    def test_every_family_has_a_function_but_those_of_other_versions(self, installed_inventory: Inventory) -> None:
        macros = {define_stand_in(name).partition("(")[0] for name in installed_inventory.symbols}
        families = {macro.partition("(")[0] for _, macro in inventory.stand_ins()}
        # 2.10 and later need StatusFactory::Instance; earlier wheels contain it.
        assert families - macros <= {"RETURNS_REGISTRY"}

    def test_only_functions_whose_first_argument_is_the_result_write_to_it(
        self, installed_inventory: Inventory
    ) -> None:
        """A result that is a non-const reference comes last, and the function returns a status."""
        writers = [name for name in installed_inventory.symbols if define_stand_in(name).startswith("MAKES_")]
        through_reference = [name for name in writers if re.search(r"RN?S_\d+\w+E$", name)]
        assert writers
        assert through_reference == []
