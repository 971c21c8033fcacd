"""Judge a trace: give the same verdict as ``dryrun`` for a trace of its run, by the rules that every command uses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ms_tune.errors import UsageError
from ms_tune.facts.devices import pool_of
from ms_tune.footprint.curve import Curve
from ms_tune.footprint.layers import find_operator
from ms_tune.readers.folder import RankFiles
from ms_tune.readers.runtime_log import SIMULATED_MIB, WORLD, CommunicationOrder, MemoryStatistics, RuntimeLog
from ms_tune.readers.table import Table
from ms_tune.readers.tensors import SizeOverflow
from ms_tune.records import Record
from ms_tune.text import Message, msg
from ms_tune.units import MIB, gib
from ms_tune.verdict.limit import Cap, Device, Limit, device_of, limit_of
from ms_tune.verdict.outcome import Need, UntracedNeeds, Verdict, judge
from ms_tune.verdict.run_record import FILE, RankRecord, RunRecord, from_json

_LEVELS = 6  # how many folders above a trace the folder of its run can be
_MAX_RECORD_BYTES = 4 * MIB  # largest record file of a run that is read


class VerdictTerms(Record):
    """The terms by which one rank is judged."""

    limit: Limit  # the usable memory
    # Its source: `user` (a size), `device` (named by the user), `run` (kept by dryrun), `log`, or `assumed`.
    limit_by: str
    outside: UntracedNeeds  # needs outside the trace
    record: RankRecord | None  # the record of its run
    doubt: Message | None  # why there can be no verdict
    folder: Path | None = None  # the folder of its run, if `dryrun` wrote it
    later: tuple[int, int] = (0, 0)  # peak and reserved bytes of its second step
    variable: str = ""  # the environment variable of PyTorch's allocator, of a dry-run of PyTorch

    @property
    def sample(self) -> tuple[int, int] | None:
        """Return the number of layers of the sample run and of the whole stage; None if the whole stage was run."""
        if self.record is None or self.record.run_layers is None:
            return None
        return self.record.run_layers, self.record.stage_layers

    @property
    def stage_layers(self) -> tuple[int, tuple[int, ...]] | None:
        """Return the number of layers of the stage and of the runs from which it was extrapolated; None if it was run."""
        if self.record is None or not self.record.stage_runs:
            return None
        return self.record.stage_layers, tuple(run.layers for run in self.record.stage_runs)


def find_run_record(trace: Path) -> tuple[RunRecord, list[str], Path | None]:
    """Return the record of the trace's run, the trace's folders within the run, the deepest first, and the run folder.

    All are empty if ``dryrun`` did not write the trace.
    """
    at = trace.absolute().parent
    for _ in range(_LEVELS):
        file = at / FILE
        try:
            if file.is_file() and file.stat().st_size <= _MAX_RECORD_BYTES:
                run = from_json(json.loads(file.read_bytes()))
                below = trace.absolute().parent.relative_to(at).parts
                return run, ["/".join(below[:count]) for count in range(len(below), 0, -1)], at
        except (OSError, ValueError, RecursionError):
            pass
        at = at.parent
    return RunRecord(), [], None


def is_simulated(statistics: MemoryStatistics) -> bool:
    """Return whether a log is of a simulation, whose device has exactly 64 GiB; real devices report less."""
    return statistics.device_mib == SIMULATED_MIB


def apply_program_cap(statistics: MemoryStatistics, requested_bytes: int | None) -> MemoryStatistics:
    """Return the statistics of a simulation with the ``max_device_memory`` of its program, which it may have ignored."""
    if requested_bytes is None or not is_simulated(statistics):
        return statistics
    return replace(statistics, used_mib=requested_bytes // MIB)


def read_cap(statistics: MemoryStatistics) -> int | None:
    """Return the ``max_device_memory`` of a simulated run in bytes; None if it was not set."""
    default = pool_of(statistics.device_mib * MIB) // MIB
    return None if statistics.used_mib == default else statistics.used_mib * MIB


def list_communicators(
    order: CommunicationOrder | None, log: RuntimeLog | None, rank: int | None
) -> dict[str, int] | None:
    """Return the communicators of a rank, including its world's, with their numbers of ranks; None if unknown.

    HCCL creates one for each group name, whether it is used or not: a pipeline stage sends by another group than it
    receives by, even if both have the same ranks. A group of one rank has no communicator. The log shows which are
    created; without MindSpore's warnings in it, only the used ones (``order``) are known.
    """
    used = {one.group: len(one.ranks) for one in order.collectives if len(one.ranks) > 1} if order is not None else {}
    processes = log.processes if log is not None else ()
    made = [one.ranks_by_group for one in processes if one.rank == rank] or [one.ranks_by_group for one in processes]
    if not made:
        return None if order is None else {WORLD: used.get(WORLD, 0), **used} if used else {}
    most = max(made, key=len)
    return {**most, **used}


def collect_terms(
    files: RankFiles, log: RuntimeLog | None, order: CommunicationOrder | None, asked: JudgedRequest, most: int | None
) -> VerdictTerms:
    """Return the terms of a trace: from the command line, then from the record of its run, then from its log.

    ``most`` is the user's limit of the pool, regardless of the device.
    """
    run, names, folder = find_run_record(files.blocks)
    record, doubt = run.rank_of(names), run.doubt_about(names)
    statistics = log.statistics if log is not None else None
    real = statistics is not None and bool(statistics.used_mib) and not is_simulated(statistics)
    found = run.outside._replace(simulated=not real).with_groups(list_communicators(order, log, files.rank))
    outside = record.outside if record else found
    if asked.reserve_bytes is not None:
        outside = outside._replace(reserve_bytes=asked.reserve_bytes)
    used = apply_program_cap(statistics, run.find_cap(names)) if statistics and statistics.used_mib else None
    named = asked.names_device
    device = device_of(asked.chip, asked.device_bytes) if named else device_of(run.chip, run.card_bytes)
    cap, by, limit_by = None, Cap.SCRIPT, "device" if named else "assumed"
    if most is not None:
        cap, by, limit_by = most, Cap.USER, "user"
    elif record is not None:
        cap, by, limit_by = record.cap_bytes, record.cap, "device" if named else "run"
    elif used is not None and is_simulated(used):
        cap = read_cap(used)
        limit_by = "log" if cap is not None else limit_by
    elif used is not None and not named:
        size = used.device_mib * MIB
        device = Device(size, size, msg("verdict.limit.log"))
        cap, by, limit_by = used.used_mib * MIB, Cap.LOG, "log"
    try:
        limit = limit_of(device, cap, by)
    except UsageError as error:
        limit, doubt = limit_of(device), doubt or error.message
    return VerdictTerms(limit, limit_by, outside, record, doubt, folder)


def list_doubts(
    table: Table, curve: Curve, log: RuntimeLog | None, overflow: SizeOverflow | None, card_bytes: int
) -> Iterator[Message]:
    """Yield the reasons why no verdict on a trace is possible."""
    if overflow is not None:
        yield msg("verdict.none.uncountable", operator=overflow.operator or "?", tensor=overflow.tensor)
    if not curve.peak_bytes:
        yield msg("verdict.none.empty")
    if (log is not None and log.cut_off) or table.truncated:
        yield msg("verdict.none.cut")
    statistics = log.statistics if log is not None else None
    if statistics is not None and statistics.peak_mib != curve.peak_bytes // MIB:
        kind = "log" if statistics.peak_mib else "own-pool"
        yield msg(f"verdict.none.{kind}", trace=f"{curve.peak_bytes // MIB:,}", log=f"{statistics.peak_mib:,}")
    if table.dropped_count:
        yield msg("verdict.none.dropped", rows=table.dropped_count)
    if len(table) and int(table.size.max()) > card_bytes:
        row = int(table.size.argmax())
        size = gib(int(table.size[row]))
        yield msg("verdict.none.block", operator=find_operator(table, row) or "?", size=size, card=gib(card_bytes))


def judge_trace(
    terms: VerdictTerms, table: Table, curve: Curve, log: RuntimeLog | None, overflow: SizeOverflow | None
) -> Verdict:
    """Return the verdict on a trace, or on the whole stage of its sample run."""
    doubts = [] if terms.doubt is None else [terms.doubt]
    doubts += list_doubts(table, curve, log, overflow, terms.limit.device.card_bytes)
    need = Need.of_trace(curve.peak_bytes, curve.footprint_bytes)
    if terms.outside.torch:
        setting = f"{terms.variable}=expandable_segments:True"
        later_peak, later_reserved = terms.later
        peak, reserved = max(curve.peak_bytes, later_peak), max(curve.footprint_bytes, later_reserved)
        need = Need.of_dry_run(peak, reserved, setting)
    record = terms.record
    if record is not None and record.run_layers is not None:
        if record.stage_need is None:
            doubts.append(msg("verdict.none.whole", layers=record.run_layers, full=record.stage_layers))
        need = record.stage_need or need
    return judge(need, terms.limit, terms.outside, doubts)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRequest:
    """The terms of a verdict that the user sets.

    Attributes:
        chip: The device's name.
        device_bytes: The device's memory as sold.
        reserve_bytes: Memory to reserve in addition to the known needs; None for that of the run.
        measured_bytes: Bytes that a run of the same job reserved beyond its dry-run; None if not measured.
    """

    chip: str | None = None
    device_bytes: int | None = None
    reserve_bytes: int | None = None
    measured_bytes: int | None = None

    @property
    def names_device(self) -> bool:
        """Return whether the user names a device."""
        return self.chip is not None or self.device_bytes is not None
