from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import strategies as st

from ms_tune.errors import TraceError
from ms_tune.readers.lines import reading
from ms_tune.readers.memory_block import MAX_DESCRIBED, STATIC, Frame
from ms_tune.text import Language, render
from tests.readers.rows import BlockTrace, read_memory_block
from tests.readers.samples import SMALL, SMALL_RUNS

HEADER_20 = (
    "start_time_stamp,end_time_stamp,device_addr,stream_id,pool_type,size,actual_used_memory,actual_peak_memory,"
    "file_name,line_num,type,producer_task,task_name,node_name,graph_name,user_tasks,last_user_task,python_stack,"
    "is_persistent,is_small,"
)
HEADER_17 = HEADER_20.replace("actual_used_memory,", "").replace("is_persistent,is_small,", "")
HEADER_16 = HEADER_17.replace("last_user_task,", "")
STACK = "File:/workspace/train.py;Line:42;Function:<module>|File:/workspace/model.py;Line:17;Function:construct|"
ROW_20 = (
    "5,17,0x12c080010200,0,DefaultEnhancedAscendMemoryPool,131584,724992,724992,device_address_utils.cc,1297,"
    f"PyNativeOutput,0,PyNative,Dense,,{{7-14}},14,{STACK},0,0,"
)
ROW_17 = (
    "5,17,0x12c080010200,0,DefaultEnhancedAscendMemoryPool,131584,724992,device_address_utils.cc,1297,"
    f"PyNativeOutput,0,PyNative,Dense,,{{7-14}},14,{STACK},"
)
ROW_16 = (
    "5,17,0x12c080010200,0,Ascend,131584,724992,device_address_utils.cc,1297,"
    f"PyNativeOutput,0,PyNative,Dense,,{{7-14-}},{STACK},"
)
FRAMES = (Frame("/workspace/train.py", 42, "<module>"), Frame("/workspace/model.py", 17, "construct"))


def read(tmp_path: Path, content: str | bytes) -> BlockTrace:
    path = tmp_path / "memory_block.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_memory_block(path)


def reasons(trace: BlockTrace) -> list[tuple[int, str]]:
    return [(row.line, row.reason.id.rpartition(".")[2]) for row in trace.dropped]


@pytest.mark.parametrize(
    ("header", "row", "columns"), [(HEADER_20, ROW_20, 20), (HEADER_17, ROW_17, 17), (HEADER_16, ROW_16, 16)]
)
def test_every_layout(tmp_path: Path, header: str, row: str, columns: int) -> None:
    trace = read(tmp_path, f"{header}\n{row}\n")
    assert len(trace.columns) == columns
    assert trace.dropped_count == 0
    assert not trace.truncated
    (block,) = trace.blocks
    assert (block.line, block.start, block.end, block.size, block.address) == (2, 5, 17, 131584, 0x12C080010200)
    assert (block.kind, block.producer_task, block.task_name, block.node_name) == (
        "PyNativeOutput",
        0,
        "PyNative",
        "Dense",
    )
    assert block.user_tasks == (7, 14)
    assert block.last_user_task == (14 if columns > 16 else None)
    assert block.used_after == (724992 if columns == 20 else None)
    assert block.footprint_after == 724992
    assert block.stack == FRAMES
    assert not block.persistent


def test_never_freed_and_static_rows(tmp_path: Path) -> None:
    endless = ROW_20.replace("5,17,", "5,9223372036854775807,", 1)
    static = ROW_16.replace("5,17,", "-1,-1,", 1).replace(",Ascend,", ",,", 1)
    assert read(tmp_path, f"{HEADER_20}\n{endless}\n").blocks[0].end is None
    (block,) = read(tmp_path, f"{HEADER_16}\n{static}\n").blocks
    assert (block.start, block.end) == (STATIC, STATIC)


def test_unbound_row(tmp_path: Path) -> None:
    trace = read(tmp_path, f"{HEADER_20}\n10,11,0x12c080050600,0,Pool,16384,872960,1774080,,,,,,,,,,,0,0,\n")
    (block,) = trace.blocks
    assert (block.kind, block.stack, block.user_tasks, block.producer_task, block.last_user_task) == (
        "",
        (),
        (),
        None,
        None,
    )


def test_header_only_is_a_run_on_the_cpu(tmp_path: Path) -> None:
    for content in (HEADER_20, HEADER_20 + "\n", "\ufeff" + HEADER_20 + "\r\n\r\n"):
        trace = read(tmp_path, content)
        assert trace.blocks == ()
        assert trace.dropped_count == 0


def test_commas_in_names(tmp_path: Path) -> None:
    eager = ROW_20.replace(",Dense,", ",Dense(a,b,c),")
    cxx = ROW_20.replace("device_address_utils.cc", "odd,path/utils.cc")
    graph = ROW_20.replace(",PyNative,Dense,", ",3_Default/a,b/MatMul-op0,Default/a,b/MatMul-op0,")
    both = graph.replace("/workspace/model.py", "/x,y.py")
    trace = read(tmp_path, f"{HEADER_20}\n{eager}\n{cxx}\n{graph}\n{both}\n")
    assert trace.dropped_count == 0
    assert [block.node_name for block in trace.blocks] == [
        "Dense(a,b,c)",
        "Dense",
        "Default/a,b/MatMul-op0",
        "Default/a,b/MatMul-op0",
    ]
    assert trace.blocks[2].task_name == "3_Default/a,b/MatMul-op0"
    assert [block.user_tasks for block in trace.blocks] == [(7, 14)] * 4
    assert trace.blocks[3].stack[1].file == "/x,y.py"


def test_commas_that_cannot_be_placed_refuse_the_row(tmp_path: Path) -> None:
    graph = ROW_20.replace(",PyNative,Dense,", ",3_Default/a,b,Default/c,")
    nowhere = ROW_20.replace(",PyNativeOutput,", ",Py,Native,Output,")
    end_alike = ROW_20.replace(",PyNative,Dense,", ",3_Default/a,b/MatMul-op0,Other/x,b/MatMul-op0,")  # two operators
    trace = read(tmp_path, f"{HEADER_20}\n{graph}\n{ROW_20}\n{nowhere}\n{end_alike}\n")
    assert len(trace.blocks) == 1
    assert reasons(trace) == [(2, "commas"), (4, "commas"), (5, "commas")]


def test_truncated_files(tmp_path: Path) -> None:
    whole = f"{HEADER_20}\n{ROW_20}\n{ROW_20}\n"
    for cut in range(len(HEADER_20) + len(ROW_20) + 3, len(whole)):
        trace = read(tmp_path, whole[:cut])
        assert trace.truncated
        kept = cut == len(whole) - 1  # only the line feed is missing
        assert len(trace.blocks) == (2 if kept else 1)
        assert reasons(trace) == ([] if kept else [(3, "cut")])


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("5,17,", "17,5,", "lifetime"),
        ("5,17,", "5,5,", "lifetime"),
        ("5,17,", "9223372036854775807,9223372036854775807,", "lifetime"),
        ("5,17,", "-1,17,", "number"),
        (",131584,", ",-512,", "number"),
        (",131584,", ",9223372036854775808,", "number"),
        (",131584,", "," + "9" * 5000 + ",", "number"),
        (",131584,", ",１２,", "number"),
        (",131584,", ",1_000,", "number"),
        (",131584,", ",,", "number"),
        (",131584,", ",1e3,", "number"),
        ("0x12c080010200", "12c080010200", "number"),
        (",1297,", ",file.cc,", "number"),
        ("{7-14}", "7-14", "users"),
        (",0,0,", ",0,7,", "number"),
        (",0,0,", ",0,", "fields"),
    ],
)
def test_damaged_rows_are_refused_with_their_line(tmp_path: Path, old: str, new: str, reason: str) -> None:
    head, mark, tail = ROW_20.rpartition(old) if old == ",0,0," else ROW_20.partition(old)
    assert mark
    trace = read(tmp_path, f"{HEADER_20}\n{ROW_20}\n{head}{new}{tail}\n{ROW_20}\n")
    assert [block.line for block in trace.blocks] == [2, 4]
    assert reasons(trace) == [(3, reason)]
    for language in Language:
        assert render(trace.dropped[0].reason, language)


def test_refused_rows_are_counted_but_not_all_described(tmp_path: Path) -> None:
    trace = read(tmp_path, HEADER_20 + "\n" + "damaged\n" * 100)
    assert trace.dropped_count == 100
    assert len(trace.dropped) == MAX_DESCRIBED


def test_emulated_file_with_quotes(tmp_path: Path) -> None:
    # hyper-parallel's FakeTensor dry run: quoted, no trailing commas, two more columns, ticks from 0.
    header = HEADER_20.rstrip(",").replace("device_addr", "start_plot_time_stamp,end_plot_time_stamp,device_addr")
    row = (
        '0,3,0,3,0xf00000000000,0,FakeTensorLogicalMemoryPool,500,1000,1200,"/workspace/a,b.py",42,Activation,0,forward,'
        '"aten.""quoted"",op",Model.layers.1,{1-2},2,"File:/workspace/a,b.py;Line:42;Function:forward",0,1'
    )
    trace = read(tmp_path, f"{header}\r\n{row}\r\n")
    (block,) = trace.blocks
    assert (block.start, block.end, block.size, block.kind, block.small) == (0, 3, 500, "Activation", True)
    assert block.node_name == 'aten."quoted",op'
    assert block.stack == (Frame("/workspace/a,b.py", 42, "forward"),)
    assert reasons(read(tmp_path, header + "\n" + row.replace('forward",0', "forward,0") + "\n")) == [(2, "quotes")]
    assert read(tmp_path, f"{header}\n{row}").truncated


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "trace.empty"),
        (b"\n\n", "trace.empty"),
        (
            b"time_stamp,task_name,node_name,graph_name,file_name,line_num,\n0,PyNative,Dense,,a.cc,1,\n",
            "trace.not-tracker",
        ),
        (bytes(range(256)) * 64, "trace.not-tracker"),
        (HEADER_20.replace("is_small", "size").encode(), "trace.column-twice"),
    ],
)
def test_not_a_tracker_file(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, content)
    assert caught.value.message.id == reason
    assert "memory_block.csv" in caught.value.location()


def test_who_may_not_read_a_file_is_reported_what_to_do() -> None:
    with pytest.raises(TraceError) as caught, reading(Path("memory_block.csv")):
        raise PermissionError(13, "Permission denied")
    assert caught.value.hint is not None
    assert caught.value.hint.id == "trace.unreadable.hint"


def test_a_line_without_end_is_refused_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ms_tune.readers.lines.LONGEST_LINE", 4096)
    trace = read(tmp_path, f"{HEADER_20}\n{'x' * 10_000}\n{ROW_20}\n{'y' * 4096}")
    assert [block.line for block in trace.blocks] == [3]
    assert reasons(trace) == [(2, "long"), (4, "long")]


_SEED = (SMALL / SMALL_RUNS[0] / "memory_block.csv").read_bytes().split(b"\n")
_PIECES = st.sampled_from(
    [b",", b"\n", b'"', b',"File:', b"{", b"}", b"|", b"-1", b"\x00", b"\xff", b"9" * 25, b"-", b""]
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    lines = [_SEED[0], *draw(st.lists(st.sampled_from(_SEED[1:-1]), max_size=4))]
    content = bytearray(b"\n".join(lines) + b"\n")
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(content)))
        content[start : start + draw(st.integers(0, 12))] = draw(_PIECES | st.binary(max_size=6))
    return bytes(content[: draw(st.integers(0, len(content)))]) if draw(st.booleans()) else bytes(content)


@pytest.mark.parametrize(
    ("line", "known"), [("9" * 18, True), ("9" * 19, False), ("-1", False), ("\u0663", False), ("", False)]
)
def test_a_frame_whose_line_is_no_number_is_left_out(tmp_path: Path, line: str, known: bool) -> None:  # noqa: FBT001 - parametrised
    stack = STACK.replace("Line:17", f"Line:{line}")
    (block,) = read(tmp_path, f"{HEADER_20}\n{ROW_20.replace(STACK, stack)}\n").blocks
    last = [Frame("/workspace/model.py", int(line), "construct")] if known else []
    assert block.stack == (FRAMES[0], *last)


def test_users_are_time_stamps(tmp_path: Path) -> None:
    """A value above INT64_MAX is not a time stamp."""
    users = f"{{0-0-112-{2**63 - 1}-{2**63}-{10**19}-}}"
    (block,) = read(tmp_path, f"{HEADER_20}\n{ROW_20.replace('{7-14}', users)}\n").blocks
    assert block.user_tasks == (0, 0, 112, 2**63 - 1)


@pytest.mark.parametrize(
    ("cell", "shown"), [("x" * 40, "x" * 40), ("x" * 41, "x" * 40 + "…"), ("1\x1b[2J", "1\ufffd[2J")]
)
def test_a_cell_that_is_refused_is_shown_without_harm(tmp_path: Path, cell: str, shown: str) -> None:
    trace = read(tmp_path, f"{HEADER_20}\n{ROW_20.replace('131584', cell)}\n")
    assert [row.reason.params for row in trace.dropped] == [{"value": shown, "column": "size"}]
