"""The devices of a job, as far as they are known before anything runs: how many there are, and what a stage may take of one."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from ms_tune.dialects.job_split import named_shards
from ms_tune.enums import Dialect
from ms_tune.records import Record
from ms_tune.text import Message, msg
from ms_tune.units import MIB
from ms_tune.verdict.limit import device_of, limit_of
from ms_tune.verdict.outcome import UntracedNeeds, reserve_of

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.dryrun.request import CommandRequest, DryrunRequest, PreparedRun, Split
    from ms_tune.source.yaml import SourceFile
    from ms_tune.verdict.limit import Limit

# A comment line of its own above the first key: what a config whose keys do not tell is trained on.
_COMMENT = re.compile(r"^#[ \t]*devices:[ \t]*(\d{1,7})[ \t\r]*$", re.MULTILINE)
_HEAD = 4096  # characters in which it is looked for
_MOST_SCRIPTS, _MOST_BYTES = 64, MIB
_PER_NODE, _NODES = "per-node", "nodes"
_VALUE = r"[ \t]*[= \t][ \t]*[\"']?(?P<value>\d{1,7})\b"
# What msrun, torchrun and MindFormers' scripts/msrun_launcher.sh are told the size of a job by; literals only.
_SIZES = (
    ("whole", re.compile(rf"(?:--worker_num|\bWORLD_SIZE|\bRANK_SIZE|\bWORKER_NUM){_VALUE}")),
    ("whole", re.compile(r"msrun_launcher\.sh[ \t]+(?:\"[^\"\n]*\"|'[^'\n]*')[ \t]+(?P<value>\d{1,7})\b")),
    (_PER_NODE, re.compile(rf"(?:--nproc_per_node|\bNPUS_PER_NODE|\bGPUS_PER_NODE|\bNPROC_PER_NODE){_VALUE}")),
    (_NODES, re.compile(rf"(?:--nnodes|\bNNODES){_VALUE}")),
)


class Devices(Record):
    """The devices of a job."""

    npus: int | None  # how many; None for as many as the config's keys tell or its split needs
    source: Message  # what says so


def devices_of(source: SourceFile, dialect: Dialect, asked: int | None, path: Path) -> Devices:
    """The devices of a config's job; for the packaged model and one that is named the same rule."""
    if asked is not None:
        return Devices(asked, msg("stages.devices.option"))
    if dialect is Dialect.MINDFORMERS or named_shards(source):
        return Devices(None, msg("stages.devices.config"))
    comment = _COMMENT.search(source.text[:_HEAD])
    if comment and int(comment[1]):
        return Devices(int(comment[1]), msg("stages.devices.comment"))
    for script in _scripts_beside(path):
        count = _size_in(script, path.name)
        if count:
            return Devices(count, msg("stages.devices.script", file=script.name))
    return Devices(None, msg("stages.devices.fewest"))


def _scripts_beside(path: Path) -> list[Path]:
    try:
        found = sorted(path.absolute().parent.glob("*.sh"))[:_MOST_SCRIPTS]
        return [one for one in found if one.is_file() and one.stat().st_size <= _MOST_BYTES]
    except OSError:
        return []


def _size_in(script: Path, config: str) -> int | None:
    """The devices that a script starts a config on; None if it does not name the config, or no number."""
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    text = "\n".join(lines)
    if config not in text:
        return None
    found: dict[str, int] = {}
    for name, pattern in _SIZES:
        match = pattern.search(text)
        if match and name not in found:
            found[name] = int(match["value"])
    if "whole" in found:
        return found["whole"]
    return found[_PER_NODE] * found.get(_NODES, 1) if _PER_NODE in found else None


def outside_of(request: DryrunRequest | CommandRequest) -> UntracedNeeds:
    """What no trace of a simulated run shows."""
    size = os.environ.get("HCCL_BUFFSIZE", "")
    return UntracedNeeds(
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
    return limit, _reserved_bytes(request, limit, run.split if run.world_size > 1 else None)


def limit_of_script(request: DryrunRequest, split: Split) -> tuple[Limit, int]:
    """The same for a program whose arguments name no limit.

    Raises:
        UsageError: There is no such device.
    """
    limit = limit_of(device_of(request.chip, request.device_bytes))
    return limit, _reserved_bytes(request, limit, split if split.communicators > 1 else None)


def _reserved_bytes(request: DryrunRequest, limit: Limit, split: Split | None) -> int:
    outside = outside_of(request)
    if split is not None:
        outside = outside._replace(communicators=split.communicators, counted=False)
    return sum(item.bytes for item in reserve_of(outside, limit))
