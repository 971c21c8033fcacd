"""Test out-of-memory logs: the arithmetic, the words of each framework, prefixes, ranks, folders, and what is suggested."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Any

import pytest

from ms_tune.enums import Dialect
from ms_tune.errors import TraceError
from ms_tune.facts import keys, megatron
from ms_tune.facts.oom import load_forms
from ms_tune.facts.query import load
from ms_tune.readers import oom_log
from ms_tune.readers.lines import split_prefix
from ms_tune.readers.oom_log import FailureReport, MemoryFailure, read_memory_failures
from ms_tune.text import Language, render
from ms_tune.units import GIB, KIB, MIB
from tests.files import read_data

SIZES = {"K": KIB, "M": MIB, "G": GIB}
FRAME = '  File "/job/train.py", line 30, in step\n'
LIBRARIES = [
    '  File "/opt/site-packages/torch/nn.py", line 9, in linear\n',
    '  File "/opt/lib/python3.11/enum.py", line 9, in call\n',
    '  File "<frozen importlib>", line 9, in load\n',
]
STATISTICS = """Device HBM memory size: 62420M
MindSpore Used memory size: 100M
Used peak memory usage (without fragments): 60M
Actual peak memory usage (with fragments): 90M
"""
POOLS = """Common mem pool info: Total allocated mem:70M, peak used mem:66M, in used mem:50M
Persistent mem pool info: Total allocated mem:20M, peak used mem:9M, in used mem:8M
"""


def npu(wanted: str, limit: str, used: str, free: str, held: str, device: int = 0) -> str:  # noqa: PLR0913, PLR0917 - figures of one text
    return (
        f"RuntimeError: NPU out of memory. Tried to allocate {wanted} (NPU {device}; {limit} total capacity; {used} already allocated; "
        f"{used} current active; {free} free; {held} reserved in total by PyTorch) If reserved memory is >> allocated memory try "
        "setting max_split_size_mb to avoid fragmentation."
    )


def cuda(wanted: str, limit: str, used: str, free: str, cached: str, more: str = "") -> str:  # noqa: PLR0913, PLR0917 - as above
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {wanted}. GPU 0 has a total capacity of {limit} of which "
        f"{free} is free. Including non-PyTorch memory, this process has 9 GiB memory in use. {more}Of the allocated memory {used} is "
        f"allocated by PyTorch, and {cached} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try "
        "setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )


def read(folder: Path, text: str) -> FailureReport:
    path = folder / "run.log"
    path.write_text(text, "utf-8")
    return read_memory_failures([path])


def first(folder: Path, text: str) -> MemoryFailure:
    return read(folder, text).first


def hows(report: FailureReport) -> list[str]:
    return [one.how for one in report.remedies if not one.is_set]


SHORT = npu("2.00 GiB", "32.00 GiB", "29.00 GiB", "0.50 GiB", "29.75 GiB")


# Outside is limit - free - reserved, and missing wanted - free - (reserved - used); worked out by hand.
@pytest.mark.parametrize(
    ("text", "cause", "outside", "missing"),
    [
        (SHORT, "shortage", 1.75, 0.75),
        (npu("2.00 GiB", "32.00 GiB", "29.00 GiB", "1.25 GiB", "29.75 GiB"), "fragmentation", 1.0, 0),
        (npu("0.50 GiB", "32.00 GiB", "8.00 GiB", "0.25 GiB", "8.25 GiB"), "others", 23.5, 0),
        (npu("1.00 GiB", "32.00 GiB", "20.00 GiB", "2.00 GiB", "26.00 GiB"), "fragmentation", 4.0, 0),
        # more than four times the request is free on the device itself
        (npu("0.45 GiB", "16.00 GiB", "8.00 GiB", "7.25 GiB", "8.25 GiB"), "refused", 0.5, 0),
        (npu("64.00 MiB", "32.00 GiB", "31.50 GiB", "16.00 MiB", "31.75 GiB"), "full", 0.234375, 0),
        (npu("1.00 GiB", "32.00 GiB", "31.50 GiB", "16.00 MiB", "31.75 GiB"), "full", 0.234375, 0.734375),
        (npu("16.50 GiB", "32.00 GiB", "8.00 GiB", "0.25 GiB", "8.25 GiB"), "too-large", 23.5, 16.0),
        (npu("40.00 GiB", "32.00 GiB", "8.00 GiB", "22.00 GiB", "9.00 GiB"), "too-large", 1.0, 17.0),
        (cuda("2.00 GiB", "80.00 GiB", "75.00 GiB", "1.50 GiB", "0.25 GiB"), "shortage", 3.25, 0.25),
        (cuda("2.00 GiB", "80.00 GiB", "75.00 GiB", "1.50 GiB", "1.25 GiB"), "fragmentation", 2.25, 0),
        # Tensors and what is outside fill the device together: 0.5 of 61 GiB, or 2.25 of 80, are free or cached.
        (npu("0.25 GiB", "61.00 GiB", "58.50 GiB", "0.125 GiB", "58.875 GiB"), "full", 2.0, 0),
        (cuda("2.00 GiB", "80.00 GiB", "75.00 GiB", "1.50 GiB", "0.75 GiB"), "full", 2.75, 0),
        # more than half of a small device is outside
        (npu("4.00 MiB", "4.00 GiB", "0.50 GiB", "0.25 GiB", "0.75 GiB"), "others", 3.0, 0),
        # a fraction that the user set leaves 0.25 GiB of the free memory
        (cuda("2.00 GiB", "80.00 GiB", "75.00 GiB", "3.00 GiB", "0.75 GiB", "76.00 GiB allowed; "), "shortage", 1.25, 1.0),
        # the fraction is the limit, however much others use
        (cuda("2.00 MiB", "80.00 GiB", "0.875 GiB", "60.00 GiB", "0.0625 GiB", "1.00 GiB allowed; "), "fragmentation", 19.0625, 0),
        ("Out of memory error on GPU 0. Cannot allocate 2.50GB memory on GPU 0, 21.00GB memory has been allocated and available memory is only 1.75GB.", "shortage", None, 0.75),
        # Windows: more reserved than the device has
        (cuda("1.00 GiB", "12.00 GiB", "16.00 GiB", "0 bytes", "0.50 GiB"), "full", 0, 0.5),
        (
            ("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; 6.00 GiB already allocated; 1.00 GiB free; "
            "512.00 MiB cached)"),
            "shortage",
            0.5,
            0.5,
        ),
        ("CUDA out of memory. Tried to allocate 20.50 KiB", "unknown", None, None),
        (
            ("torch.OutOfMemoryError: Allocation on device 1 would exceed allowed memory. (out of memory)\nCurrently allocated     : "
            "10.00 GiB\nRequested               : 2.00 GiB\nDevice limit            : 16.00 GiB\nFree (according to CUDA): 0.50 GiB\n"),
            "shortage",
            None,
            1.5,
        ),
        (
            "NPU out of memory. NPUWorkspaceAllocator tried to allocate 9.00 GiB(NPU 2; 32.00 GiB total capacity; 4.00 GiB free). If",
            "workspace",
            None,
            5.0,
        ),
        (
            "ValueError: Free memory on device (30.00/48.00 GiB) on startup is less than desired GPU memory utilization (0.9, 43.20 GiB).",
            "others",
            18.0,
            13.2,
        ),
        ("RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62", "others", None, None),
        ("(16.00 GiB KV cache is needed, which is larger than the available KV cache memory (9.50 GiB)", "shortage", None, 6.5),
        (
            ("TotalUsedMemStatistics : 10737418240 plus TotalUsedByEventMemStatistics : 1073741824 and plus alloc size : 4294967296 is more "
            "than total mem size : 12884901888."),
            "shortage",
            None,
            3.0,
        ),
        (
            ("TotalUsedMemStatistics : 1073741824 plus TotalUsedByEventMemStatistics : 0 and plus alloc size : 12884901888 is more "
            "than total mem size : 12884901888."),
            "too-large",
            None,
            1.0,
        ),
        (
            ("Device MOC total size:34359738368 Device MOC free size:12884901888 may be other processes\nOut of Memory!!! Request memory size: "
            "1073741824B, Memory Statistic:\n"),
            "others",
            20.0,
            None,
        ),
    ],
)  # fmt: skip
def test_the_arithmetic(tmp_path: Path, text: str, cause: str, outside: float | None, missing: float | None) -> None:
    found = first(tmp_path, f"x\n{text}\nmore\n")
    assert found.cause == cause
    for amount, expected in ((found.outside_bytes, outside), (found.short_bytes, missing)):
        assert amount == (expected if expected is None else pytest.approx(expected * GIB, abs=2))


PASTED: dict[str, dict[str, Any]] = read_data("pasted_failures.yaml")
_ROUNDED = 0.011 * GIB  # of figures with two decimals


@pytest.mark.parametrize("name", PASTED)
def test_what_people_pasted(tmp_path: Path, name: str) -> None:
    facts = PASTED[name]
    if facts["cause"] is None:
        with pytest.raises(TraceError, match="does not report a failed allocation"):
            read(tmp_path, facts["text"])
        return
    found = first(tmp_path, facts["text"])
    assert (found.cause, found.operator) == (facts["cause"], facts.get("operator", found.operator))
    for what, amount in (
        ("wanted", found.wanted_bytes),
        ("outside", found.outside_bytes),
        ("missing", found.short_bytes),
    ):
        if what in facts:
            size = float(facts[what][:-1]) * SIZES[facts[what][-1]] if isinstance(facts[what], str) else facts[what]
            assert amount == pytest.approx(size, abs=min(_ROUNDED, size / 5)), what


@pytest.mark.slow
def test_another_error_is_looked_for_at_the_end_of_a_long_log(tmp_path: Path) -> None:
    raised = 'Traceback (most recent call last):\n  File "/job/train.py", line 3, in <module>\n    {0}()\n{0}: no such layer\n'
    text = raised.format("KeyError") + "a line of nothing\n" * 300_000 + raised.format("ValueError")
    with pytest.raises(TraceError, match="ValueError: no such layer"):
        read(tmp_path, text)


def test_every_figure_of_a_message(tmp_path: Path) -> None:
    found = first(tmp_path, f"x\n{FRAME}{npu('20.50 KiB', '8.00 GiB', '5.25 GiB', '12 bytes', '6.50 GiB', 3)}\n")
    assert found[:9] == (
        *("torch_npu", 3, 20 * KIB + 512, 8 * GIB, 12, 5 * GIB + 256 * MIB, 6 * GIB + 512 * MIB),
        *("", "/job/train.py:30"),
    )
    assert (found.device, found.label, found.available_bytes) == (3, "device 3", GIB + 256 * MIB + 12)


@pytest.mark.parametrize(
    ("line", "framework", "cause", "wanted", "operator"),
    [
        ("Out of Memory!!! Request memory size: 512B, Memory Statistic:", "mindspore", "unknown", 512, ""),
        ("Device(id:0) memory isn't enough and alloc failed, kernel name: Default/MatMul-op0, alloc size: 600B.", "mindspore", "unknown", 600, "Default/MatMul-op0"),
        ("Allocate memory failed, size:700", "mindspore", "unknown", 700, ""),
        ("Allocate workspace memory failed, alloc size:800", "mindspore", "workspace", 800, ""),
        ("#umsg#Memory not enough:#umsg#Allocate dynamic workspace memory failed", "mindspore", "workspace", None, ""),
        ("Malloc for kernel output failed, Memory isn't enough, node:Default/Add-op1", "mindspore", "unknown", None, "Default/Add-op1"),
        ("Allocate output memory failed, alloc node:Default/Add-op2", "mindspore", "unknown", None, "Default/Add-op2"),
        ("Memory not enough: alloc size[0] is smaller than required size[900].", "mindspore", "unknown", 900, ""),
        ("Alloc device mem failed, alloc size : 901", "mindspore", "unknown", 901, ""),
        ("Malloc Mem From Mem Pool failed, size:902", "mindspore", "unknown", 902, ""),
        ("Somas allocate failed for graph kernel_graph_3", "mindspore", "unknown", None, "kernel_graph_3"),
        ("Malloc device memory failed, size[903], ret[207001], Device 6 may be other processes occupying this card", "mindspore", "others", 903, ""),
        ("Allocate pin memory failed, size: 904", "mindspore", "host", 904, ""),
        ("aclrtMallocHost failed with size 905, ret=507899", "driver", "host", 905, ""),
        ("bm_alloc_gmem failed, dev_id = 0, size = 0x639c00", "unknown", "unknown", None, ""),
        ("ValueError: The model's max seq len (8) is larger than the maximum number of tokens that can be stored in KV cache (7).", "vllm", "shortage", None, ""),
        ("Available KV cache memory: -0.50 GiB", "vllm", "shortage", GIB // 2, ""),
        ("Killed", "python", "host", None, ""),
        ("job.sh: line 12: 4321 Killed                  python train.py", "python", "host", None, ""),
        ("subprocess.CalledProcessError: Command 'x' died with <Signals.SIGKILL: 9>.", "python", "host", None, ""),
        ("mpirun noticed that process rank 7 with PID 0 on node a exited on signal 9 (Killed).", "python", "host", None, ""),
        ("[launch.py:321:sigkill_handler] ['python', 'main.py'] exits with return code = -9", "python", "host", None, ""),
        ("EL0004: [PID: 1] 2026-01-28-07:22:29.827.496 Failed to allocate memory.", "driver", "unknown", None, ""),
        ("Memory_Allocation_Failure(EL0004): Failed to allocate memory requested by GE module.", "driver", "unknown", None, "GE"),
        ("rtStreamCreate failed. Reason: error code is 207001", "driver", "unknown", None, ""),
        ("[ERROR] halMemAlloc has failed, ret=207001, size = 4096", "driver", "unknown", 4096, ""),
        ("Call rtMalloc fail, purpose: page caching, type = 2, size:4097, device_id:0", "driver", "unknown", 4097, ""),
        ("Failed to allocate resource[DeviceMemory] with info [size:4098]. Reason: Memory resources are exhausted.", "hccl", "unknown", 4098, ""),
        ("Allocation_Failure(EI0007): Failed to allocate resource[qp] with info [aicpu rank:7]. Reason: Memory resources are exhausted.", "hccl", "not-memory", None, "qp"),
        ("Device memory isn't enough and alloc failed, actor name: kernel_graph_0, alloc size:4101", "mindspore", "unknown", 4101, "kernel_graph_0"),
        ("AllocDeviceMemByEagerFree failed, alloc_size : 0.", "mindspore", "unknown", None, ""),
        ("[PID: 1] 2026-06-04 Insufficient_Stream_Resources(EL0009): The stream resources are insufficient.", "driver", "not-memory", None, ""),
        ("rtStreamWaitEvent execution failed, reason=resource alloc fail[FUNC:FuncErrorReason]", "driver", "not-memory", None, ""),
        ("NPU out of memory. Tried to allocate more than 1EB memory.", "torch_npu", "not-memory", None, ""),
        ("CUDA out of memory. Tried to allocate more than 1EB memory.", "torch", "not-memory", None, ""),
        ("RuntimeError: CUDA error: out of memory", "cuda", "unknown", None, ""),
        ("Task was killed due to the node running low on memory.", "ray", "host", None, ""),
        ("OutOfMemoryError: 1 worker(s) were killed due to the node running low on memory.", "ray", "host", None, ""),
        ("(raylet) 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed", "ray", "host", None, ""),
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4099 bytes. Error code 12", "torch", "host", 4099, ""),
        ("Unable to allocate 1.50 GiB for an array with shape (2, 2)", "python", "host", 3 * GIB // 2, ""),
        ("OSError: [Errno 12] Cannot allocate memory", "python", "host", None, ""),
        ("ERROR: Unexpected bus error. This might be caused by insufficient shared memory (shm).", "torch", "host", None, ""),
        ("[  12.345678] Out of memory: Killed process 4321 (python) total-vm:9kB, anon-rss:8kB", "kernel", "host", None, "python"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.", "kernel", "host", None, ""),
        ("  traceback : Signal 9 (SIGKILL) received by PID 4812", "python", "host", None, ""),
        ("mylib: could not allocate a buffer: size=4100", "unknown", "unknown", 4100, ""),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4770354232 bytes.", "unknown", "unknown", 4770354232, ""),
        ("failed to allocate 8.00G (8589934592 bytes) from device: hipError_t(1002)", "unknown", "unknown", 8 * GIB, ""),
        ("cuda_driver.cc:936] failed to allocate 128.00M (134217728 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY", "cuda", "unknown", 128 * MIB, ""),
        ("  OOM kill reason: Memory usage 7728742400B exceeded threshold of 6871947674B (85.9% of 8589934592B total);", "ray", "host", None, ""),
        ("error: failed to allocate 2 workers", "unknown", "unknown", None, ""),
        ("E cuda_driver.cc:868] failed to alloc 536870912 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "driver", "host", 512 * MIB, ""),
    ],
)  # fmt: skip
def test_the_words(  # noqa: PLR0913, PLR0917 - a table
    tmp_path: Path, line: str, framework: str, cause: str, wanted: int | None, operator: str
) -> None:
    found = first(tmp_path, f"step 1\nstep 2\n{line}\nmore\n")
    assert (found.framework, found.cause, found.wanted_bytes, found.operator, found.line) == (
        *(framework, cause, wanted, operator, 3),
    )


def test_rays_figures_are_on_the_next_line(tmp_path: Path) -> None:
    text = "1 worker(s) were killed due to the node running low on memory.\nMemory on the node (IP: 10.0.0.1, ID: d4) was\n"
    found = first(
        tmp_path, f"{text}109.50GB / 121.50GB (0.902205), which exceeds the memory usage threshold of 0.900000.\n"
    )
    assert (found.cause, found.used_bytes, found.limit_bytes) == ("host", 219 * GIB // 2, 243 * GIB // 2)


def test_a_message_that_is_wrapped(tmp_path: Path) -> None:
    words = cuda("2.00 GiB", "80.00 GiB", "75.00 GiB", "1.50 GiB", "0.25 GiB")
    for width in (60, 90, 130):
        found = first(tmp_path, "\n# ".join(wrap(words, width)))
        assert (found.cause, found.short_bytes, found.line) == ("shortage", GIB // 4, 1)


def test_mindspores_statistics_complete_the_request(tmp_path: Path) -> None:
    words = "Out of Memory!!! Request memory size: 41943040B\nOut of Memory!!! Request memory size: 1B\n"
    found = first(tmp_path, words + STATISTICS)
    assert found[1:7] == (1, 40 * MIB, 100 * MIB, 10 * MIB, 60 * MIB, 90 * MIB)
    assert (found.cause, found.short_bytes) == ("fragmentation", 0)
    found = first(tmp_path, words.replace("41943040", "44040192") + POOLS + STATISTICS)
    assert (found.used_bytes, found.held_bytes, found.cause, found.short_bytes) == (
        58 * MIB,
        90 * MIB,
        "fragmentation",
        0,
    )
    found = first(tmp_path, words.replace("41943040", "45088768") + POOLS + STATISTICS)
    assert (found.cause, found.short_bytes) == ("shortage", MIB)
    assert first(tmp_path, words + POOLS).limit_bytes is None


def test_a_frameworks_request_counts_more_than_the_drivers_and_than_a_guess(tmp_path: Path) -> None:
    text = "alloc failed somewhere\nhalMemAlloc failed: size=2\nOut of Memory!!! Request memory size: 512B\nexitcode  : -9 (pid: 1)\n"
    report = read(tmp_path, text)
    assert len(report.failures) == 1
    assert report.first[:3] == ("mindspore", 3, 512)


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_place_is_the_programs_own_innermost_line(tmp_path: Path, library: str) -> None:
    outer = '  File "/job/main.py", line 1, in <module>\n'
    old = f"Traceback (most recent call last):\n{outer}ValueError: caught\n"
    new = f"Traceback (most recent call last):\n{outer}{FRAME}{library}"
    for text, line in ((old + new + SHORT, 8), (f"{SHORT}\n{new}RuntimeError: the error above\n{old}", 1)):
        found = first(tmp_path, text)
        assert (found.where, found.line) == ("/job/train.py:30", line)
    engine = '  File "/opt/site-packages/vllm_ascend/ops/mla.py", line 5, in forward\n'
    assert first(tmp_path, engine + library + SHORT).where == "/opt/site-packages/vllm_ascend/ops/mla.py:5"


@pytest.mark.parametrize(("lines", "where"), [(60, "/job/train.py:30"), (61, "")])
def test_a_frame_far_ahead_is_not_the_place(tmp_path: Path, lines: int, where: str) -> None:
    between = "".join(f"noise {number}\n" for number in range(lines - 1))
    text = f"Traceback (most recent call last):\n{FRAME}{between}{SHORT}"
    assert first(tmp_path, text).where == where


@pytest.mark.parametrize(
    ("wanted", "size"),
    [
        ("512 bytes", 512),
        ("4.00 KiB", 4096),
        ("1.50 MiB", 3 << 19),
        ("2.00 GiB", 2 << 30),
        ("1.50 TiB", 3 << 39),
        ("1.00 PiB", 1 << 50),
        ("1.00 EiB", 1 << 60),
    ],
)
def test_units_are_powers_of_1024(tmp_path: Path, wanted: str, size: int) -> None:
    assert first(tmp_path, cuda(wanted, "80.00 GiB", "10.00 GiB", "1.00 GiB", "1.00 GiB")).wanted_bytes == size


PREFIXES = [
    ("(WorkerDict pid=4926, ip=10.0.0.7) ", None, "WorkerDict pid=4926"),
    ("\x1b[36m(WorkerDict pid=4926)\x1b[0m ", None, "WorkerDict pid=4926"),
    ("[36m(WorkerDict pid=4926)[0m ", None, "WorkerDict pid=4926"),
    ("(VllmWorker rank=3 pid=50935) ERROR 09-10 03:36:31 [multiproc_executor.py:527] ", 3, ""),
    ("(Worker_TP1 pid=7) ERROR 09-10 03:36:31 [core.py:2] ", None, "Worker_TP1 pid=7"),
    ("ERROR 06-09 06:57:48 [worker_base.py:581] ", None, ""),
    ("2026-01-01 10:00:00,123 - mindformers[a/b.py:12] - ERROR - ", None, ""),
    ("[2026-01-12 09:47:20] ERROR: ", None, ""),
    ("3: ", 3, ""),
    (" 12: ", 12, ""),
    ("[rank5]: ", 5, ""),
    ("[rank5]:[E107 02:38:42.269390205 compiler_depend.ts:444] ", 5, ""),
    ("[default2]:", 2, ""),
    ("[1,6]<stderr>:", 6, ""),
    ("worker_7.log:", 7, ""),
    ("2026-04-20T23:58:25.462766653Z ", None, ""),
    ("2026-04-20T23:58:25.462766653Z stderr F [rank4]: ", 4, ""),
    ("trainer-1  | [rank4]: ", 4, ""),
    ("[pod/train-0/main] [rank4]: ", 4, ""),
    ("Jan  2 10:00:00 node1 python[123]: ", None, ""),
    (" 30%|###   | 3/10 [00:01<00:02]\r[rank4]: ", 4, ""),
]


@pytest.mark.parametrize(("prefix", "rank", "process"), PREFIXES)
def test_prefixes(tmp_path: Path, prefix: str, rank: int | None, process: str) -> None:
    found = first(tmp_path, f"start\n{prefix}{FRAME}{prefix}{SHORT}\n")
    assert (found.where, found.line, found.rank, found.process) == ("/job/train.py:30", 3, rank, process)
    assert (found.cause, found.text[:20]) == ("shortage", "NPU out of memory. T")


@pytest.mark.parametrize(
    "line", ["12 steps", "loss: 3.2", "(a, b) = f(x)", "[train] step 3", "a-b | c", "step (pid 3)"]
)
def test_a_line_without_a_prefix_is_left_alone(line: str) -> None:
    assert split_prefix(line) == (None, "", line)


def test_failed_ranks(tmp_path: Path) -> None:
    other = npu("1.00 GiB", "32.00 GiB", "10.00 GiB", "0.10 GiB", "11.00 GiB", 5)
    text = "".join(
        f"[rank{rank}]: {FRAME}[rank{rank}]: {words}\n"
        for rank, words in ((0, SHORT), (5, other), (2, SHORT), (0, other))
    )
    report = read(tmp_path, f"{text}{SHORT}\nSignal 9 (SIGKILL) received by PID 4812\n")
    assert [(one.rank, one.cause, one.line) for one in report.failures] == [
        (0, "shortage", 2),
        (5, "others", 4),
        (2, "shortage", 6),
    ]
    assert report.is_ordered
    found = read(tmp_path, SHORT + "\n" + other)
    assert [one.device for one in found.failures] == [0, 5]
    words = "Failed to allocate resource[qp] with info [aicpu rank:{rank},localUserrank:9]. Reason: Memory resources are exhausted.\n"
    found = read(tmp_path, words.format(rank=9) + words.format(rank=15))
    assert [one.rank for one in found.failures] == [9, 15]
    ray = (
        "".join(f"(Worker pid={pid}) {SHORT}\n" for pid in (1, 2)) + f"ray.exceptions.RayTaskError: (pid=1)\n{SHORT}\n"
    )
    assert [one.label for one in read(tmp_path, ray).failures] == ["Worker pid=1", "Worker pid=2"]


def test_several_logs_and_folders(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for rank in range(4):
        (logs / f"worker_{rank}.log").write_text("step 1\n")
    with gzip.open(logs / "worker_7.log.gz", "wt") as file:
        file.write(f"2026-01-01 10:00:01,5 {SHORT}\n")
    (logs / "worker_3.log").write_text(f"{FRAME}2026-01-01 10:00:02,1 {SHORT}\n")
    report = read_memory_failures([logs])
    assert [one.rank for one in report.failures] == [7, 3]
    assert (report.is_ordered, report.first.path) == (True, logs / "worker_7.log.gz")
    (logs / "worker_2.log").write_text(SHORT)
    report = read_memory_failures([logs / f"worker_{rank}.log" for rank in (3, 2)])
    assert ([one.rank for one in report.failures], report.is_ordered) == ([3, 2], False)


@pytest.mark.parametrize(
    ("said", "name", "how"),
    [
        ("/root/MindSpeed-LLM/pretrain_gpt.py", "mindspeed-llm", "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
        ("mindspeed_mm/train.py", "mindspeed-mm", "--micro-batch-size 1"),
        ("run_mindformer.py --config x.yaml", "mindformers", "recompute_config.recompute: True"),
        ("llamafactory-cli train x.yaml", "llama-factory", "per_device_train_batch_size: 1"),
        ("swift sft --model x", "ms-swift", "--deepspeed zero3"),
        ("megatron sft --model x", "megatron-swift", "--micro_batch_size 1"),
        ("site-packages/transformers/trainer.py", "hf-trainer", "gradient_checkpointing=True"),
        ("deepspeed --num_gpus 8 train.py", "deepspeed", '"zero_optimization": {"stage": 3}'),
        ("python -m verl.trainer.main_ppo", "verl", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"),
        ("from hyper_parallel.trainer import X", "hyper-parallel", "activation_checkpoint.mode: full"),
        ("vllm_ascend 0.9", "vllm-ascend", "--gpu-memory-utilization 0.8"),
        ("vllm serve X --gpu-memory-utilization 0.85", "vllm", "--gpu-memory-utilization 0.75"),
        ("vllm serve X -tp 4 --max-model-len 1024", "vllm", "--tensor-parallel-size 8"),
        ("plain", "torch_npu", "torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)"),
    ],
)  # fmt: skip
def test_remedies_are_written_in_the_jobs_own_keys(tmp_path: Path, said: str, name: str, how: str) -> None:
    report = read(tmp_path, f"{said}\n{SHORT}\n")
    assert report.job == name
    assert how in hows(report)


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("  recompute_granularity ................. full\npretrain_gpt.py", "--recompute-granularity"),
        ("--use-distributed-optimizer pretrain_gpt.py", "--use-distributed-optimizer"),
        ("swift sft --deepspeed zero3", "--deepspeed zero3"),
        ("TrainingArguments(gradient_checkpointing=True)", "gradient_checkpointing"),
        ("vllm serve X", "checkpoint"),
        ("ERROR 06-09 worker_base.py:581] Error executing method", "checkpoint"),
        ("vllm serve X -tp 16 --max-model-len 1024", "--tensor-parallel-size"),
        ("vllm serve X -tp 4 --max-model-len 1024", "--max-model-len"),
        ("llamafactory-cli train x.yaml\ncutoff_len: 1024", "cutoff_len"),
        ("megatron sft --model x", "--deepspeed"),
        ("python -m verl.trainer.main_ppo", "free_cache_engine"),
        ("vllm serve X --gpu-memory-utilization 0.6", "--gpu-memory-utilization"),
        ('  File "/x/generation/utils.py", line 3, in generate', "checkpoint"),
        ("python train.py", "max_new_tokens"),
        ("HCCL_BUFFSIZE=100", "HCCL_BUFFSIZE"),
        (
            '  File "/x/site-packages/transformers/modeling_utils.py", line 4415, in _load_pretrained_model',
            "batch_size",
        ),
    ],
)
def test_nothing_is_suggested_that_is_set_or_that_the_job_cannot_use(tmp_path: Path, said: str, missing: str) -> None:
    assert not [how for how in hows(read(tmp_path, f"{said}\n{SHORT}\n")) if missing in how]


# Traceback lines of trainers, their work, and a setting of that alone.
@pytest.mark.parametrize(
    ("frames", "phase", "how"),
    [
        ("/x/site-packages/transformers/trainer.py _save_checkpoint", "saving", "save_only_model=True"),
        ("/x/site-packages/torch/nn/modules/module.py state_dict", "saving", "StateDictOptions(full_state_dict=True, cpu_offload=True)"),
        ("/x/llamafactory/train.py run, /x/transformers/trainer.py save_model", "saving", "save_only_model: true"),
        ("/job/ckpt.py restore", "loading", 'torch.load(FILE, map_location="cpu")'),
        ("/x/site-packages/torch/serialization.py _load", "loading", 'torch.load(FILE, map_location="cpu")'),
        ("/x/site-packages/torch/distributed/fsdp/f.py load_state_dict, /x/torch/m.py _pre_load_state_dict_hook", "loading", 'torch.load(FILE, map_location="cpu")'),
        ("/x/transformers/trainer.py _maybe_log_save_evaluate, /x/transformers/trainer.py evaluate", "evaluation", "per_device_eval_batch_size=1, eval_accumulation_steps=1"),
        ("/job/train.py validation_step", "evaluation", "torch.no_grad()"),
        ("/job/train.py train_step, /job/data.py load_batch, /job/model.py save_for_later_use", "", "DataLoader(dataset, batch_size=1)"),
    ],
)  # fmt: skip
def test_what_a_step_needs_is_not_suggested_for_saving_loading_and_evaluation(
    tmp_path: Path, frames: str, phase: str, how: str
) -> None:
    lines = (frame.split() for frame in frames.split(", "))
    stack = "".join(f'  File "{file}", line 7, in {name}\n' for file, name in lines)
    report = read(tmp_path, f"Traceback (most recent call last):\n{stack}{SHORT}\n")
    assert (report.phase, how in hows(report)) == (phase, True)
    assert any("checkpoint(layer" in one or "gradient_checkpointing" in one for one in hows(report)) is not bool(phase)


def test_figures_of_the_driver_complete_those_of_a_rank(tmp_path: Path) -> None:
    words = (
        "[rank7]: NPU function error: call aclnnX failed, error code is 207001\n[Error]: Failed to apply for memory.\n"
    )
    report = read(tmp_path, f"{words}Failed to allocate resource[DeviceMemory] with info [size:2147483648].\n")
    assert [(one.rank, one.line, one.wanted_bytes) for one in report.failures] == [(7, 1, 2 * GIB)]


def test_expandable_segments(tmp_path: Path) -> None:
    torn = npu("2.00 GiB", "32.00 GiB", "20.00 GiB", "1.00 GiB", "30.00 GiB")
    setting = "PYTORCH_NPU_ALLOC_CONF=expandable_segments:True"
    assert setting in hows(read(tmp_path, torn))
    report = read(tmp_path, f"+ export {setting}\n{torn}")
    assert [one.how for one in report.remedies if one.is_set] == [setting]
    assert setting not in hows(report)
    for said in ("vllm serve x --enable-sleep-mode", "python -m verl.trainer.main_ppo"):
        assert not [one for one in read(tmp_path, f"{said}\n{torn}").remedies if one.how == setting]
    # What the message itself suggests is not set.
    torn = cuda("2.00 GiB", "80.00 GiB", "70.00 GiB", "1.50 GiB", "6.00 GiB")
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in hows(read(tmp_path, torn))
    workspace = "NPUWorkspaceAllocator tried to allocate 9.00 GiB(NPU 2; 32.00 GiB total capacity; 4.00 GiB free). If you want to reduce memory usage, take a try to set the environment variable TASK_QUEUE_ENABLE=1."  # fmt: skip
    assert "TASK_QUEUE_ENABLE=1" in hows(read(tmp_path, workspace))
    assert "TASK_QUEUE_ENABLE=1" not in hows(read(tmp_path, f"TASK_QUEUE_ENABLE=1\n{workspace}"))


def test_every_remedy_has_texts_and_a_cause() -> None:
    data = load("out_of_memory")
    causes = {cause.value for cause in oom_log.Cause} | {"outside-pool"}
    for remedy in data["remedies"]:
        assert set(remedy["causes"]) <= causes
        assert set(remedy["how"]) <= {
            "*",
            "npu",
            "cuda",
            "hip",
            "mindspore",
            "torch",
            "torch_npu",
            *(job["name"] for job in data["jobs"]),
        }
    assert {form.cause for form in load_forms()} - {""} <= causes


_KEY = re.compile(r'--([\w-]+)|([A-Za-z_][\w.]*)(?:: |=)|"(\w+)":')


def test_remedies_name_keys_that_the_frameworks_have() -> None:
    """``keys`` has those that were looked up in the sources of a framework; MindFormers and Megatron have tables."""
    data = load("out_of_memory")
    paths = {".".join(key.path) for key in keys.tables(Dialect.MINDFORMERS)}
    arguments = frozenset[str]().union(*map(megatron.names, load("megatron")["releases"]))
    named: dict[str, set[str]] = {}
    for remedy in data["remedies"]:
        for job, how in remedy["how"].items():
            found = {next(filter(None, names)) for names in _KEY.findall(how)}
            named.setdefault(job.removesuffix("-ascend"), set()).update(found)
    assert {name for name in named["mindformers"] - paths if name.rpartition(".")[0] not in paths} == set()
    assert {f"--{name}" for job in ("mindspeed-llm", "mindspeed-mm") for name in named[job]} <= arguments
    assert {job: sorted(named[job]) for job in data["keys"]} == {job: one["names"] for job, one in data["keys"].items()}
    place = importlib.util.find_spec("transformers")
    if place is not None and place.origin is not None:
        files = [Path(place.origin).with_name(name) for name in ("training_args.py", "modeling_utils.py")]
        words = set(re.findall(r"\w+", "".join(file.read_text("utf-8") for file in files)))
        assert set(data["keys"]["hf-trainer"]["names"]) <= words


# Strings that are warnings, estimates, or about objects of Python.
_OTHER = re.compile(r"It may lead to|can be ignored|page_size:1g|Deallocating|INTERNAL ASSERT|PARDISO|MemoryTracker|::")
_LOOKS = re.compile(
    r"(?i)\w*alloc\w*\b.*(?:fail|not enough|n't enough)|(?:fail\w* to|cannot|can't|unable to) (?:\w+ ){0,3}m?alloc|not enough \w*memory"
    r"|mem\w* (?:is |are )?(?:not|n't) enough|out of memory|insufficient \w*memory|tried to allocate"
)


def iterate_strings(folder: Path) -> Iterator[str]:
    for library in sorted(
        (*folder.rglob("libmindspore_*.so*"), *folder.rglob("libc10*.so"), *folder.rglob("libtorch_npu.so"))
    ):
        if "gpu" in library.name:
            continue  # the same sources as the others, and 80 MB
        for found in re.finditer(rb"[\x20-\x7e]{8,400}", library.read_bytes()):
            text = found[0].decode()
            if " " in text.strip() and not text.startswith("_Z") and _LOOKS.search(text) and not _OTHER.search(text):
                yield text


@pytest.mark.slow
@pytest.mark.parametrize("package", ["mindspore", "torch", "torch_npu"])
def test_no_string_of_the_libraries_is_silent(tmp_path: Path, package: str) -> None:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    strings = sorted(set(iterate_strings(Path(spec.origin).parent)))
    assert len(strings) > (3 if package == "torch" else 20)
    silent = []
    for text in strings:
        for words in (text, f"{text}1073741824"):
            try:
                read(tmp_path, f"step 1\n{words}\n")
            except TraceError:
                silent.append(words)
    assert silent == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("all is well\n", "metrics"),
        ("iteration 207001/ 290000 | max_memory_allocated(GB): 60.1 | lm loss: 2.5 |\n", "metrics"),
        ("", "killed"),
        ('Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nValueError: no\n', "ValueError: no"),
        ("halMemAlloc done: size=12\n", "metrics"),
        ("To avoid running out of memory, lower it\n", "metrics"),
        ("MemoryTracker AddMemInfo failed, task_name: alloc failed\n", "metrics"),
    ],
)
def test_nothing_failed(tmp_path: Path, text: str, hint: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, text)
    said = [caught.value.message, caught.value.hint]
    assert hint in " ".join(render(one, Language.EN) for one in said if one is not None)


def test_a_log_of_one_object_a_line(tmp_path: Path) -> None:
    text = json.dumps({"log": f"Traceback (most recent call last):\n{FRAME}{LIBRARIES[0]}{SHORT}", "stream": "stderr"})
    found = first(tmp_path, f'{{"log": "start"}}\n{text}\n')
    assert (found.where, found.line, found.cause) == ("/job/train.py:30", 2, "shortage")


def test_a_packed_log_that_is_cut_or_damaged_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run.log.gz"
    whole = gzip.compress(SHORT.encode() * 100)
    for data in (whole[:20], whole[:15] + bytes(9) + whole[24:]):
        path.write_bytes(data)
        with pytest.raises(TraceError):
            read_memory_failures([path])
    path.write_bytes(whole)
    assert read_memory_failures([path]).first.short_bytes == 3 * GIB // 4


@pytest.mark.slow
def test_a_line_of_a_megabyte_takes_no_time(tmp_path: Path) -> None:
    began = time.process_time()
    assert first(tmp_path, "rtMalloc fail alloc " * 50_000 + SHORT).short_bytes == 3 * GIB // 4
    assert time.process_time() - began < 5


@pytest.mark.slow
def test_the_same_without_polars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ("x" * 99 + "\n") * 20000 + FRAME + SHORT + "\n"
    expected = read(tmp_path, text)
    monkeypatch.setattr(oom_log, "load_polars", lambda: None)
    assert read(tmp_path, text) == expected
    assert expected.first.line == 20002
