"""Compare replays with MindSpore's own pool, which ``ms.runtime.memory_replay`` drives with a trace in simulation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from ms_tune.dryrun.cann_sim.environment import find_mindspore, prepare_cann
from ms_tune.dryrun.environment import simulation_environment
from ms_tune.pools.mindspore_pool import MindSporeSettings, size_in_bytes
from ms_tune.pools.pool import replay_workload
from ms_tune.pools.settings import make_pool
from ms_tune.pools.workload import split_by_pool
from ms_tune.readers.tracker_tables import read_block_table
from ms_tune.units import GIB
from tests.dryrun.machine import needs_mindspore
from tests.readers.samples import LARGEST_RUN, folder

pytestmark = [pytest.mark.mindspore, needs_mindspore]
PROGRAM = Path(__file__).with_name("replay_program.py")  # imports MindSpore
# init_size and increase_size in GiB; None where set_memory is not called
SIZES: list[tuple[float, float] | None] = [
    None,
    (2, 2),
    (4, 1),
    (2, 8),
    (2, 1.5),
    (0.5, 0.25),
    (16, 3),
    (2, 0.3),
    (0.7, 0.1),
]
RUNS = ("mindformers_qwen3_tiny_dp2tp2pp2/rank_4", "two_streams/rank_0")
MORE = ("gpt", "nn_cnn_pynative", LARGEST_RUN)
Job = tuple[str, dict[str, str] | None, str]


def drive_pool(place: Path, jobs: list[Job]) -> tuple[list[list[int]], str]:
    """Return the bytes used and reserved by MindSpore's pool in every job, and what MindSpore says."""
    (place / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    environment = simulation_environment(os.environ, prepare_cann(find_mindspore(), lambda _: None), 0, 1)
    command = [sys.executable, str(PROGRAM), "jobs.json"]
    output = subprocess.check_output(command, cwd=place, env=environment, text=True, stderr=subprocess.STDOUT)
    said = [line.split()[1:] for line in output.splitlines() if line.startswith("peaks")]
    return [[int(number) for number in numbers] for numbers in said], output


@cache
def mended(run: str, place: Path) -> Path:
    """Write a trace in which every block ends as ms-tune reads it."""
    source = folder(run) / "memory_block.csv"
    head, *rows = [line.split(",") for line in source.read_text("utf-8").splitlines()]
    for row, end in zip(rows, read_block_table(source).end.tolist(), strict=True):
        row[head.index("end_time_stamp")] = str(end)
    path = place / f"{run.partition('/')[0]}.csv"
    path.write_text("\n".join(",".join(row) for row in [head, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("run", [*RUNS, *(pytest.param(run, marks=pytest.mark.more) for run in MORE)])
def test_replays_reserve_what_mindspores_own_pool_reserves(run: str, tmp_path: Path) -> None:
    path = mended(run, tmp_path)
    jobs: list[Job] = []
    expected = []
    ((work, _rows),) = split_by_pool(read_block_table(path)).values()
    for sizes in SIZES:
        for small in (False, True):
            init, increase = (None, None) if sizes is None else map(size_in_bytes, sizes)
            settings = MindSporeSettings(init=init, increase=increase, small_pool=small)
            result = replay_workload(work, make_pool(settings, older=False))
            expected.append([result.used_peak, result.reserved_peak])
            named = None if sizes is None else {"init_size": f"{sizes[0]}GB", "increase_size": f"{sizes[1]}GB"}
            jobs.append((str(path), named, "enable_small_pool:True" if small else ""))
    assert drive_pool(tmp_path, jobs)[0] == expected


def test_a_trace_with_derived_releases_is_what_mindspores_own_pool_did(tmp_path: Path) -> None:
    """As recorded, MindSpore cannot replay it: its pool then needs twice what the run used."""
    runs = [str(folder("two_streams/rank_0") / "memory_block.csv"), str(mended("two_streams/rank_0", tmp_path))]
    peaks, said = drive_pool(tmp_path, [(run, None, "") for run in runs])
    assert peaks == [[868_249_088, 2 * GIB], [427_836_928, 2 * GIB]]  # the latter is what the program printed
    differing = "is not equal to cur peak"  # MindSpore compares the footprint of every row
    as_recorded, derived = said.split("peaks")[:2]
    assert differing in as_recorded
    assert differing not in derived
