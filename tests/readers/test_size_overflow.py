"""Tensors of more bytes than MindSpore counts, out of the lines that the tracker writes of them (MindSpore 2.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ms_tune.readers import lines
from ms_tune.readers.tensors import SizeOverflow, find_size_overflow

if TYPE_CHECKING:
    from pathlib import Path


def operator(name: str, written: str, read: str = "") -> str:
    return f"(%4) = {name}(%2), task_info: 2, attrs {{stream_id=0}} \n    ({written}) <- ({read})\n    # File:a.py;Line:1;Function:f|\n"


SMALL = operator("Mul", "Float32:[1048576, 1048576, 2097151]", "Float32:[1048576, 1048576, 1048576]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (operator("Zeros", "Float32:[2147483648, 2147483648]"), SizeOverflow("Zeros", "Float32[2147483648, 2147483648]")),
        (operator("A(b)/Mul-op0", "Float64:[2147483648, 1073741825]"), SizeOverflow("A(b)/Mul-op0", "Float64[2147483648, 1073741825]")),
        (operator("Ones", "Int8:[2147483648, 4294967296]"), SizeOverflow("Ones", "Int8[2147483648, 4294967296]")),
        (operator("Ones", "Int8:[2147483648, 4294967295]"), None),
        (operator("Topk", "Float32:[4], Int64:[1152921504606846976]"), SizeOverflow("Topk", "Int64[1152921504606846976]")),
        (operator("Two", "Float32:[1099511627776, 1099511627776], Int64:[4]"), SizeOverflow("Two", "Float32[1099511627776, 1099511627776]")),
        # a view, and what reads it
        (operator("BroadcastToView", "Float32:[2097152, 1048576, 2097152]{strdes=[0, 1, 0],offset=0}", "Float32:[1, 8]"), None),
        (operator("SumExt", "Float32:[]", "Float32:[2097152, 1048576, 2097152]"), None),
        # the line above names the operator, and no other
        ("(%4) = Far(%2), task_info: 2\n\n    (Float32:[2147483648, 2147483648]) <- ()\n", SizeOverflow("", "Float32[2147483648, 2147483648]")),
        ("Float32:[2097152, 1048576, 2097152]\n", None),
        ("", None),
    ],
)  # fmt: skip
def test_only_what_an_operator_makes_counts(tmp_path: Path, text: str, expected: SizeOverflow | None) -> None:
    file = tmp_path / "tracker_graph.ir"
    file.write_text(SMALL + text + SMALL, encoding="utf-8")
    assert find_size_overflow(file) == expected


def test_it_is_found_in_any_part_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PART", 64)
    file = tmp_path / "tracker_graph.ir"
    file.write_text(SMALL * 20 + operator("Zeros", "BFloat16:[2147483648, 2147483648, 2]"), encoding="utf-8")
    found = find_size_overflow(file)
    assert found is not None
    assert found.tensor == "BFloat16[2147483648, 2147483648, 2]"
