from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_tune.readers import lines, tensors
from ms_tune.readers.tensors import SizeOverflow, TrackerGraph, find_size_overflow, read_tracker_graph
from ms_tune.text import Language, render
from tests.readers.rows import read_memory_block
from tests.readers.samples import folder

OPERATOR = (
    "(%7) = MatMul(%2, %5), task_info: 6, attrs {stream_id=0;group=hccl;comm_rank=0 1} \n"
    "    (Float32:[64, 512]{strdes=[512, 1],offset=0}) <- (BFloat16:[64, 256], Int64:[])\n"
    "    # File:/workspace/train.py;Line:42;Function:<module>|\n"
)


def read(tmp_path: Path, text: str) -> TrackerGraph:
    path = tmp_path / "tracker_graph.ir"
    path.write_text(text, encoding="utf-8")
    return read_tracker_graph(path)


def test_shapes_formats_and_sizes(tmp_path: Path) -> None:
    graph = read(tmp_path, OPERATOR)
    assert {tick: str(tensor) for tick, tensor in graph.tensors.items()} == {
        7: "Float32[64, 512]",
        2: "BFloat16[64, 256]",
        5: "Int64[]",
    }
    assert [graph.tensors[tick].bytes for tick in (7, 2, 5)] == [131072, 32768, 8]
    assert (graph.operators, graph.dropped_count) == (1, 0)


def test_the_largest_view_of_a_block_counts(tmp_path: Path) -> None:
    view = "(%9) = View(%7), task_info: 8, attrs {stream_id=0} \n    (Float32:[8]) <- (Float32:[64, 2])\n    # \n"
    graph = read(tmp_path, view + OPERATOR)
    assert str(graph.tensors[7]) == "Float32[64, 512]"


@pytest.mark.parametrize("types", ["Odd:[4], Bool:[1]", "Bool:[1], Odd:[4]"])
def test_a_size_that_is_known_wins_over_one_that_is_not(types: str, tmp_path: Path) -> None:
    text = f"(%9) = Op(%7, %7), task_info: 8, attrs {{stream_id=0}} \n    (Float32:[8]) <- ({types})\n    # \n"
    assert str(read(tmp_path, text).tensors[7]) == "Bool[1]"


@pytest.mark.parametrize(
    "text",
    [
        "(%7 = MatMul\n    () <- ()\n",
        "(%7) = MatMul(%2), task_info: 6, attrs {} \n    (Float32:[1]) <- ()\n",
        "(%7) = MatMul(%2), task_info: 6, attrs {} \n",
        "(%7) = MatMul(%2), task_info: 6, attrs {} \n    nothing\n",
    ],
)
def test_damaged_operators_are_refused_with_their_line(tmp_path: Path, text: str) -> None:
    graph = read(tmp_path, OPERATOR + text + OPERATOR)
    assert [row.line for row in graph.dropped] == [4]
    assert graph.operators == 2
    assert all(render(graph.dropped[0].reason, language) for language in Language)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("run", ["asc2", "asc_gO0", "asc_dp8/rank_3", "gpt", "mindformers_qwen3_tiny_dp2tp2pp2/rank_4"])
def test_real_files_fit_their_blocks(run: str) -> None:
    place = folder(run)
    graph = read_tracker_graph(place / "tracker_graph.ir")
    assert graph.dropped_count == 0
    blocks = {block.start: block for block in read_memory_block(place / "memory_block.csv").blocks}
    assert set(graph.tensors) <= set(blocks)
    for tick, tensor in graph.tensors.items():
        # The pool adds 32 bytes and rounds up to 512 (ascend_memory_manager.cc).
        assert tensor.bytes is not None
        assert tensor.bytes <= blocks[tick].size


def _operator(start: int) -> str:
    shape, rest = start % 7, ", %3" if start % 2 else ""
    types = f"Float32:[{shape}]" + (", Int64:[2]" if rest else "")
    return (
        f"(%{start}) = Default/a(b)/Op-op{start}(%2{rest}), task_info: {start}, attrs {{stream_id=0}} \n"
        f"    (Float16:[{start % 5}, 3]) <- ({types})\n    # File:a.py;Line:1;Function:f|\n"
    )


STRETCHES = st.lists(
    st.one_of(
        st.integers(0, 30).map(_operator),
        st.sampled_from(["() = Op(), task_info: 1, attrs {} \n    () <- ()\n    # \n", OPERATOR]),
        st.sampled_from(
            ["(%1) = x\n", "\n", "    # File:a|\n", "    () <- ()\n", "(%1) = f(), task_info: 1, attrs {\n"]
        ),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(pieces=STRETCHES, part=st.sampled_from([1, 100, 1 << 20]))
def test_many_at_once_is_the_same_as_line_by_line(pieces: list[str], part: int) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "PART", part)
        at_once = read(Path(place), "".join(pieces))
        patch.setattr(tensors._GraphReader, "_take_plain", lambda _reader, _data: False)
        singly = read(Path(place), "".join(pieces))
    assert at_once.tensors == singly.tensors
    assert at_once.operators == singly.operators
    assert at_once.dropped == singly.dropped


def test_plain_operators_are_read_at_once_wherever_a_part_of_the_file_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    singly: list[object] = []
    monkeypatch.setattr(lines, "PART", 300)
    monkeypatch.setattr(tensors._GraphReader, "_take_lines", lambda _reader, part: singly.extend(part))
    assert (read(tmp_path, "".join(map(_operator, range(40)))).operators, singly) == (40, [])


@pytest.mark.parametrize("line", ["(%1) = " + "((%2), task_info: 1, attrs {" * 20_000, "    (" + ") <- (" * 50_000])
def test_no_line_makes_it_slow(tmp_path: Path, line: str) -> None:
    begin = time.process_time()
    read(tmp_path, OPERATOR + line + "\n" + line + "\n    # \n" + OPERATOR)
    assert time.process_time() - begin < 5  # a search that tries every pair of positions takes minutes


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
        # a view, and its reader
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
