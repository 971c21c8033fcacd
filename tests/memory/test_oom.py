"""Test logs of runs that ran out of memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.cli.main import main

if TYPE_CHECKING:
    import pytest

TRACEBACK = """Traceback (most recent call last):
  File "/workspace/train.py", line 31, in <module>
    step()
  File "/opt/lib/python3.11/site-packages/torch/nn/functional.py", line 9, in linear
"""
NPU = """RuntimeError: NPU out of memory. Tried to allocate 20.00 MiB (NPU 0; 60.97 GiB total capacity; {used} GiB already allocated; \
58.83 GiB current active; 1.20 MiB free; 59.05 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting \
max_split_size_mb to avoid fragmentation."""
CUDA = """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.15 GiB of which \
1.94 GiB is free. Process 7 has 77.20 GiB memory in use. Of the allocated memory 75.00 GiB is allocated by PyTorch, and 1.50 GiB \
is reserved by PyTorch but unallocated."""
STATISTICS = """#umsg#Framework Error Message:#umsg#Out of Memory!!! Request memory size: 1073742336B, Memory Statistic:
Device MOC memory size: 62420M
MindSpore Used memory size: 59392M
MindSpore memory base address: 0
Used peak memory usage (without fragments): {peak}M
Actual peak memory usage (with fragments): 59000M
"""
ENOUGH = """Device(id:0) memory isn't enough and alloc failed, kernel name: 0_Default/net-Net/MatMul-op0, alloc size: 1073742336B.
"""


def log(folder: Path, text: str) -> Path:
    path = folder / "run.log"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path, TRACEBACK + NPU.format(used="50.00"))
    assert main(["memory", str(path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["cause"], found["where"]) == ("fragmentation", "/workspace/train.py:31")
    assert {remedy["bytes_freed"] for remedy in found["remedies"]} == {None}
    assert [one["cause"] for one in found["failures"]] == ["fragmentation"]
    for language, words in (("en", "cause: fragmentation"), ("zh", "原因：碎片")):
        assert main(["--lang", language, "memory", str(path)]) == 1
        shown = capsys.readouterr().out
        assert words in shown
        assert "expandable_segments:True" in shown
    assert main(["memory", str(log(tmp_path, "all is well\n"))]) == 2
    assert "does not report a failed allocation" in capsys.readouterr().err


def test_ranks_and_several_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"[rank0]: {NPU.format(used='58.90')}\n[rank3]: {NPU.format(used='10.00').replace('59.05', '11.00')}\n"
    path = log(tmp_path, text)
    assert main(["memory", str(path)]) == 1
    shown = capsys.readouterr().out
    assert "2 ranks or processes failed; the first was 0" in shown
    assert re.search(r"3 +other users +20\.0 MiB +10\.00 GiB +49\.97 GiB", shown)
    other = tmp_path / "worker_9.log"
    other.write_text(ENOUGH)
    assert main(["memory", str(path), str(other), "-q"]) == 1
    assert capsys.readouterr().out.count("\n") == 1
    assert main(["memory", str(tmp_path), "--json"]) == 1
    assert [one["rank"] for one in json.loads(capsys.readouterr().out)["failures"]] == [9]
    trace = tmp_path / "memory_block.csv"
    trace.write_text("x")
    assert main(["memory", str(path), str(trace)]) == 2
    assert "must all be logs" in capsys.readouterr().err
