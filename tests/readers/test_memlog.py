"""Test STAlloc's trace by its grammar, and files that violate it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ms_tune.errors import TraceError
from ms_tune.readers import memlog
from ms_tune.readers.memlog import HEAD, MemLog, read_memlog
from tests.readers.memlogs import training

EXAMPLE = """1 0x7f0000000000 25165924 0
Iteration Index : 0
micro-batch : F
decoder.layers.0.mlp->ParallelMLP Layer : F-start
1 0x7f0010000000 50331648 0
decoder.layers.0.mlp->ParallelMLP Layer : F-end
micro-batch : B
0 0x7f0010000000 50331648 0
Iteration Index : 1
Iteration Index : end
"""


def read(folder: Path, text: str) -> MemLog:
    path = folder / "mem_log_dev0.txt"
    path.write_text(text, encoding="utf-8")
    return read_memlog(path)


def test_the_example_of_the_reference(tmp_path: Path) -> None:
    log = read(tmp_path, EXAMPLE)
    weight, activation = log.blocks
    assert (weight.size, weight.iteration, weight.phase, weight.end, weight.layer) == (25165924, HEAD, "init", None, "")
    assert (activation.start, activation.end) == (1, 2)  # marks are no events
    assert (activation.phase, activation.end_phase) == ("0F", "0B")
    assert activation.layer == "decoder.layers.0.mlp"
    assert (log.iterations, log.micro_batches, log.layers, log.events) == (2, 1, ("decoder.layers.0.mlp",), 3)


@pytest.mark.parametrize("seed", range(3))
def test_every_block_of_a_generated_trace(tmp_path: Path, seed: int) -> None:
    writer = training(seed)
    log = read(tmp_path, writer.text())
    expected = [(size, begin, end) for size, _, begin, end in writer.blocks.values()]
    assert [(block.size, block.start, block.end) for block in log.blocks] == expected
    assert (log.events, log.iterations, log.micro_batches, len(log.layers)) == (writer.events, 3, 2, 3)


@pytest.mark.parametrize(
    ("text", "line", "text_id"),
    [
        ("1 0x10 600 0\nhello\n", 2, "memlog.line"),
        ("1 0x10 600\n", 1, "memlog.line"),
        ("1 0x10 -600 0\n", 1, "memlog.line"),
        ("2 0x10 600 0\n", 1, "memlog.line"),
        ("token_dispatcher preprocess start\n", 1, "memlog.line"),
        ("1 0x10 600 0\n1 0x10 600 0\n", 2, "memlog.live"),
        ("1 0x10 600 0\n0 0x20 600 0\n", 2, "memlog.unknown"),
        ("1 0x10 600 0\n0 0x10 601 0\n", 2, "memlog.size"),
        ("1 0x10 600 0\n0 0x10 600 0\n0 0x10 600 0\n", 3, "memlog.unknown"),
        ("Iteration Index : 1\nIteration Index : 1\n", 2, "memlog.order"),
        ("Iteration Index : 0\nIteration Index : end\nIteration Index : 1\n", 3, "memlog.after-end"),
        ("a->b Layer : F-end\n", 1, "memlog.layer"),
        ("Iteration Index : 0\n", None, "memlog.empty"),
        ("", None, "memlog.empty"),
        ("1 0x10 600 0" + " " * 70_000 + "\n", 1, "placement.long-line"),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, text: str, line: int | None, text_id: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, text)
    assert (caught.value.message.id, caught.value.line) == (text_id, line)


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memlog, "_MOST_EVENTS", 3)
    within = "1 0x10 600 0\n0 0x10 600 0\n1 0x10 600 0\n"
    assert read(tmp_path, within).events == 3
    with pytest.raises(TraceError) as caught:
        read(tmp_path, within + "0 0x10 600 0\n")
    assert (caught.value.message.id, caught.value.line) == ("placement.too-large", 4)
    with pytest.raises(TraceError) as caught:
        read(tmp_path, "z" * 100 + "\n")
    assert caught.value.message.params["text"] == "z" * 60
    assert read(tmp_path, "1 0x10 600 0" + " " * (2**16 - 14) + "\n").events == 1


def test_null_pointers_are_nothing(tmp_path: Path) -> None:
    log = read(tmp_path, "1 0 0 0\n1 0x10 600 0\n0 0 0 0\n0 0x10 600 0\n")
    assert [(block.start, block.end) for block in log.blocks] == [(1, 3)]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_whatever_is_in_it_no_other_error_comes_out(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "random.txt"
    path.write_bytes(b"1 0x10 600 0\n" + data)
    with suppress(TraceError):
        assert read_memlog(path).blocks[0].size == 600
