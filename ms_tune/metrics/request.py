"""What `metrics` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.metrics.work import Convention

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    """What the logs do not tell about the runs."""

    cards: int | None = None  # devices of a run
    batch: int | None = None  # samples of a step, of all cards; for logs that do not tell
    tokens: int | None = None  # tokens of a sample
    peak_tflops: float | None = None  # 10^12 floating-point operations a second that a device is able to do
    chip: str | None = None  # the device by name, for its peak
    config: Path | None = None  # the job's config, or its launch script: operations follow from its model
    version: str | None = None  # the framework's release, for the config
    convention: Convention = Convention.FULL  # how operations are counted
    baseline_cards: int | None = None  # devices of the run that is compared with, if not the same
    baseline_batch: int | None = None  # its samples of a step, if not the same
