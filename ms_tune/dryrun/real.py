"""``--real``: the same job on the devices of this machine, without simulation, with the tracker on.

MindSpore's dynamic cluster brings the ranks together (``MS_ROLE``, ``MS_SCHED_*``: tutorial "Dynamic Cluster Startup",
MindSpore 2.9): one scheduler, and a worker for each rank. Each worker sees one device only, so that what runs in it may
call that device 0. This was never run on a device; tests check environment and commands with another program in the
place of the training process.
"""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ms_tune.errors import UnsupportedError
from ms_tune.text import msg

if TYPE_CHECKING:
    from ms_tune.dryrun.task import Task

SCHEDULER = "scheduler"  # its folder in the run folder
_HOST = "127.0.0.1"
_DEVICE = re.compile(r"davinci\d+")


def devices_here(folder: Path = Path("/dev")) -> int:
    """NPUs of this machine: the driver makes ``/dev/davinci0``, ``/dev/davinci1``, ..."""
    return sum(_DEVICE.fullmatch(path.name) is not None for path in folder.iterdir())


def check_devices(world_size: int, present: int) -> None:
    """Raise :class:`UnsupportedError` unless the job fits on this machine."""
    if present < world_size:
        raise UnsupportedError(
            msg("stages.real.devices", size=world_size, present=present), msg("stages.real.devices.hint")
        )


def cluster(tasks: list[Task]) -> list[Task]:
    """The tasks as the workers of one cluster, and its scheduler; a task alone needs none.

    Args:
        tasks: One for each rank of the job, by rank.
    """
    if len(tasks) == 1:
        return [_on_device(tasks[0], 0, {})]
    common = {
        "MS_WORKER_NUM": str(len(tasks)),
        "MS_SCHED_HOST": _HOST,
        "MS_SCHED_PORT": str(_free_port()),
    }
    workers = [
        _on_device(task, number, {**common, "MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(number)})
        for number, task in enumerate(tasks)
    ]
    scheduler = replace(workers[0], folder=SCHEDULER, environment={**common, "MS_ROLE": "MS_SCHED"})
    return [scheduler, *workers]


def _on_device(task: Task, number: int, extra: dict[str, str]) -> Task:
    environment = {"ASCEND_RT_VISIBLE_DEVICES": str(number), "DEVICE_ID": "0", **extra}
    return replace(task, real=True, environment=environment)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
    return port
