"""Start a training of PyTorch or torch_npu whose device memory is reported, recorded or planned (``memory run``).

The command replaces this process, so that signals and the exit code are its own. Its script stays as it is: a folder with a
``sitecustomize`` comes first in ``PYTHONPATH``, and one more variable has the settings.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ms_tune.errors import TraceError, UsageError
from ms_tune.native import compiled_library
from ms_tune.readers.lines import read_json
from ms_tune.text import msg
from ms_tune.units import MIB

_FOLDER = Path(__file__).parent / "follow"
_MOST_BYTES = 1024 * MIB
_FLAGS = (
    *("-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread"),
    *("-Wl,--no-as-needed", "-lstdc++", "-ldl"),  # the runtime of PyTorch, which catches the allocator's errors
)


class TrainRequest(NamedTuple):
    """A training, and whether its memory is recorded, planned, or only reported."""

    command: Sequence[str]
    record: Path | None = None  # folder for the snapshots
    plan: Path | None = None  # file of ``memory plan --plan``, or a folder with `rank_N.json`
    steps: int = 3  # recorded iterations
    every: int = 1  # iterations between two lines


def training_environment(request: TrainRequest, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the training; compile the allocator if a plan is to be applied."""
    settings: dict[str, object] = {"mode": "report", "every": request.every}
    if request.record is not None:
        request.record.mkdir(parents=True, exist_ok=True)
        settings = {"mode": "record", "folder": str(request.record.resolve()), "steps": request.steps}
    elif request.plan is not None:
        for path in sorted(request.plan.glob("rank_*.json")) if request.plan.is_dir() else [request.plan]:
            _check_plan(path)
        library = compiled_library("memory.follow", "allocator.cpp", _FLAGS, own_runtime=False)
        settings |= {"mode": "plan", "plan": str(request.plan.resolve()), "library": str(library)}
    paths = [str(_FOLDER / "startup"), *([environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else [])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths), "MS_TUNE_MEMORY_RUN": json.dumps(settings)}


def start_training(request: TrainRequest) -> None:
    """Replace this process by the training."""
    environment = training_environment(request, os.environ)
    try:
        os.execvpe(request.command[0], list(request.command), environment)  # noqa: S606 - the user's own command
    except OSError as error:
        raise UsageError(
            msg("train.not-started", command=request.command[0], detail=os.strerror(error.errno or 0))
        ) from error


def _check_plan(path: Path) -> None:
    content = read_json(path, _MOST_BYTES, msg("train.plan-too-large"), "train.not-a-plan")
    found = content.get("allocator") if isinstance(content, dict) else None
    if not isinstance(found, dict):
        raise TraceError(msg("train.not-a-plan", detail=""), msg("train.not-a-plan.hint"), path=path)
    if found.get("older_blocks"):
        raise TraceError(msg("train.older", count=found["older_blocks"]), msg("train.not-a-plan.hint"), path=path)
