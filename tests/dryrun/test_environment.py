"""Test the environment of the simulated process."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_tune.dryrun.cann_sim.environment import Backend, Cann
from ms_tune.dryrun.environment import simulation_environment

CANN = Cann(Backend.STAND_IN, Path("cann"))


def test_it_simulates_one_rank_and_tracks_memory() -> None:
    made = simulation_environment({}, CANN, rank=5, world_size=16)
    wanted = {
        "MS_SIMULATION_LEVEL": "1",
        "MS_ALLOC_CONF": "memory_tracker:True",
        "MS_MEMORY_STATISTIC": "1",
        "RANK_ID": "5",
        "RANK_SIZE": "16",
        "DEVICE_ID": "0",
    }
    assert {name: made.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    "name",
    [
        "MS_ROLE",
        "MS_SCHED_HOST",
        "MS_SCHED_PORT",
        "MS_WORKER_NUM",
        "MS_NODE_ID",
        "MS_CLUSTER_SIZE",
        "RANK_TABLE_FILE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
    ],
)
def test_what_a_real_launch_left_behind_is_dropped(name: str) -> None:
    assert name not in simulation_environment({name: "1"}, CANN, 0, 1)


def test_a_log_level_of_single_modules_does_not_hide_the_statistics() -> None:
    # MindSpore 2.9: with MS_SUBMODULE_LOG_v={DEVICE:4,RUNTIME_FRAMEWORK:4,ASCEND:4} it prints none at exit.
    made = simulation_environment({"MS_SUBMODULE_LOG_v": "{DEVICE:4}"}, CANN, 0, 1)
    assert "MS_SUBMODULE_LOG_v" not in made


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MS_SIMULATION_LEVEL", "3"),
        ("MS_ALLOC_CONF", "enable_vmm:True"),
        ("RANK_ID", "7"),
        ("RANK_SIZE", "1024"),
        ("DEVICE_ID", "3"),
        ("GLOG_v", "4"),
        ("MS_DEV_LAUNCH_BLOCKING", "0"),
    ],
)
def test_ours_win_over_the_users(name: str, value: str) -> None:
    made = simulation_environment({name: value}, CANN, 0, 1)
    assert made[name] == simulation_environment({}, CANN, 0, 1)[name] != value
