"""What a launcher was told, in words and as JSON: for runs and for what is only looked at, which needs no NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ms_tune.text import Message, msg

if TYPE_CHECKING:
    from ms_tune.dryrun.launchers.job import LaunchedJob


def job_params(job: LaunchedJob) -> dict[str, object]:
    """What a launcher was told, as parameters of a text."""
    split = msg("launch.no-split") if job.split is None else Message("launch.split", split_json(job))
    told = {"number": job.number, "launcher": job.launcher, "program": job.program, "world": job.world}
    return {**told, "split": split}


def split_json(job: LaunchedJob) -> dict[str, object]:
    """Over how many ranks each dimension is split; the data dimension is what the others leave."""
    if job.split is None or job.world is None:
        return {}
    split = job.split
    rest = job.world // (split.tensor * split.pipeline * split.context)
    return {
        "data": rest,
        "tensor": split.tensor,
        "pipeline": split.pipeline,
        "context": split.context,
        "expert": split.expert,
    }
