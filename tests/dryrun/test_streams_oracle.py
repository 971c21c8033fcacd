"""Compare the peaks of random programs on one to three streams with those that MindSpore itself prints at their end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ms_tune.dryrun.cann_sim.environment import find_mindspore, prepare_cann
from ms_tune.dryrun.environment import simulation_environment
from ms_tune.memory.what_if import WhatIfRequest, replay_run
from tests.dryrun.machine import needs_mindspore

pytestmark = [pytest.mark.mindspore, needs_mindspore]
CASES = int(os.environ.get("MS_TUNE_ORACLE_CASES", "12"))
SEED = int(os.environ.get("MS_TUNE_ORACLE_SEED", "100"))
WORLD = 8
PROGRAM = Path(__file__).with_name("streams_program.py")  # imports MindSpore


@pytest.mark.parametrize("blocking", [True, pytest.param(False, marks=pytest.mark.more)])
def test_memory_and_what_if_agree_with_what_random_programs_used(tmp_path: Path, *, blocking: bool) -> None:
    """Without blocking the Python stacks are those of MindSpore's own threads, as on a device."""
    environment = simulation_environment(os.environ, prepare_cann(find_mindspore(), lambda _: None), 0, WORLD)
    if not blocking:
        del environment["MS_DEV_LAUNCH_BLOCKING"]
    seeds = [str(seed) for seed in range(SEED, SEED + CASES)]
    subprocess.run([sys.executable, str(PROGRAM), *seeds], cwd=tmp_path, env=environment, check=True)
    derived = 0
    for seed in seeds:
        said = json.loads((tmp_path / seed / "said.json").read_text("utf-8"))
        report = replay_run(tmp_path / seed, WhatIfRequest(), lambda *_: None)
        recorded, inferred = report.result.recorded_outcome, report.result.inferred
        assert (seed, inferred.mismatches.total, recorded.used_bytes) == (seed, 0, said["used"])
        if not inferred.undecided:  # else the trace does not show the units of set_memory
            assert (seed, recorded.reserved_bytes) == (seed, said["reserved"])
        derived += report.unreleased
    assert derived
