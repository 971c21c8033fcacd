"""Provide a run without MindSpore: a small script instead of the training process."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.dryrun import local_engine, run
from ms_tune.dryrun.cann_sim.environment import Backend, Cann, MindSpore

if TYPE_CHECKING:
    import pytest


DATA = Path(__file__).parents[1] / "data" / "memory_tracker"
STATISTICS = """\
Device MOC memory size: 65536M
MindSpore Used memory size: 61430M
Used peak memory usage (without fragments): {peak}M
Actual peak memory usage (with fragments): {actual}M
"""
HEADER = (
    "start_time_stamp,end_time_stamp,device_addr,stream_id,pool_type,size,actual_used_memory,actual_peak_memory,"
    "file_name,line_num,type,producer_task,task_name,node_name,graph_name,user_tasks,last_user_task,python_stack,"
    "is_persistent,is_small,\n"
)
PYTHON = sys.executable  # the real interpreter; tests replace it by another program
NEVER = 2**63 - 1
GIB = 1024**3


def row(start: int, size: int, used: int, footprint: int, end: int = NEVER) -> str:
    """Return a line of ``memory_block.csv``."""
    stack = "File:/home/me/train.py;Line:7;Function:train|"
    return (
        f"{start},{end},{hex(0x10000000 + start * 2**36)},0,DefaultEnhancedAscendMemoryPool,{size},{used},{footprint},"
        f"mindspore/a.cc,1,PyNativeOutput,{start},PyNative,Zeros,,{{}},,{stack},0,0,\n"
    )


def trace(peak: int = GIB, footprint: int = 2 * GIB) -> str:
    """Return a trace of two blocks that are alive at the same time."""
    return HEADER + row(2, peak - 512, peak - 512, footprint) + row(4, 512, peak, footprint)


def statistics(peak: int = GIB, footprint: int = 2 * GIB) -> str:
    """Return the statistics that MindSpore prints at the end of such a run."""
    return STATISTICS.format(peak=peak // 2**20, actual=footprint // 2**20)


def install(patch: pytest.MonkeyPatch, folder: Path, code: str, *, mindformers: bool = False) -> None:
    """Let dryrun run this Python code instead of the training process, in the run's folder.

    The command is unchanged: ``sys.argv`` is that of the real child.
    """
    script = folder / "child.py"
    script.write_text(code, encoding="utf-8")
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.join([PYTHON, str(script)])} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    patch.setattr(sys, "executable", str(python))
    # The script imports nothing: each process starts separately.
    patch.setattr(local_engine, "shared_imports", lambda _: None)
    patch.setattr(run, "find_mindspore", lambda: MindSpore("2.9.0", folder))
    patch.setattr(run, "prepare_cann", lambda *_: Cann(Backend.STAND_IN, folder / "cann"))
    # The invented traces contain no weights, which theory would report as missing.
    patch.setattr(run, "unlike_theory", lambda *_: ())
    if mindformers:
        patch.setattr(run, "need", lambda *_: None)
        patch.setattr(run, "installed_version", lambda _: "1.9.0")


def good_child(peak: int = GIB, footprint: int = 2 * GIB) -> str:
    """Return the code of a child that ends successfully."""
    return (
        "from pathlib import Path\n"
        f"Path('memory_block.csv').write_text({trace(peak, footprint)!r})\n"
        f"print({statistics(peak, footprint)!r})\n"
    )


def layered_child(base: int = GIB, layer: int = GIB // 8, last: int = 0) -> str:
    """Return the code of a child whose peak grows with its layers; that of rank 24 also by a head."""
    return (
        "import json, os, re\nfrom pathlib import Path\n"
        "job = json.loads(Path('job.json').read_text())\n"
        "text = Path('config.yaml').read_text() if Path('config.yaml').exists() else ''\n"
        "found = re.search(r'num_hidden_layers: (\\d+)', text)\n"
        # the other three stages of MINDFORMERS keep one layer each
        "layers = int(found[1]) - 3 if found else sum(len(chunk['layers']) for chunk in job['stage']['chunks'])\n"
        f"peak = {base} + {layer} * layers + ({last} if os.environ['RANK_ID'] == '24' else 0)\n"
        f"header, first = {HEADER!r}, {row(2, 111111, 111111, 222222)!r}\n"
        "first = first.replace('111111', str(peak)).replace('222222', str(peak))\n"
        "Path('memory_block.csv').write_text(header + first)\n"
        f"print({STATISTICS!r}.format(peak=peak // 2**20, actual=(peak) // 2**20))\n"
    )
