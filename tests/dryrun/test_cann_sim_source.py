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

# Real names, from the plug-ins of MindSpore 2.7.2, 2.9.0 and 2.10.0, at least one per family.
EXPECTED = {
    "_ZNK2ge8Operator15TryGetInputDescEPKcRNS_10TensorDescE": "RETURNS_FAILURE({})",
    "_ZN2ge5ShapeC1ERKSt6vectorIlSaIlEE": "MAKES_EMPTY({}, 2)",
    "_ZN2ge5ShapeC1Ev": "MAKES_EMPTY({}, 2)",
    "_ZN2ge10TensorDescC1ENS_5ShapeENS_6FormatENS_8DataTypeE": "MAKES_EMPTY({}, 2)",
    "_ZN2ge10TensorDescC1EOS0_": "MAKES_EMPTY({}, 2)",
    "_ZN2ge6TensorC1ERKNS_10TensorDescEPKhm": "MAKES_EMPTY({}, 2)",
    "_ZN2ge12AscendStringC1EPKc": "MAKES_EMPTY({}, 2)",
    "_ZN2ge5GraphC1ERKSs": "MAKES_EMPTY({}, 2)",
    "_ZN2ge11GraphBufferC1Ev": "MAKES_EMPTY({}, 2)",
    "_ZN2ge8OperatorC1ERKSsS2_": "MAKES_OPERATOR({})",
    "_ZN2ge8OperatorC2EPKc": "MAKES_OPERATOR({})",
    "_ZN2ge10TensorDescaSEOS0_": "RETURNS_SELF({})",
    "_ZN2ge8Operator7SetAttrEPKcRKNS_6TensorE": "RETURNS_SELF({})",
    "_ZN2ge8Operator8SetInputERKSsRKS0_": "RETURNS_SELF({})",
    "_ZN2ge8Operator15AddControlInputERKS0_": "RETURNS_SELF({})",
    "_ZN2ge5Graph9SetInputsERKSt6vectorINS_8OperatorESaIS2_EE": "RETURNS_SELF({})",
    "_ZN2ge5Graph10SetOutputsERKSt6vectorINS_8OperatorESaIS2_EE": "RETURNS_SELF({})",
    "_ZN2ge15OperatorFactory14CreateOperatorEPKcS2_": "MAKES_OPERATOR({})",
    "_ZN2ge15OperatorFactory14CreateOperatorERKSsS2_": "MAKES_OPERATOR({})",
    "_ZNK2ge8Operator7GetNameEv": "MAKES_EMPTY_STRING({})",
    "_ZNK2ge8Operator9GetOpTypeEv": "MAKES_EMPTY_STRING({})",
    "_ZNK2ge5Graph7GetNameEv": "MAKES_EMPTY_STRING({})",
    "_ZNK2ge10TensorDesc8GetShapeEv": "MAKES_EMPTY({}, 2)",
    "_ZNK2ge10TensorDesc14GetOriginShapeEv": "MAKES_EMPTY({}, 2)",
    "_ZNK2ge6Tensor13GetTensorDescEv": "MAKES_EMPTY({}, 2)",
    "_ZNK2ge8Operator12GetInputDescERKSs": "MAKES_EMPTY({}, 2)",
    "_ZNK2ge8Operator19GetOutputDescByNameEPKc": "MAKES_EMPTY({}, 2)",
    "_ZNK2ge8Operator19GetInferenceContextEv": "MAKES_EMPTY({}, 2)",
    "_ZN2ge7Session23GetCompiledGraphSummaryEj": "MAKES_EMPTY({}, 2)",
    "_ZNK2ge5Shape7GetDimsEv": "MAKES_EMPTY({}, 3)",
    "_ZNK2ge5Graph13GetDirectNodeEv": "MAKES_EMPTY({}, 3)",
    "_ZNK2ge5GNode17GetInControlNodesEv": "MAKES_EMPTY({}, 3)",
    "_ZNK2ge5GNode28GetOutDataNodesAndPortIndexsEi": "MAKES_EMPTY({}, 3)",
    "_ZNK2ge8Operator7GetAttrEPKcRl": "RETURNS_FAILURE({})",
    "_ZNK2ge8Operator7GetAttrERKSsRSs": "RETURNS_FAILURE({})",
    "_ZNK2ge12AscendString9GetStringEv": "RETURNS_EMPTY_TEXT({})",
    "_ZN2ge13StatusFactory8InstanceEv": "RETURNS_REGISTRY({})",
    "aclCreateTensor": "RETURNS_HANDLE({})",
    "aclCreateDataBuffer": "RETURNS_HANDLE({})",
    "aclopCreateAttr": "RETURNS_HANDLE({})",
    "acltdtCreateChannelWithCapacity": "RETURNS_HANDLE({})",
    "aclprofCreateConfig": "RETURNS_HANDLE({})",
    "aclrtGetSocName": 'RETURNS_TEXT({}, "Ascend910B2")',
    "aclrtGetDeviceCount": "COUNTS_DEVICES({})",
    "aclGetRecentErrMsg": "RETURNS_EMPTY_TEXT({})",
}
STATUS = (
    "aclInit",
    "aclrtCreateStream",
    "aclrtCreateEventWithFlag",
    "aclnnMatmul",
    "aclnnMatmulGetWorkspaceSize",
    "HcclAllReduce",
    "rtGetSocVersion",
    "_ZN2ge10GEFinalizeEv",
    "_ZN2ge10TensorDesc8SetShapeERKNS_5ShapeE",
    "_ZNK2ge10TensorDesc11GetDataTypeEv",
    "_ZN2ge23OperatorCreatorRegisterC1ERKSsRKSt8functionIFNS_8OperatorES2_EE",
    "a_name_that_nobody_knows",
)


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
