"""Which engine runs a job's processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.dryrun import machine
from ms_tune.dryrun.engines.local import LocalEngine
from ms_tune.text import msg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ms_tune.dryrun.cann_sim.environment import Cann
    from ms_tune.dryrun.task import Observer, Task, TaskEngine

_RAY = "ray"


def connect_engine(engine: str, observer: Observer) -> None:
    """Reach what an engine needs before the long work begins.

    Raises:
        MissingExtraError: Ray is not installed.
        RunError: The cluster cannot be reached.
    """
    if engine == _RAY:
        from ms_tune.dryrun.engines import ray  # noqa: PLC0415 - seldom needed

        observer.say(msg("stages.ray.connecting"))
        ray.connect_ray()


def engine_for(engine: str, tasks: Sequence[Task], cann: Cann, jobs: int | None) -> TaskEngine:
    """The engine.

    Args:
        engine: One of :data:`ms_tune.dryrun.request.ENGINES`.
        tasks: What it will run.
        cann: This machine's CANN, real or stand-in.
        jobs: Processes at once; None for what there is room for.
    """
    if engine == _RAY:
        from ms_tune.dryrun.engines.ray import RayEngine  # noqa: PLC0415 - seldom needed

        return RayEngine(jobs)
    return LocalEngine(cann, machine.processes_at_once([task.host_bytes for task in tasks], jobs))
