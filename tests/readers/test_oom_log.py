"""Test each form of out-of-memory errors in logs, and every figure that is read from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.errors import TraceError
from ms_tune.readers.memory_log import MemoryFailure, read_memory_failure
from ms_tune.units import GIB, KIB, MIB

STATISTICS = """Device HBM memory size: 62420M
MindSpore Used memory size: 100M
Used peak memory usage (without fragments): 60M
Actual peak memory usage (with fragments): 90M
"""
POOLS = """Common mem pool info: Total allocated mem:70M, peak used mem:66M, in used mem:50M
Persistent mem pool info: Total allocated mem:20M, peak used mem:9M, in used mem:8M
"""
SCRIPT = '  File "/job/train.py", line 7, in step\n'
LIBRARIES = [
    '  File "/opt/site-packages/torch/nn.py", line 9, in linear\n',
    '  File "/opt/dist-packages/torch/nn.py", line 9, in linear\n',
    '  File "/opt/lib/python3.11/enum.py", line 9, in call\n',
    '  File "<frozen importlib>", line 9, in load\n',
]


def read(folder: Path, text: str) -> MemoryFailure:
    path = folder / "run.log"
    path.write_text(text, "utf-8")
    return read_memory_failure(path)


@pytest.mark.parametrize(
    ("line", "wanted", "operator"),
    [
        ("Out of Memory!!! Request memory size: 512B, Memory Statistic:", 512, ""),
        ("memory isn't enough and alloc failed, kernel name: Default/MatMul-op0, alloc size: 600B.", 600, "Default/MatMul-op0"),
        ("Allocate memory failed, size:700", 700, ""),
        ("Allocate workspace memory failed, alloc size:800", 800, ""),
        ("Malloc for kernel output failed, Memory isn't enough, node:Default/Add-op1", None, "Default/Add-op1"),
        ("Allocate output memory failed, alloc node:Default/Add-op2", None, "Default/Add-op2"),
        ("Device memory: required size[900] is too large", 900, ""),
        ("Out of Memory!!! and no word more", None, ""),
    ],
)  # fmt: skip
def test_mindspores_words(tmp_path: Path, line: str, wanted: int | None, operator: str) -> None:
    """With its line: it used to be 1 for all texts except two."""
    found = read(tmp_path, "step 1\nstep 2\n" + line + "\nmore\n")
    assert found == MemoryFailure("mindspore", 3, wanted, None, None, None, None, operator, "")
    assert (found.cause, found.short_bytes) == ("unknown", None)


def test_the_first_words_count_and_the_statistics_show_what_was_used(tmp_path: Path) -> None:
    words = "Out of Memory!!! Request memory size: 41943040B\nOut of Memory!!! Request memory size: 1B\n"
    found = read(tmp_path, words + STATISTICS)
    assert found == MemoryFailure("mindspore", 1, 40 * MIB, 100 * MIB, 10 * MIB, 60 * MIB, 90 * MIB, "", "")
    assert (found.cause, found.short_bytes) == ("need", 0)
    found = read(tmp_path, words + POOLS + STATISTICS)
    assert (found.used_bytes, found.held_bytes, found.free_bytes) == (58 * MIB, 90 * MIB, 10 * MIB)
    found = read(tmp_path, words + POOLS)
    assert (found.used_bytes, found.held_bytes, found.free_bytes, found.limit_bytes, found.short_bytes) == (
        58 * MIB,
        90 * MIB,
        None,
        None,
        None,
    )


def test_more_held_than_the_limit_leaves_nothing_free(tmp_path: Path) -> None:
    words = "Out of Memory!!! Request memory size: 83886080B\n" + STATISTICS.replace(
        "fragments): 90M", "fragments): 120M"
    )
    found = read(tmp_path, words)
    assert (found.free_bytes, found.held_bytes, found.cause, found.short_bytes) == (0, 120 * MIB, "need", 40 * MIB)


@pytest.mark.parametrize(("held", "cause"), [(100, "fragments"), (99, "need")])
def test_fragments_would_have_done_or_not(held: int, cause: str) -> None:
    found = MemoryFailure("torch", 1, 40, 95, None, 60, held, "", "")
    assert (found.cause, found.short_bytes) == (cause, 5 if cause == "need" else None)


@pytest.mark.parametrize(
    ("kind", "framework"), [("CUDA", "torch"), ("NPU", "torch_npu"), ("HIP", "torch"), ("XPU", "torch")]
)
def test_pytorchs_words_of_all_releases(tmp_path: Path, kind: str, framework: str) -> None:
    older = f"{kind} out of memory. Tried to allocate 20.50 KiB (GPU 0; 8.00 GiB total capacity; 5.25 GiB already allocated;"
    found = read(tmp_path, f"x\n{older} 12 bytes free; 6.50 GiB reserved in total by PyTorch) If reserved\n")
    assert found == MemoryFailure(
        framework, 2, 20 * KIB + 512, 8 * GIB, 12, 5 * GIB + 256 * MIB, 6 * GIB + 512 * MIB, "", ""
    )
    newer = f"{kind} out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 8.00 GiB of which 3.00 MiB is free."
    found = read(
        tmp_path,
        f"{newer} Of the allocated memory 5.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.",
    )
    assert found == MemoryFailure(framework, 1, 2 * MIB, 8 * GIB, 3 * MIB, 5 * GIB, 6 * GIB, "", "")
    found = read(
        tmp_path, f"{kind} out of memory. Tried to allocate 2.00 MiB\n1.00 GiB is reserved by PyTorch but unallocated"
    )
    assert found == MemoryFailure(framework, 1, 2 * MIB, None, None, None, None, "", "")


@pytest.mark.parametrize("call", ["halMemAlloc", "aclrtMallocAlign32", "rtMalloc", "DevMemAllocManaged", "RTMALLOC"])
def test_the_drivers_words(tmp_path: Path, call: str) -> None:
    found = read(tmp_path, f"x\n[ERROR] {call} has failed, ret=207001, size = 4096\n{call} failed: size=1\n")
    assert found == MemoryFailure("driver", 2, 4096, None, None, None, None, "", "")


def test_mindspores_request_counts_more_than_the_drivers(tmp_path: Path) -> None:
    found = read(tmp_path, "halMemAlloc failed: size=2\nOut of Memory!!! Request memory size: 512B\n")
    assert (found.framework, found.line, found.wanted_bytes) == ("mindspore", 1, 512)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_place_is_the_programs_own_innermost_line(tmp_path: Path, library: str) -> None:
    outer = '  File "/job/main.py", line 1, in <module>\n'
    found = read(tmp_path, outer + SCRIPT + library + "RuntimeError: NPU out of memory. Tried to allocate 1.00 MiB (\n")
    assert (found.where, found.line) == ("/job/train.py:7", 4)


@pytest.mark.parametrize(
    "text", ["", "all is well\n", "halMemAlloc done: size=12\n", "out of memory\n", "failed to allocate: size=12\n"]
)
def test_nothing_failed(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError, match="nor a log with a failed memory request"):
        read(tmp_path, text)
