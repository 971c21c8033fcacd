"""Test the symbols that the Ascend plug-in lacks: of a small plug-in made by the test, and of the installed MindSpore."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ms_tune.dryrun.cann_sim.inventory import Inventory, take_inventory
from tests.dryrun.machine import compile_c, needs_c_compiler, needs_elftools

PLUGIN = r"""
extern int _ZN2ge8OperatorC1ERKSs(void *, void *);
extern int aclLinkedTo(void);
extern int from_mindspore_core(void);
extern int _ZN9mindspore3anyEv(void);
extern int malloc(void);
extern int _ITM_anything(void) __attribute__((weak));
extern int __gmon_start__(void) __attribute__((weak));
const char strings[] = "\0aclrtLookedUp\0aclnnMatmul\0aclnnAddGetWorkspaceSize\0rtnotacname\0halGetChip\0"
    "aclrtDefinedByOps\0strlen\0";
int f(void) {
  return _ZN2ge8OperatorC1ERKSs(0, 0) + aclLinkedTo() + from_mindspore_core() + _ZN9mindspore3anyEv() + malloc() +
         (_ITM_anything ? 1 : 0) + (__gmon_start__ ? 1 : 0);
}
"""


@pytest.fixture(scope="session")
def small_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a package folder with the layout of MindSpore's."""
    wheel = tmp_path_factory.mktemp("wheel") / "mindspore"
    plugin = wheel / "lib" / "plugin"
    (plugin / "ascend").mkdir(parents=True)
    cann = tmp_path_factory.mktemp("cann")
    compile_c(cann, "libascendcl.so", "int aclLinkedTo(void) { return 0; }", "-nostdlib", "-Wl,-soname,libascendcl.so")
    compile_c(wheel / "lib", "libmindspore_core.so", "int from_mindspore_core(void) { return 0; }", "-nostdlib")
    compile_c(plugin / "ascend", "libops.so", "int aclrtDefinedByOps(void) { return 0; }", "-nostdlib")
    links = [f"-L{cann}", "-lascendcl", f"-L{wheel / 'lib'}", "-lmindspore_core", "-nostdlib", "-lc"]
    compile_c(plugin, "libmindspore_ascend.so.2", PLUGIN, *links)
    return wheel


@pytest.fixture(scope="module")
def inventory(small_wheel: Path) -> Inventory:
    return take_inventory(small_wheel)


@needs_c_compiler
@needs_elftools
class TestSmallPlugin:
    def test_what_it_links_to_is_missing(self, inventory: Inventory) -> None:
        assert {"aclLinkedTo", "_ZN2ge8OperatorC1ERKSs"} <= set(inventory.symbols)

    def test_what_it_looks_up_by_name_is_missing(self, inventory: Inventory) -> None:
        assert {"aclrtLookedUp", "halGetChip"} <= set(inventory.symbols)

    def test_an_operator_is_missing_with_its_partner(self, inventory: Inventory) -> None:
        pairs = {"aclnnMatmul", "aclnnMatmulGetWorkspaceSize", "aclnnAdd", "aclnnAddGetWorkspaceSize"}
        assert pairs <= set(inventory.symbols)

    def test_what_the_wheel_itself_defines_is_not_missing(self, inventory: Inventory) -> None:
        assert not {"from_mindspore_core", "aclrtDefinedByOps"} & set(inventory.symbols)

    def test_what_is_not_of_cann_is_not_missing(self, inventory: Inventory) -> None:
        foreign = {"_ZN9mindspore3anyEv", "malloc", "strlen", "_ITM_anything", "__gmon_start__", "rtnotacname"}
        assert not foreign & set(inventory.symbols)

    def test_libraries_are_those_needed_or_opened_by_name_and_not_there(self, inventory: Inventory) -> None:
        assert {"libascendcl.so", "libhccl.so", "libopapi.so"} <= set(inventory.libraries)
        assert not {"libmindspore_core.so", "libc.so.6"} & set(inventory.libraries)

    def test_everything_is_sorted_and_once(self, inventory: Inventory) -> None:
        assert list(inventory.symbols) == sorted(set(inventory.symbols))
        assert list(inventory.libraries) == sorted(set(inventory.libraries))


@needs_elftools
def test_a_wheel_without_an_ascend_plugin_is_reported(tmp_path: Path) -> None:
    (tmp_path / "lib" / "plugin").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=re.escape("libmindspore_ascend.so.2")):
        take_inventory(tmp_path)
