"""Provide real files to damage: those of ms-tune's own simulated runs in the test data."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.memory.test_oom import CUDA, ENOUGH, NPU, STATISTICS, TRACEBACK
from tests.metrics.profiles import host_bound, pipeline
from tests.readers.samples import SMALL_RUNS, folder, log_of
from tests.readers.test_trainers import TRAINERS
from tests.readers.test_trainers import log_of as trainer_log
from tests.readers.training_logs import dynamic_line, megatron_log, static_line

if TYPE_CHECKING:
    from random import Random

Files = dict[str, bytes]

_RUNS = (*SMALL_RUNS, "asc_dp8/rank_3", "gpt")
_NAMES = ("memory_block.csv", "task.csv", "tracker_graph.ir")
_ORDERS = ("execute_order.csv", "comm_execute_order.csv")
# hyper-parallel's emulator of the tracker: quoted, and no comma at the end of a line.
_EMULATED = (
    b"start_time_stamp,end_time_stamp,device_addr,stream_id,pool_type,size,actual_used_memory,actual_peak_memory,file_name,"
    b"line_num,type,producer_task,task_name,node_name,graph_name,user_tasks,last_user_task,python_stack,is_persistent,is_small\n"
    b"0,9,0x1000,0,FakeTensorLogicalMemoryPool,512,512,512,a.py,3,Parameter,0,forward,linear,,{0-5},5,"
    b'"File:/a,b.py;Line:3;Function:f",1,0\n'
    b"1,4,0x2000,0,FakeTensorLogicalMemoryPool,512,1024,1024,a.py,3,Activation,1,forward,x,,{1},1,"
    b'"File:/a ""b"".py;Line:4;Function:<module>",0,0\n'
)
_LISTED = ("weights", "optimizer_state", "gradients")


@cache
def runs() -> tuple[Mapping[str, bytes], ...]:
    """Return the files of every available run."""
    return (*map(_files, _RUNS), {"memory_block.csv": _EMULATED}, *_training_logs(), *_failed_logs(), *_profiles())


def _training_logs() -> list[Files]:
    """Return a log of each form, and one of several runs and ranks."""
    static = "".join(static_line(step, 900 + step) for step in range(1, 40))
    dynamic = "".join(f"[rank{rank}]: {dynamic_line(step, 500)}" for step in range(1, 30) for rank in range(3))
    megatron = megatron_log([9000, *range(1000, 1060)], tflops=100.0)
    reported = "[Rank 0] (after 1 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: 3.0 | max reserved: 4.0\n"
    baseline = json.dumps({"time info": [9000.5, 1000.1, 1000.2], "lm loss": [3, 2, 1], "throughput": [1.0, 9.0, 9.0]})
    texts = [static, dynamic, megatron + reported + "saving checkpoint at iteration 60\n" + megatron, baseline]
    texts += [trainer_log(trainer, 20) for trainer in TRAINERS]
    texts += [
        f"{text}OVERFLOW! Rank 0 Skipping step.\nSaving model checkpoint to x\n{text}"
        for text in texts[-len(TRAINERS) :]
    ]
    return [{"train.log": text.encode()} for text in texts]


def _failed_logs() -> list[Files]:
    """Return logs of runs that ran out of memory: of one rank, of several, and with words of several frameworks."""
    torch = TRACEBACK + NPU.format(used="58.1")
    ranks = "".join(f"[rank{rank}]: {line}\n" for rank in (0, 3) for line in torch.splitlines())
    ray = "".join(f"(WorkerDict pid=7, ip=10.0.0.1) {line}\r\n" for line in (TRACEBACK + CUDA).splitlines())
    texts = (
        torch,
        ranks,
        ray,
        STATISTICS.format(peak=5) + ENOUGH + "halMemAlloc failed: size=5\nexitcode  : -9 (pid: 1)\n",
    )
    return [{"oom.log": text.encode()} for text in texts]


def _profiles() -> list[Files]:
    """Return small exports of a rank's profile."""
    found: list[Files] = []
    for make in (host_bound, pipeline):
        with tempfile.TemporaryDirectory() as place:
            output = make().write(Path(place))
            found.append({file.name: file.read_bytes() for file in output.iterdir()})
    return found


def _files(run: str) -> Files:
    place = folder(run)
    places = {name: place / name for name in _NAMES} | {name: place / "execute_order" / name for name in _ORDERS}
    found = {name: path.read_bytes() for name, path in places.items() if path.is_file()}
    log = log_of(run)
    return found | ({"log": log.read_bytes()} if log else {})


def seed(wanted: tuple[str, ...], chance: Random) -> Files:
    """Return excerpts of the files of one run: usually small, so that many can be tried, sometimes complete."""
    having = [files for files in runs() if any(name in files for name in wanted)]
    if "tensors.json" in wanted:
        having = having or list(runs())
    files = chance.choice(having or list(runs()))
    lines = chance.choice((3, 10, 30, 30, 100, 10_000))
    found = {name: _excerpt(data, lines, chance) for name, data in files.items() if name in wanted}
    if "tensors.json" in wanted and (len(wanted) == 1 or chance.random() < 0.5):
        found["tensors.json"] = _tensors(found.get("memory_block.csv", files.get("memory_block.csv", b"")), chance)
    return found


def _excerpt(data: bytes, lines: int, chance: Random) -> bytes:
    """Return the first line, and some lines from a random position on."""
    found = data.splitlines(keepends=True)
    if len(found) <= lines + 1:
        return data
    at = chance.choice((1, chance.randrange(1, len(found) - lines)))
    return found[0] + b"".join(found[at : at + lines])


def _tensors(blocks: bytes, chance: Random) -> bytes:
    cells = [line.split(b",") for line in blocks.splitlines()[1:]]
    rows = [line for line in cells if len(line) > 6 and line[2].startswith(b"0x") and line[5].isdigit()]
    listed = chance.sample(rows, min(len(rows), 9))
    tensors = []
    for place, row in enumerate(listed):
        try:
            tensors.append({"name": f"layers.{place}.weight", "address": int(row[2], 16), "bytes": int(row[5])})
        except ValueError:  # damaged already
            continue
    content: dict[str, object] = {group: tensors[place::3] for place, group in enumerate(_LISTED)}
    return json.dumps({"version": 1, **content}).encode()
