"""Writes the C file of the stand-ins: one line a missing function, made from the macros of ``stand_in.h``."""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Which functions must do more than return 0, by their (mangled) names; the first match counts. That is all that
# MindSpore 2.7 to 2.10 calls, or may call, in simulation level 1: C++ objects that are constructed, returned by value
# or returned by reference, and handles that are tested for null.
SOC_NAME = "Ascend910B2"
# MindSpore's own stand-ins, 2.7 to 2.10: of the threads that ask for news, and of what a process does when it first uses the device
_REPORTS = "_ZN9mindspore6device6ascend27SimuFuncIaclrtProcessReportIiEET_i"
_SET_DEVICE = "_ZN9mindspore6device6ascend23SimuFuncIaclrtSetDeviceIiEET_i"
_PIMPL = r"(?:5Shape|10TensorDesc|6Tensor|12AscendString|5Graph|5GNode|11GraphBuffer)"
_FAMILIES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), macro)
    for pattern, macro in (
        # Constructors; C1 builds a whole object, C2 a base class.
        (rf"_ZN2ge{_PIMPL}C[12]E\w*", "MAKES_EMPTY({name}, 2)"),
        (r"_ZN2ge8OperatorC[12]E\w*", "MAKES_OPERATOR({name})"),
        # Assignment and setters that return *this.
        (rf"_ZN2ge(?:{_PIMPL}|8Operator)aSE\w*", "RETURNS_SELF({name})"),
        (r"_ZN2ge8Operator(?:7SetAttr|8SetInput|15AddControlInput)E\w*", "RETURNS_SELF({name})"),
        (r"_ZN2ge5Graph(?:9SetInputs|10SetOutputs)E\w*", "RETURNS_SELF({name})"),
        # Look-ups with a status that fill a reference; their names look like those of the next group.
        (r"_ZNK2ge\d+\w*?Desc\w*?E\w*RNS_10TensorDescE", "RETURNS_FAILURE({name})"),
        # Objects returned by value.
        (r"_ZN2ge15OperatorFactory14CreateOperatorE\w*", "MAKES_OPERATOR({name})"),
        (r"_ZNK2ge(?:8Operator(?:7GetName|9GetOpType)|5Graph7GetName)Ev", "MAKES_EMPTY_STRING({name})"),
        (r"_ZNK2ge\d+\w*?(?:GetShape|GetOriginShape|GetTensorDesc|Desc|DescByName)E\w*", "MAKES_EMPTY({name}, 2)"),
        (r"_ZNK2ge8Operator19GetInferenceContextEv", "MAKES_EMPTY({name}, 2)"),
        (r"_ZN2ge7Session23GetCompiledGraphSummaryEj", "MAKES_EMPTY({name}, 2)"),
        (r"_ZNK2ge5Shape7GetDimsEv", "MAKES_EMPTY({name}, 3)"),
        (r"_ZNK2ge5Graph13GetDirectNodeEv", "MAKES_EMPTY({name}, 3)"),
        (r"_ZNK2ge5GNode\d+Get(?:In|Out)(?:ControlNodes|DataNodesAndPortIndexs)E\w*", "MAKES_EMPTY({name}, 3)"),
        # Look-ups that must say "not found", and texts that are read at once.
        (r"_ZNK2ge8Operator7GetAttrE\w*", "RETURNS_FAILURE({name})"),
        (r"_ZNK2ge12AscendString9GetStringEv", "RETURNS_EMPTY_TEXT({name})"),
        (r"_ZN2ge13StatusFactory8InstanceEv", "RETURNS_REGISTRY({name})"),
        # C handles. MindSpore itself asks nobody for the chip's name in simulation, but its compiler of fused operators
        # (jit_level O1) does, and stops at names that it does not know.
        (r"acl\w*Create\w*", "RETURNS_HANDLE({name})"),
        (r"aclrtGetSocName", f'RETURNS_TEXT({{name}}, "{SOC_NAME}")'),
        # What PyTorch's programs ask to know whether there is a device at all.
        (r"aclrtGetDeviceCount", "COUNTS_DEVICES({name})"),
        (r"aclGetRecentErrMsg", "RETURNS_EMPTY_TEXT({name})"),
    )
)
# `int aclrtCreateX(X **out, ...)` and `aclnn` operators return a status, not a handle.
_RETURNS_STATUS = re.compile(r"aclrt\w+|aclnn\w+|acltdt(?!Create)\w+|aclprof(?!Create)\w+")


def stand_in_for(symbol: str) -> str:
    """The macro call that defines one function."""
    for pattern, macro in _FAMILIES:
        is_status = macro.startswith("RETURNS_HANDLE") and _RETURNS_STATUS.fullmatch(symbol)
        if pattern.fullmatch(symbol) and not is_status:
            return macro.format(name=symbol)
    return f"RETURNS_ZERO({symbol})"


def header_text() -> str:
    """The hand-written part, ``marks.h`` and ``stand_in.h``."""
    return _part("marks.h") + _part("stand_in.h")


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def source_text(symbols: Iterable[str]) -> str:
    """The whole C file for these function names."""
    return header_text() + "\n" + "\n".join(stand_in_for(symbol) for symbol in symbols) + "\n"


def watching_text() -> str:
    """C source of the library whose functions take the place of MindSpore's own, beside ``watching.h``."""
    names = f"#define REPORTS {_REPORTS}\n#define SET_DEVICE {_SET_DEVICE}\n"
    return _part("marks.h") + names + _part("watching.h")
