"""What a job's stages may take of their device, as far as that is known before anything runs."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.verdict.limit import device_of, limit_of
from ms_tune.verdict.outcome import Outside, reserve_of

if TYPE_CHECKING:
    from ms_tune.dryrun.request import DryrunRequest, PreparedRun, RunRequest, Split
    from ms_tune.verdict.limit import Limit


def outside_of(request: RunRequest) -> Outside:
    """What no trace of a simulated run shows."""
    size = os.environ.get("HCCL_BUFFSIZE", "")
    return Outside(
        simulated=not request.real,
        workspaces_traced=request.level > 1,
        buffer_mib=int(size) if size.isascii() and size.isdigit() and int(size) else None,
        reserve_bytes=request.reserve_bytes,
    )


def limit_before(request: DryrunRequest, run: PreparedRun) -> tuple[Limit, int]:
    """What a stage may take, and the bytes that are set aside of it; the communicators follow from the job's split.

    Raises:
        UsageError: The device does not have as much as the config asks for.
    """
    limit = limit_of(device_of(request.chip, request.device_bytes), run.max_device_memory, run.limited_by)
    return limit, _reserved(request, limit, run.split if run.world_size > 1 else None)


def limit_of_script(request: DryrunRequest, split: Split) -> tuple[Limit, int]:
    """The same for a program whose arguments name no limit.

    Raises:
        UsageError: There is no such device.
    """
    limit = limit_of(device_of(request.chip, request.device_bytes))
    return limit, _reserved(request, limit, split if split.communicators > 1 else None)


def _reserved(request: DryrunRequest, limit: Limit, split: Split | None) -> int:
    outside = outside_of(request)
    if split is not None:
        outside = replace(outside, communicators=split.communicators, counted=False)
    return sum(item.bytes for item in reserve_of(outside, limit))
