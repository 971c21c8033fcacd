"""A snapshot of PyTorch's or torch_npu's allocator replayed under the settings that people try."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ms_tune.errors import TraceError, UsageError
from ms_tune.footprint.torch_report import analyse_snapshot
from ms_tune.pools.torch_what_if import Cache, TorchOutcome, outcome_of, with_segments
from ms_tune.text import msg
from ms_tune.units import MIB

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ms_tune.footprint.torch_report import TorchReport
    from ms_tune.memory.request import TorchWhatIfRequest
    from ms_tune.pools.torch_settings import TorchSettings
    from ms_tune.text import Message


_SPLITS = (64 * MIB, 128 * MIB, 256 * MIB)  # tried where nobody names one
_COLLECT = 0.8  # the threshold of PyTorch's own notes


@dataclass(frozen=True, slots=True)
class TorchWhatIf:
    """A recording under several settings."""

    report: TorchReport  # the recording
    # The recorded setting first, replayed like the others, so that its distance from the recording shows the error of a
    # start that is allocated again.
    outcomes: tuple[TorchOutcome, ...]
    limit: int | None  # bytes that the allocator may take; None: no limit
    error_bytes: int  # how far the replay of the recorded setting, without a limit, is from the recording at the peak

    @property
    def is_over_limit(self) -> bool:
        """Whether what is asked for, or else the best of all, is over the limit."""
        asked = [one for one in self.outcomes if not one.recorded] or list(self.outcomes)
        return all(one.over for one in asked)


def replay_snapshot(
    path: Path, request: TorchWhatIfRequest, on_progress: Callable[[Message, float], None]
) -> TorchWhatIf:
    """Replay a snapshot under other settings.

    Args:
        path: The file.
        request: Which ones; where it names none, those that people try.
        on_progress: Told what is being done, and how much of it.

    Raises:
        TraceError: The file cannot be read, or its recording cannot be replayed exactly.
        UsageError: There is no such device, no limit for a share of it, or nothing tells where steps end.
    """
    if request.collect_above is not None and request.limit is None:
        raise UsageError(msg("snapshot.no-limit"), msg("snapshot.no-limit.hint"))
    report = analyse_snapshot(path, request.device, None, on_progress)
    reason = report.refused_because
    if reason is not None:
        raise TraceError(msg("snapshot.refused", reason=reason), msg("snapshot.refused.hint"), path=path)
    if request.empty_each_step and not report.step_ends:
        raise UsageError(msg("snapshot.no-steps"), msg("snapshot.no-steps.hint"))
    recorded = report.replay.settings
    tried = [(recorded, Cache.AS_RECORDED), *_settings_to_try(request, recorded, steps=bool(report.step_ends))]
    outcomes = []
    for number, (settings, cache) in enumerate(tried):
        on_progress(msg("snapshot.progress.what-if"), number / len(tried))
        limited = replace(settings, total=request.limit)
        found = outcome_of(report.recording, limited, cache, recorded=not number)
        outcomes.append(found)
    plain = outcomes[0]
    if request.limit is not None:
        plain = outcome_of(report.recording, recorded, Cache.AS_RECORDED, recorded=True)
    error = plain.peak_bytes - (report.reserved_peak_bytes or 0)
    return TorchWhatIf(report, tuple(outcomes), request.limit, error)


def _settings_to_try(
    request: TorchWhatIfRequest, recorded: TorchSettings, *, steps: bool
) -> list[tuple[TorchSettings, Cache]]:
    if request.names_settings:
        settings = recorded
        if request.expandable is not None and request.expandable is not recorded.expandable:
            settings = with_segments(settings, expandable=request.expandable)
        if request.max_split is not None:
            settings = replace(settings, max_split=request.max_split)
        if request.roundup is not None:
            settings = replace(settings, roundup=(request.roundup,))
        settings = replace(settings, collect_above=request.collect_above)
        each_step = Cache.EMPTIED_EACH_STEP if request.empty_each_step else Cache.AS_RECORDED
        return [(settings, Cache.KEPT if request.keep_cache else each_step)]
    classic = with_segments(recorded, expandable=False)
    other = classic if recorded.expandable else with_segments(recorded, expandable=True)
    found = [(other, Cache.AS_RECORDED)]
    found += [(replace(classic, max_split=limit), Cache.AS_RECORDED) for limit in _SPLITS]
    if request.limit is not None:
        found.append((replace(recorded, collect_above=_COLLECT), Cache.AS_RECORDED))
    if steps:
        found.append((recorded, Cache.EMPTIED_EACH_STEP))
    return found
