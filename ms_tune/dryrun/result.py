"""What a simulated run found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ms_tune.dryrun.cann_sim.environment import Backend
    from ms_tune.dryrun.device import MemoryLimit
    from ms_tune.dryrun.request import PreparedRun
    from ms_tune.memory.attribution import Attribution
    from ms_tune.memory.timeline import Peak
    from ms_tune.texts import Message


class Verdict(str, Enum):
    """Whether the peak stays below the device's limit."""

    FITS = "fits"
    DOES_NOT_FIT = "does-not-fit"


@dataclass(frozen=True, slots=True)
class DryrunResult:
    """A finished run, read and judged.

    Attributes:
        folder: Where the run is kept.
        trace: The tracker's ``memory_block.csv`` in it.
        backend: What the Ascend back end was loaded with.
        mindspore: MindSpore's version.
        mindformers: MindFormers' version, if it built the model.
        run: What was run.
        peak: The moment of most memory.
        attribution: What it was made of.
        limit: What it is compared with.
        verdict: Whether it fits.
        seconds: Time of the simulated process.
        not_included: What the figures leave out.
        warnings: What makes the figures less certain than they look.
    """

    folder: Path
    trace: Path
    backend: Backend
    mindspore: str
    mindformers: str | None
    run: PreparedRun
    peak: Peak
    attribution: Attribution
    limit: MemoryLimit
    verdict: Verdict
    seconds: float
    not_included: tuple[Message, ...]
    warnings: tuple[Message, ...]
