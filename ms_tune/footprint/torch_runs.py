"""Compare the snapshots of a job's ranks, and a dry-run with the memory that a run of its job reserved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ms_tune.errors import MsTuneError, TraceError
from ms_tune.footprint.torch_report import TorchReport, analyse_snapshot
from ms_tune.readers.training_log import read_training_log
from ms_tune.records import Record
from ms_tune.text import Message, msg


class RankPeaks(Record):
    """The peaks of one rank of a job, each with a snapshot of its own."""

    rank: int
    path: Path
    peak_bytes: int = 0  # the most bytes in use; requested ones if the replay is not exact
    reserved_peak_bytes: int | None = None
    is_exact: bool = False
    error: MsTuneError | None = None  # why its snapshot cannot be read


def analyse_ranks(
    snapshots: Mapping[int, Path], device: int | None, at: int | None, on_progress: Callable[[Message, float], None]
) -> tuple[TorchReport, tuple[RankPeaks, ...]]:
    """Read the snapshots of all ranks of a job; return the report on the one that reserves most, and the peaks of all."""
    worst, peaks = None, list[RankPeaks]()
    for rank, path in sorted(snapshots.items()):
        try:
            report = analyse_snapshot(path, device, at, on_progress)
        except TraceError as error:
            peaks.append(RankPeaks(rank, path, error=error))
            continue
        used = report.requested_peak_bytes if report.peak_bytes is None else report.peak_bytes
        peaks.append(RankPeaks(rank, path, used, report.reserved_peak_bytes, report.replay.is_exact))
        most = max(used, report.reserved_peak_bytes or 0)
        if worst is None or most > worst[0]:
            worst = most, report
    if worst is None:
        raise next(one.error for one in peaks if one.error is not None)
    return worst[1], tuple(peaks)


class Calibration(Record):
    """The memory of a dry-run, and that of a run of the same job."""

    logical_bytes: int  # the peak of the dry-run's tensors
    replayed_bytes: int  # reserved for them in the allocator's model
    measured_bytes: int  # reserved in the run

    @property
    def rest_bytes(self) -> int:
        """Return the bytes that the dry-run lacks: workspaces and other requests; negative if it has more."""
        return self.measured_bytes - self.replayed_bytes


def calibrate(dry_run: TorchReport, measured_bytes: int | None) -> Calibration | None:
    """Compare a dry-run with the bytes that a run reserved; None if one is unknown."""
    if not dry_run.simulated or dry_run.peak_bytes is None or dry_run.reserved_peak_bytes is None or not measured_bytes:
        return None
    return Calibration(dry_run.requested_peak_bytes, dry_run.reserved_peak_bytes, measured_bytes)


def read_reserved_bytes(log: Path) -> int:
    """Return the most memory that a training log's run reserved on a rank. Raises TraceError if no line states any."""
    found = [
        one.max_reserved
        for run in read_training_log(log).runs
        for one in (*run.memory.values(), *(memory for steps in run.ranks for memory in steps.memory))
    ]
    if not any(found):
        raise TraceError(msg("snapshot.diff.no-reserved"), msg("snapshot.diff.no-reserved.hint"), path=log)
    return max(found)
