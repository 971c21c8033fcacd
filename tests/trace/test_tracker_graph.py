from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ms_tune.errors import TraceError
from ms_tune.texts import Language, render
from ms_tune.trace.memory_block import read_memory_block
from ms_tune.trace.tracker_graph import TrackerGraph, read_tracker_graph
from tests.trace.test_task import shared

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


def test_operators_of_the_cpu_have_no_blocks(tmp_path: Path) -> None:
    graph = read(tmp_path, "() = MatMul(), task_info: 1, attrs {stream_id=0} \n    () <- ()\n    # File:a|\n")
    assert (graph.operators, graph.tensors, graph.dropped_count) == (1, {}, 0)


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


def test_unknown_formats_and_huge_shapes_have_no_size(tmp_path: Path) -> None:
    text = "(%7, %8) = Op(), task_info: 6, attrs {} \n    (Odd:[4], Float32:[9999999999999, 2]) <- ()\n"
    graph = read(tmp_path, text)
    assert [graph.tensors[tick].bytes for tick in (7, 8)] == [None, None]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        read_tracker_graph(tmp_path / "absent.ir")


@pytest.mark.parametrize("run", ["asc2", "asc_gO0", "asc_dp8/rank_3", "gpt", "mindformers_qwen3_tiny_dp2tp2pp2/rank_4"])
def test_real_files_fit_their_blocks(run: str) -> None:
    place = shared(run)
    if not (place / "tracker_graph.ir").is_file():
        pytest.skip("the shared fixtures are not on this machine")
    graph = read_tracker_graph(place / "tracker_graph.ir")
    assert graph.dropped_count == 0
    blocks = {block.start: block for block in read_memory_block(place / "memory_block.csv").blocks}
    assert set(graph.tensors) <= set(blocks)
    for tick, tensor in graph.tensors.items():
        # The pool adds 32 bytes and rounds up to 512 (ascend_memory_manager.cc).
        assert tensor.bytes is not None
        assert tensor.bytes <= blocks[tick].size


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*OPERATOR.splitlines(keepends=True), "(", ")", "%", "[9]", "\n", "x{"]), max_size=20))
def test_any_file_is_read(pieces: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        graph = read(Path(place), "".join(pieces))
    assert graph.operators >= 0
