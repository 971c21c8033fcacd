"""What `metrics` is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ms_tune.performance.work import Convention

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class MetricsRequest:
    """What the logs do not tell about the runs.

    Attributes:
        cards: Devices of a run.
        batch: Samples of a step, of all cards; for logs that do not tell.
        tokens: Tokens of a sample.
        peak_tflops: 10^12 floating-point operations a second that a device is able to do.
        chip: The device by name, for its peak.
        config: The job's config, or its launch script: operations follow from its model.
        version: The framework's release, for the config.
        convention: How operations are counted.
        baseline_cards: Devices of the run that is compared with, if not the same.
        baseline_batch: Its samples of a step, if not the same.
    """

    cards: int | None = None
    batch: int | None = None
    tokens: int | None = None
    peak_tflops: float | None = None
    chip: str | None = None
    config: Path | None = None
    version: str | None = None
    convention: Convention = Convention.FULL
    baseline_cards: int | None = None
    baseline_batch: int | None = None
