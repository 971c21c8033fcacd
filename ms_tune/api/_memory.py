"""Where the memory of a run went, and what it could be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ms_tune.footprint.remedies import Method
    from ms_tune.footprint.request import MemoryRequest
    from ms_tune.footprint.result import MemoryReport
    from ms_tune.footprint.torch_lives import TorchLives
    from ms_tune.footprint.torch_report import PlaceChange, TorchRemedy, TorchReport
    from ms_tune.memory.diff import Comparison
    from ms_tune.memory.plan import MemLogAnalysis, PlanReport
    from ms_tune.memory.request import PlanRequest, TorchWhatIfRequest, WhatIfRequest
    from ms_tune.memory.what_if import TorchWhatIf, WhatIfReport
    from ms_tune.packing.plan import PackingProgress
    from ms_tune.readers.oom_log import MemoryFailure
    from ms_tune.text import Message


def memory(
    run: str | Path,
    *,
    request: MemoryRequest | None = None,
    on_bytes: Callable[[int, int], None] = lambda _done, _all: None,
) -> MemoryReport:
    """Where the memory of a run went, from the files that its memory tracker wrote.

    Args:
        run: A ``memory_block.csv``, its folder, or a folder of ranks.
        request: Which ranks to look at, and how closely.
        on_bytes: Told the bytes read so far, and the bytes of all files.

    Raises:
        TraceError: There is no trace, or it cannot be read.
        MissingExtraError: The extra ``report`` is not installed.

    Example::

        worst = api.memory("run/").worst
        print(worst.curve.peak_bytes, {content.value: size for content, size in worst.peak.contents.items()})
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune memory", "report", "numpy")
    from ms_tune.footprint.report import analyse_run  # noqa: PLC0415 - start-up time
    from ms_tune.footprint.request import MemoryRequest  # noqa: PLC0415 - as above

    return analyse_run(Path(run), request or MemoryRequest(), on_bytes)


def memory_diff(before: MemoryReport, after: MemoryReport) -> Comparison:
    """What two runs have, one more than the other.

    Args:
        before: What :func:`memory` says about the first.
        after: What it says about the second.

    Example::

        changes = api.memory_diff(api.memory("run-1/"), api.memory("run-2/")).ranks[0].changes
    """
    from ms_tune.memory.diff import compare_reports  # noqa: PLC0415 - start-up time

    return compare_reports(before, after)


def memory_what_if(
    run: str | Path,
    *,
    request: WhatIfRequest | None = None,
    on_progress: Callable[[Message, float], None] = lambda _what, _share: None,
) -> WhatIfReport:
    """What a run's allocations would have taken of the device under other settings of MindSpore's pool.

    Args:
        run: A ``memory_block.csv``, its folder, or a folder above it.
        request: The rank, and what else to replay: less blocks, shared out or recomputed.
        on_progress: Told what is being done, and how much of it.

    Raises:
        TraceError: There is no trace, or it cannot be read.
        UsageError: There is no such rank, or nothing of what is to be left out.

    Example::

        best = api.memory_what_if("run/", request=WhatIfRequest(max_memory=32 * 2**30)).result.best
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune memory what-if", "report", "numpy")
    from ms_tune.memory.request import WhatIfRequest  # noqa: PLC0415 - start-up time
    from ms_tune.memory.what_if import replay_run  # noqa: PLC0415 - as above

    return replay_run(Path(run), request or WhatIfRequest(), on_progress)


def memory_plan(
    run: str | Path,
    *,
    request: PlanRequest | None = None,
    on_progress: Callable[[PackingProgress], None] = lambda _progress: None,
) -> PlanReport:
    """How low the blocks of a run, or of a placement problem, could lie; the plan is checked independently.

    Args:
        run: A trace, or a CSV file of blocks.
        request: The rank, the capacity and the time limit.
        on_progress: Told how far the planner is.

    Raises:
        TraceError: There is no trace, or the file cannot be read.
        UsageError: There is no such rank.

    Example::

        report = api.memory_plan("run/", request=PlanRequest(seconds=5))
        print(report.plan.height, report.plan.lower_bound, report.is_valid)
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune memory plan", "report", "numpy")
    from ms_tune.memory.plan import plan_blocks  # noqa: PLC0415 - start-up time
    from ms_tune.memory.request import PlanRequest  # noqa: PLC0415 - as above

    return plan_blocks(Path(run), request or PlanRequest(), on_progress)


def memory_import(
    file: str | Path,
    *,
    request: PlanRequest | None = None,
    npu: bool = False,
    stalloc: bool = False,
    on_progress: Callable[[PackingProgress], None] = lambda _progress: None,
) -> MemLogAnalysis:
    """What STAlloc's analysis says about a trace that STAlloc recorded, and how low its blocks could lie.

    Args:
        file: The trace.
        request: How to plan.
        npu: Whether torch_npu recorded it, which pads every block.
        stalloc: Whether a plan that STAlloc's allocator can serve a run by is wanted, too.
        on_progress: Told how far the planner is.

    Raises:
        TraceError: The file cannot be read, or no such plan can be made of it.

    Example::

        peak = api.memory_import("memlog.txt").report.peak
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune memory import-memlog", "report", "numpy")
    from ms_tune.memory.plan import analyse_memlog  # noqa: PLC0415 - start-up time
    from ms_tune.memory.request import PlanRequest  # noqa: PLC0415 - as above

    return analyse_memlog(Path(file), request or PlanRequest(), on_progress, npu=npu, stalloc=stalloc)


def memory_is_log(path: str | Path) -> bool:
    """Whether a path names a file that can only be a log: not a table, and not a snapshot.

    Args:
        path: The path.

    Example::

        if api.memory_is_log("run.log"):
            print(api.memory_failure("run.log").cause)
    """
    file = Path(path)
    return file.is_file() and file.suffix.lower() != ".csv" and not memory_is_snapshot(file)


def memory_failure(path: str | Path) -> MemoryFailure:
    """Why a run had no more memory, by its log.

    Args:
        path: The log.

    Raises:
        TraceError: The file cannot be read, or tells of no request that failed.

    Example::

        failure = api.memory_failure("run.log")
        print(failure.wanted, failure.cause)
    """
    from ms_tune.readers.oom_log import read_memory_failure  # noqa: PLC0415 - start-up time

    return read_memory_failure(Path(path))


def memory_first_remedies() -> tuple[Method, ...]:
    """The methods to need less memory that are worth a look before there is a trace.

    Example::

        print([method.name for method in api.memory_first_remedies()])
    """
    from ms_tune.footprint.remedies import load_methods  # noqa: PLC0415 - start-up time

    return tuple(method for method in load_methods() if method.early)


def memory_is_snapshot(path: str | Path) -> bool:
    """Whether a path names a snapshot of PyTorch's allocator, or what pretends to be one, by its first bytes or its name.

    Args:
        path: The path.

    Example::

        show = api.memory_snapshot if api.memory_is_snapshot("run") else api.memory
    """
    from ms_tune.readers.plain_pickle import is_snapshot  # noqa: PLC0415 - start-up time

    return is_snapshot(Path(path))


def memory_snapshot(
    path: str | Path,
    *,
    device: int | None = None,
    at: int | None = None,
    on_progress: Callable[[Message, float], None] = lambda _what, _share: None,
) -> TorchReport:
    """What a memory snapshot of PyTorch's or torch_npu's allocator tells.

    Args:
        path: What ``_dump_snapshot`` wrote, packed with gzip or not.
        device: The device's number; None for the one with the most events.
        at: The event after which memory is taken apart; None for the peak.
        on_progress: Told what is being done, and how much of it.

    Raises:
        TraceError: The file cannot be read, or is no snapshot.
        UsageError: It has no such device or event.

    Example::

        report = api.memory_snapshot("snapshot.pickle")
        print(report.peak_bytes, report.replay.differences)
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune memory", "report", "numpy")
    from ms_tune.footprint.torch_report import analyse_snapshot  # noqa: PLC0415 - start-up time

    return analyse_snapshot(Path(path), device, at, on_progress)


def memory_snapshot_what_if(
    path: str | Path,
    *,
    request: TorchWhatIfRequest | None = None,
    on_progress: Callable[[Message, float], None] = lambda _what, _share: None,
) -> TorchWhatIf:
    """What the allocations of a snapshot would have taken under other settings of PyTorch's allocator.

    Args:
        path: The snapshot.
        request: Which settings; without one, those that people try.
        on_progress: Told what is being done, and how much of it.

    Raises:
        TraceError: The file cannot be read, or its recording cannot be replayed exactly.
        UsageError: It has no such device.

    Example::

        result = api.memory_snapshot_what_if("snapshot.pickle")
        print([(one.settings.expandable, one.peak_bytes) for one in result.outcomes])
    """
    from ms_tune.extras import need  # noqa: PLC0415 - start-up time

    need("ms-tune memory what-if", "report", "numpy")
    from ms_tune.memory.request import TorchWhatIfRequest  # noqa: PLC0415 - start-up time
    from ms_tune.memory.what_if import replay_snapshot  # noqa: PLC0415 - start-up time

    return replay_snapshot(Path(path), request or TorchWhatIfRequest(), on_progress)


def memory_snapshot_diff(before: TorchReport, after: TorchReport) -> tuple[PlaceChange, ...]:
    """What the lines of the script hold at the peak of one snapshot more than at that of another.

    Args:
        before: What :func:`memory_snapshot` says about the first.
        after: What it says about the second.

    Example::

        changes = api.memory_snapshot_diff(api.memory_snapshot("a.pickle"), api.memory_snapshot("b.pickle"))
    """
    from ms_tune.footprint.torch_report import compare_snapshots  # noqa: PLC0415 - start-up time

    return compare_snapshots(before, after)


def memory_snapshot_remedies(report: TorchReport) -> tuple[TorchRemedy, ...]:
    """What would lower the peak of a snapshot, and by how much; nothing where its replay is not exact.

    Args:
        report: What :func:`memory_snapshot` says about it.

    Example::

        print([(remedy.name, remedy.bytes_freed) for remedy in api.memory_snapshot_remedies(report)])
    """
    from ms_tune.footprint.torch_report import torch_remedies  # noqa: PLC0415 - start-up time

    return torch_remedies(report)


def memory_snapshot_lives(report: TorchReport) -> TorchLives:
    """The blocks of a snapshot in columns, from allocation to release.

    Args:
        report: What :func:`memory_snapshot` says about it.

    Example::

        lives = api.memory_snapshot_lives(api.memory_snapshot("snapshot.pickle"))
        print(lives.size[lives.live(1000)].sum())
    """
    from ms_tune.footprint.torch_lives import lives_of_snapshot  # noqa: PLC0415 - start-up time

    return lives_of_snapshot(report)
